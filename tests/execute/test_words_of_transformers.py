"""Plans in the words of transformers are proved as it applies them; wrong twins are not."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.tp_plans import fields
from shardproof.agent.pipeline.pipeline import kinds
from shardproof.agent.pipeline.writing import read_again
from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.emit.tp_plan import tp_plan
from shardproof.synthesis.execute.job import ModelFacts, collect_facts
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS, ConstraintError
from shardproof.synthesis.planner.plan import from_json, to_json
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Proof, Verdict
from tests.commands import Command

pytestmark = [pytest.mark.torch, pytest.mark.hf, pytest.mark.slow]

SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@dataclass(frozen=True)
class Model:
    request: CaptureRequest
    captured: Captured
    facts: ModelFacts
    made: Synthesis

    def judged(self, patch: Patch) -> Verdict:
        made = self.made
        return read_again(
            self.request, self.captured, made.plan, made.sequential, made.contract, patch
        )[1]


def planned(target: str, **config: object) -> Model:
    request = CaptureRequest(target, {**SMALL, **config}, batch=2, seq=8)
    captured = capture(request)
    program, named = captured.program, kinds(captured)
    kept = NO_CONSTRAINTS.in_dialect("transformers")
    asked = Asked(program, Mesh.of(tp=2), load("h100"), named, constraints=kept, patched=True)
    return Model(request, captured, collect_facts(request), synthesize(asked))


@pytest.fixture(scope="module")
def tied() -> Model:
    return planned("hf:Qwen3ForCausalLM", tie_word_embeddings=True)


def test_a_plan_of_transformers_is_proved(tied: Model) -> None:
    plan = tied.made.plan
    assert from_json(to_json(plan)) == plan
    patch = emit(tied.facts, plan)
    (text,) = (new for _, new in patch.files.values())
    assert "parallelize_module" not in text
    assert "from_pretrained(folder, distributed_config=distributed(), **options)" in text
    assert isinstance(tied.judged(patch), Proof)


WRONG = {
    "a norm of heads whose gradient stays a share": (
        '"model.layers.*.self_attn.k_norm": "replicated_with_grad_allreduce"',
        '"model.layers.*.self_attn.k_norm": "replicate"',
    ),
    "columns that are gathered before rows": ('up_proj": "colwise"', 'up_proj": "replicate"'),
    "logits that stay split": ('"lm_head": "colwise_gather_output"', '"lm_head": "colwise"'),
    "rows of a product that is not summed": ('o_proj": "rowwise"', 'o_proj": "colwise"'),
    "weights that are not tied again": (
        "    model.tie_weights(recompute_mapping=False)\n",
        "",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_plan_of_transformers_is_not_proved(tied: Model, fault: str) -> None:
    right = emit(tied.facts, tied.made.plan)
    ((path, (_, text)),) = right.files.items()
    before, after = WRONG[fault]
    assert text.count(before) == 1, text
    wrong = make_patch({path: (None, text.replace(before, after))}, right.obligations, right.entry)
    assert not isinstance(tied.judged(wrong), Proof)


def test_what_transformers_has_no_words_for_is_named(tied: Model) -> None:
    plan = tied.made.plan
    shared = replace(plan, modules=(replace(plan.modules[0], shared=True), *plan.modules[1:]))
    with pytest.raises(EmitError, match=r"model\.embed_tokens: .* a sum over ranks; --dialect"):
        tp_plan(tied.facts, shared)
    with pytest.raises(ConstraintError, match="does not split the sequence"):
        replace(NO_CONSTRAINTS, sequence_parallel=True).in_dialect("transformers")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "end"), [("Qwen3ForCausalLM", "proved"), ("Inkling2ForCausalLM", "unknown")]
)
def test_what_from_pretrained_loads_is_proved_too(
    command: Command, name: str, end: str, tmp_path: Path
) -> None:
    """The library gives the ranks of Inkling2 other rows of its experts than a plan says."""
    config, out = tmp_path / "config.json", tmp_path / "out"
    config.write_text(json.dumps(fields(name, 2)))
    words = ("--mesh", "tp=2", "--dialect", "transformers", "--no-run", "--out", str(out))
    done = command("parallelize", f"hf:{name}", "--config", str(config), *words, seconds=600)
    assert done.out.startswith(f"{end}: ")
    assert (out / "patch.diff").exists() == (end == "proved")
    assert end == "proved" or "from_pretrained" in done.err
