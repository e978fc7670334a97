"""Input that is no set of rank programs is one located finding, never an exception."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.rank_programs import read_ranks
from shardproof.verifier.verdict import Unknown
from tests.rank_programs.judging import verify_ranks
from tests.rank_programs.samples import DISTRIBUTED, SEQUENTIAL, contract, edit, file, written
from tests.rank_programs.writing import write_ranks


def _without(rank: int) -> Callable[[Path], None]:
    return lambda folder: file(folder, rank).unlink()


def _put(name: str, text: str | bytes) -> Callable[[Path], None]:
    data = text if isinstance(text, bytes) else text.encode()

    def change(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return change


def _cut(folder: Path) -> None:
    path = file(folder, 4)
    path.write_bytes(path.read_bytes()[:-30])


def _twice(folder: Path) -> None:
    edit(folder, 4, "rank 4", "rank 3")


def _line(new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit(folder, 17, r"%y = .*", new)

    return change


def _word(rank: int, pattern: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit(folder, rank, pattern, new)

    return change


CASES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "missing": (_without(9), "", "rank 9 is missing"),
    "twice": (_twice, "rank-00004.sp:1", "rank 3 is here twice; first at rank-00003.sp:1"),
    "cut": (_cut, "rank-00004.sp", "cut short"),
    "empty": (_put("rank-00004.sp", ""), "rank-00004.sp:1", "cut short"),
    "nothing": (_put("rank-00004.sp", "rank 4\nend\n"), "rank-00004.sp:1", "is empty"),
    "no number": (_put("rank-00004.sp", "input %x\nend"), "rank-00004.sp:1", "its number"),
    "no such rank": (_put("rank-x.sp", "rank 99\nend"), "rank-x.sp:1", "no such rank"),
    "bad gzip": (_put("rank-00004.sp", b"\x1f\x8b\x08rest"), "rank-00004.sp:1", "cannot be read"),
    "no header": (lambda folder: (folder / "mesh.sp").unlink(), "", "mesh.sp is missing"),
    "mesh": (_put("mesh.sp", "ranks 32 of l mesh(a=4, b=4)"), "mesh.sp:1", "multiply out"),
    "bad header": (_put("mesh.sp", "mesh(a=4)"), "mesh.sp:1", "start with"),
    "header bytes": (_put("mesh.sp", b"\xff\xfe"), "mesh.sp:1", "not UTF-8"),
    "no op": (_line("%y = mmm %got, %w"), "rank-00017.sp:4", "unknown op mmm"),
    "no statement": (_line("hello"), "rank-00017.sp:4", "a statement"),
    "two statements": (
        _line("%y = mm %got, %w %q = neg %w"),
        "rank-00017.sp",
        "one statement a line",
    ),
    "bad type": (_line("%y = mm %got, %w : f32[2, 2]"), "rank-00017.sp:4", "does not match"),
    "not there": (_line("%y = mm %got, %v"), "rank-00017.sp:4", "%v is not defined"),
    "other ranks": (_line("%y = mm %got, %w on(pp=0)"), "rank-00017.sp:4", "on(...)"),
    "product": (_line("%y = iota {shape=[4], dim=0, offset=2*tp, dtype=f32}"), "", "plain"),
    "alone": (_line("%y = neg %got {ranks=[17]}"), "rank-00017.sp:4", "no list of ranks"),
    "alone in another place": (
        _line("%y = on_coord %got {ranks=[17], index=1}"),
        "rank-00017.sp:4",
        "on_coord of one rank",
    ),
    "alone and scaled": (
        _line("%y = all_reduce %got {ranks=[17], scale=2}"),
        "rank-00017.sp:4",
        "no attribute scale",
    ),
    "two receivers": (_word(3, "to=19", "to=[19, 23]"), "rank-00003.sp:6", "a send"),
    "two values": (_word(3, r"send %h", "send %h, %part"), "rank-00003.sp:6", "a send"),
    "sent and scaled": (_word(3, "to=19", "to=19, scale=2"), "rank-00003.sp:6", "a send"),
    "received and scaled": (_word(19, "from=3", "from=3, scale=2"), "rank-00019.sp:3", "a recv"),
    "received with a value": (_word(19, r"recv \{", "recv %w {"), "rank-00019.sp:3", "a recv"),
    "bytes": (_line('%y = mm %got, %w \\"\u00e9'), "rank-00017.sp:4", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_located_finding(tmp_path: Path, name: str) -> None:
    change, where, says = CASES[name]
    change(written(tmp_path))
    read = read_ranks(tmp_path)
    assert read.program is None
    found = read.of_kind("malformed")
    assert len(found) == 1, [str(f) for f in found]
    assert found[0].where.startswith(where)
    assert says in found[0].message
    verdict = verify_ranks(SEQUENTIAL, tmp_path, contract()).verdict
    assert isinstance(verdict, Unknown)
    assert says in verdict.reason


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("suffix", ["sp", "spz"])
def test_a_stream_that_is_cut_short_is_found(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"ranks.{suffix}"
    write_ranks(DISTRIBUTED, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    read = read_ranks(path)
    assert read.program is None
    (found,) = read.findings
    assert found.kind == "malformed"
    assert found.where.startswith(path.name)


def test_ranks_may_stand_in_any_order_and_files_be_packed_apart(tmp_path: Path) -> None:
    written(tmp_path)
    for rank in (0, 31):
        path = file(tmp_path, rank)
        path.write_bytes(gzip.compress(path.read_bytes()))
    file(tmp_path, 7).rename(tmp_path / "rank-zzz.sp")
    assert read_ranks(tmp_path).findings == ()


@pytest.mark.parametrize("path", ["none", "file"])
def test_what_cannot_be_read_is_a_finding(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (found,) = read_ranks(tmp_path / path).findings
    assert found.kind == "malformed"
