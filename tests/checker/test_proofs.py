"""A proof is made by the checker of a certificate that it accepts, and by nothing else."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardproof.verifier import verdict, verification
from shardproof.verifier.certify import certificate
from shardproof.verifier.checker import Rejected, check, identities, prepare
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.scalars.closing import close
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof, Unknown
from shardproof.verifier.verification import verify
from tests.checker.pairs import proof

ROOT = Path(verdict.__file__).parents[1]
MAKER = "verifier/checker/proofs.py"


def test_nothing_else_makes_a_proof() -> None:
    with pytest.raises(TypeError, match="checker alone"):
        Proof((), (), {})
    assert replace(proof(), stats={"x": 1.0}).stats == {"x": 1.0}


def _calls(tree: ast.AST) -> set[str]:
    """The names that a module calls, and the keywords with which it calls `replace`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            found.add(name)
            if name == "replace":
                found |= {f"replace {item.arg}" for item in node.keywords}
    return found


def test_no_other_module_of_the_product_says_that_it_does() -> None:
    rooms = ("agent", "benchmarks", "shardproof", "synthesis", "verifier")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    makers: set[str] = set()
    for file in files:
        text = file.read_text()
        name = file.relative_to(ROOT).as_posix()
        calls = _calls(ast.parse(text))
        if "Proof" in calls or ("Acceptance" in text and name != "verifier/proof.py"):
            makers.add(name)
        assert "replace certificate" not in calls, name
    assert len(files) > 300
    assert makers == {MAKER}


def test_a_certificate_that_the_checker_rejects_ends_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(*given: Any) -> dict[str, Any]:
        out = certificate(*given)
        row = next(rows[0] for rows in out["claims"]["values"].values() if rows[0]["of"])
        row["factor"] = "2/1"
        return {**out, "seal": seal(out)}

    monkeypatch.setattr(verification, "certificate", wrong)
    one = parse_text("program one input %x: f32[4] %y = tanh %x return %y")
    many = parse_text("program many mesh(tp=2) input %x: f32[4] %y = tanh %x return %y")
    row = Layout.replicate((4,))
    found = verify(Problem(one, many, Contract({"x": row}, {"output:y": row})))
    assert isinstance(found, Unknown)
    assert "the checker rejects" in found.reason
    assert "fault of the verifier" in found.reason


RATIONAL = "program {} {} input %x: f32[3] %a = mul %x, %x %y = {} %a, %x return %y"


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_an_engine_that_errs_on_rational_programs_is_found(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Layout.replicate((3,))
    one = parse_text(RATIONAL.format("one", "", "add"))
    many = parse_text(RATIONAL.format("many", "mesh(tp=2)", op))
    problem = Problem(one, many, Contract({"x": row}, {"output:y": row}))
    monkeypatch.setattr(identities, "difference", lambda *_: {})
    document = identities.certify(prepare(problem), close)
    assert isinstance(document, dict)
    found = check(document, problem)
    assert isinstance(found, Rejected) == (op != "add")
    if isinstance(found, Rejected):
        assert "another rational function" in found.reason
    else:
        assert "3 prime fields" in found.engine
