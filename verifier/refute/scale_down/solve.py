"""Small values for the unknowns of a system: a bounded depth-first search with propagation."""

import math
from collections import defaultdict
from collections.abc import Callable

from shardproof.verifier.refute.scale_down.system import Declined, Product, Sum, System

STEPS = 4_000
"""Values tried before the search gives up."""
SPREAD = 8
"""How far above its smallest value a class is tried, to be unlike others."""
LARGEST = 64
"""No class is tried above this; larger values come from propagation alone."""
Values = dict[int, int]


class _Conflict(Exception):  # noqa: N818
    """Values that no completion solves."""


class _Search:
    def __init__(self, system: System) -> None:
        self.system = system
        self.steps = 0
        self.ties: list[Product | Sum] = []
        root = system.root
        seen: set[Product | Sum] = set()
        for p in system.products:
            tie: Product | Sum = Product(tuple(map(root, p.left)), tuple(map(root, p.right)))
            if tie not in seen:
                seen.add(tie)
                self.ties.append(tie)
        for s in system.sums:
            tie = Sum(root(s.total), tuple((k, root(v)) for k, v in s.parts), s.const)
            if tie not in seen and not _says_nothing(system, tie):
                seen.add(tie)
                self.ties.append(tie)
        self.by_class: dict[int, list[Product | Sum]] = defaultdict(list)
        for tie in self.ties:
            for v in set(tie.members):
                self.by_class[v].append(tie)
        self.floors: dict[int, int] = {}
        for v, least in system.floors.items():
            self.floors[root(v)] = max(self.floors.get(root(v), 0), least)
        made = {t.total for t in self.ties if isinstance(t, Sum)}
        made |= {t.left[0] for t in self.ties if isinstance(t, Product) and t.left}
        part = {
            v: k for k, f in enumerate(system.families([*system.products, *system.sums])) for v in f
        }
        self.order = sorted(system.free(), key=lambda v: (part[v], v in made, system.values[v], v))
        """What ties connect comes together: a conflict is met near the choice that led to it."""
        self.leaves = [v for v in self.order if v not in made]

    def run(self, given: Values) -> Values | None:
        try:
            return self._extend(self.propagate_pins(given))
        except _Conflict:
            return None

    def propagate_pins(self, given: Values) -> Values:
        start = dict(given)
        for v, n in self.system.pinned.items():
            if start.setdefault(self.system.root(v), n) != n:
                raise _Conflict
        return self._propagate(start, list(self.ties))

    def _extend(self, known: Values) -> Values | None:
        chosen = next((v for v in self.order if v not in known), None)
        if chosen is None:
            return known
        for value in self._candidates(chosen):
            self.steps += 1
            if self.steps > STEPS:
                return None
            try:
                found = self._extend(
                    self._propagate({**known, chosen: value}, list(self.by_class[chosen]))
                )
            except _Conflict:
                continue
            if found is not None:
                return found
        return None

    def floor(self, v: int) -> int:
        """The least value a class may take."""
        return min(self.system.values[v], max(2, self.floors.get(v, 0)))

    def _candidates(self, chosen: int) -> list[int]:
        now = self.system.values[chosen]
        values = [*range(self.floor(chosen), min(now, LARGEST) + 1)]
        return [*values, now] if now > LARGEST else values

    def _propagate(self, known: Values, queue: list[Product | Sum]) -> Values:
        while queue:
            tie = queue.pop()
            found = _product(tie, known) if isinstance(tie, Product) else _sum(tie, known)
            if found is None:
                continue
            unknown, value = found
            now = self.system.values[unknown]
            if not self.floor(unknown) <= value <= now:
                raise _Conflict
            known[unknown] = value
            queue += self.by_class[unknown]
        return known


def _says_nothing(system: System, tie: Sum) -> bool:
    """Whether a sum is one class and zeros: that class."""
    rest = [(k, v) for k, v in tie.parts if system.pinned.get(v) != 0]
    return not tie.const and rest == [(1, tie.total)]


def _product(tie: Product, known: Values) -> tuple[int, int] | None:
    open_left = [v for v in tie.left if v not in known]
    open_right = [v for v in tie.right if v not in known]
    left = math.prod(known[v] for v in tie.left if v in known)
    right = math.prod(known[v] for v in tie.right if v in known)
    if not open_left and not open_right:
        if left != right:
            raise _Conflict
        return None
    if len(open_left) + len(open_right) > 1:
        for still, whole, part in ((open_left, right, left), (open_right, left, right)):
            complete = not (open_right if still is open_left else open_left)
            if complete and (part == 0 or whole % part):
                raise _Conflict
        return None
    over, under = (right, left) if open_left else (left, right)
    if under == 0 or over % under:
        raise _Conflict
    return (open_left or open_right)[0], over // under


def _sum(tie: Sum, known: Values) -> tuple[int, int] | None:
    """Solves for the one class that is open."""
    factors: dict[int, int] = defaultdict(int)
    factors[tie.total] -= 1
    for factor, v in tie.parts:
        factors[v] += factor
    rest = tie.const + sum(k * known[v] for v, k in factors.items() if v in known)
    missing = [(v, k) for v, k in factors.items() if v not in known and k]
    if not missing:
        if rest:
            raise _Conflict
        return None
    if len(missing) > 1:
        return None
    v, k = missing[0]
    if rest % k:
        raise _Conflict
    return v, -rest // k


def determined(system: System) -> set[int]:
    """Roots of the free classes that only one value solves, as propagation finds.

    Raises:
        Declined: no values solve the system.
    """
    try:
        known = _Search(system).propagate_pins({})
    except _Conflict:
        raise Declined("no extents fit the mesh that was asked for") from None
    return set(known) & set(system.free())


def solve(system: System) -> Values | None:
    """Values of all classes by root, small ones first; None where the search found none.

    No value is above that of now, 2 or more stays 2 or more.
    """
    return _Search(system).run({})


def spread(system: System, values: Values, fits: Callable[[Values], bool]) -> Values:
    """Give classes that differ now different values, where that solves the system and `fits`.

    An offset that counts by the wrong extent is wrong only where the extents differ.
    """
    search = _Search(system)
    settled = determined(system)
    chosen = [v for v in search.leaves if v not in settled]
    kept: Values = {}
    for leaf in sorted(chosen, key=lambda v: -system.values[v]):
        now = system.values[leaf]
        others = {values[v] for v in chosen if system.values[v] != now}
        if values[leaf] not in others:
            kept[leaf] = values[leaf]
            continue
        for value in range(values[leaf] + 1, min(now, values[leaf] + SPREAD) + 1):
            search.steps = 0
            found = search.run({**kept, leaf: value}) if value not in others else None
            if found is not None and fits(found):
                values = found
                break
        kept[leaf] = values[leaf]
    return values
