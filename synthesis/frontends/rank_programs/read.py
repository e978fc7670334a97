"""`read_ranks(path)`: the programs of all ranks, read one by one, as one program."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.frontends.rank_programs.build import UnwrittenError, build
from shardproof.synthesis.frontends.rank_programs.classes import TextClass, actual, split
from shardproof.synthesis.frontends.rank_programs.container import Section, open_ranks
from shardproof.synthesis.frontends.rank_programs.deviation import adopt, first_difference, hosts
from shardproof.synthesis.frontends.rank_programs.findings import (
    Finding,
    Ingested,
    InputError,
    RankClass,
    coordinates,
    malformed,
)
from shardproof.synthesis.frontends.rank_programs.form import BLANK, Lines, read_header
from shardproof.synthesis.frontends.rank_programs.groups import Grid, Regions
from shardproof.synthesis.frontends.rank_programs.match import stuck
from shardproof.synthesis.frontends.rank_programs.merge_classes import Uniting
from shardproof.synthesis.frontends.rank_programs.symbolic import ClassProgram, LineError, parsed
from shardproof.synthesis.frontends.rank_programs.whole import BlockedError, ClassError
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import Program

Progress = Callable[[str], None]
MAX_FINDINGS = 20
"""So many findings of one kind are told; then one says how many more there are."""


@dataclass
class _Read:
    """All ranks, by skeleton."""

    name: str
    grid: Grid
    table: Lines
    raw: list[TextClass]
    files: dict[int, tuple[str, int]]
    """For each rank, its file and first line."""
    bytes: int

    def place(self, owner: TextClass, row: int, index: int) -> str:
        """`file:line` of a line of one rank."""
        file, first = self.files[int(owner.ranks[row])]
        return f"{file}:{first + int(owner.places[row][index])}"

    def finding(
        self,
        kind: str,
        owner: TextClass,
        row: int,
        index: int,
        message: str,
        expected: str = "",
        got: str = "",
    ) -> Finding:
        rank = int(owner.ranks[row])
        at = coordinates(self.grid.mesh, rank)
        return Finding(kind, message, self.place(owner, row, index), rank, at, expected, got)


def read_ranks(path: str | Path, progress: Progress | None = None) -> Ingested:
    """Read the programs of all ranks from a folder, a zip or one file, as docs/programs.md says.

    Every number of every rank is compared with the affine map that stands for it. Bad input is
    a finding, never an exception.
    """
    tell: Progress = progress or (lambda step: None)
    stats: dict[str, float] = {}
    begin = time.perf_counter()
    try:
        read = _read(Path(path), tell)
    except InputError as error:
        return Ingested(None, (), (error.finding,), stats)
    stats |= {"ranks": read.grid.size, "bytes": read.bytes, "lines": read.table.distinct}
    stats["read_s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    tell("classes")
    findings = [f for raw in read.raw if (f := _not_utf8(read, raw)) is not None]
    classes = _classes(read) if not findings else []
    findings += _deviations(read, classes)
    stats["classes"] = len(classes)
    stats["classes_s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    tell("unite")
    program: Program | None = None
    if not any(f.kind == "malformed" for f in findings):
        program, more = _whole(read, classes)
        if more and all(f.kind == "unsupported" for f in more):
            program, more = _apart(read, more)
        told = [f for f in more if f.kind == "mismatch"]
        findings = [*(f for f in more if f.kind != "mismatch"), *findings, *told]
    stats["unite_s"] = time.perf_counter() - begin
    shown = tuple(
        RankClass(tuple(int(r) for r in c.ranks), len(c.lines), read.place(c, 0, 0))
        for c in classes
    )
    mesh = str(read.grid.mesh)
    others = partial(_majority, read, classes)
    return Ingested(program, shown, tuple(findings), stats, mesh, others)


def _read(path: Path, tell: Progress) -> _Read:
    head, sections = open_ranks(path)
    try:
        name, mesh = read_header(head.text.decode("utf-8"), head.file)
    except MalformedError as error:
        where = error.where.rpartition(":")[0] or f"{head.file}:1"
        raise malformed(error.what, where, expected=error.expected, got=error.got) from None
    except UnicodeDecodeError:
        raise malformed("the header is not UTF-8", f"{head.file}:1") from None
    grid, table = Grid(mesh), Lines()
    out = _Read(name, grid, table, [], {}, 0)
    groups: dict[bytes, list[tuple[int, NDArray[np.int32], NDArray[np.int32]]]] = {}
    known: dict[bytes, NDArray[np.int32]] = {}
    for section in sections:
        rank, ids, places = _section(section, table, grid, out.files)
        places = known.setdefault(places.tobytes(), places)
        groups.setdefault(table.skeleton(ids).tobytes(), []).append((rank, ids, places))
        out.bytes += len(section.text)
        if len(out.files) % 512 == 0:
            tell(f"read {len(out.files)} of {grid.size} ranks")
    missing = [r for r in range(grid.size) if r not in out.files]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        what = f"the program of rank {missing[0]} is missing{more}"
        expected, got = f"{grid.size} ranks", str(len(out.files))
        raise malformed(what, str(path), missing[0], mesh, expected=expected, got=got)
    for members in groups.values():
        members.sort(key=lambda m: m[0])
        ranks = np.array([r for r, _, _ in members], np.int64)
        rows = np.stack([ids for _, ids, _ in members])
        out.raw.append(TextClass(ranks, rows, [places for _, _, places in members]))
        members.clear()
    return out


def _section(
    section: Section, table: Lines, grid: Grid, files: dict[int, tuple[str, int]]
) -> tuple[int, NDArray[np.int32], NDArray[np.int32]]:
    """The rank, its lines, and where they stand."""
    lines = section.text.split(b"\n")
    start = next((k for k, v in enumerate(lines) if v.split(b"#")[0].strip()), 0)
    where = f"{section.file}:{section.line + start}"
    words = lines[start].split(b"#")[0].split()
    if len(words) != 2 or words[0] != b"rank" or not words[1].isdigit() or len(words[1]) > 9:
        shown = lines[start][:60].decode("utf-8", "replace")
        what = "a rank's program starts with its number"
        raise malformed(what, where, expected="`rank N`", got=f"`{shown}`")
    rank = int(words[1])
    if rank >= grid.size:
        expected = f"0 to {grid.size - 1}"
        raise malformed("no such rank", where, expected=expected, got=str(rank))
    if rank in files:
        file, line = files[rank]
        what = f"rank {rank} is here twice; first at {file}:{line}"
        raise malformed(what, where, rank, grid.mesh)
    files[rank] = (section.file, section.line)
    ids = np.fromiter(
        map(table.__getitem__, lines[start + 1 : -1]), np.int32, len(lines) - start - 2
    )
    kept = np.flatnonzero(table.skeleton(ids) != BLANK).astype(np.int32)
    if not len(kept):
        raise malformed("the program is empty", where, rank, grid.mesh)
    return rank, ids[kept], kept + np.int32(start + 1)


def _classes(read: _Read, chunked: bool = True) -> list[TextClass]:
    out = [c for raw in read.raw for c in split(raw, read.table, read.grid, chunked)]
    out.sort(key=lambda c: c.first)
    hosts(out, read.table, read.grid)
    for owner in out:
        adopt(owner, read.grid)
    return out


def _apart(read: _Read, found: list[Finding]) -> tuple[Program | None, list[Finding]]:
    """The program with slices that differ between ranks as they stand, where that is one."""
    program, more = _whole(read, _classes(read, chunked=False), False)
    return (program, []) if program is not None and not more else (None, found)


def _not_utf8(read: _Read, raw: TextClass) -> Finding | None:
    for j, skeleton in enumerate(read.table.skeleton(raw.rows[0])):
        try:
            read.table.tokens(int(skeleton))
        except MalformedError as error:
            return read.finding("malformed", raw, 0, j, error.what)
    return None


def _deviations(read: _Read, classes: list[TextClass]) -> Iterator[Finding]:
    told, left = 0, 0
    for owner in classes:
        if owner.host is None:
            continue
        for row in range(len(owner.ranks)):
            if told == MAX_FINDINGS:
                left += 1
                continue
            j, want, got, count = first_difference(owner, row, read.table, read.grid)
            told += 1
            lines = "1 line" if count == 1 else f"{count} lines"
            what = f"{lines} unlike the {len(owner.host.ranks)} ranks around it, this one first"
            yield read.finding("deviates", owner, row, j, what, f"`{want}`", f"`{got}`")
    if left:
        yield Finding("deviates", f"{left} more ranks deviate")


def _whole(
    read: _Read, classes: list[TextClass], explain: bool = True
) -> tuple[Program | None, list[Finding]]:
    """The program, or what stands in its way; `explain` names the ranks that wait for ever."""
    programs: list[ClassProgram] = []
    findings: list[Finding] = []
    for owner in classes:
        file, first = read.files[owner.first]
        try:
            programs.append(parsed(owner, read.name, read.grid, file, first))
        except LineError as error:
            findings.append(_line(read, owner, error))
            if len(findings) >= MAX_FINDINGS:
                break
    if any(f.kind == "malformed" for f in findings):
        return None, [f for f in findings if f.kind == "malformed"]
    if findings:
        return None, (explain and _stuck(read, classes)) or findings
    regions = Regions(read.grid)
    try:
        return build(Uniting(programs, regions).run(), regions, read.name), []
    except ClassError as error:
        owner = programs[error.index].owner
        found = _line(read, owner, error.error)
        if found.kind == "malformed":
            return None, [found]
        return None, (explain and _stuck(read, classes)) or [found]
    except BlockedError as blocked:
        waits = _stuck(read, classes) if explain else []
        if waits:
            return None, waits
        index, line = next(iter(blocked.waiting.items()))
        what = "every rank ends, but no order was found in which classes go on together"
        return None, [read.finding("unsupported", programs[index].owner, 0, line, what)]
    except UnwrittenError as error:
        return None, [Finding("unsupported", str(error))]


def _majority(read: _Read, classes: list[TextClass]) -> Program | None:
    """The program with every rank that deviates put back among the ranks around it."""
    guests: dict[int, list[TextClass]] = {}
    for owner in classes:
        if owner.host is not None:
            guests.setdefault(id(owner.host), []).append(owner)
    if not guests:
        return None
    whole: list[TextClass] = []
    for owner in classes:
        if owner.host is not None:
            continue
        ranks = np.concatenate([owner.ranks, *(g.ranks for g in guests.get(id(owner), []))])
        whole.append(TextClass(np.sort(ranks), owner.rows, owner.places, owner.lines))
    program, found = _whole(replace(read, files=_first(read, whole, classes)), whole, False)
    return None if found else program


def _first(
    read: _Read, whole: list[TextClass], classes: list[TextClass]
) -> dict[int, tuple[str, int]]:
    """Files by rank, with that of a rank with the text for the first rank of each class."""
    hosts = {id(c.lines): c.first for c in classes if c.host is None}
    return {**read.files, **{c.first: read.files[hosts[id(c.lines)]] for c in whole}}


def _line(read: _Read, owner: TextClass, error: LineError) -> Finding:
    cause = error.error
    message = "; ".join(part for part in (cause.what, cause.hint) if part)
    return read.finding(error.kind, owner, 0, error.line, message, cause.expected, cause.got)


def _stuck(read: _Read, classes: list[TextClass]) -> list[Finding]:
    """Ranks that wait for ever, those that deviate first."""
    found = stuck(classes, read.table, read.grid)
    found.sort(key=lambda s: (s.owner.host is None, int(s.owner.ranks[s.row])))
    out: list[Finding] = []
    for s in found[:MAX_FINDINGS]:
        got = f"`{actual(s.owner, s.row, s.line, read.table)}`"
        out.append(read.finding("mismatch", s.owner, s.row, s.line, s.message, got=got))
    if len(found) > MAX_FINDINGS:
        out.append(Finding("mismatch", f"{len(found) - MAX_FINDINGS} more ranks deadlock"))
    return out
