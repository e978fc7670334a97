"""Writes programs and contracts again at other extents; types are inferred anew."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Dim, Layout
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, TensorType
from shardproof.verifier.kernel.program.where import Where, ranks_where
from shardproof.verifier.refute.scale_down.collect import Sizes
from shardproof.verifier.refute.scale_down.coordinates import Kept, present, renamed
from shardproof.verifier.refute.scale_down.literals import Literals
from shardproof.verifier.refute.scale_down.reading import Offset, Sized
from shardproof.verifier.refute.scale_down.system import Declined
from shardproof.verifier.text.assemble import Assembly

Value = Callable[[int], int]
"""The new value of an unknown."""
Atoms = dict[str, tuple[tuple[tuple[int, str | None], ...], ...]]
"""By input name or output key, for each dim its atoms: (unknown, mesh dim)."""


def rebuild(
    sizes: Sizes,
    mesh: Mesh,
    value: Value,
    literals: Literals,
    kept: Kept,
    depth: int = 0,
    bodies: dict[int, Program] | None = None,
) -> Program:
    """The program at the new extents. A body that several nodes share is written once.

    Raises:
        IRError: the new program is not well formed.
        Declined: the types inferred are not those solved for.
    """
    old, bodies = sizes.program, {} if bodies is None else bodies
    parts = Assembly(old.name, mesh, depth)
    for item in old.inputs:
        shape = tuple(value(v) for v in sizes.dims[item.name])
        parts.input(
            item.name,
            TensorType(shape, item.type.dtype),
            item.role,
            item.path,
            parts.where(present(item.where, kept)),
        )
    for node, sized, inner in zip(old.nodes, sizes.attrs, sizes.bodies, strict=True):
        body = None
        if inner is not None:
            body = bodies.get(id(inner))
            if body is None:
                body = rebuild(inner, mesh, value, literals, kept, depth + 1, bodies)
                bodies[id(inner)] = body
        attrs = renamed(literals.attrs(old, node), kept)
        attrs |= {
            name: _attr(s, value)
            for name, s in sized.items()
            if name in attrs or not isinstance(s, Offset)
        }
        where = parts.where(present(node.where, kept))
        parts.node(
            node.op, node.inputs, node.outputs, attrs, node.source, body, None, where, node.timing
        )
        for name in node.outputs:
            want = tuple(value(v) for v in sizes.dims[name])
            if parts.types[name].shape != want:
                raise Declined(
                    f"%{name} becomes {parts.types[name]}, its extents were solved as {list(want)}"
                )
    for out in old.outputs:
        parts.output(out.value, out.role, out.path)
    return parts.build()


def _attr(sized: Sized, value: Value) -> Attr:
    if isinstance(sized, int):
        return value(sized)
    if isinstance(sized, tuple):
        return tuple(value(v) for v in sized)

    def total(parts: tuple[tuple[int, int], ...], rest: int) -> int:
        return rest + sum(k * value(v) for k, v in parts)

    const = total(sized.const, sized.rest)
    if not sized.terms:
        return const
    return Affine.of(const, {name: total(parts, rest) for name, parts, rest in sized.terms})


def contract_at(old: Contract, mesh: Mesh, atoms: Atoms, value: Value, kept: Kept) -> Contract:
    """The contract at the new extents."""

    def layout(key: str, was: Layout) -> Layout:
        dims: list[Dim] = []
        for dim in atoms[key]:
            dims.append(tuple(Atom(mesh[n] if n else value(v), n) for v, n in dim))
        return Layout(tuple(dims), was.partial)

    def places(old: Mapping[str, Where]) -> dict[str, Where]:
        return {k: ranks_where(mesh, dict(present(w, kept))) for k, w in old.items()}

    return replace(
        old,
        inputs={k: layout(f"input {k}", v) for k, v in old.inputs.items()},
        outputs={k: layout(f"output {k}", v) for k, v in old.outputs.items()},
        held=places(old.held),
        wanted=places(old.wanted),
    )
