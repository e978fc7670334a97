"""What must hold of ops that only move elements: both sides are one map of indices."""

from shardproof.verifier.checker.claims import need
from shardproof.verifier.checker.step import Made, Step, others, same_partial, sums
from shardproof.verifier.kernel.layout import Atom, Dim, bound, global_extent, local_extent, normal


def reshape(step: Step) -> Made:
    """Both layouts list the same atoms in the same order: one flat index map."""
    same_partial(step)
    before, after = (normal(a for d in lay.dims for a in d) for lay in (step.first, step.layout))
    need(before == after, "the atoms are not the same in order")
    return step.term(shape=step.layout.global_shape)


def permute(step: Step) -> Made:
    same_partial(step)
    need(
        step.layout.dims == tuple(step.first.dims[d] for d in step.ints("dims")),
        "the dims are not permuted so",
    )
    return step.term()


def expand(step: Step) -> Made:
    """Equal entries may be read as split over any mesh dim that the layout does not use yet."""
    same_partial(step)
    lead = len(step.layout.dims) - len(step.first.dims)
    for dim, new in zip(step.first.dims, step.layout.dims[lead:], strict=True):
        need(dim in ((), new), "a split dim is expanded")
    return step.term(shape=step.layout.global_shape)


def _block(dim: Dim) -> tuple[int, int]:
    """Local and whole extent below the leading free atom: the unit in which such a dim is cut."""
    rest = dim[1:] if dim and dim[0].mesh_dim is None else dim
    return local_extent(rest), global_extent(rest)


def cut(step: Step) -> Made:
    """`slice` and `pad`: in whole blocks of a split dim, or anywhere in one that is whole."""
    index = step.at("dim")
    dim, new = step.first.dims[index], step.layout.dims[index]
    same_partial(step)
    others(step, index)
    keys = ("start", "stop") if step.op == "slice" else ("lo", "hi")
    low, high = (step.at(k) for k in keys)
    if step.op == "pad":
        sums(step.layout)
    if not bound(dim):
        need(not bound(new), "a whole dim becomes split")
        return step.term()
    if step.op == "slice":
        need(step.at("step") == 1, "a split dim is sliced with a step")
    local, whole = _block(dim)
    need(local > 0 and low % local == 0 and high % local == 0, "a cut inside a block")
    low, high = low // local, high // local
    count = local_extent(dim) // local
    count = high - low if step.op == "slice" else count + low + high
    rest = dim[1:] if dim[0].mesh_dim is None else dim
    need(new == normal((Atom(count), *rest)), "another number of blocks is left")
    return step.term(**dict(zip(keys, (low * whole, high * whole), strict=True)))


def concat(step: Step) -> Made:
    index, new = step.at("dim"), step.layout.dims[step.at("dim")]
    layouts = [c.layout for c in step.args]
    for claim in step.args:
        for i, (a, b) in enumerate(zip(claim.layout.dims, step.layout.dims, strict=True)):
            need(i == index or a == b, "another dim changes")
        if not (claim.zero and all(fold == "sum" for _, fold in step.layout.partial)):
            need(claim.layout.partial == step.layout.partial, "operands wait for other folds")
    dims = [layout.dims[index] for layout in layouts]
    if any(bound(d) for d in dims):
        parts = [(d[0].size, d[1:]) if d and d[0].mesh_dim is None else (1, d) for d in dims]
        rest = parts[0][1]
        need(all(r == rest for _, r in parts), "unequal pieces are joined")
        count = sum(n for n, _ in parts)
        need(new == normal((Atom(count), *rest)), "the pieces are not the leading atom")
    else:
        need(not bound(new), "a whole dim becomes split")
    return step.term()


def flip(step: Step) -> Made:
    same_partial(step)
    need(step.layout.dims == step.first.dims, "the dims change")
    need(not bound(step.first.dims[step.at("dim")]), "a split dim is reversed")
    return step.term()
