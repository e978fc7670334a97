"""One rank unlike the others is found, whatever is altered, and judged by what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Witness
from tests.rank_programs.judging import verify_ranks
from tests.rank_programs.samples import DISTRIBUTED, SEQUENTIAL, contract, edit, file, written

NUMBER = re.compile(r'(?<![\w.%/"-])\d+(?![\w./])')


@pytest.mark.parametrize("rank", [0, 13, 31])
def test_every_number_of_a_rank_that_is_altered_is_found(tmp_path: Path, rank: int) -> None:
    path = file(written(tmp_path), rank)
    text = path.read_text(encoding="utf-8")
    places = [m for m in NUMBER.finditer(text) if text.count("\n", 0, m.start())]
    assert len(places) >= 15
    for found in places:
        for step in (1, -1) if found.group() != "0" else (1,):
            number = str(int(found.group()) + step)
            path.write_text(text[: found.start()] + number + text[found.end() :], "utf-8")
            read = read_ranks(tmp_path)
            line = text.count("\n", 0, found.start()) + 1
            assert any(
                f.rank == rank and f.where == f"{path.name}:{line}" for f in read.findings
            ), (text.splitlines()[line - 1], number, [str(f) for f in read.findings])
    path.write_text(text, "utf-8")
    assert read_ranks(tmp_path).findings == ()


@pytest.mark.parametrize("rank", [5, 22])
@pytest.mark.parametrize("how", ["without", "twice", "swapped"])
def test_every_line_of_a_rank_that_is_altered_is_found(tmp_path: Path, rank: int, how: str) -> None:
    path = file(written(tmp_path), rank)
    lines = path.read_text(encoding="utf-8").splitlines()
    for i in range(1, len(lines) - 2):
        new = {
            "without": [*lines[:i], *lines[i + 1 :]],
            "twice": [*lines[: i + 1], *lines[i:]],
            "swapped": [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]],
        }[how]
        path.write_text("\n".join(new), "utf-8")
        read = read_ranks(tmp_path)
        found = [f for f in read.findings if f.rank == rank]
        assert found, (lines[i], [str(f) for f in read.findings])
        assert any(f.where in (f"{path.name}:{i + 1}", f"{path.name}:{i + 2}") for f in found)


def test_a_wrong_offset_is_refuted_on_numbers_and_the_rank_is_named(tmp_path: Path) -> None:
    line = edit(written(tmp_path), 6, r"offset=8", "offset=9")
    found = verify_ranks(SEQUENTIAL, tmp_path, contract())
    assert isinstance(found.verdict, Counterexample)
    assert isinstance(found.verdict.witness, Witness)
    place = found.verdict.location
    assert place is not None
    assert (place.source.file, place.source.line) == ("rank-00006.sp", line)
    (told,) = found.ingested.findings
    assert told.coords == {"pp": 0, "dp": 1, "tp": 2}
    assert "offset=8" in told.expected
    assert "offset=9" in told.got


@pytest.mark.parametrize(
    ("rank", "pattern", "new"),
    [
        (22, r"(%all = .*)", r"%dead = neg %whole : f32[2, 4]\n\1"),
        (22, r"%y\b(.*)\n(.*) %y ", r"%other\1\n\2 %other "),
        (3, r"\n", "\n\n# a word\n"),
        (3, r"offset=12", "offset = 12"),
        (19, r"(%y = .*\n)(%z.*\n)", r"%t1 = neg %w : f32[4, 1]\n\1\2"),
        (22, r" : f32\[2, 1\]\n%whole", r"\n%whole"),
    ],
)
def test_a_rank_that_is_written_otherwise_and_right_is_proved(
    tmp_path: Path, rank: int, pattern: str, new: str
) -> None:
    edit(written(tmp_path), rank, pattern, new)
    found = verify_ranks(SEQUENTIAL, tmp_path, contract())
    assert isinstance(found.verdict, Proof), found


COMMUNICATION = {
    "a member too few": (3, r"ranks=\[0, 1, 2, 3\]", "ranks=[0, 1, 3]"),
    "another group": (3, r"ranks=\[0, 1, 2, 3\]", "ranks=[3, 7, 11, 15]"),
    "another order": (3, r"ranks=\[0, 1, 2, 3\]", "ranks=[0, 1, 3, 2]"),
    "a group without itself": (3, r"ranks=\[0, 1, 2, 3\]", "ranks=[4, 5, 6, 7]"),
    "another reduction": (3, r"reduce=sum", "reduce=max"),
    "no collective": (3, r"all_reduce %part \{[^}]*\}", "only %part"),
    "another peer": (3, r"to=19", "to=18"),
    "a message from another": (19, r"from=3", "from=2"),
    "another tag": (3, r"tag=\d+", "tag=77"),
    "a message too few": (3, r"send .*\n", ""),
    "a message too many": (3, r"(send .*\n)", r"\1\1"),
    "no such rank": (3, r"to=19", "to=99"),
}


@pytest.mark.parametrize("name", COMMUNICATION)
def test_ranks_that_wait_for_ever_are_refuted_and_the_culprit_is_named(
    tmp_path: Path, name: str
) -> None:
    rank, pattern, new = COMMUNICATION[name]
    line = edit(written(tmp_path), rank, pattern, new)
    found = verify_ranks(SEQUENTIAL, tmp_path, contract())
    assert isinstance(found.verdict, Counterexample), found.verdict
    assert isinstance(found.verdict.witness, Trace)
    assert found.verdict.location is not None
    assert found.verdict.location.source.file == f"rank-{rank:05d}.sp"
    assert abs(found.verdict.location.source.line - line) <= 1
    assert found.ingested.of_kind("mismatch")


def test_two_ranks_that_deviate_in_one_class_are_both_named(tmp_path: Path) -> None:
    written(tmp_path)
    edit(tmp_path, 18, r"1/2|0\.5", "1/3")
    edit(tmp_path, 27, r"1/2|0\.5", "1/5")
    found = verify_ranks(SEQUENTIAL, tmp_path, contract())
    assert [f.rank for f in found.ingested.findings] == [18, 27]
    assert isinstance(found.verdict, Counterexample)


def test_no_rank_is_named_where_all_are_wrong_alike(tmp_path: Path) -> None:
    written(tmp_path)
    for rank in range(16, 32):
        edit(tmp_path, rank, r"1/2|0\.5", "1/3")
    found = verify_ranks(SEQUENTIAL, tmp_path, contract())
    assert found.ingested.findings == ()
    assert isinstance(found.verdict, Counterexample)
    assert DISTRIBUTED.mesh.size == 32


def test_one_wrong_rank_on_a_mesh_too_large_to_run_is_refuted_on_a_smaller_one(
    tmp_path: Path,
) -> None:
    lines = ["ranks 4096 of wide mesh(dp=64, tp=64)"]
    for rank in range(4096):
        group = list(range(rank - rank % 64, rank - rank % 64 + 64))
        sign = "neg" if rank == 1234 else "exp"
        lines += [f"rank {rank}", "input %x: f32[64, 8]", "param %w: f32[8, 64]"]
        lines += [f"%h = {sign} %x", "%p = mm %h, %w"]
        lines += [f"%y = all_reduce %p {{ranks={group}, reduce=sum}}".replace("'", "")]
        lines += ["return %y", "end"]
    (tmp_path / "wide.sp").write_text("\n".join(lines), "utf-8")
    sequential = parse_text("""
program wide
  input %x: f32[4096, 512]
  param %w: f32[512, 64]
  %h = exp %x
  %y = mm %h, %w
  return %y
""")
    sizes = (("dp", 64), ("tp", 64))

    def placed(shape: tuple[int, ...], *places: str) -> Layout:
        both = zip(sizes, places, strict=True)
        return from_placements(shape, [(name, size, at) for (name, size), at in both])

    asked = Contract(
        {"x": placed((4096, 512), "S(0)", "S(1)"), "w": placed((512, 64), "R", "S(0)")},
        {"output:y": placed((4096, 64), "S(0)", "R")},
    )
    found = verify_ranks(sequential, tmp_path / "wide.sp", asked)
    (told,) = found.ingested.findings
    assert (told.rank, told.coords) == (1234, {"dp": 19, "tp": 18})
    assert told.where == f"wide.sp:{2 + 8 * 1234 + 3}"
    assert isinstance(found.verdict, Counterexample), found.verdict
    assert isinstance(found.verdict.witness, Witness)
    assert "at reduced sizes" in found.verdict.witness.sizes
