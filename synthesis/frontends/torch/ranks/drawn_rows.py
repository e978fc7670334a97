"""What is drawn for each micro-batch, as the rows of one draw for the whole batch.

Entries of draws of one law are alike and independent of each other, so which entry of a rank is
which of one device is free to say. Ranks that cut their pieces of a batch have other rows in
micro-batch k than one device has: a row keeps its numbers where micro-batches are parts of a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.synthesis.frontends.torch.ranks.micro_batches import cuts
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType


def in_rows(program: Program, draws: Sequence[Draw]) -> tuple[Program, tuple[Draw, ...]]:
    """The program with draws of `k` parts of its batch, along dim 0, as parts of one; and those
    that it is left with, each under the name of its first part."""
    copies = max((k for node, k in cuts(program) if node.attrs["dim"] == 0), default=1)
    parts = {group[0].name: group for group in _repeated(draws, copies)}
    if not parts:
        return program, tuple(draws)
    more = {d.name for group in parts.values() for d in group[1:]}
    b = Builder(program.name, program.mesh)
    b.reserve(program.types)
    names: dict[str, str] = {}
    for item in program.inputs:
        if item.name in more:
            continue
        group = parts.get(item.name, ())
        extent = program.types[item.name].shape[0] if group else 0
        shape = (extent * len(group), *item.type.shape[1:]) if group else item.type.shape
        b.input(item.name, TensorType(shape, item.type.dtype), item.role, item.path, item.where)
        with b.on(**dict(item.where)):
            for i, draw in enumerate(group):
                start, stop = i * extent, (i + 1) * extent
                part = b.add("slice", item.name, dim=0, start=start, stop=stop, step=1)
                names[draw.name] = part
    for node in program.nodes:
        b.append(replace(node, inputs=tuple(names.get(v, v) for v in node.inputs)))
    for out in program.outputs:
        b.output(names.get(out.value, out.value), out.role, out.path)
    left = (d for d in draws if d.name not in more)
    sizes = {name: len(group) for name, group in parts.items()}
    rows = (replace(d, shape=(d.shape[0] * sizes.get(d.name, 1), *d.shape[1:])) for d in left)
    return b.build(), tuple(rows)


def _repeated(draws: Sequence[Draw], copies: int) -> Iterator[list[Draw]]:
    """Draws that one line of a module makes, once for each copy."""

    def like(draw: Draw) -> tuple[object, ...]:
        return draw.name.rpartition(".")[0], draw.shape, draw.law, draw.dtype

    for _, found in groupby(sorted(draws, key=lambda d: str(like(d))), like):
        alike = list(found)
        each, left = divmod(len(alike), copies)
        if copies > 1 and not left and alike[0].shape:
            yield from (alike[i::each] for i in range(each))
