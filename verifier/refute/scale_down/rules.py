"""How the results of each op follow the extents of its operands."""

from collections.abc import Callable
from math import prod

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.refute.scale_down.reading import Dims, Reading, Sized, offset_of
from shardproof.verifier.refute.scale_down.system import Declined

SMALL_COUNT = 8
"""Counts of entries up to this are kept."""


Rule = Callable[[Reading], dict[str, Sized]]
RULES: dict[str, Rule] = {}
KINDS: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def declare(body: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, body))
        return body

    return declare


PLAIN = frozenset(["dim", "exclusive", "mesh_dim", "reduce", "index", "src", "dst", "shift"])
"""Attributes that count no entries."""


def unchanged(r: Reading) -> dict[str, Sized]:
    """Ops whose results have the shape of their operand, entry by entry."""
    for dims in r.outs:
        like = next((d for d in r.ins if _values(r, d) == _values(r, dims)), None)
        if like is None or not set(r.node.attrs) <= PLAIN:
            raise Declined("it is not known how its result follows the extents")
        r.alike(like, dims)
    return {}


def _values(r: Reading, dims: Dims) -> tuple[int, ...]:
    return tuple(r.system.values[v] for v in dims)


def _map(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    for dims in r.ins:
        for mine, theirs in zip(dims[::-1], out[::-1], strict=False):
            if r.system.values[mine] == r.system.values[theirs]:
                r.system.same(mine, theirs)
    return {}


def _einsum(r: Reading) -> dict[str, Sized]:
    operands, result = parse(lookup(r.node.op).signature)
    extents: dict[str, int] = {}
    for dims, factors in zip((*r.ins, *r.outs), (*operands, result), strict=True):
        for v, factor in zip(dims, factors, strict=True):
            r.system.same(extents.setdefault(factor, v), v)
    return {}


def _reduce(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    dims = r.numbers("dims")
    if not lookup(r.node.op).with_defaults(r.node.attrs)["keepdim"]:
        r.alike(tuple(v for i, v in enumerate(x) if i not in dims), out)
        return {}
    for i, (a, b) in enumerate(zip(x, out, strict=True)):
        if i not in dims:
            r.system.same(a, b)
    return {}


KINDS.update({"map": _map, "einsum": _einsum, "reduce": _reduce})


@_rule("reshape")
def _reshape(r: Reading) -> dict[str, Sized]:
    """Aligns both sides from the left, splitting the larger of two factors by the smaller."""
    (x,), (out,), s = r.ins, r.outs, r.system
    if not s.align(x, out):
        for v in (*x, *out):
            s.pin(v)
    return {"shape": out}


@_rule("permute")
def _permute(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    r.alike(tuple(x[d] for d in r.numbers("dims")), out)
    return {}


@_rule("expand")
def _expand(r: Reading) -> dict[str, Sized]:
    return {**_map(r), "shape": r.outs[0]}


@_rule("full")
def _full(r: Reading) -> dict[str, Sized]:
    return {"shape": r.outs[0]}


@_rule("iota")
def _iota(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    return {"shape": out, "offset": offset_of(r, out[r.number("dim")])}


@_rule("slice")
def _slice(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    s, dim, step = r.system, r.number("dim"), r.number("step")
    start, stop = s.new(r.number("start")), s.new(r.number("stop"))
    count = s.values[out[dim]]
    short = step * count - (s.values[stop] - s.values[start])
    s.cuts += [(x[dim], start), (x[dim], stop)]
    s.add(stop, ((1, start), (step, out[dim])), -short)
    s.add(x[dim], ((1, stop), (1, s.new(s.values[x[dim]] - s.values[stop]))))
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"start": start, "stop": stop}


@_rule("pad")
def _pad(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    dim, lo, hi = r.number("dim"), r.system.new(r.number("lo")), r.system.new(r.number("hi"))
    r.system.add(out[dim], ((1, lo), (1, x[dim]), (1, hi)))
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"lo": lo, "hi": hi}


@_rule("concat")
def _concat(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    dim = r.number("dim")
    r.system.add(out[dim], tuple((1, x[dim]) for x in r.ins))
    for x in r.ins:
        r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {}


@_rule("take")
def _take(r: Reading) -> dict[str, Sized]:
    (x, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike((*x[:dim], *index, *x[dim + 1 :]), out)
    return {"offset": offset_of(r, x[dim])}


@_rule("take_along")
def _take_along(r: Reading) -> dict[str, Sized]:
    (x, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike(index, out)
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"offset": offset_of(r, x[dim])}


@_rule("index_add")
def _index_add(r: Reading) -> dict[str, Sized]:
    (g, index), (out,) = r.ins, r.outs
    r.alike(index, g[: len(index)])
    r.alike(g[len(index) :], out[1:])
    return {"size": out[0], "offset": offset_of(r, out[0])}


@_rule("put_along")
def _put_along(r: Reading) -> dict[str, Sized]:
    (g, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike(g, index)
    r.alike((*g[:dim], *g[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"size": out[dim], "offset": offset_of(r, out[dim])}


def _tied(r: Reading, many: Dims, few: Dims, dim: int) -> None:
    """`many[dim]` is `few[dim]` times the ranks of the group."""
    r.system.multiply((many[dim],), (*r.group(), few[dim]))


def _but(dims: Dims, *out: int) -> Dims:
    return tuple(v for i, v in enumerate(dims) if i not in out)


@_rule("all_gather", "shard_pad", "gather")
def _all_gather(r: Reading) -> dict[str, Sized]:
    (x,), (out,), dim = r.ins, r.outs, r.number("dim")
    _tied(r, out, x, dim)
    r.alike(_but(x, dim), _but(out, dim))
    return {}


@_rule("reduce_scatter", "shard_slice", "scatter")
def _chunk(r: Reading) -> dict[str, Sized]:
    (x,), (out,), dim = r.ins, r.outs, r.number("dim")
    _tied(r, x, out, dim)
    r.alike(_but(x, dim), _but(out, dim))
    return {}


@_rule("merge")
def _merge(r: Reading) -> dict[str, Sized]:
    for x in r.ins:
        r.alike(x, r.outs[0])
    return {}


@_rule("topk_mask")
def _topk(r: Reading) -> dict[str, Sized]:
    """So many of the entries of a dim; a small number is kept, and so many entries are left."""
    (x,), (out,), s = r.ins, r.outs, r.system
    r.alike(x, out)
    count, among = r.number("k"), x[r.number("dim")]
    if count == s.values[among]:
        return {"k": among}
    if count > SMALL_COUNT:
        s.loose.append(s.new(count))
        return {"k": s.loose[-1]}
    s.floors[among] = max(s.floors.get(among, 0), min(count + 1, s.values[among]))
    return {}


@_rule("topk_index")
def _topk_index(r: Reading) -> dict[str, Sized]:
    (x,), (out,), s, dim = r.ins, r.outs, r.system, r.number("dim")
    r.alike(_but(x, dim), _but(out, dim))
    found, among = out[dim], x[dim]
    if s.values[found] == s.values[among]:
        s.same(found, among)
    elif s.values[found] > SMALL_COUNT:
        s.add(among, ((1, found), (1, s.new(s.values[among] - s.values[found]))))
    else:
        s.pin(found)
        s.floors[among] = max(s.floors.get(among, 0), s.values[found] + 1)
    return {"k": found}


@_rule("all_to_all")
def _all_to_all(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    split, concat = r.number("split_dim"), r.number("concat_dim")
    if split == concat:
        r.alike(x, out)
        count = prod(r.system.values[v] for v in r.group())
        chunk = r.system.new(r.system.values[x[split]] // count)
        r.system.multiply((x[split],), (*r.group(), chunk))
        return {}
    _tied(r, x, out, split)
    _tied(r, out, x, concat)
    r.alike(_but(x, split, concat), _but(out, split, concat))
    return {}
