"""A directory that is checked again is told with all that its proof assumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Run
from shardproof.agent.training import stepping
from shardproof.agent.verdict.reverify import examined
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.plan import Plan, to_json
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Balanced, Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.jsonio import dumps
from shardproof.verifier.verdict import Proof
from tests.training.test_staged import model
from tests.verifier.test_balanced import ranks, whole

CLASS = "Every label names a class."


@pytest.mark.parametrize("told", [[], ["another"]])
def test_what_the_contract_assumes_is_told_whatever_the_manifest_says(
    tmp_path: Path, told: list[str]
) -> None:
    one, count = whole()
    many = ranks("avg", False)
    split = from_placements((4,), [("dp", 2, "S(0)")])
    balance = Balanced(count, "dp", "the count")
    contract = Contract(
        {"x": split, "m": split}, {"loss:loss": Layout.replicate(())}, (balance,), (CLASS,)
    )
    proof = verify(Problem(one, many, contract))
    assert isinstance(proof, Proof)
    with outdir.staged(tmp_path / "out") as out:
        out.write("plan.json", to_json(Plan(Mesh.of(dp=2))))
        out.write("program.json", dumps(one))
        out.write("distributed.json", dumps(many))
        out.write("contract.json", json.dumps(contract.to_json()))
        out.write("certificate.json", json.dumps(proof.certificate))
        out.seal({"verdict": "proved", "assumptions": told})
    run = Run([])
    found, _ = examined(run, tmp_path / "out")
    assert (found.exit, found.verdict) == (Exit.PROVED, "accepted")
    (verdict,) = [e for e in run.seen if isinstance(e, events.VerdictReached)]
    assert verdict.assumptions == [CLASS, str(balance)]
    assert verdict.recorded == told


def test_a_proof_of_a_step_names_what_capture_took_for_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, seen = model(2), "The model runs in eval mode: nothing is said of training."
    captured = Captured(program, {}, cast(ModelFacts, object()), (seen,))
    monkeypatch.setattr(stepping, "captured_in", lambda *_: captured)
    monkeypatch.setattr(stepping, "collect_facts", lambda *_: None)
    monkeypatch.setattr(stepping, "loss_obstacle", lambda *_: None)
    run = Run([])
    job = stepping.Job(CaptureRequest("model"), Mesh((("pp", 2),)), load("h100"), 2, None)
    stepping.prove(run, job)
    (verdict,) = (event for event in run.seen if isinstance(event, events.VerdictReached))
    assert verdict.verdict == "proved"
    assert seen in verdict.assumptions
