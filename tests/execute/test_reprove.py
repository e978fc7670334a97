"""Emitted patches, captured again on each rank, are proved; wrong ones are not."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthesis.execute.reprove import reprove

from synthesis.emit import emit
from synthesis.emit.patch import patch as make_patch
from synthesis.execute import ExecuteError, collect_facts
from synthesis.plan import ModulePlan, Plan
from verifier.frontend.request import CaptureRequest, InputSpec
from verifier.ir.types import Mesh
from verifier.verdict import Counterexample, Proof

_place = Path(__file__).parents[1] / "emit" / "models.py"
_spec = importlib.util.spec_from_file_location("emit_models", _place)
assert _spec
assert _spec.loader
models = importlib.util.module_from_spec(_spec)
sys.modules["emit_models"] = models
_spec.loader.exec_module(models)

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

L = "model.layers.*."


@pytest.fixture
def block(tmp_path: Path) -> tuple[CaptureRequest, Plan, Any]:
    path = tmp_path / "block.py"
    path.write_text(models.SOURCE)
    inputs = (InputSpec("x", (4, 4, 8)),)
    request = CaptureRequest(f"{path}:Attention", {"n": 8, "heads": 4}, inputs=inputs)
    plan = models.plan(str(path))
    return request, plan, emit(collect_facts(request), plan, tmp_path)


def edited(block: Any, old: str, new: str) -> Any:
    """The verdict on the block with one text of its patch replaced."""
    request, plan, patch = block
    before, after = patch.files["block.py"]
    assert old in after
    files = {"block.py": (before, after.replace(old, new))}
    return reprove(request, make_patch(files, patch.obligations, patch.entry), plan)


def test_block_with_fused_heads_is_proved(block: Any) -> None:
    request, plan, patch = block
    verdict = reprove(request, patch, plan)
    assert isinstance(verdict, Proof), verdict
    assert verdict.stats["outputs"] == 5  # the output and four gradients


def test_heads_split_in_the_wrong_order_are_refuted(block: Any) -> None:
    verdict = edited(block, "split_factor=parts", "split_factor=1")
    assert isinstance(verdict, Counterexample)


def test_bias_added_on_every_rank_is_refuted(block: Any) -> None:
    verdict = edited(block, "return self.out(", "return self.out.bias.to_local() + self.out(")
    assert isinstance(verdict, Counterexample)
    assert "output:output" in verdict.wrong_outputs


def test_ranks_that_run_different_programs_are_not_joined(block: Any) -> None:
    factor = "(1 + self.out.weight.device_mesh.get_local_rank()) * "
    with pytest.raises(ExecuteError, match="ranks"):
        edited(block, "return self.out(", f"return {factor}self.out(")


def test_llama_with_vocabulary_parallel_loss_is_proved(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "max_position_embeddings": 64,
    }
    request = CaptureRequest("hf:LlamaForCausalLM", sizes, batch=2, seq=8)
    modules = [ModulePlan("model.embed_tokens", "Embedding", "vocab")]
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "column", "R", "S(-1)"))
    for name in ("self_attn.o", "mlp.down"):
        modules.append(ModulePlan(f"{L}{name}_proj", "Linear", "row", "S(-1)", "R"))
    modules.append(ModulePlan("lm_head", "Linear", "column", "R", "S(-1)"))
    plan = Plan(Mesh.of(tp=2), tp="tp", loss_parallel=True, modules=tuple(modules))
    patch = emit(collect_facts(request), plan, tmp_path)
    verdict = reprove(request, patch, plan)
    assert isinstance(verdict, Proof), verdict
    assert verdict.assumptions == ("Every label names a class or is -100.",)
    path, (old, new) = next(iter(patch.files.items()))
    wrong = new.replace("tp.get_local_rank() * vocab", "0 * vocab")
    assert wrong != new
    broken = make_patch({path: (old, wrong)}, patch.obligations, patch.entry)
    verdict = reprove(request, replace(broken, function=patch.function), plan)
    assert isinstance(verdict, Counterexample)
