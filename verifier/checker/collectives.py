"""What must hold of collectives: the value stays, up to an exact factor; the layout moves."""

import math
from collections.abc import Iterable
from fractions import Fraction

from shardproof.verifier.checker.claims import need
from shardproof.verifier.checker.step import Made, Step, others, pending, same_partial, sums
from shardproof.verifier.kernel.layout import Atom, Dim, Layout, normal


def _names(step: Step) -> tuple[str, ...]:
    value = step.attrs["mesh_dim"]
    return (value,) if isinstance(value, str) else tuple(value)


def _opened(step: Step, dim: Dim, names: Iterable[str]) -> Dim:
    """The dim after ranks along `names` (innermost first) joined their pieces in rank order."""
    for name in names:
        if step.mesh[name] == 1:
            continue
        places = [i for i, atom in enumerate(dim) if atom.mesh_dim == name]
        need(len(places) == 1, f"the dim is not split over {name}")
        (at,) = places
        need(all(a.mesh_dim is not None for a in dim[:at]), f"{name} is not the outermost split")
        dim = normal((*dim[:at], Atom(dim[at].size), *dim[at + 1 :]))
    return dim


def _reduced(step: Step) -> tuple[tuple[tuple[str, str], ...], Fraction]:
    """Pending folds and exact factor after the reduction of a collective."""
    names, how = _names(step), step.attrs["reduce"]
    fold = "sum" if how == "avg" else how
    need(all(f == fold for _, f in step.first.partial), f"a {how} of another pending fold")
    need(not step.first.sharded & set(names), "a value that is split is reduced")
    pending = step.first.pending
    copies = math.prod(step.mesh[n] for n in names if n not in pending)
    ranks = math.prod(step.mesh[n] for n in names)
    factor = Fraction(copies if fold == "sum" else 1, ranks if how == "avg" else 1)
    return tuple(p for p in step.first.partial if p[0] not in names), factor


def all_reduce(step: Step) -> Made:
    partial, factor = _reduced(step)
    need(step.layout == Layout(step.first.dims, partial), "the result is laid out otherwise")
    return step.scaled(factor)


def reduce_scatter(step: Step) -> Made:
    partial, factor = _reduced(step)
    need(step.layout.partial == partial, "the result waits otherwise")
    _split(step, step.at("dim"))
    others(step, step.at("dim"))
    return step.scaled(factor)


def _split(step: Step, dim: int) -> None:
    """Joining the result's pieces along `dim` gives the operand back."""
    back = _opened(step, step.layout.dims[dim], reversed(_names(step)))
    need(back == step.first.dims[dim], "the pieces do not make up the operand")


def all_gather(step: Step) -> Made:
    dim = step.at("dim")
    same_partial(step)
    others(step, dim)
    joined = _opened(step, step.first.dims[dim], reversed(_names(step)))
    need(step.layout.dims[dim] == joined, "the joined pieces are laid out otherwise")
    return step.scaled()


def shard_slice(step: Step) -> Made:
    same_partial(step)
    others(step, step.at("dim"))
    _split(step, step.at("dim"))
    return step.scaled()


def shard_pad(step: Step) -> Made:
    dim, names = step.at("dim"), _names(step)
    sums(step.first)
    others(step, dim)
    joined = _opened(step, step.first.dims[dim], reversed(names))
    need(step.layout.dims[dim] == joined, "the padded pieces are laid out otherwise")
    pending(step, step.first.partial, [(n, "sum") for n in names if step.mesh[n] > 1])
    return step.scaled()


def all_to_all(step: Step) -> Made:
    split, concat = step.at("split_dim"), step.at("concat_dim")
    same_partial(step)
    if split == concat:
        others(step, split)
        need(
            step.layout.dims[split] == _exchanged(step, split), "the chunks are laid out otherwise"
        )
        return step.scaled()
    joined = _opened(step, step.first.dims[concat], reversed(_names(step)))
    need(step.layout.dims[concat] == joined, "the joined pieces are laid out otherwise")
    _split(step, split)
    for i, (a, b) in enumerate(zip(step.layout.dims, step.first.dims, strict=True)):
        need(i in (split, concat) or a == b, "another dim changes")
    return step.scaled()


def _exchanged(step: Step, at: int) -> Dim:
    """The dim after its first chunks and the ranks that held it changed places."""
    names = [n for n in _names(step) if step.mesh[n] > 1]
    count = math.prod(step.mesh[n] for n in names)
    dim = step.first.dims[at]
    if not names:
        return dim
    free = [i for i, atom in enumerate(dim) if atom.mesh_dim is None]
    need(bool(free) and dim[free[0]].size % count == 0, "the dim has no chunk for every rank")
    first = free[0]
    chunks = tuple(Atom(step.mesh[n], f"{n}'") for n in names)
    rest = Atom(dim[first].size // count)
    both = normal((*dim[:first], *chunks, rest, *dim[first + 1 :]))
    opened = _opened(step, both, reversed(names))
    return normal(
        Atom(a.size, n[:-1] if (n := a.mesh_dim) and n.endswith("'") else n) for a in opened
    )


def on_coord(step: Step) -> Made:
    names = _names(step)
    need(len(names) == 1, "one coordinate of several mesh dims")
    (name,) = names
    need(0 <= step.at("index") < step.mesh[name], "no such coordinate")
    sums(step.first)
    need(step.layout.dims == step.first.dims, "the dims change")
    pending(step, step.first.partial, [(name, "sum")] if step.mesh[name] > 1 else [])
    return step.scaled()
