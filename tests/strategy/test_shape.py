"""Shapes read from configs have the parameters that their models have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.strategy.shape import ShapeError, mismatch, of_config

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MIXTRAL = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "vocab_size": 129280,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "kv_lora_rank": 512, "num_key_value_heads": 128, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}


@pytest.mark.parametrize(
    ("name", "fields", "parameters"),
    [
        ("MixtralForCausalLM", MIXTRAL, 46.7e9),
        ("DeepseekV3ForCausalLM", DEEPSEEK, 671e9),
        ("GPT2LMHeadModel", GPT2, 124e6),
        ("LlamaForCausalLM", json.loads((EXAMPLES / "llama3-8b.json").read_text()), 8.03e9),
        ("LlamaForCausalLM", json.loads((EXAMPLES / "llama3-405b.json").read_text()), 405.9e9),
    ],
)
def test_parameters_are_those_of_the_model(
    name: str, fields: dict[str, Any], parameters: float
) -> None:
    assert of_config(fields, name).model.parameters == pytest.approx(parameters, rel=0.02)


def test_tokens_and_dtype_are_those_of_the_config() -> None:
    shape = of_config(MIXTRAL, "MixtralForCausalLM")
    assert (shape.model.seq, shape.dtype) == (32768, "bfloat16")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": 64}, "num_hidden_layers"),
        ({**MIXTRAL, "num_decoder_layers": 2}, "num_decoder_layers"),
        ({**GPT2, "state_size": 16}, "state_size"),
    ],
)
def test_what_has_no_shape_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        of_config(fields, "LlamaForCausalLM")


def test_a_shape_that_misses_parameters_is_said() -> None:
    model = of_config(GPT2, "GPT2LMHeadModel").model
    assert not mismatch(model, round(model.parameters))
    assert "accounts for" in mismatch(model, 2 * round(model.parameters))
