"""Coincidences of the given extents that are kept, beyond what the ops force."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from shardproof.verifier.refute.scale_down.eliminate import simplify
from shardproof.verifier.refute.scale_down.system import Declined, System

ROUNDS = 4
"""How often cuts are lined up again after others were, and how deep cuts of cuts are read."""
RATIO = 8
"""Extents in one sum whose ratio is an integer up to this keep it."""


def keep_places(system: System) -> None:
    """Cuts of one extent at one place stay at one place: what is cut off here begins there."""
    first: dict[tuple[int, int], int] = {}
    for extent, number in system.cuts:
        other = first.setdefault((system.root(extent), system.values[number]), number)
        system.same(other, number)


def keep_cuts(system: System, *, wholly: bool = False) -> None:
    """Where both programs cut one dim, the cuts are of the same dim: their pieces line up.

    With `wholly`, only cuts of which no piece is left over: shards of a parameter that is gathered
    before it is used may end anywhere.

    Only that they line up now says which heads of one program are the heads of the other. Factors
    of a product are in order, the most significant first; needs the products as they were added.
    """
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for _ in range(ROUNDS):
        rows: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for p in system.products:
            if len(p.left) == 1:
                rows[system.root(p.left[0])].append(tuple(map(system.root, p.right)))
        before = len(seen)
        for given in rows.values():
            cuts = list(dict.fromkeys(_cut(system, rows, row) for row in given))
            for other in cuts[1:]:
                pair = cuts[0], other
                if pair not in seen:
                    seen.add(pair)
                    system.align(*pair, wholly=wholly)
        if len(seen) == before:
            return


def _cut(
    system: System, rows: Mapping[int, list[tuple[int, ...]]], row: tuple[int, ...], depth: int = 0
) -> tuple[int, ...]:
    """The factors of a row, each cut as far as other rows cut it."""
    out: list[int] = []
    for v in map(system.root, row):
        deeper = next((r for r in rows.get(v, ()) if len(r) > 1), None)
        if deeper and depth < ROUNDS and v not in deeper:
            out += _cut(system, rows, deeper, depth + 1)
        else:
            out.append(v)
    return tuple(out)


def keep_ratios(system: System) -> None:
    """Where dims are joined or cut, parts that are equal stay equal, and multiples stay multiples.

    Halves stay halves: another program may cut the same dim by a reshape. Steps of a repeated block
    are cut anywhere, and are no halves of anything.
    """
    steps = {system.root(v) for v in system.lengths}
    families = [f for f in system.families(system.sums) if not steps & set(f)]
    for family in families:
        unify_equal(system, family)
    for family in families:
        family = list(dict.fromkeys(map(system.root, family)))
        by_size = sorted(family, key=lambda v: system.values[v])
        for i, small in enumerate(by_size):
            for large in by_size[i + 1 :]:
                times, rest = divmod(system.values[large], system.values[small])
                if rest == 0 and 1 < times <= RATIO:
                    system.multiply((large,), (system.constant(times), small))


def unify_equal(system: System, family: Sequence[int]) -> None:
    """Make classes of equal values one class."""
    first: dict[int, int] = {}
    for v in family:
        other = first.setdefault(system.values[v], v)
        if other != v:
            system.same(other, v)


def keep_coincidences(system: System, determined: Collection[int]) -> None:
    """In everything that ties connect, extents that are equal now stay equal.

    Classes that only one value solves are set apart.
    """
    for family in system.families([*system.products, *system.sums], determined):
        unify_equal(system, family)
    simplify(system)


def name_loose(system: System) -> None:
    """Make each loose number one class with every extent that has its value.

    Raises:
        Declined: no extent has it.
    """
    loose = set(system.loose)
    for number in system.loose:
        value = system.values[number]
        alike = [v for v, n in enumerate(system.values) if n == value and v not in loose]
        if not alike:
            raise Declined(f"the number {value} in an offset counts no extent")
        for v in alike:
            system.same(number, v)


def keep_unanchored(system: System, determined: Collection[int]) -> None:
    """Keep the extents that no extent of the contract is tied to: nothing says how they scale."""
    anchors = {system.root(v) for v in system.anchored}
    for family in system.families([*system.products, *system.sums], determined):
        if not anchors & set(family):
            for v in family:
                system.pin(v)
