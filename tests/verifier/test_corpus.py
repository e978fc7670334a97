"""Small programs with their verdict: each refuted one stands beside its repaired twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verifier.corpus import read
from verifier.checker import Accepted, check
from verifier.verdict import Counterexample, Proof
from verifier.verify import verify

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
NAMES = sorted(path.stem for path in (CORPUS / "refuted").glob("*.txt"))


def test_every_refuted_program_has_a_repaired_twin() -> None:
    assert sorted(path.stem for path in (CORPUS / "proved").glob("*.txt")) == NAMES
    assert len(NAMES) > 10


@pytest.mark.parametrize("name", NAMES)
def test_repaired_program_is_proved_and_its_certificate_replays(name: str) -> None:
    programs = read(CORPUS / "proved" / f"{name}.txt")
    verdict = verify(*programs)
    assert isinstance(verdict, Proof), verdict
    assert isinstance(check(verdict.certificate, *programs), Accepted)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_program_is_refuted_with_a_place(name: str) -> None:
    verdict = verify(*read(CORPUS / "refuted" / f"{name}.txt"))
    assert isinstance(verdict, Counterexample), verdict
    assert verdict.location is not None
    assert verdict.witness.expected != verdict.witness.got
