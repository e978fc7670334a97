"""`--gpus`: a configuration is chosen, said, written and proved; bad options are one error."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from shardproof.agent.pipeline.finishing import BYTES, ENOUGH, small
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.plan import Plan
from shardproof.synthesis.strategy.check import refusal
from shardproof.verifier.kernel.program.types import Mesh
from tests.commands import ROOT, Command

LLAMA = ("hf:LlamaForCausalLM", "--config", str(ROOT / "examples" / "llama3-8b.json"))

SMALL = (
    "hf:LlamaForCausalLM",
    *("--config", "hidden_size=32", "--config", "intermediate_size=64"),
    *("--config", "num_hidden_layers=2", "--config", "num_attention_heads=4"),
    *("--config", "num_key_value_heads=2", "--config", "vocab_size=64"),
)


def test_a_model_of_a_file_is_chosen_for_and_proved(here: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = here(
        "parallelize", str(ROOT / "examples" / "nanogpt.py") + ":GPT", "--config", "n_layer=2",
        "--gpus", "2", "--out", str(out), "--no-run", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    chosen = next(e for e in done.events if e["event"] == "strategy")
    assert chosen["certified"]
    assert chosen["emitted"]["not_emitted"] == []
    assert done.last["verdict"] == "proved"
    written = json.loads((out / "strategy.json").read_text())
    assert refusal(written["certificate"]) == ""
    assert written["emitted"]["step_s"] == chosen["emitted"]["step_s"]
    assert "Training configuration" in (out / "report.html").read_text()
    step = json.loads((out / "timeline.json").read_text())["traceEvents"]
    assert {e["cat"] for e in step if e["ph"] == "X"} >= {"forward", "backward", "update"}
    told = next(e["estimates"] for e in done.events if e["event"] == "plan")
    share = told["comm_s"] / told["step_s"]
    assert f"{share:.0%} communication" in (out / "report.md").read_text()
    again = here("verify", str(out))
    assert again.code == 0
    assert "no plan of its space is faster" in again.err
    written["best"]["step_s"] *= 0.99
    (out / "strategy.json").write_text(json.dumps(written))
    manifest = json.loads((out / "manifest.json").read_text())
    digest = hashlib.sha256((out / "strategy.json").read_bytes()).hexdigest()
    manifest["files"]["strategy.json"] = digest
    (out / "manifest.json").write_text(json.dumps(manifest))
    forged = here("verify", str(out))
    assert forged.code == 1
    assert "its best plan is not that of its certificate" in forged.out + forged.err


@pytest.mark.parametrize("kept", ["selective", "full"])
def test_what_is_kept_for_backward_is_written_and_proved(
    here: Command, tmp_path: Path, kept: str
) -> None:
    """Blocks are computed again with the hooks of their styles, on what they were given: the first
    takes a sequence that is gathered."""
    out = tmp_path / "out"
    done = here(
        "parallelize", *SMALL, "--batch", "4", "--seq", "16", "--gpus", "4",
        "--fix", f"tp=2,zero=2,recompute={kept}", "--constrain", "sequence_parallel",
        "--out", str(out), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.last["verdict"] == "proved"
    plan = json.loads((out / "plan.json").read_text())
    assert (plan["zero"], plan["recompute"], plan["sequence_parallel"]) == (2, kept, True)
    assert "computed again" in (out / "report.md").read_text()
    diff = (out / "patch.diff").read_text()
    assert ("create_selective_checkpoint_contexts" in diff) == (kept == "selective")
    assert diff.index("_composable.checkpoint") < diff.index("parallelize_module(model")
    assert diff.count("reshard_after_forward=False") == 2
    (out / "plan.json").write_text(json.dumps({**plan, "zero": 3}))
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["files"]["plan.json"] = hashlib.sha256((out / "plan.json").read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    forged = here("verify", str(out))
    assert forged.code == 1
    assert "it says zero=3" in forged.out + forged.err


def test_a_whole_step_is_chosen_for_and_proved_on_stages(here: Command) -> None:
    nanogpt = str(ROOT / "examples" / "nanogpt.py") + ":GPT"
    done = here("step", nanogpt, "--gpus", "4", "--fix", "pp=2,schedule=1f1b", "--json")
    assert done.code == 0, done.err
    chosen = next(e for e in done.events if e["event"] == "strategy")
    plan = chosen["emitted"]["plan"]
    assert (plan["pp"], plan["cp"], plan["ep"]) == (2, 1, 1)
    assert any(line.startswith("whole step: ") for line in chosen["text"])
    assert done.last["verdict"] == "proved"
    assert here("step", nanogpt, "--gpus", "4", "--fix", "cp=2").code == 2
    assert here("step", nanogpt).code == 2


def test_plan_captures_nothing_where_the_config_has_the_shape(
    here: Command, tmp_path: Path
) -> None:
    file = tmp_path / "strategy.json"
    done = here("plan", *LLAMA, "--gpus", "64", "--out", str(file), "--json")
    assert done.code == 0, done.err
    assert "capture" not in [e.get("phase") for e in done.events]
    chosen = next(e for e in done.events if e["event"] == "strategy")
    assert chosen["gpus"] == 64
    assert "8,192 tokens (the length in the config)" in chosen["tokens"]
    assert refusal(json.loads(file.read_text())["certificate"]) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", *LLAMA, "--gpus", "0"), "--gpus"),
        (("plan", *LLAMA, "--gpus", "1"), "2 devices would do"),
        (("plan", *LLAMA, "--gpus", "7919", "--global-batch", "64"), "no degrees"),
        (("plan", *LLAMA, "--gpus", "8", "--hardware", "h1000"), "h1000"),
        (("plan", *LLAMA, "--gpus", "8", "--hardware", "a100", "--dtype", "fp8"), "fp8"),
        (("plan", *LLAMA, "--gpus", "8", "--dtype", "f64"), "f64"),
        (("plan", *LLAMA, "--gpus", "8", "--memory", "1GB"), "no plan fits"),
        (("plan", *LLAMA, "--gpus", "8", "--fix", "tp=3"), "no plan on 8 devices has tp=3"),
        (("plan", *LLAMA, "--gpus", "8", "--fix", "tp=2,tp=4"), "tp is 2 already"),
        (("plan", *LLAMA, "--gpus", "8", "--fix", "stages=2"), "cannot be fixed"),
        (("plan", *LLAMA, "--gpus", "8", "--fix", "recompute=some"), "none|selective|full"),
        (("parallelize", *LLAMA, "--out", "o", "--mesh", "tp=4", "--fix", "tp=4"), "--gpus"),
        (("parallelize", *LLAMA, "--out", "o", "--gpus", "8", "--fix", "pp=2"), "no patch can"),
        (("parallelize", *LLAMA, "--out", "o"), "neither --gpus nor --mesh"),
        (("parallelize", *LLAMA, "--out", "o", "--gpus", "8", "--mesh", "tp=4"), "4 devices"),
    ],
)
def test_bad_options_are_one_error(here: Command, words: tuple[str, ...], said: str) -> None:
    done = here(*words)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("error ") == 1
    assert "Traceback" not in done.err


def test_a_run_takes_fewer_sequences_where_the_plan_has_many() -> None:
    request = CaptureRequest("hf:LlamaForCausalLM", batch=4096, seq=128)
    plan = Plan(Mesh.of(dp=2, tp=2))
    whole = Estimate(parameters=1 << 20, gradients=1 << 20, activations=1 << 34)
    rank = Estimate(parameters=1 << 19, gradients=1 << 19, activations=1 << 32)
    asked, needed = small(request, plan, whole, rank)
    assert asked.batch is not None
    assert asked.batch % 4 == 0
    assert ENOUGH / 4 < needed <= ENOUGH
    own, needed = small(replace(request, batch=None), plan, whole, rank)
    assert own.batch is None
    assert needed > BYTES
