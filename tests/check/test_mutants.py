"""A slice of the campaign of `benchmarks.check_mutants`: faults in sources, and runs on gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.check_mutants import BASES, checked, copy_of, mutants, row_of
from benchmarks.gloo_truth import truth

pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.slow]
MLP = BASES[0]
KINDS = ("missing collective", "wrong collective")


def test_there_are_faults_of_every_kind_in_every_base(tmp_path: Path) -> None:
    copy_of(tmp_path)
    found = {b.label: mutants(b, tmp_path) for b in BASES}
    assert sum(map(len, found.values())) >= 300
    texts = {(b, m.file, m.text) for b, ms in found.items() for m in ms}
    assert len(texts) == sum(map(len, found.values()))
    for ms in found.values():
        assert all(m.text != (tmp_path / m.file).read_text() for m in ms)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_refuted_as_gloo_says(tmp_path: Path, kind: str) -> None:
    copy_of(tmp_path)
    right = checked(MLP, tmp_path)
    assert not isinstance(right, str)
    assert truth(MLP, tmp_path, right.placed)[0] == "right"
    mutant = next(m for m in mutants(MLP, tmp_path) if m.kind == kind and m.file == MLP.file)
    row = row_of(MLP, mutant, right.placed, 0)
    assert (row.truth, row.verdict) == ("wrong", "refuted")
