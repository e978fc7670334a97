"""Mutations: small edits of a distributed program of the kinds that people get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations

from benchmarks.mutation_testing.edits import Site, rebuilt, sites, splice, with_attrs, wrapped
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine


@dataclass(frozen=True)
class Mutation:
    """What is done to a program, and where."""

    kind: str
    text: str
    edit: Callable[[], Program | None]
    """The mutant; None where the edit leaves no program of the same result shapes."""


Variant = tuple[str, list[Node], tuple[str, str] | None]
"""What was done, the nodes instead, and a redirection of later uses (old, new)."""
Rule = Callable[[Site], Iterator[Variant]]
RULES: dict[str, Rule] = {}


def rule(kind: str) -> Callable[[Rule], Rule]:
    def declare(body: Rule) -> Rule:
        RULES[kind] = body
        return body

    return declare


def _collective(site: Site) -> bool:
    return lookup(site.node.op).kind == "collective"


def _backward(root: Program, site: Site) -> bool:
    """Whether only gradients depend on the node."""
    need = [o.value for o in root.outputs if o.role != "grad"]
    producers, seen = root.producers(), set[str]()
    while need:
        value = need.pop()
        if value not in seen:
            seen.add(value)
            need += producers[value].inputs if value in producers else ()
    index = site.path[0] if site.path else site.index
    return not any(v in seen for v in root.nodes[index].outputs)


def mutations(program: Program) -> Iterator[Mutation]:
    """Every mutation of a program by every rule."""
    for site in sites(program):
        for kind, body in RULES.items():
            name = kind
            if kind == "drop collective" and _collective(site) and _backward(program, site):
                name = "drop backward collective"
            for text, nodes, rename in body(site):
                edit = partial(splice, program, site, nodes, rename)
                yield Mutation(name, f"{text} at %{site.node.outputs[0]}", edit)
    for (i, a), (j, b) in combinations(enumerate(program.outputs), 2):
        if program[a.value].shape == program[b.value].shape and a.value != b.value:
            outputs = list(program.outputs)
            outputs[i], outputs[j] = replace(a, value=b.value), replace(b, value=a.value)
            edit = partial(rebuilt, program, program.nodes, outputs)
            yield Mutation("swap outputs", f"{a.role}:{a.path} and {b.role}:{b.path}", edit)


@rule("drop collective")
def _drop(site: Site) -> Iterator[Variant]:
    node = site.node
    if _collective(site):
        yield f"{node.op} dropped", [], (node.outputs[0], node.inputs[0])


@rule("duplicate collective")
def _duplicate(site: Site) -> Iterator[Variant]:
    node = site.node
    if _collective(site):
        (name,) = site.fresh()
        again = replace(node, inputs=(node.outputs[0],), outputs=(name,))
        yield f"{node.op} twice", [node, again], (node.outputs[0], name)


@rule("reorder collective")
def _reorder(site: Site) -> Iterator[Variant]:
    node = site.node
    if not _collective(site):
        return
    before = site.producer(node.inputs[0])
    if before is not None and lookup(before.op).kind in ("map", "view", "reduce"):
        (name,) = site.fresh()
        for k, value in enumerate(before.inputs):
            if not site.types[value].is_float:
                continue
            moved = replace(node, inputs=(value,), outputs=(name,))
            inputs = tuple(name if i == k else v for i, v in enumerate(before.inputs))
            late = replace(before, inputs=inputs, outputs=node.outputs)
            yield f"{node.op} before {before.op} on operand {k}", [moved, late], None


@rule("wrong group")
def _group(site: Site) -> Iterator[Variant]:
    node, mesh = site.node, site.scope.mesh
    if not _collective(site):
        return
    for name in mesh.names:
        if name != node.attrs["mesh_dim"]:
            yield f"over {name}", [with_attrs(node, mesh_dim=name)], None
    if len(mesh.names) > 1 and node.op != "on_coord":
        yield f"over {mesh.names}", [with_attrs(node, mesh_dim=mesh.names)], None


@rule("wrong dim of a collective")
def _dim(site: Site) -> Iterator[Variant]:
    node = site.node
    if not _collective(site):
        return
    rank = len(site.types[node.inputs[0]].shape)
    for key in ("dim", "split_dim", "concat_dim"):
        for dim in range(rank):
            if key in node.attrs and dim != node.attrs[key]:
                yield f"{key}={dim}", [with_attrs(node, **{key: dim})], None


@rule("wrong reduction")
def _reduction(site: Site) -> Iterator[Variant]:
    node = site.node
    if "reduce" in lookup(node.op).attrs:
        for how in ("sum", "avg", "max", "min"):
            if how != node.attrs.get("reduce", "sum"):
                yield f"reduce={how}", [with_attrs(node, reduce=how)], None


@rule("collective replaced")
def _replaced(site: Site) -> Iterator[Variant]:
    node = site.node
    if not _collective(site):
        return
    over, dim = node.attrs["mesh_dim"], node.attrs.get("dim", 0)
    new: dict[str, list[tuple[str, dict[str, object]]]] = {
        "reduce_scatter": [("shard_slice", {"dim": dim})],
        "shard_slice": [("reduce_scatter", {"dim": dim})],
        "all_reduce": [("on_coord", {"index": 0})],
        "all_to_all": [("all_reduce", {})],
    }
    for op, attrs in new.get(node.op, []):
        other = Node(op, node.inputs, node.outputs, {"mesh_dim": over, **attrs}, node.source)  # type: ignore[dict-item]
        yield f"{node.op} -> {op}", [other], None


@rule("extra collective")
def _extra(site: Site) -> Iterator[Variant]:
    node = site.node
    out = node.outputs[0]
    if not site.types[out].is_float or node.body is not None:
        return
    for name in site.scope.mesh.names:
        for op, attrs in (
            ("all_reduce", {"reduce": "sum"}),
            ("all_reduce", {"reduce": "max"}),
            ("on_coord", {"index": site.scope.mesh[name] - 1}),
        ):
            added, fresh = wrapped(site, op, out, {"mesh_dim": name, **attrs})
            yield f"{op} over {name} added", [node, added], (out, fresh)


@rule("off by one")
def _off_by_one(site: Site) -> Iterator[Variant]:
    node = site.node
    pairs = {"slice": (("start", "stop"),), "pad": (("lo", "hi"),)}.get(node.op, ())
    for low, high in pairs:
        a, b = node.attrs[low], node.attrs[high]
        assert isinstance(a, int)
        assert isinstance(b, int)
        for da, db in ((1, 1), (-1, -1), (1, 0), (0, -1), (1, -1), (-1, 1)):
            yield (
                f"{low}{da:+} {high}{db:+}",
                [with_attrs(node, **{low: a + da, high: b + db})],
                None,
            )


@rule("wrong offset")
def _offset(site: Site) -> Iterator[Variant]:
    node, mesh = site.node, site.scope.mesh
    if "offset" not in lookup(node.op).attrs:
        return
    offset = node.attrs.get("offset", 0)
    now = offset if isinstance(offset, Affine) else Affine.of(int(str(offset)))
    steps = dict(now.terms)
    extent = max(site.types[node.outputs[0]].shape, default=1)
    wrong = [Affine.of(now.const + 1, steps), Affine.of(now.const - 1, steps)]
    wrong += [Affine.of(now.const, {n: s + d for n, s in steps.items()}) for d in (1, -1)]
    wrong += [Affine.of(now.const, {n: s}) for n in mesh.names for s in (extent, *steps.values())]
    if steps:
        wrong.append(Affine())
    for other in wrong:
        if other != now:
            yield f"offset {other} for {now}", [with_attrs(node, offset=other)], None


@rule("wrong scale")
def _scale(site: Site) -> Iterator[Variant]:
    node = site.node
    factors = [Fraction(2), Fraction(1, 2), Fraction(-1)]
    factors += [Fraction(1, size) for _, size in site.scope.mesh.dims if size > 2]
    if node.op in ("mul_scalar", "add_scalar", "full"):
        value = node.attrs["value"]
        assert isinstance(value, int | Fraction)
        for factor in factors:
            yield f"value times {factor}", [with_attrs(node, value=Fraction(value) * factor)], None
    out = node.outputs[0]
    if site.types[out].is_float and node.body is None:
        for factor in factors:
            added, fresh = wrapped(site, "mul_scalar", out, {"value": factor})
            yield f"times {factor}", [node, added], (out, fresh)


@rule("swap operands")
def _swap(site: Site) -> Iterator[Variant]:
    node = site.node
    for i, j in combinations(range(len(node.inputs)), 2):
        if node.inputs[i] != node.inputs[j] and node.body is None:
            inputs = list(node.inputs)
            inputs[i], inputs[j] = inputs[j], inputs[i]
            yield f"operands {i} and {j}", [replace(node, inputs=tuple(inputs))], None


@rule("wrong permute")
def _permute(site: Site) -> Iterator[Variant]:
    node = site.node
    out = node.outputs[0]
    if node.op == "permute":
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        for i, j in combinations(range(len(dims)), 2):
            order = list(dims)
            order[i], order[j] = order[j], order[i]
            yield f"dims {tuple(order)}", [with_attrs(node, dims=tuple(order))], None  # type: ignore[arg-type]
    shape = site.types[out].shape
    if node.body is None and node.op != "permute":
        for i, j in combinations(range(len(shape)), 2):
            if shape[i] == shape[j] > 1:
                order = list(range(len(shape)))
                order[i], order[j] = j, i
                added, fresh = wrapped(site, "permute", out, {"dims": tuple(order)})
                yield f"transposed {i} {j}", [node, added], (out, fresh)


@rule("wrong reshape")
def _reshape(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op != "reshape":
        return
    shape = node.attrs["shape"]
    assert isinstance(shape, tuple)
    (fresh,) = site.fresh()
    for i, j in combinations(range(len(shape)), 2):
        if shape[i] == shape[j]:
            continue
        order = list(range(len(shape)))
        order[i], order[j] = j, i
        cut = replace(
            with_attrs(node, shape=tuple(int(shape[k]) for k in order)),
            outputs=(fresh,),  # type: ignore[arg-type]
        )
        back = Node("permute", (fresh,), node.outputs, {"dims": tuple(order)}, node.source)
        yield f"through {[shape[k] for k in order]}", [cut, back], None


@rule("bias before the reduce")
def _bias(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op not in ("add", "sub"):
        return
    (fresh,) = site.fresh()
    for k, value in enumerate(node.inputs):
        before = site.producer(value)
        if before is not None and before.op == "all_reduce":
            inputs = tuple(before.inputs[0] if i == k else v for i, v in enumerate(node.inputs))
            early = replace(node, inputs=inputs, outputs=(fresh,))
            late = replace(before, inputs=(fresh,), outputs=node.outputs)
            yield f"operand {1 - k} added before", [early, late], None


@rule("wrong operand")
def _operand(site: Site) -> Iterator[Variant]:
    node = site.node
    for k, value in enumerate(node.inputs):
        type = site.types[value]
        others = [v for v in site.before() if v != value and site.types[v] == type]
        for other in others[-6:]:
            inputs = tuple(other if i == k else v for i, v in enumerate(node.inputs))
            yield f"%{other} for %{value}", [replace(node, inputs=inputs)], None


@rule("skipped op")
def _skip(site: Site) -> Iterator[Variant]:
    node = site.node
    out = node.outputs[0]
    if _collective(site):
        return
    for value in dict.fromkeys(node.inputs):
        if site.types[value] == site.types[out] and node.op != "reshape":
            yield f"{node.op} skipped", [], (out, value)


OTHER = {
    "gelu": ("relu", "silu"),
    "silu": ("sigmoid", "gelu"),
    "silu_grad": ("sigmoid",),
    "gelu_grad": ("relu_grad",),
    "relu": ("gelu",),
    "tanh": ("sigmoid",),
    "exp": ("expm1",),
    "rsqrt": ("sqrt",),
    "log": ("log1p",),
    "add": ("sub", "maximum"),
    "sub": ("add",),
    "mul": ("div", "add"),
    "div": ("mul",),
    "le": ("lt", "ge"),
    "sum": ("amax",),
    "amax": ("sum",),
}


@rule("wrong op")
def _op(site: Site) -> Iterator[Variant]:
    node = site.node
    for other in OTHER.get(node.op, ()):
        yield f"{node.op} -> {other}", [replace(node, op=other)], None


@rule("wrong dims of a reduction")
def _dims(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op in ("sum", "amax"):
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        for i, dim in enumerate(dims):
            assert isinstance(dim, int)
            for other in (dim - 1, dim + 1):
                changed = tuple(other if k == i else d for k, d in enumerate(dims))
                yield f"dims {changed}", [with_attrs(node, dims=changed)], None  # type: ignore[arg-type]
    if node.op == "iota":
        shape = node.attrs["shape"]
        assert isinstance(shape, tuple)
        turned = {"shape": shape[::-1], "dim": len(shape) - 1 - int(str(node.attrs["dim"]))}
        yield "iota along the other dim", [with_attrs(node, **turned)], None


@rule("wrong direction of a scan")
def _direction(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op == "scan":
        reverse = not node.attrs.get("reverse", False)
        yield f"reverse={reverse}", [with_attrs(node, reverse=reverse)], None
