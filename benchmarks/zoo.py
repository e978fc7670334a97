"""`python -m benchmarks.zoo [NAME ...]`: how far small transformers models of every kind come.

Each class is built with the sizes below, planned for two ranks, proved, patched, and run on two
processes against one. A row says how it ended, and where it ended early, why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.parallelize import Job, Row, measure

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "embedding_size": 32,
    "embedding_dim": 32,
    "dim": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 4,
    "head_dim": 8,
    "d_kv": 8,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "d_ff": 64,
    "hidden_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "rotary_dim": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "state_size": 8,
    "time_step_rank": 4,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": 6,
}
"""Given to every model whose config has the field."""

MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "decoders": {
        "GPT2LMHeadModel": {},
        "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]]},
        "GPTNeoXForCausalLM": {},
        "GPTJForCausalLM": {},
        "GPTBigCodeForCausalLM": {},
        "CodeGenForCausalLM": {},
        "OPTForCausalLM": {},
        "BloomForCausalLM": {},
        "MptForCausalLM": {},
        "FalconForCausalLM": {"multi_query": False},
        "XGLMForCausalLM": {"attention_heads": 4},
        "BioGptForCausalLM": {},
        "PhiForCausalLM": {},
        "Phi3ForCausalLM": {},
        "LlamaForCausalLM": {},
        "MistralForCausalLM": {},
        "MinistralForCausalLM": {},
        "Qwen2ForCausalLM": {},
        "Qwen3ForCausalLM": {},
        "GemmaForCausalLM": {},
        "Gemma2ForCausalLM": {},
        "Gemma3ForCausalLM": {},
        "CohereForCausalLM": {},
        "Cohere2ForCausalLM": {},
        "OlmoForCausalLM": {},
        "Olmo2ForCausalLM": {},
        "Olmo3ForCausalLM": {},
        "StableLmForCausalLM": {},
        "Starcoder2ForCausalLM": {},
        "GraniteForCausalLM": {},
        "GlmForCausalLM": {},
        "Glm4ForCausalLM": {},
        "HeliumForCausalLM": {},
        "SmolLM3ForCausalLM": {},
        "Exaone4ForCausalLM": {},
        "Ernie4_5ForCausalLM": {},
        "SeedOssForCausalLM": {},
        "ArceeForCausalLM": {},
        "NemotronForCausalLM": {},
        "PersimmonForCausalLM": {},
        "ApertusForCausalLM": {},
        "DiffLlamaForCausalLM": {},
        "HunYuanDenseV1ForCausalLM": {},
    },
    "mixtures of experts": {
        "MixtralForCausalLM": {},
        "Qwen2MoeForCausalLM": {},
        "Qwen3MoeForCausalLM": {},
        "OlmoeForCausalLM": {},
        "PhimoeForCausalLM": {},
        "GraniteMoeForCausalLM": {},
        "GptOssForCausalLM": {},
        "DeepseekV2ForCausalLM": {"head_dim": 4, "num_key_value_heads": 4},
        "DeepseekV3ForCausalLM": {"head_dim": 4, "num_key_value_heads": 4},
        "Glm4MoeForCausalLM": {},
        "Dots1ForCausalLM": {"n_shared_experts": 1},
        "Ernie4_5_MoeForCausalLM": {},
        "FlexOlmoForCausalLM": {},
        "MiniMaxM2ForCausalLM": {},
    },
    "state spaces and recurrences": {
        "MambaForCausalLM": {},
        "Mamba2ForCausalLM": {"head_dim": 16, "num_heads": 4, "n_groups": 1},
        "FalconMambaForCausalLM": {},
        "JambaForCausalLM": {},
        "BambaForCausalLM": {"mamba_n_heads": 8, "mamba_d_head": 8},
        "RecurrentGemmaForCausalLM": {},
        "RwkvForCausalLM": {},
        "Lfm2ForCausalLM": {},
        "Qwen3NextForCausalLM": {},
    },
    "encoders": {
        "BertForMaskedLM": {},
        "BertForSequenceClassification": {},
        "RobertaForMaskedLM": {},
        "AlbertForMaskedLM": {},
        "DistilBertForMaskedLM": {},
        "ElectraForMaskedLM": {},
        "MPNetForMaskedLM": {},
        "DebertaV2ForMaskedLM": {},
        "ModernBertForMaskedLM": {},
        "RoFormerForMaskedLM": {},
        "ConvBertForMaskedLM": {},
        "EsmForMaskedLM": {},
    },
    "encoders and decoders": {
        "T5ForConditionalGeneration": {"decoder_start_token_id": 0},
        "UMT5ForConditionalGeneration": {"decoder_start_token_id": 0},
        "BartForConditionalGeneration": {},
        "MBartForConditionalGeneration": {},
        "PegasusForConditionalGeneration": {},
        "MarianMTModel": {},
        "M2M100ForConditionalGeneration": {},
        "BlenderbotForConditionalGeneration": {},
    },
    "vision": {
        "ViTForImageClassification": {},
        "DeiTForImageClassification": {},
        "Dinov2ForImageClassification": {},
        "BeitForImageClassification": {},
        "SwinForImageClassification": {
            "depths": [2],
            "num_heads": [4],
            "num_attention_heads": [4],
            "num_hidden_layers": 1,
            "num_layers": 1,
            "embed_dim": 32,
            "window_size": 2,
        },
        "ConvNextForImageClassification": {"depths": [1, 1], "hidden_sizes": [32, 64]},
    },
}


def fields(name: str) -> dict[str, Any]:
    """The config of a class: the sizes that it has fields for, then its own."""
    import transformers

    kind: Any = getattr(transformers, name).config_class
    known = {*kind().to_dict(), *kind.attribute_map}
    more = next(group[name] for group in MODELS.values() if name in group)
    return {**{k: v for k, v in SIZES.items() if k in known}, **more}


DEPTH = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layer",
    "n_layers",
)
"""Fields of configs that say how many blocks a model has."""


def job(name: str, mesh: str, run: bool, layers: int = 2) -> Job:
    sizes = fields(name)
    deep = {k: layers for k in DEPTH if k in sizes}
    items = tuple(f"{k}={json.dumps(v)}" for k, v in {**sizes, **deep}.items())
    options = ("--mesh", mesh, "--batch", "4", "--seq", "8", "--run" if run else "--no-run")
    return Job(name, f"hf:{name}", items, options)


def table(rows: dict[str, list[Row]]) -> str:
    """Markdown: one table a group, then how many came how far."""
    lines: list[str] = []
    for group, members in rows.items():
        passed = sum(r.code == 0 for r in members)
        lines += ["", f"### {group}: {passed} of {len(members)}", ""]
        lines += ["| model | verdict | what is split, or why not |", "|---|---|---|"]
        for row in members:
            why = (row.error or row.plan).replace("|", "\\|")
            lines.append(f"| {row.name} | {row.verdict} | {why} |")
    everything = [r for members in rows.values() for r in members]
    counts = Counter("proved and run" if r.code == 0 else r.verdict for r in everything)
    total = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    return "\n".join([*lines, "", f"{len(everything)} models: {total}."])


def main() -> int:
    """0 if no job ended refuted or with a crash: a refusal is an answer."""
    parser = argparse.ArgumentParser(prog="benchmarks.zoo")
    parser.add_argument("names", nargs="*", help="classes; all of them if none are named")
    parser.add_argument("--mesh", default="tp=2")
    parser.add_argument("--no-run", action="store_true", help="plan, prove and write, not run")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    parser.add_argument("--layers", type=int, default=2, help="from 3 on, blocks are rolled")
    given = parser.parse_args()
    rows: dict[str, list[Row]] = {}
    for group, members in MODELS.items():
        for name in members:
            if given.names and name not in given.names:
                continue
            row = measure(job(name, given.mesh, not given.no_run, given.layers))
            rows.setdefault(group, []).append(row)
            print(f"{name}: {row.verdict} in {row.total:.1f} s {row.error}", file=sys.stderr)
    print(table(rows))
    if given.json:
        data = {g: [vars_of(r) for r in members] for g, members in rows.items()}
        given.json.write_text(json.dumps(data, indent=1))
    return 0


def vars_of(row: Row) -> dict[str, Any]:
    return {"name": row.name, "verdict": row.verdict, "plan": row.plan, "why": row.error}


if __name__ == "__main__":
    sys.exit(main())
