"""The form of an instance: the same step with its extents named, so that it has other sizes too.

Which dims have one extent follows from the kind of the op and from what its attributes mean. The
form of an instance has the instance itself among its sizes, or it is none. Coordinates that a step
names are kept in their order; those between them are one.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

from shardproof.verifier.kernel.instance import Instance, Piece
from shardproof.verifier.kernel.layout import Dim, Layout, bound, global_extent
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.kernel.program.types import Affine, Mesh
from shardproof.verifier.ops import REGISTRY, facets
from shardproof.verifier.smt.sizes import (
    ONE,
    ZERO,
    Digit,
    Digits,
    Size,
    atoms,
    local_size,
    product,
    refined,
    size_of,
    whole_size,
)

COORDINATES = ("index", "src", "dst")
"""Attributes that name a coordinate of `mesh_dim`."""
CHOSEN = "k"
"""The named size that is below the extent of a row."""
OTHER = "o"
"""Begins the name of a size that is no extent."""
Tensor = tuple[Digits, ...]
Labels = list[list[str]]
"""For every tensor, the result last, and every dim, a name: dims of one name have one extent."""


@dataclass(frozen=True)
class Form:
    """An instance over named sizes."""

    instance: Instance
    sizes: Mapping[str, int]
    """What they are in the instance."""
    given: tuple[Tensor, ...]
    made: Tensor
    attrs: Mapping[str, Any]
    """As a rank has them, `Size` in place of integers that follow the extents."""
    coordinates: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By mesh dim the coordinates that the step names."""
    whole: Mapping[str, Any] | None = None
    """The attributes of the op on the whole operands; None where they were not worked out."""
    low: Size = ZERO
    """How many leading digits are cut off the dim of a slice, or put before that of a pad."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return *self.given, self.made

    def at(self, sizes: Mapping[str, int]) -> Instance:
        """The instance of these sizes."""
        old = self.instance
        mesh = Mesh(tuple((n, sizes.get(size_of(n), k)) for n, k in old.mesh.dims))
        places = {n: _places(k, self.coordinates.get(n, ()), mesh[n]) for n, k in old.mesh.dims}

        def piece(p: Piece, dims: Tensor) -> Piece:
            layout = Layout(tuple(atoms(d, sizes) for d in dims), p.layout.partial)
            where = tuple((n, tuple(places[n][c] for c in at)) for n, at in p.where)
            return replace(p, layout=layout, where=where)

        def value(key: str, v: Any) -> Any:
            if key in COORDINATES and "mesh_dim" in self.attrs:
                return places[str(self.attrs["mesh_dim"])].get(v, v)
            return valued(v, sizes)

        return replace(
            old,
            attrs=tuple((k, value(k, v)) for k, v in self.attrs.items()),
            given=tuple(map(piece, old.given, self.given)),
            made=piece(old.made, self.made),
            mesh=mesh,
        )

    def __str__(self) -> str:
        """The same for all instances of the form."""
        mine = {n: self.coordinates.get(n, ()) for n, _ in self.instance.mesh.dims}
        least = {n: named_size(k, mine[n]) for n, k in self.instance.mesh.dims}
        places = {n: _places(k, mine[n], least[n]) for n, k in self.instance.mesh.dims}
        pieces = (*self.instance.given, self.instance.made)
        text = [self.instance.rule, self.instance.op]
        for p, dims in zip(pieces, self.tensors, strict=True):
            where = [(n, [places[n][c] for c in at]) for n, at in p.where]
            spelled = ",".join(" ".join(map(str, d)) or "1" for d in dims)
            text.append(f"{p.dtype}{'0' * p.zero}[{spelled}]{p.layout.partial or ''}{where or ''}")
        for key, v in sorted(self.attrs.items()):
            if key in COORDINATES:
                v = places[str(self.attrs["mesh_dim"])].get(v, v)
            text.append(f"{key}={_shown(v)}")
        text += [f"{n}={least[n]}" for n in mine if mine[n]]
        text += [f"{n}={k}" for n, k in self.instance.mesh.dims if size_of(n) not in self.sizes]
        text += [f"{s}={k}" for s, k in sorted(self.sizes.items()) if k < 2]
        return "; ".join(text)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_shown, cast('tuple[Any, ...]', value)))})"
    return f"{value}"


@dataclass(frozen=True)
class Offset:
    """`const + sum(coefficient * coordinate)` over named sizes."""

    const: Size
    terms: tuple[tuple[str, Size], ...]

    def __str__(self) -> str:
        return "+".join([*(f"{c}*{n}" for n, c in self.terms), str(self.const)])


def valued(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute where the named sizes are these numbers."""
    if isinstance(value, Size):
        return value.at(sizes)
    if isinstance(value, tuple):
        return tuple(valued(v, sizes) for v in cast("tuple[Any, ...]", value))
    if isinstance(value, Offset):
        return Affine.of(value.const.at(sizes), {n: c.at(sizes) for n, c in value.terms})
    return value


def named_size(size: int, named: tuple[int, ...]) -> int:
    """The least size of a mesh dim with the named coordinates, and one for each gap."""
    return min(size, max(_places(size, named, 0).values()) + 1) if named else 1


def _places(size: int, named: tuple[int, ...], small: int) -> dict[int, int]:
    """Where coordinates go: in order, all of a gap to one; themselves where the size is kept."""
    if small == size:
        return {c: c for c in named}
    out: dict[int, int] = {}
    at, last = 0, -1
    for c in named:
        at += c > last + 1
        out[c] = at
        at, last = at + 1, c
    if last + 1 < size:
        out[size - 1] = at
    return out


class NoFormError(Exception):
    """An instance whose extents could not be named: why."""


def form(instance: Instance) -> Form:
    """The form of an instance; where its extents could not be named, it has no other sizes."""
    try:
        made = _form(instance)
    except NoFormError:
        return _as_it_is(instance)
    return made if made.at(made.sizes) == instance else _as_it_is(instance)


def _as_it_is(instance: Instance) -> Form:
    labels = count()

    def fixed(dims: tuple[Dim, ...]) -> Tensor:
        return tuple(
            tuple(Digit(f"d{next(labels)}", Size.of(a.size), a.mesh_dim) for a in d) for d in dims
        )

    given = tuple(fixed(p.layout.dims) for p in instance.given)
    made, attrs = fixed(instance.made.layout.dims), dict(instance.attrs)
    return Form(instance, {}, given, made, attrs, _coordinates(instance))


def _form(instance: Instance) -> Form:
    pieces = [*instance.given, instance.made]
    dims = [p.layout.dims for p in pieces]
    sizes: dict[str, int] = {}
    cut: _Cut | None = None
    op, attrs = REGISTRY.get(instance.op), dict(instance.attrs)
    kept = set(attrs)
    if (
        kept >= {"dim", "start", "stop"}
        or kept >= {"dim", "lo", "hi"}
        or (op is not None and op.signature.startswith("*"))
    ):
        cut = _cut(instance, sizes)
    names = _labels(instance)
    at = instance.attr("dim") if cut else -1
    if _flat(instance):
        tensors = _flattened(dims, sizes)
    elif _in_place(instance):
        free = [tuple(tuple(a for a in d if a.mesh_dim is None) for d in t) for t in dims]
        tensors = _aligned(free, names, sizes, at)
    else:
        tensors = _aligned(dims, names, sizes, at)
    if cut is not None:
        pairs = zip(tensors, cut.dims, strict=True)
        tensors = [(*t[:at], part, *t[at + 1 :]) for t, part in pairs]
        attrs.update(cut.attrs)
    if _in_place(instance):
        tensors = [_bound_again(t, d, sizes) for t, d in zip(tensors, dims, strict=True)]
    for name, size in instance.mesh.dims:
        if size > 1:
            sizes.setdefault(size_of(name), size)
    *given, made = tensors
    coordinates = _named_coordinates(instance)
    local = _attrs(instance, attrs, tensors, sizes)
    whole = {**local, **(cut.whole if cut else {}), **_on_wholes(local, tensors)}
    low = cut.low if cut else ZERO
    return Form(instance, sizes, tuple(given), made, local, coordinates, whole, low)


def _on_wholes(attrs: Mapping[str, Any], tensors: list[Tensor]) -> dict[str, Any]:
    """What attributes are on whole operands: extents are whole, offsets those of no rank."""
    made, out = tensors[-1], dict[str, Any]()
    dim: int = attrs.get("dim", 0)
    if "shape" in attrs:
        out["shape"] = tuple(map(whole_size, made))
    if "size" in attrs:
        out["size"] = whole_size(made[dim])
    if "offset" in attrs:
        offset = attrs["offset"]
        out["offset"] = offset.const if isinstance(offset, Offset) else offset
    if attrs.get("strides") or ("strides" in attrs and "offset" in attrs):
        out["strides"] = _strides(attrs, made)
    return out


def _strides(attrs: Mapping[str, Any], made: Tensor) -> tuple[Size, ...]:
    """Of the whole: the step of the innermost digit of each dim, 0 where there is one entry."""
    offset, own = attrs["offset"], attrs["strides"]
    moved = dict(offset.terms) if isinstance(offset, Offset) else {}
    out: list[Size] = []
    for i, dim in enumerate(made):
        mine = own[i] if own else product(map(local_size, made[i + 1 :]))
        last = dim[-1].mesh_dim if dim else None
        out.append(Size.of(0) if not dim else moved.get(last, mine) if last else mine)
    return tuple(out)


def _coordinates(instance: Instance) -> dict[str, tuple[int, ...]]:
    """By mesh dim the coordinates that operands and result are on."""
    found: dict[str, set[int]] = defaultdict(set)
    for piece in (*instance.given, instance.made):
        for name, at in piece.where:
            found[name] |= set(at)
    return {name: tuple(sorted(at)) for name, at in found.items()}


def _named_coordinates(instance: Instance) -> dict[str, tuple[int, ...]]:
    found = defaultdict(set[int], {n: set(at) for n, at in _coordinates(instance).items()})
    attrs = dict(instance.attrs)
    for key in COORDINATES:
        if key in attrs and "mesh_dim" in attrs:
            found[str(attrs["mesh_dim"])].add(int(attrs[key]))  # type: ignore[arg-type]
    if "shift" in attrs:
        name = str(attrs["mesh_dim"])
        if instance.mesh[name] > 8:
            raise NoFormError("a long ring")
        found[name] |= set(range(instance.mesh[name]))
    return {name: tuple(sorted(at)) for name, at in found.items()}


def _flat(instance: Instance) -> bool:
    """Whether all elements are read as one row."""
    if set(dict(instance.attrs)) != {"shape"} or facets(instance.op).spreads:
        return False
    pieces = (*instance.given, instance.made)
    return len({math.prod(p.layout.global_shape) for p in pieces}) == 1


def _in_place(instance: Instance) -> bool:
    """Whether a rank keeps what it holds, or cuts that, and only the reading is another."""
    op = REGISTRY.get(instance.op)
    moves = op is not None and op.kind == "movement"
    held = op is None or (moves and "mesh_dim" not in dict(instance.attrs))
    return held or instance.rule.startswith("blocks:")


def _bound_again(tensor: Tensor, dims: tuple[Dim, ...], sizes: Mapping[str, int]) -> Tensor:
    """Digits of what a rank holds, with those that are the rank among them."""
    out: list[Digits] = []
    for digits, dim in zip(tensor, dims, strict=True):
        left, mine = list(digits), list[Digit]()
        for atom in dim:
            if atom.mesh_dim is not None:
                mine.append(
                    Digit(f"@{atom.mesh_dim}", Size.of(size_of(atom.mesh_dim)), atom.mesh_dim)
                )
                continue
            reached = 1
            while reached < atom.size and left:
                mine.append(left.pop(0))
                reached *= mine[-1].size.at(sizes)
        out.append((*mine, *left))
    return tuple(out)


def _flattened(dims: list[tuple[Dim, ...]], sizes: dict[str, int]) -> list[Tensor]:
    rows = [tuple(a for d in t for a in d) for t in dims]
    digits = refined("x", rows, sizes)
    if digits is None:
        raise NoFormError("atoms cut across each other")
    out: list[Tensor] = []
    for tensor, row in zip(dims, digits, strict=True):
        at, cut = 0, list[Digits]()
        for dim in tensor:
            extent, taken = global_extent(dim), list[Digit]()
            reached = 1
            while reached < extent:
                taken.append(row[at])
                reached *= row[at].size.at(sizes)
                at += 1
            cut.append(tuple(taken))
        out.append(tuple(cut))
    return out


def _labels(instance: Instance) -> Labels:
    """Which dims of operands and result are one, by the kind of the op."""
    ranks = [len(p.layout.dims) for p in (*instance.given, instance.made)]
    plain = [[f"a{i}." for i in range(n)] for n in ranks]
    op, attrs = REGISTRY.get(instance.op), dict(instance.attrs)
    if op is None:
        return plain
    if op.kind == "map" or facets(op.name).spreads:
        return [[f"a{ranks[-1] - n + i}." for i in range(n)] for n in ranks]
    if op.kind == "einsum":
        operands, result = parse(op.signature)
        return [[f"{f}." for f in factors] for factors in (*operands, result)]
    dims: Any = attrs.get("dims")
    if op.kind == "reduce" and not attrs["keepdim"]:
        plain[-1] = [f"a{i}." for i in range(ranks[0]) if i not in dims]
    elif op.kind == "view" and dims is not None:
        plain[-1] = [f"a{d}." for d in dims]
    elif op.kind == "index":
        _looked_up(plain, op.signature, attrs)
    return plain


def _looked_up(plain: Labels, signature: str, attrs: Mapping[str, Any]) -> None:
    """Rows that are read or written at an index have an extent of their own."""
    if "dim" not in attrs:
        plain[2] = ["v.", *plain[0][len(plain[1]) :]]
    elif "size" in attrs:
        plain[2][attrs["dim"]] = "v."
    elif "..." in signature.split(",")[1].split("->")[0]:
        plain[0][attrs["dim"]] = "v."
    else:
        dim: int = attrs["dim"]
        plain[1] = [f"i{j}." for j in range(len(plain[1]))]
        plain[2] = [*plain[0][:dim], *plain[1], *plain[0][dim + 1 :]]


def _aligned(
    dims: list[tuple[Dim, ...]], names: Labels, sizes: dict[str, int], skip: int
) -> list[Tensor]:
    groups: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for t, (tensor, mine) in enumerate(zip(dims, names, strict=True)):
        for i, (dim, name) in enumerate(zip(tensor, mine, strict=True)):
            groups[name, global_extent(dim)].append((t, i))
    out: dict[tuple[int, int], Digits] = {}
    taken: dict[str, Iterator[int]] = defaultdict(count)
    for (name, extent), places in groups.items():
        rows = [dims[t][i] for t, i in places]
        if extent == 0 and any(bound(r) for r in rows):
            raise NoFormError("a split dim of no entries")
        which = next(taken[name])
        label = f"{name[:-1]}{'abcdefgh'[which]}" if which else name[:-1]
        if all(i == skip for _, i in places):
            digits: list[Digits] | None = [()] * len(rows)
        elif extent == 0:
            digits = [(Digit(label, Size.of(0)),)] * len(rows)
        else:
            digits = refined(f"{label}.", rows, sizes)
        if digits is None:
            raise NoFormError("atoms cut across each other")
        out.update(zip(places, digits, strict=True))
    return [tuple(out[t, i] for i in range(len(tensor))) for t, tensor in enumerate(dims)]


@dataclass(frozen=True, slots=True)
class _Cut:
    dims: list[Digits]
    attrs: dict[str, Any]
    whole: dict[str, Any]
    low: Size = ZERO


def _cut(instance: Instance, sizes: dict[str, int]) -> _Cut:
    """The dim that is cut or joined, over the parts that it is made of."""
    attrs = dict(instance.attrs)
    at = int(instance.attr("dim"))
    dims = [p.layout.dims[at] for p in (*instance.given, instance.made)]
    if _in_place(instance):
        dims = [tuple(a for a in d if a.mesh_dim is None) for d in dims]
    lowest = [d[1:] if d and d[0].mesh_dim is None else d for d in dims]
    rest = lowest[0] if any(bound(d) for d in dims) else ()
    heads = [global_extent(d) // max(global_extent(rest), 1) for d in dims]
    digits = refined("r", [rest], sizes) or [()]
    tail = digits[0]

    def part(name: str, extent: int) -> Size:
        """A named size of at least 1; a number where the extent is 0 or 1."""
        if extent < 2:
            return Size.of(extent)
        sizes[name] = extent
        return Size.of(name)

    if "start" in attrs or "lo" in attrs:
        return _sliced(attrs, tail, heads, part, sizes)
    named = {n: part(f"c{k}", n) for k, n in enumerate(dict.fromkeys(heads[:-1]))}
    parts = [named[n] for n in heads[:-1]]
    total = Size.of(0)
    for size in parts:
        total = total + size
    return _Cut([(Digit(f"c{i}", p), *tail) for i, p in enumerate((*parts, total))], {}, {})


def _sliced(
    attrs: Mapping[str, Any],
    tail: Digits,
    heads: list[int],
    part: Callable[[str, int], Size],
    sizes: dict[str, int],
) -> _Cut:
    unit, whole = local_size(tail), whole_size(tail)
    local: int = unit.at(sizes)
    if "lo" in attrs:
        if attrs["lo"] % local or attrs["hi"] % local:
            raise NoFormError("a cut inside a block")
        low, high = part("lo", attrs["lo"] // local), part("hi", attrs["hi"] // local)
        inner = part("n", heads[0])
        dims = [(Digit("n", inner), *tail), (Digit("c", low + inner + high), *tail)]
        here, there = ({"lo": low * u, "hi": high * u} for u in (unit, whole))
        return _Cut(dims, here, there, low)
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if step > 1:
        taken = len(range(start, stop, step))
        over = stop - start - (taken - 1) * step
        if taken < 2 or over not in (1, step) or tail:
            raise NoFormError("a slice that ends between two steps")
        by = part("s", step)
        more = part("n", taken - 1)
        reach = more * by + (by if over == step else ONE)
        low, high = part("lo", start), part("hi", heads[0] - stop)
        dims = [(Digit("c", low + reach + high),), (Digit("n", more + ONE),)]
        taken_at = {"start": low, "stop": low + reach, "step": by}
        return _Cut(dims, taken_at, taken_at, low)
    if start % local or stop % local:
        raise NoFormError("a cut inside a block")
    start, stop = start // local, stop // local
    low, inner, high = (
        part(*p) for p in (("lo", start), ("n", stop - start), ("hi", heads[0] - stop))
    )
    dims = [(Digit("c", low + inner + high), *tail), (Digit("n", inner), *tail)]
    here, there = ({"start": low * u, "stop": (low + inner) * u} for u in (unit, whole))
    return _Cut(dims, here, there, low)


def _attrs(
    instance: Instance,
    attrs: Mapping[str, Any],
    tensors: list[Tensor],
    sizes: dict[str, int],
) -> dict[str, Any]:
    """Attributes that follow the extents, over named sizes."""
    out, made = dict(attrs), tensors[-1]
    dim: int = attrs.get("dim", 0)
    if "shape" in attrs:
        out["shape"] = tuple(map(local_size, made))
    if "size" in attrs:
        out["size"] = local_size(made[dim])
    op = REGISTRY.get(instance.op)
    if "k" in attrs and op is not None and op.kind == "rows":
        out["k"] = _chosen(attrs["k"], made[dim], tensors[0][dim], sizes)
    if "offset" in attrs:
        looked_up = op is not None and op.kind == "index" and "size" not in attrs
        rows = tensors[0] if looked_up else () if "strides" in attrs else made
        known = _known(rows, dim, made, sizes)
        offset: Any = attrs["offset"]
        affine = offset if isinstance(offset, Affine) else Affine.of(offset)
        terms = tuple((n, _sized(c, known, sizes)) for n, c in affine.terms)
        const = _sized(affine.const, known, sizes)
        out["offset"] = Offset(const, terms) if isinstance(offset, Affine) else const
        if attrs.get("strides"):
            out["strides"] = tuple(_sized(s, known, sizes) for s in attrs["strides"])
    return out


def _chosen(k: int, found: Digits, rows: Digits, sizes: dict[str, int]) -> Size:
    """How many of a row are chosen: as many as were found, all, or a number below that."""
    for dim in (found, rows):
        if local_size(dim).at(sizes) == k:
            return local_size(dim)
    sizes[CHOSEN] = k
    return Size.of(CHOSEN)


def _sized(value: int, known: Mapping[int, Size], sizes: dict[str, int]) -> Size:
    """An extent that is known, or else a size of its own."""
    if value not in known and value < 0:
        raise NoFormError(f"{value} is not an extent")
    if value not in known:
        sizes[f"{OTHER}{value}"] = value
    return known.get(value, Size.of(f"{OTHER}{value}"))


def _known(rows: Tensor, dim: int, made: Tensor, sizes: Mapping[str, int]) -> dict[int, Size]:
    """Numbers that are place values of the dim of rows, or else of an element of the result."""
    digits = rows[dim] if dim < len(rows) else ()
    found = [whole_size(digits[i:]) for i in range(len(digits))]
    found += [local_size(digits)]
    flat = [d for each in made for d in each]
    found += [whole_size(tuple(flat[i:])) for i in range(len(flat))]
    out: dict[int, Size] = {0: Size.of(0), 1: ONE}
    for size in found:
        out.setdefault(size.at(sizes), size)
    return out
