"""From a tensor program to a `Program`: take apart, check, turn each store into ops."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardproof.synthesis.frontends.tir.bounds import check_bounds
from shardproof.synthesis.frontends.tir.conflicts import check_order
from shardproof.synthesis.frontends.tir.copies import through_copies
from shardproof.synthesis.frontends.tir.emit import LeafEmitter
from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.expressions import Value
from shardproof.synthesis.frontends.tir.leaves import Flat, Leaf, flatten
from shardproof.synthesis.frontends.tir.memory import Memory, Uninitialised, Views
from shardproof.synthesis.frontends.tir.private import common, expanded
from shardproof.synthesis.frontends.tir.script import parse
from shardproof.synthesis.frontends.tir.tree import TIRFunc
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import NO_MESH, Attr, Mesh, Source, TensorType


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective on a buffer, run after the last store to it."""

    buffer: str
    op: str = "all_reduce"
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, "Attr"])


@dataclass(frozen=True, slots=True)
class LiftedBlock:
    """What a store turned out to compute."""

    name: str
    kind: str
    """`matmul`, `reduction(sum)`, `elementwise`, `copy`, `fill`, `gather`."""
    source: Source


@dataclass(frozen=True)
class LiftResult:
    """A lifted function."""

    program: Program
    func: TIRFunc
    blocks: tuple[LiftedBlock, ...]
    assumptions: tuple[str, ...] = ()
    """What the lift takes for granted about values."""
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Integer inputs used as indices, and the extent that their values stay below."""
    checked: str = ""
    """At which extents the program was compared with the interpreter; empty: it was not."""
    layouts: Mapping[str, Layout] = field(default_factory=dict[str, "Layout"])
    """The layout of each parameter, where placements were given."""


def lift(
    text: str,
    filename: str = "<tir>",
    *,
    func: str | None = None,
    extents: Mapping[str, Value] | None = None,
    inout: Collection[str] = (),
    check: bool = False,
) -> Program:
    """The one-device program of a TIR or TileLang script.

    Parameters that are never stored to are inputs, the others outputs, in order.

    Args:
        extents: values of symbolic extents, module constants and factory parameters.
        inout: parameters whose old contents are read: inputs and outputs.
        check: compare with the interpreter on random numbers (at smaller extents where the script
            is too large to run and its extents are symbolic).

    Raises:
        TirError: located; a script that is not understood, races, reads what was not written, or
            leaves its buffers.
    """
    made = lift_text(text, filename, func=func, extents=extents, inout=inout, check=check)
    return made.program


def lift_text(
    text: str,
    filename: str = "<tir>",
    *,
    func: str | None = None,
    extents: Mapping[str, Value] | None = None,
    inout: Collection[str] = (),
    check: bool = False,
    mesh: Mesh = NO_MESH,
    collectives: Sequence[Collective] = (),
) -> LiftResult:
    """As `lift`, with what was found; `collectives` make it the program of a rank of `mesh`."""
    tree = parse(text, filename, func=func, extents=extents)
    made = lift_func(tree, inout=inout, mesh=mesh, collectives=collectives)
    if check:
        from shardproof.synthesis.frontends.tir.check import check_lift

        made = replace(made, checked=check_lift(text, made, func, dict(extents or {}), inout))
    return made


def lift_func(
    func: TIRFunc,
    *,
    inout: Collection[str] = (),
    mesh: Mesh = NO_MESH,
    collectives: Sequence[Collective] = (),
) -> LiftResult:
    """The program of a syntax tree. Raises TirError."""
    flat = expanded(flatten(func))
    check_bounds(flat)
    check_order(flat)
    after = _after(flat, collectives)
    flat = through_copies(flat, keep=[c.buffer for c in collectives])
    builder = Builder(func.name, mesh)
    views = Views(builder)
    memory = {n: Memory(views, b.shape, b.dtype) for n, b in flat.buffers.items()}
    written = {leaf.store.buffer for leaf in flat.leaves}
    unknown = sorted(set(inout) - {p.name for p in func.params if p.name in written})
    if unknown:
        what = f"inout names {unknown[0]}, which is not a parameter that is stored to"
        fail(func.place, what)
    for param in func.params:
        if param.name not in written or param.name in inout:
            builder.input(param.name, TensorType(param.shape, param.dtype))
            memory[param.name].write(memory[param.name].whole, param.name)
    blocks: list[LiftedBlock] = []
    assumptions: list[str] = []
    limits: dict[str, int] = {}
    last = {leaf.store.buffer: n for n, leaf in enumerate(flat.leaves)}
    for n, leaf in enumerate(flat.leaves):
        source = _source(func, leaf)
        views.hint = leaf.store.buffer
        emitter = LeafEmitter(flat, leaf, memory, views)
        with builder.at(source):
            emitter.run()
            if last[leaf.store.buffer] == n:
                for collective in after.get(leaf.store.buffer, ()):
                    _communicate(flat, n, memory[leaf.store.buffer], collective, views)
        kind = "matmul" if "matmul" in emitter.kinds else ", ".join(sorted(emitter.kinds))
        blocks.append(LiftedBlock(leaf.block, kind, source))
        assumptions += [a for a in emitter.assumptions if a not in assumptions]
        for name, size in emitter.limits.items():
            limits[name] = min(size, limits.get(name, size))
    _outputs(flat, memory, builder, written)
    return LiftResult(live(builder.build()), func, tuple(blocks), tuple(assumptions), limits)


def _outputs(flat: Flat, memory: dict[str, Memory], builder: Builder, written: set[str]) -> None:
    func = flat.func
    if not any(p.name in written for p in func.params):
        fail(func.place, f"{func.name} stores to none of its parameters")
    for param in func.params:
        if param.name not in written:
            continue
        held = memory[param.name]
        try:
            content = held.read(held.whole)
            value = held.value(content, held.whole)
        except Uninitialised as error:
            shown = ", ".join(f"{lo}:{hi}" for lo, hi in error.box)
            fail(
                param.place,
                f"{param.name} is not written everywhere",
                expected="a store to every element",
                got=f"nothing in {param.name}[{shown}]",
                hint=f"if the caller's values stay there, give inout=[{param.name!r}]",
            )
        except ValueError:
            fail(param.place, f"{param.name} is filled with an infinity")
        builder.output(value, "output", param.name)


def _source(func: TIRFunc, leaf: Leaf) -> Source:
    line = leaf.store.place.line
    text = func.lines[line - 1].strip() if 0 < line <= len(func.lines) else ""
    return Source(func.file, line, leaf.block, text)


def _after(flat: Flat, collectives: Sequence[Collective]) -> dict[str, list[Collective]]:
    out: dict[str, list[Collective]] = {}
    written = {leaf.store.buffer for leaf in flat.leaves}
    place = flat.func.place
    for c in collectives:
        if c.buffer not in written:
            known = ", ".join(sorted(written))
            fail(place, f"a collective on {c.buffer}", expected=f"one of {known}")
        shape = flat.buffers[c.buffer].shape
        private = flat.homes[c.buffer]
        stores = [n for n, lf in enumerate(flat.leaves) if lf.store.buffer == c.buffer]
        between = [lf for lf in flat.leaves[stores[0] : stores[-1]] if lf.store.buffer != c.buffer]
        if private or any(x.buffer == c.buffer for lf in between for x in lf.reads):
            fail(
                place,
                f"a collective on {c.buffer} would run inside a loop of the kernel",
                expected=f"a buffer of shape {list(shape)} that is whole between two loop nests",
            )
        out.setdefault(c.buffer, []).append(c)
    _between(flat, out)
    return out


def _between(flat: Flat, after: Mapping[str, Sequence[Collective]]) -> None:
    """A collective cuts the kernel in two: no loop may be around stores on both sides of it."""
    for name in after:
        final = max(n for n, lf in enumerate(flat.leaves) if lf.store.buffer == name)
        for late in flat.leaves[final + 1 :]:
            shared = common(flat.leaves[final].loops, late.loops)
            if any(x.extent > 1 for x in shared):
                fail(
                    flat.leaves[final].store.place,
                    f"a collective on {name} would run inside loop {shared[0].name}",
                    expected="loop nests of their own before and after it",
                )


def _communicate(flat: Flat, n: int, held: Memory, collective: Collective, views: Views) -> None:
    place = flat.leaves[n].store.place
    try:
        content = held.read(held.whole)
        value = held.value(content, held.whole)
        value = views.add(collective.op, value, **collective.attrs)
    except Uninitialised:
        fail(place, f"a collective on {collective.buffer}, not written everywhere")
    except (IRError, ValueError, KeyError) as error:
        fail(place, f"{collective.op} of {collective.buffer}: {error}")
    shape = views.shape(value)
    if shape != held.shape:
        if any(x.buffer == collective.buffer for lf in flat.leaves[n + 1 :] for x in lf.reads):
            fail(
                place,
                f"{collective.op} changes the shape of {collective.buffer}, which is read later",
                expected=str(list(held.shape)),
                got=str(list(shape)),
            )
        held.shape = shape
        held.pieces = []
    held.write(held.whole, value)
