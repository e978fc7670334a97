"""A slice of the campaign of `benchmarks.check_mutants`: faults in sources, and runs on gloo."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from benchmarks.check_mutants import (
    BASES,
    TRIES,
    checked,
    copy_of,
    mutants,
    row_of,
)
from benchmarks.gloo_truth import draws_of, truth
from shardproof.agent.check import in_source, judging
from shardproof.agent.check.judging import Compared

pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.slow]
MLP = BASES[0]
HOUR = 3600.0
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
def test_a_fault_is_refuted_as_gloo_says_and_repaired(tmp_path: Path, kind: str) -> None:
    """Changes are counted, not timed."""
    copy_of(tmp_path)
    right = checked(MLP, tmp_path)
    assert not isinstance(right, str)
    assert truth(MLP, tmp_path, right.placed)[0] == "right"
    mutant = next(m for m in mutants(MLP, tmp_path) if m.kind == kind and m.file == MLP.file)
    row = row_of(MLP, mutant, right.placed, 0)
    assert (row.truth, row.verdict) == ("wrong", "refuted")
    (tmp_path / mutant.file).write_text(mutant.text)
    request, kept = MLP.request(tmp_path), tmp_path / "kept"
    kept.mkdir()
    asking = in_source.Asking(request, MLP.stated(), Compared(), in_source.captured)
    found = judging.check_modes(in_source.captured(request, kept), MLP.stated(), lambda _: None)[-1]
    tried = list(islice(in_source.repaired(asking, found, judging.edits_for(found, HOUR)), TRIES))
    assert tried[-1] is not None


def test_what_comes_late_is_not_there_before(tmp_path: Path) -> None:
    """A wait that is forgotten shows on gloo, however fast it is."""
    copy_of(tmp_path)
    base = next(b for b in BASES if b.name == "InTwo")
    right = checked(base, tmp_path)
    assert not isinstance(right, str)
    assert truth(base, tmp_path, right.placed)[0] == "right"
    stale = next(m for m in mutants(base, tmp_path) if m.kind == "stale async result")
    (tmp_path / stale.file).write_text(stale.text)
    assert truth(base, tmp_path, right.placed)[0] == "wrong"


def test_every_value_of_a_label_is_drawn() -> None:
    base = next(b for b in BASES if b.name == "SplitPick")
    assert {int(t) for given in draws_of(base) for t in given["target"]} == set(range(16))
