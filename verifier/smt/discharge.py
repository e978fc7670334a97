"""What Z3 says of the steps of a proof: the one module that makes obligations of them.

A step is tried at small extents: on symbols, every rank runs the op on its pieces, and the joined
results are held against what the rule concludes there. A step whose rule is wrong is refuted, or,
where only a model of uninterpreted functions tells, not shown.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.domains.symbolic import Symbolic
from shardproof.verifier.kernel.instance import JOINED, Instance
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.where import Where
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.refute.scatter import gather
from shardproof.verifier.smt.answers import Conclude, Discharged
from shardproof.verifier.smt.forms import CHOSEN, OTHER, Form, named_size, valued
from shardproof.verifier.smt.index_maps import NotStatedError, shown
from shardproof.verifier.smt.pieces import Asked, broken, zeros
from shardproof.verifier.smt.sizes import size_of
from shardproof.verifier.smt.wholes import Wholes
from shardproof.verifier.terms import Ref

NO_EXTENT = 5
"""No product of the small extents, which are 2 and 3."""
MOST = 4_000
"""Entries of the operands and the result of an instance that is tried, over all ranks."""


def discharge(named: Form, conclude: Conclude) -> Discharged:
    """How far a step is shown: tried at small sizes, and stated at all of them."""
    asked, why, tried = Asked(), "", False
    for sizes in small_sizes(named):
        small = named.at(sizes)
        if _entries(small) > MOST:
            why = why or "too large to be tried"
            continue
        try:
            wrong, said = _wrong(small, conclude, asked)
        except (ValueError, TypeError, IRError) as error:
            why = str(error)
            continue
        if asked.undecided:
            return Discharged("rule alone", asked.queries, asked.undecided)
        if wrong:
            extent = "not shown" if asked.opaque else "refuted"
            return Discharged(extent, asked.queries, f"{small}: {wrong}")
        tried = True
        if said and said != _stated(named, sizes):
            why = "what the rule concludes is stated at no other sizes"
            return Discharged("small sizes", asked.queries, why)
        break
    if not tried:
        return Discharged("rule alone", asked.queries, why)
    try:
        large = shown(named)
    except NotStatedError as error:
        return Discharged("small sizes", asked.queries, str(error))
    queries = asked.queries + large.queries
    return Discharged("small sizes" if large.failed else "all sizes", queries, large.failed)


def small_sizes(named: Form) -> Iterator[dict[str, int]]:
    """Extents to try, the most telling first."""
    named_at = named.coordinates
    least = {
        size_of(n): named_size(k, named_at[n])
        for n, k in named.instance.mesh.dims
        if named_at.get(n) and size_of(n) in named.sizes
    }
    ranks = {size_of(n) for n, _ in named.instance.mesh.dims}
    few = len(ranks & set(named.sizes)) < 2
    for spread in (True, False):
        out: dict[str, int] = {}
        for k, name in enumerate(sorted(named.sizes)):
            more = few if name in ranks else k % 2
            out[name] = 3 if spread and more else 2
        zero = {name: size for name, size in named.sizes.items() if size < 2}
        out |= {name: NO_EXTENT for name in out if name.startswith(OTHER)}
        yield {**out, **({CHOSEN: 1} if CHOSEN in out else {}), **least, **zero}


def _entries(instance: Instance) -> int:
    pieces = (*instance.given, instance.made)
    return instance.mesh.size * sum(math.prod(p.layout.local_shape) for p in pieces)


Said = list[tuple[str, dict[str, object]]]


def _stated(named: Form, sizes: Mapping[str, int]) -> Said:
    """What the rule concludes, as it is stated at all sizes."""
    op = named.instance.op
    if op == JOINED or named.whole is None:
        return []
    attrs = {k: valued(v, sizes) for k, v in named.whole.items()}
    return [(op, REGISTRY[op].with_defaults(attrs))]


def _wrong(small: Instance, conclude: Conclude, asked: Asked) -> tuple[str | None, Said]:
    """Why the step does not hold, and which ops its rule applies to the whole operands.

    Numbers come first: of what they refute nothing has to be asked.
    """
    said: Said = []
    makers = Numbers, partial(Symbolic, ("max", "rising") if _folds(small) else ())
    for draw, maker in product(_draws(small), makers):
        domain, rng = maker(), np.random.default_rng(0)
        wholes = draw(domain)

        def expected(
            given: Sequence[Array], parts: Sequence[Sequence[Array]], domain: Domain = domain
        ) -> Array:
            found, said[:] = _concluded(small, conclude, given, parts, domain)
            return found

        wrong = broken(small, wholes, expected, domain, rng, asked)
        if wrong:
            return wrong, said
    return None, said


def _same(instance: Instance) -> bool:
    """Whether all operands are claims about the same term."""
    return instance.rule.startswith(f"{JOINED}:same")


def _folds(instance: Instance) -> bool:
    """Whether pieces wait for a maximum or a minimum, or the step takes one over ranks."""
    pieces = (*instance.given, instance.made)
    waits = any(fold != "sum" for p in pieces for _, fold in p.layout.partial)
    return waits or dict(instance.attrs).get("reduce") in ("max", "min")


def _concluded(
    small: Instance,
    conclude: Conclude,
    given: Sequence[Array],
    parts: Sequence[Sequence[Array]],
    domain: Domain,
) -> tuple[Array, Said]:
    (name, *_) = (*small.rule.split(":")[2:], "")

    def addend(at: int) -> Array:
        layout = small.given[0].layout
        left = Layout(layout.dims, tuple(p for p in layout.partial if p[0] != name))
        where: Where = tuple(sorted({**dict(small.given[0].where), name: (at,)}.items()))
        return gather(parts[0], left, small.mesh, domain, where)

    terms = Wholes(domain, addend)
    refs = [
        Ref(ref.coef * (not piece.zero), ref.id)
        for piece, ref in zip(small.given, map(terms.hold, given), strict=True)
    ]
    if _same(small):
        refs = [refs[0]] * len(refs)
    ref = conclude(small, refs, terms)
    return terms.value(ref), terms.said


class Numbers(Floats):
    """Arbitrary numbers where the symbolic domain has symbols: the same for one name."""

    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.random.default_rng([*name.encode()]).standard_normal(shape))

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        return self.symbols(name, shape) > 0


def _draws(small: Instance) -> Iterator[Callable[[Symbolic | Numbers], list[Array]]]:
    """Whole operands: distinct symbols, and indices so that over all turns an entry has each."""
    op = REGISTRY.get(small.op)
    index = op.traits.index if op is not None and op.kind == "index" else None
    rows = _rows(small) if index is not None else -1

    def draw(domain: Symbolic | Numbers, turn: int) -> list[Array]:
        out: list[Array] = []
        for i, piece in enumerate(small.given):
            shape = piece.layout.global_shape
            if piece.zero:
                out.append(zeros(shape, piece.dtype, domain))
            elif i == index:
                flat = np.arange(math.prod(shape)) * 2 + turn
                out.append((flat % (rows + 2) - 1).reshape(shape))
            elif piece.dtype == "bool":
                out.append(domain.truths(f"b{i}", shape))
            else:
                out.append(domain.symbols("x" if _same(small) else f"x{i}", shape))
        return out

    for turn in range(rows + 2):
        yield partial(draw, turn=turn)


def _rows(small: Instance) -> int:
    """How many rows are looked up in, or written to."""
    attrs = dict(small.attrs)
    side = small.made if "size" in attrs else small.given[0]
    dim = attrs.get("dim", 0)
    return side.layout.global_shape[int(dim)]  # type: ignore[arg-type]
