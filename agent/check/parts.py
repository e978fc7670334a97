"""Parameters that are several one after the other, of unlike extents: each part is laid out alone.

`--layout "qkv.weight=[2@tp 8 + 2@tp 4 + 2@tp 4][16]"` says of each rank's piece that it is its
piece of the first 16 rows, then those of the two times 8 that follow. In both programs the
parameter is then joined of its parts, and its gradient cut into theirs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardproof.agent.check.contract import Statements
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured
from shardproof.synthesis.frontends.torch.ranks.stated import LayoutLine
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program
from shardproof.verifier.kernel.program.types import Attr, TensorType

_DIM = re.compile(r"\[([^\]]*)\]")
_ATOM = re.compile(r"^\d+(@\w+)?$")


def part(name: str, number: int) -> str:
    """What a part of a parameter is called, from 0."""
    return f"{name}.part{number}"


@dataclass(frozen=True)
class Parts:
    """The parts of one parameter."""

    dim: int
    texts: tuple[str, ...]
    """The layout of each part, by atoms."""
    wholes: tuple[int, ...]
    """Their extents on one device."""
    pieces: tuple[int, ...]
    """Their extents on a rank."""


def read_parts(line: LayoutLine) -> Parts | None:
    """The parts that a statement speaks of; None where it speaks of none.

    Raises:
        InputError: parts along several dims, or of no known form.
    """
    if "+" not in line.text:
        return None
    dims: list[str] = _DIM.findall(line.text)
    along = [d for d, text in enumerate(dims) if "+" in text]
    atoms = [text.split() for text in dims[along[0]].split("+")] if len(along) == 1 else []
    if not atoms or not all(a and all(map(_ATOM.match, a)) for a in atoms):
        raise InputError(
            "no layout of parts that is known",
            where=line.where,
            expected="parts along one dim: [2@tp 8 + 2@tp 4 + 2@tp 4][16]",
        )
    (dim,) = along
    texts = tuple(
        "".join(f"[{' '.join(a) if d == dim else text}]" for d, text in enumerate(dims))
        for a in atoms
    )
    return Parts(
        dim,
        texts,
        tuple(_extent(a) for a in atoms),
        tuple(_extent([s for s in a if "@" not in s]) for a in atoms),
    )


def _extent(atoms: Sequence[str]) -> int:
    out = 1
    for atom in atoms:
        out *= int(atom.partition("@")[0])
    return out


def in_parts(
    captured: RanksCaptured, many: Program, stated: Statements
) -> tuple[RanksCaptured, Program, Statements]:
    """The same with each parameter of parts joined of inputs of their own, in the program of one
    device and in that of the ranks.

    Raises:
        InputError: as `read_parts`; parts that do not make up what one device or a rank holds, a
            parameter that some ranks do not have.
    """
    lines: list[LayoutLine] = []
    for line in stated.params:
        parts = read_parts(line)
        fitting = [n for n in captured.one.params if line.fits(n)] if parts else []
        if parts is None or not fitting:
            lines.append(line)
            continue
        for name in fitting:
            one = captured.one
            opened = _opened(one.program, name, parts, parts.wholes, line)
            many = _opened(many, name, parts, parts.pieces, line)
            ranks = (
                replace(r, params=_typed(r.params, name, parts.dim, parts.pieces))
                for r in captured.ranks
            )
            params = _typed(one.params, name, parts.dim, parts.wholes)
            captured = replace(
                captured, one=replace(one, program=opened, params=params), ranks=tuple(ranks)
            )
            lines += [
                LayoutLine(part(name, i), text, line.where) for i, text in enumerate(parts.texts)
            ]
    return captured, many, replace(stated, params=tuple(lines))


def _typed(
    params: Mapping[str, TensorType], name: str, dim: int, extents: Sequence[int]
) -> dict[str, TensorType]:
    kept = {n: t for n, t in params.items() if n != name}
    made = (_cut(params[name], dim, extent) for extent in extents)
    return kept | {part(name, i): t for i, t in enumerate(made)}


def _cut(kind: TensorType, dim: int, extent: int) -> TensorType:
    return replace(kind, shape=(*kind.shape[:dim], extent, *kind.shape[dim + 1 :]))


def _opened(
    program: Program, name: str, parts: Parts, extents: Sequence[int], line: LayoutLine
) -> Program:
    """A program whose parameter is joined of parts, and whose gradient of it is cut."""
    item = next((i for i in program.inputs if i.role == "param" and i.path == name), None)
    if item is None or item.where:
        raise InputError(f"not every rank has the parameter {name}", where=line.where)
    if len(item.type.shape) <= parts.dim or sum(extents) != item.type.shape[parts.dim]:
        raise InputError(
            f"the parts of {name} do not make it up",
            where=line.where,
            expected=f"parts of {item.type}",
            got=f"extents {' + '.join(map(str, extents))} along dim {parts.dim}",
        )
    kinds = [_cut(item.type, parts.dim, extent) for extent in extents]
    inputs = [Input(part(item.name, i), t, "param", part(name, i)) for i, t in enumerate(kinds)]
    names = tuple(i.name for i in inputs)
    types = program.types | {i.name: i.type for i in inputs}
    nodes = [Node("concat", names, (item.name,), {"dim": parts.dim}), *program.nodes]
    outputs: list[Output] = []
    for out in program.outputs:
        if (out.role, out.path) != ("grad", name):
            outputs.append(out)
            continue
        start = 0
        for i, kind in enumerate(kinds):
            made, stop = part(f"{out.value}.{name}", i), start + kind.shape[parts.dim]
            attrs: dict[str, Attr] = {"dim": parts.dim, "start": start, "stop": stop, "step": 1}
            nodes.append(Node("slice", (out.value,), (made,), attrs))
            types[made], start = kind, stop
            outputs.append(Output(made, "grad", part(name, i)))
    given = [i for other in program.inputs for i in (inputs if other is item else [other])]
    return replace(
        program, inputs=tuple(given), nodes=tuple(nodes), outputs=tuple(outputs), types=types
    )
