"""Emitted patches run on gloo processes and equal one process; wrong ones do not."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.pipeline.patch_run import execute
from shardproof.synthesis.emit import Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.verifier.kernel.program.types import Mesh

_place = Path(__file__).parents[1] / "emit" / "models.py"
_spec = importlib.util.spec_from_file_location("emit_models", _place)
assert _spec
assert _spec.loader
models = importlib.util.module_from_spec(_spec)
sys.modules["emit_models"] = models
_spec.loader.exec_module(models)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gloo,
    pytest.mark.slow,
    pytest.mark.xdist_group("gloo"),
]

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
L = "model.layers.*."


def hf(name: str, **config: Any) -> CaptureRequest:
    inputs = tuple(InputSpec(name, (4, 8), "i64", 64) for name in ("input_ids", "labels"))
    return CaptureRequest(f"hf:{name}", {**SIZES, **config}, inputs=inputs)


def llama(sequence: bool = False, loss: bool = False) -> tuple[ModulePlan, ...]:
    x = "S(1)" if sequence else "R"
    norms = ("input_layernorm", "post_attention_layernorm")
    modules = [ModulePlan("model.embed_tokens", "Embedding", "vocab", "R", x)]
    if sequence:
        modules += [ModulePlan(L + n, "LlamaRMSNorm", "sequence", x, x) for n in norms]
        modules.append(ModulePlan("model.norm", "LlamaRMSNorm", "sequence", x, x))
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "column", x, "S(-1)"))
    for name in ("self_attn.o", "mlp.down"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "row", "S(-1)", x))
    modules.append(ModulePlan("lm_head", "Linear", "column", x, "S(-1)" if loss else "R"))
    return tuple(modules)


@pytest.fixture
def block(tmp_path: Path) -> tuple[CaptureRequest, Plan]:
    path = tmp_path / "block.py"
    path.write_text(models.SOURCE)
    inputs = (InputSpec("x", (4, 4, 8)),)
    request = CaptureRequest(f"{path}:Attention", {"n": 8, "heads": 4}, inputs=inputs)
    return request, models.plan(str(path))


def test_user_file_without_loss_equals_one_process(block: Any, tmp_path: Path) -> None:
    request, plan = block
    plan = replace(plan, mesh=Mesh.of(dp=2, tp=2), dp="dp", data="fsdp")
    patch = emit(collect_facts(request), plan, tmp_path)
    result = execute(request, patch, plan, seeds=(0,))
    assert result.agrees
    assert result.ranks == 4
    names = {d.name for d in result.differences if d.kind == "gradient"}
    assert names == {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}


def broken(block: Any, folder: Path, old: str, new: str) -> tuple[CaptureRequest, Patch, Plan]:
    """The patch of the block with one text in it replaced."""
    request, plan = block
    patch = emit(collect_facts(request), plan, folder, inline=True)
    before, after = patch.files["block.py"]
    assert old in after
    files = {"block.py": (before, after.replace(old, new))}
    return request, make_patch(files, patch.obligations, patch.entry), plan


def test_heads_split_in_the_wrong_order_are_found(block: Any, tmp_path: Path) -> None:
    wrong = broken(block, tmp_path, "split_factor=parts", "split_factor=1")
    assert execute(*wrong, seeds=(0,)).largest > 1e-2


def test_bias_added_on_every_rank_is_found(block: Any, tmp_path: Path) -> None:
    wrong = broken(
        block, tmp_path, "return self.out(", "return self.out.bias.to_local() + self.out("
    )
    result = execute(*wrong, seeds=(0,))
    assert max(d.relative for d in result.differences if d.kind == "output") > 1e-2


def test_a_rank_that_raises_ends_the_run_with_its_message(block: Any, tmp_path: Path) -> None:
    wrong = broken(block, tmp_path, "    return model\n", "    raise RuntimeError('no mesh')\n")
    failed = execute(*wrong, seeds=(0,)).failed
    assert failed is not None
    assert (failed.message, failed.stage) == ("no mesh", "build")
    assert failed.text == "raise RuntimeError('no mesh')"


def test_a_run_that_hangs_is_killed(block: Any, tmp_path: Path) -> None:
    wrong = broken(block, tmp_path, "    return model\n", "    while True:\n        pass\n")
    failed = execute(*wrong, seconds=8).failed
    assert failed is not None
    assert (failed.message, failed.stage) == ("it does not end", "stuck")


@pytest.mark.hf
def test_llama_with_sequence_and_loss_parallel_equals_one_process() -> None:
    request = hf("LlamaForCausalLM")
    plan = Plan(
        Mesh.of(dp=2, tp=2),
        tp="tp",
        dp="dp",
        data="fsdp",
        sequence_parallel=True,
        loss_parallel=True,
        modules=llama(sequence=True, loss=True),
    )
    patch = emit(collect_facts(request), plan)
    text = patch.files["parallel_llama.py"][1]
    assert text.count("PrepareModuleInput(") == 3
    result = execute(request, patch, plan, seeds=(0,))
    assert result.agrees
    assert len(result.differences) == 23


@pytest.mark.hf
def test_qwen_with_tied_embeddings_and_shared_kv_heads_equals_one_process() -> None:
    modules = tuple(
        replace(m, style="kv_column", parts=2) if m.path.endswith(("k_proj", "v_proj")) else m
        for m in llama()
    )
    q_norm = ModulePlan(L + "self_attn.q_norm", "Qwen3RMSNorm", "sequence", "S(2)", "S(2)")
    plan = Plan(Mesh.of(tp=4), tp="tp", modules=(*modules, q_norm))
    request = hf("Qwen3ForCausalLM", tie_word_embeddings=True, head_dim=8)
    patch = emit(collect_facts(request), plan)
    text = patch.files["parallel_qwen3.py"][1]
    assert "model.lm_head.weight = model.model.embed_tokens.weight" in text
    assert "block.self_attn.num_key_value_groups = 1" in text
    assert '"model.layers.*.self_attn.k_norm": SequenceParallel(' in text
    result = execute(request, patch, plan, seeds=(0,))
    assert result.agrees
