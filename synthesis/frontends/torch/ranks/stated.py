"""Layouts as people state them: `fc1.weight=S(0)@tp`, one an option or one a line of a file."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.layout import FOLDS, Layout
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.contract import read_layout

FORM = (
    "NAME=R, NAME=S(0)@tp, NAME=S(0)@dp,S(1)@tp, zigzag(1)@cp or striped(1)@cp in place of "
    "S(1)@cp, by atoms NAME=[8][3 2@tp 4], or NAME=@tp where the shape says which dim"
)
_ORDERED = re.compile(r"(zigzag|striped)(?=\((-?\d+)\))")
_PLACED = re.compile(
    rf"^(?P<kind>(S|zigzag|striped)\(-?\d+\)|Shard\(-?\d+\)|P(\(({'|'.join(FOLDS)})\))?|R|Replicate)(@(?P<dim>\w+))?$"
)


@dataclass(frozen=True)
class LayoutLine:
    """One statement: the names it is about, and the placement as written."""

    pattern: str
    """A name, or a pattern such as `layers.*.fc1.weight`."""
    text: str
    where: str
    """The option, or `file:line`."""

    @property
    def over(self) -> str:
        """Of `NAME=@tp`, the mesh dim over which a tensor is split if its shape says that it is."""
        return self.text[1:] if self.text.startswith("@") else ""

    def fits(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)


def read_lines(items: Sequence[str], option: str) -> tuple[LayoutLine, ...]:
    """Statements of an option: `NAME=...`, or files with one a line (`#` starts a comment).

    Raises:
        CaptureError: an item of neither form, a file that cannot be read.
    """
    out: list[LayoutLine] = []
    for item in items:
        if "=" in item:
            out.append(_line(item, f"{option} {item}", option))
            continue
        try:
            text = Path(item).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise CaptureError(
                f"{option} {item}: neither a statement nor a file that can be read",
                hint=f"write {FORM}",
            ) from None
        for number, line in enumerate(text.splitlines(), 1):
            if words := line.partition("#")[0].strip():
                out.append(_line(words, f"{item}:{number}", option))
    return tuple(out)


def on_mesh(lines: Iterable[LayoutLine], mesh: Mesh) -> None:
    """Raises CaptureError for a statement about a dim that the mesh does not have."""
    for line in lines:
        for name in re.findall(r"@(\w+)", line.text):
            if name not in mesh.names:
                raise CaptureError(
                    f"{line.where}: the mesh has no dim {name!r}", hint=f"name one of {mesh}"
                )


def _line(text: str, where: str, option: str) -> LayoutLine:
    name, equals, placed = (part.strip() for part in text.partition("="))
    if not equals or not name or not placed:
        raise CaptureError(f"{where}: {text!r} states no layout", hint=f"write {FORM}")
    line = LayoutLine(name, placed, where)
    if ordered(line) and option == "--layout":
        raise CaptureError(f"{where}: an order of rows is of inputs and outputs, not of parameters")
    return line


def _placements(line: LayoutLine) -> list[tuple[str, str]]:
    """What is stated as (mesh dim, placement), but for atoms and `NAME=@tp`."""
    if line.text.startswith(("[", "@")):
        return []
    parts = list[tuple[str, str]]()
    for item in map(str.strip, line.text.split(",")):
        match = _PLACED.match(item)
        if match is None or (match["dim"] is None and not match["kind"].startswith("R")):
            raise CaptureError(f"{line.where}: {item!r} is not a placement", hint=f"write {FORM}")
        if match["dim"] is not None:
            parts.append((match["dim"], match["kind"]))
    return parts


@dataclass(frozen=True)
class RowOrder:
    """Rows of which ranks hold others than a chunk each, in the order of the ranks."""

    kind: str
    """`zigzag`: a chunk from each end; `striped`: every N-th row."""
    dim: int
    mesh_dim: str

    def chunks(self, extent: int, count: int) -> tuple[int, ...]:
        """Which of equal chunks `count` ranks hold, one rank after the other: of a zigzag 0, 2N-1,
        1, 2N-2, ..."""
        if self.kind == "striped":
            return tuple(c for rank in range(count) for c in range(rank, extent, count))
        return tuple(c for rank in range(count) for c in (rank, 2 * count - 1 - rank))


def order_of(lines: Iterable[LayoutLine], name: str, dims: int, mesh: Mesh) -> RowOrder | None:
    """The order that is stated of the rows of a tensor with so many dims; None: that of ranks."""
    for line in lines:
        for over, kind in _placements(line) if line.fits(name) else ():
            if (match := _ORDERED.match(kind)) and mesh[over] > 1:
                return RowOrder(match[1], int(match[2]) % dims, over)
    return None


def ordered(line: LayoutLine) -> bool:
    """Whether a statement says in which order rows are."""
    return any(_ORDERED.match(kind) for _, kind in _placements(line))


def filled_buffers(
    patterns: Sequence[str], buffers: Sequence[str], params: Sequence[str]
) -> list[str]:
    """The buffers that are named by themselves, or by a pattern that no parameter fits."""
    own = [p for p in patterns if not any(fnmatchcase(name, p) for name in params)]
    return [b for b in buffers if b in patterns or any(fnmatchcase(b, p) for p in own)]


def layout_for(
    lines: Sequence[LayoutLine], name: str, shape: tuple[int, ...], mesh: Mesh
) -> Layout | None:
    """What is stated of a name; None where nothing is. A plain name goes before patterns.

    Raises:
        CaptureError: a placement of no known form, on no dim of the mesh or of the tensor, of an
            extent that does not divide, or two statements that differ.
    """
    fitting = [line for line in lines if line.fits(name)]
    exact = [line for line in fitting if line.pattern == name]
    found = {_layout(line, shape, mesh): line for line in exact or fitting}
    if len(found) > 1:
        first, second = list(found.values())[:2]
        raise CaptureError(f"{name} is laid out twice: {first.where} and {second.where}")
    return next(iter(found), None)


def _layout(line: LayoutLine, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """Where an order is stated, the layout of rows that lie in the order of the ranks."""
    atoms = line.text.startswith("[")
    placed = _placements(line)
    words = " ".join(f"{dim}={_ORDERED.sub('S', kind)}" for dim, kind in placed)
    try:
        layout = read_layout(line.text if atoms else words, shape, mesh)
    except ValueError as problem:
        raise CaptureError(f"{line.where}: {problem}") from None
    for name, kind in placed:
        match = _ORDERED.match(kind)
        if match is None or mesh[name] == 1:
            continue
        dim, parts = int(match[2]) % len(shape), mesh[name] * (1 + (match[1] == "zigzag"))
        own, *rest = layout.dims[dim]
        if own.mesh_dim != name or any(a.mesh_dim for a in rest):
            raise CaptureError(f"{line.where}: another mesh dim splits dim {dim} too")
        if shape[dim] % parts:
            raise CaptureError(
                f"{line.where}: dim {dim} of shape {list(shape)} is not divisible by {parts}",
                hint=f"a zigzag over {name} has two chunks on each of {mesh[name]} ranks",
            )
    return layout
