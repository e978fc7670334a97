"""Gradient accumulation: a forward and backward program run on each micro-batch, sums kept."""

from collections.abc import Collection, Mapping
from fractions import Fraction

from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, leading_to
from shardproof.verifier.kernel.program.types import Attr, TensorType
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.kernel.rank_sets import regions


def row(b: Builder, x: str, index: int) -> str:
    """Entry `index` of the first dim."""
    shape = b.types[x].shape
    cut = b.add("slice", x, dim=0, start=index, stop=index + 1)
    return b.add("reshape", cut, shape=shape[1:])


def include(
    b: Builder, program: Program, inputs: Mapping[str, str], prefix: str = ""
) -> dict[str, str]:
    """Add the nodes that some output needs. Gives the outer values of the outputs, by key.

    Args:
        inputs: name of an input -> the outer value that it is.
        prefix: what the names of the values that are added begin with.
    """
    names = dict(inputs)
    for node in leading_to({o.value for o in program.outputs}, program.nodes):
        named = tuple(f"{prefix}{v}" for v in node.outputs)
        b.add_node(
            node.op,
            tuple(names[v] for v in node.inputs),
            node.attrs,
            outputs=named,
            body=node.body,
            where=node.where or None,
            timing=node.timing,
        )
        names.update(zip(node.outputs, named, strict=True))
    return {output_key(o): names[o.value] for o in program.outputs}


def added(b: Builder, sums: dict[str, str], shares: Mapping[str, str]) -> None:
    """Add shares to running sums, by output key."""
    for key, share in shares.items():
        sums[key] = b.add("add", sums[key], share) if key in sums else share


def repeated(b: Builder, program: Program, count: int, batch: Collection[str]) -> dict[str, str]:
    """A scan over the micro-batches that carries the sums, which start at zero."""
    inner = Builder("micro_batch", program.mesh)
    places = regions(program).values
    kept = {output_key(o): (program[o.value], places[o.value]) for o in program.outputs}
    inner.reserve(program.types)
    sums = {k: inner.input(f"sum.{k}", t, "carry", where=where) for k, (t, where) in kept.items()}
    for item in program.inputs:
        if item.name in batch:
            inner.input(item.name, item.type, "xs", where=item.where)
    for item in program.inputs:
        if item.name not in batch:
            inner.input(item.name, item.type, "const", where=item.where)
    for key, share in include(inner, program, {i.name: i.name for i in program.inputs}).items():
        inner.output(inner.add("add", sums[key], share), "carry", key)
    names = [i.name for i in program.inputs]
    xs = [n for n in names if n in batch]
    consts = [n for n in names if n not in batch]
    zeros = [_zero(b, type, where) for type, where in kept.values()]
    results = b.add_node(
        "scan",
        [*zeros, *xs, *consts],
        {"length": count, "carry": len(zeros), "xs": len(xs), "reverse": False},
        body=inner.build(),
    )
    b.held |= {name: where for name, (_, where) in zip(results, kept.values(), strict=True)}
    return dict(zip(kept, results, strict=True))


def _zero(b: Builder, type: TensorType, where: Where) -> str:
    attrs: dict[str, Attr] = {"shape": type.shape, "value": Fraction(0), "dtype": type.dtype}
    return b.add_node("full", (), attrs, where=where or None)[0]
