"""What `verify DIRECTORY` believes: forged files with hashes that fit, beside right ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_testing.cases import read_case
from shardproof.agent.batch.folder import Folder
from shardproof.agent.batch.reverify import folder_again
from shardproof.agent.patching import describe, preview
from shardproof.agent.pipeline.agreement import disagreement, unlike_patch
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Run
from shardproof.agent.verdict.derivation import explain
from shardproof.agent.verdict.reverify import NOT_READ, examined
from shardproof.synthesis.emit.patch import patch
from shardproof.synthesis.planner.plan import ModulePlan, Plan, to_json
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.certify import certificate
from shardproof.verifier.checker import prepare
from shardproof.verifier.checker.certificate import sealed as sealed_certificate
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.program import Input, Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.relate.walk import relate_peeled
from shardproof.verifier.text.jsonio import dumps
from shardproof.verifier.verdict import Proof
from tests.synthesis import decoder

FILES: dict[str, tuple[str | None, str]] = {"m.py": ("a = 1\n", "a = 2\n")}
ORDER = Path(__file__).parents[1] / "corpus" / "order_or_race" / "OR-07-values.txt"


@pytest.fixture(scope="module")
def made() -> Synthesis:
    return synthesize(Asked(decoder.decoder(layers=2), Mesh.of(tp=2), decoder.CLUSTER))


@pytest.fixture(scope="module")
def proof(made: Synthesis) -> Proof:
    verdict = verify(Problem(made.sequential, made.lowered.program, made.lowered.contract))
    assert isinstance(verdict, Proof)
    return verdict


@pytest.fixture
def out(made: Synthesis, proof: Proof, tmp_path: Path) -> Path:
    """As a run seals it."""
    place = tmp_path / "out"
    with outdir.staged(place) as staged:
        staged.write("plan.json", to_json(made.plan))
        staged.write("program.json", dumps(made.sequential))
        staged.write("distributed.json", dumps(made.lowered.program))
        staged.write("contract.json", json.dumps(made.lowered.contract.to_json()))
        staged.write("certificate.json", json.dumps(proof.certificate))
        staged.write("patch.diff", patch(FILES, (), "").diff)
        noted = {"patch": describe(FILES, {}, proved=True), "request": {}}
        staged.seal({"command": "shardproof", "verdict": "proved", "assumptions": [], **noted})
    return place


def found(out: Path) -> tuple[events.VerdictReached, Exit]:
    run = Run([])
    outcome, _ = examined(run, out)
    (verdict,) = [e for e in run.seen if isinstance(e, events.VerdictReached)]
    assert verdict.verdict == outcome.verdict
    return verdict, outcome.exit


def sealed(out: Path, **entries: object) -> Path:
    """What a forger does last: hashes that fit, entries of the manifest changed (None: gone)."""
    manifest: dict[str, Any] = json.loads((out / outdir.MANIFEST).read_text())
    manifest.update(entries)
    manifest = {k: v for k, v in manifest.items() if v is not None}
    names = [p.name for p in out.iterdir() if p.name != outdir.MANIFEST]
    manifest["files"] = {n: hashlib.sha256((out / n).read_bytes()).hexdigest() for n in names}
    (out / outdir.MANIFEST).write_text(json.dumps(manifest))
    return out


def edited(out: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    data: dict[str, Any] = json.loads((out / name).read_text())
    change(data)
    (out / name).write_text(json.dumps(data))
    return sealed(out)


def test_a_directory_as_it_was_written_is_accepted_and_its_patch_not_called_proved(
    out: Path, proof: Proof
) -> None:
    verdict, code = found(out)
    assert (verdict.verdict, code) == ("accepted", Exit.PROVED)
    assert verdict.scope == list(proof.scope)
    assert verdict.assumptions == list(proof.assumptions)
    assert verdict.patch == NOT_READ
    assert "--recapture" in verdict.patch
    shutil.copytree(out, out.parent / "again")
    assert found(sealed(out.parent / "again"))[0].verdict == "accepted"


@pytest.mark.parametrize("name", ["patch.diff", "certificate.json", "contract.json", "plan.json"])
def test_a_file_that_changed_is_named(out: Path, name: str) -> None:
    (out / name).write_bytes((out / name).read_bytes() + b" ")
    verdict, code = found(out)
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert verdict.message.startswith(f"{name}: ")


@pytest.mark.parametrize(
    "entries",
    [
        {"scope": ["every mesh", "all extents", "bit for bit"]},
        {"read": True},
        {"verdict": "refuted"},
        {"patch": None},
        {"patch": {"read": True}},
    ],
    ids=lambda e: "-".join(e),
)
def test_a_manifest_that_says_more_or_less_is_rejected(out: Path, entries: dict[str, Any]) -> None:
    verdict, code = found(sealed(out, **entries))
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert "manifest.json" in verdict.message
    assert "every mesh" not in "".join(verdict.scope)


def test_what_the_manifest_records_is_told_as_recorded(out: Path, proof: Proof) -> None:
    """An assumption that is added is told apart; a word on the patch stays the run's word."""
    noted = describe(FILES, {}, proved=True, read=patch(FILES, (), "").diff)
    verdict, _ = found(sealed(out, assumptions=["moon"], patch=noted))
    assert (verdict.verdict, verdict.recorded[0]) == ("accepted", "moon")
    assert verdict.assumptions == list(proof.assumptions)
    assert verdict.recorded[1].startswith("The estimates of plan.json are what the run wrote: ")
    assert verdict.patch.startswith(NOT_READ)
    assert "the run that wrote it says" in verdict.patch


ADDED = """+    mesh = proved_mesh(model, mesh, {"tp": 2}, "0")
+    plan = {
+        "up": ColwiseParallel(),
+        "down": RowwiseParallel(),
+    }
"""
PLAN = Plan(
    Mesh.of(tp=2),
    tp="tp",
    modules=(
        ModulePlan("up", "Linear", "column", "R", "S(-1)"),
        ModulePlan("down", "Linear", "row", "S(-1)", "R"),
    ),
)


def test_a_plan_says_what_its_patch_does() -> None:
    up, down = PLAN.modules
    assert not unlike_patch(PLAN, ADDED)
    wrong = unlike_patch(replace(PLAN, modules=(up, replace(down, style="replicate"))), ADDED)
    assert wrong == "it says replicate of down, which patch.diff makes RowwiseParallel"
    assert "makes RowwiseParallel" in unlike_patch(replace(PLAN, modules=(up,)), ADDED)
    other = replace(PLAN, mesh=Mesh.of(tp=4))
    assert unlike_patch(other, ADDED) == "it is for the mesh tp=4, patch.diff for {'tp': 2}"
    sharded = replace(PLAN, mesh=Mesh.of(dp=2, tp=2), dp="dp", data="fsdp")
    both = ADDED.replace('{"tp": 2}', '{"dp": 2, "tp": 2}')
    assert "does not call fully_shard" in unlike_patch(sharded, both)
    assert not unlike_patch(sharded, both + "+    fully_shard(model, mesh=dp)\n")


def test_without_a_certificate_nothing_is_accepted(out: Path) -> None:
    (out / "certificate.json").unlink()
    verdict, code = found(sealed(out))
    assert (verdict.verdict, code) == ("unknown", Exit.NOT_PROVED)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "sub/../../x", ".git/hooks/post-commit", "a/.GIT/x"]
)
def test_a_patch_that_leaves_the_root_is_rejected(out: Path, name: str) -> None:
    files: dict[str, tuple[str | None, str]] = {name: (None, "owned\n")}
    (out / "patch.diff").write_text(patch(files, (), "").diff)
    verdict, code = found(sealed(out, patch=describe(files, {}, proved=True)))
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert verdict.message.startswith("patch.diff: ")


def test_a_patch_of_other_files_than_recorded_is_rejected(out: Path) -> None:
    more = {**FILES, "n.py": (None, "x = 1\n")}
    (out / "patch.diff").write_text(patch(more, (), "").diff)
    verdict, _ = found(sealed(out))
    assert verdict.verdict == "rejected"
    assert "patch.diff: it touches m.py, n.py" in verdict.message


def test_a_patch_with_another_text_is_accepted_at_most(out: Path) -> None:
    """The proof says nothing of it, and neither does the verdict."""
    other: dict[str, tuple[str | None, str]] = {"m.py": ("a = 1\n", "a = 3\n")}
    (out / "patch.diff").write_text(patch(other, (), "").diff)
    verdict, _ = found(sealed(out))
    assert verdict.verdict == "accepted"
    assert verdict.patch == NOT_READ
    assert "proved" not in verdict.message


def _first(plan: dict[str, Any], split: bool) -> str:
    return next(p for p, at in plan["params"].items() if (at["tp"] != "R") is split)


def _called(plan: dict[str, Any], style: str) -> None:
    for module in plan["modules"]:
        module.update(style=style, kind="Linear")


PLANS: dict[str, Callable[[dict[str, Any]], object]] = {
    "emptied": lambda p: p["params"].clear(),
    "all modules called whole": lambda p: _called(p, "replicate"),
    "all modules called column": lambda p: _called(p, "column"),
    "all modules called row": lambda p: _called(p, "row"),
    "one less": lambda p: p["params"].pop(_first(p, True)),
    "one less that is whole": lambda p: p["params"].pop(_first(p, False)),
    "one more": lambda p: p["params"].update({"ghost.weight": {"tp": "R"}}),
    "whole": lambda p: p["params"].update({_first(p, True): {"tp": "R"}}),
    "split": lambda p: p["params"].update({_first(p, False): {"tp": "S(0)"}}),
    "in parts": lambda p: p["params"].update({_first(p, True): {"tp": "S(0) in 3 parts"}}),
    "no mesh dim": lambda p: p["params"].update({_first(p, True): {}}),
    "another mesh dim": lambda p: p["params"].update({_first(p, True): {"tp": "R", "dp": "S(0)"}}),
    "no placement": lambda p: p["params"].update({_first(p, True): {"tp": "S(0) and more"}}),
    "another mesh": lambda p: p["mesh"].update({"tp": 4}),
    "a mesh dim more": lambda p: p["mesh"].update({"dp": 2}),
}


@pytest.mark.parametrize("change", PLANS.values(), ids=PLANS)
def test_a_plan_that_is_not_that_of_the_programs_is_rejected(
    out: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    verdict, code = found(edited(out, "plan.json", change))
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert verdict.message.startswith("plan.json: ")


@pytest.mark.parametrize(
    "mesh", [Mesh.of(tp=2), Mesh.of(tp=4), Mesh.of(dp=2), Mesh.of(dp=2, tp=2)], ids=str
)
@pytest.mark.parametrize("heads", [2, 4])
def test_plans_agree_with_the_programs_that_they_were_made_with(mesh: Mesh, heads: int) -> None:
    made = synthesize(Asked(decoder.decoder(layers=2, kv=heads), mesh, decoder.CLUSTER))
    lowered = made.lowered
    assert not disagreement(made.plan, made.sequential, lowered.program, lowered.contract)


def test_a_plan_of_one_layer_stands_for_layers_that_are_named() -> None:
    layout = from_placements((4, 6), [("tp", 2, "S(0)")])
    paths = ("h.0.up.weight", "h.1.up.weight", "h.2.norm.up.weight")
    weight = TensorType((4, 6), "f32")
    inputs = [Input(f"w{i}", weight, "param", path) for i, path in enumerate(paths)]
    one = Program("m", tuple(inputs), (), (), {i.name: i.type for i in inputs})
    many = replace(one, mesh=Mesh.of(tp=2))
    contract = Contract({i.name: layout for i in inputs}, {})
    split = {"tp": "S(0)"}

    def found(params: dict[str, dict[str, str]]) -> str:
        return disagreement(Plan(Mesh.of(tp=2), "tp", params=params), one, many, contract)

    whole = {"h.[0:2:1].up.weight": split, "h.*.norm.up.weight": split}
    assert not found(whole)
    fewer = {"h.[0:2:2].up.weight": split, "h.*.norm.up.weight": split}
    assert "does not place h.1.up.weight" in found(fewer)
    assert "places h.*.down.weight" in found({**whole, "h.*.down.weight": split})
    assert "lays h.2.norm.up.weight out" in found({**whole, "h.*.norm.up.weight": {"tp": "R"}})


@pytest.mark.parametrize("name", ["program.json", "distributed.json"])
def test_a_certificate_of_another_program_is_rejected(out: Path, name: str) -> None:
    text = (out / name).read_text()
    assert '"op": "relu"' in text or '"op": "silu"' in text or '"op": "exp"' in text
    for op in ("silu", "relu", "exp"):
        text = text.replace(f'"op": "{op}"', '"op": "tanh"')
    (out / name).write_text(text)
    verdict, code = found(sealed(out))
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert verdict.message.startswith("certificate.json: ")


@pytest.mark.parametrize(
    ("side", "order", "word"),
    [("right", True, "accepted"), ("right", False, "rejected"), ("wrong", True, "rejected")],
)
def test_the_order_in_time_is_checked(tmp_path: Path, side: str, order: bool, word: str) -> None:
    """A forger has a proof of values for a read that comes too early, and the order of another."""
    proof = verify(Problem(*read_case(ORDER).programs("right")))
    assert isinstance(proof, Proof)
    sequential, distributed, contract = read_case(ORDER).programs(side)
    given = prepare(Problem(sequential, distributed, contract))
    one, many = given.problem.sequential, given.problem.distributed
    terms, related, peels = relate_peeled(one, many, contract, Rules(many.mesh))
    claims = certificate(given, terms, related, peels)
    claims = sealed_certificate(claims, proof.certificate["order"] if order else [])
    placed = {"w": {"tp": "S(0)"}}
    with outdir.staged(tmp_path / "out") as staged:
        staged.write("plan.json", to_json(Plan(Mesh.of(tp=2), "tp", params=placed)))
        staged.write("program.json", dumps(sequential))
        staged.write("distributed.json", dumps(distributed))
        staged.write("contract.json", json.dumps(contract.to_json()))
        staged.write("certificate.json", json.dumps(claims))
        staged.seal({"verdict": "proved"})
    verdict, _ = found(tmp_path / "out")
    assert verdict.verdict == word, verdict.message
    if word == "rejected":
        assert verdict.message.startswith("certificate.json: ")


def test_a_certificate_of_an_earlier_version_says_what_to_do(out: Path) -> None:
    edited(out, "certificate.json", lambda document: document.update(version=1))
    verdict, code = found(out)
    assert (verdict.verdict, code) == ("rejected", Exit.NOT_PROVED)
    assert "prove the programs again" in verdict.message


def test_every_job_of_a_batch_is_checked_as_a_directory_is(out: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(out, root / "jobs" / "a")
    (root / "summary.json").write_text(json.dumps({"jobs": [{"name": "a", "status": "proved"}]}))
    Folder(root).seal({}, ["summary.json"], ["a"])
    run = Run([])
    again = folder_again(run, root)
    assert (again.exit, again.verdict, again.answer) == (Exit.PROVED, "accepted", "accepted    a")
    edited(root / "jobs" / "a", "plan.json", lambda plan: plan["params"].clear())
    Folder(root).seal({}, ["summary.json"], ["a"])
    again = folder_again(run, root)
    assert (again.exit, again.verdict) == (Exit.NOT_PROVED, "rejected")
    assert again.answer == "no longer proved  a"
    for rows in ([], [{"name": "b", "status": "proved"}]):
        (root / "summary.json").write_text(json.dumps({"jobs": rows}))
        Folder(root).seal({}, ["summary.json"], ["a"])
        if not rows:
            again = folder_again(run, root)
            assert (again.exit, again.verdict) == (Exit.NOT_PROVED, "rejected")
            assert again.answer == "left out of summary.json: a"
        else:
            with pytest.raises(InputError):
                folder_again(run, root)


def test_the_derivation_of_a_value_goes_back_to_the_contract(out: Path, made: Synthesis) -> None:
    loss = next(o.value for o in made.lowered.program.outputs if o.role != "grad")
    said = explain(Run([]), out, f"%{loss}", 1_000)
    assert said.exit is Exit.PROVED
    first, *rest = said.answer.splitlines()
    assert first.startswith(f"%{loss} is ")
    depths = [len(line) - len(line.lstrip()) for line in rest]
    assert all(line.lstrip().startswith("%") for line in rest)
    assert max(depths) >= 20
    inputs = {i.name for i in made.lowered.program.inputs}
    ends = [line for line in rest if line.endswith(": by the contract")]
    assert ends
    assert {line.split()[0].removeprefix("%") for line in ends} <= inputs
    shallow = explain(Run([]), out, loss, 0).answer.splitlines()
    assert shallow == [first]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda c: c, "no claim is about %nothing"),
        (lambda c: {**c, "outputs": {}}, "rejected"),
        (lambda c: None, "no certificate"),
    ],
)
def test_nothing_is_explained_that_is_not_proved(
    out: Path, edit: Callable[[dict[str, Any]], dict[str, Any] | None], told: str
) -> None:
    path = out / "certificate.json"
    found = edit(json.loads(path.read_text()))
    if found is None:
        manifest = json.loads((out / outdir.MANIFEST).read_text())
        del manifest["files"][path.name]
        (out / outdir.MANIFEST).write_text(json.dumps(manifest))
    else:
        path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=told):
        explain(Run([]), out, "nothing", 1)


LINE = "# Proved: certificate {}, checked by `shardproof verify out`."


@pytest.mark.parametrize("forged", ["", "text", "certificate", "record"])
def test_a_patch_keeps_its_line_only_where_it_is_the_one_that_was_proved(
    out: Path, forged: str
) -> None:
    """The honest directory is accepted; its twins have hashes that fit, and are rejected."""
    digest = hashlib.sha256((out / "certificate.json").read_bytes()).hexdigest()[:12]
    line = LINE.format("0" * 12 if forged == "certificate" else digest)
    right = patch({"m.py": ("a = 1\n", f"{line}\na = 2\n")}, (), "").diff
    new = f"{line}\na = {3 if forged == 'text' else 2}\n"
    files: dict[str, tuple[str | None, str]] = {"m.py": ("a = 1\n", new)}
    (out / "patch.diff").write_text(patch(files, (), "").diff)
    noted = describe(files, {}, proved=True, read="" if forged == "record" else right)
    verdict, code = found(sealed(out, patch=noted))
    (out.parent / "m.py").write_text("a = 1\n")
    seen = preview(out, out.parent)
    honest = forged in ("", "certificate")
    assert ("+# Proved" in seen.diff, seen.applicability == "safe") == (honest, honest)
    expected = ("rejected", Exit.NOT_PROVED) if forged else ("accepted", Exit.PROVED)
    assert (verdict.verdict, code) == expected, verdict.message
    assert not forged or verdict.message.startswith("patch.diff: ")
