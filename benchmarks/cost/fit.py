"""Constants of the price, fitted to measured rows: for all, then by device, then by stack.

Later layers start from earlier ones and are pulled back to them, so that few rows move little.
The loss of one row is |predicted / measured - 1|, bent above 1: one anomaly weighs as one row.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.cost.tables import Measured, device_bytes
from shardproof.synthesis.price.constants import BOUNDS, Constants, Machine, stacks
from shardproof.synthesis.price.memory import memory, settled
from shardproof.synthesis.price.step import price

TIME = (
    "gemm", "side", "scores", "low", "passes", "layer_s", "moe_s", "step_s", "node", "network",
    "spread", "hop_s", "dp_hidden", "zero_hidden", "tp_hidden", "ep_hidden", "p2p_hidden",
)  # fmt: skip
"""What all rows share."""
DEVICE = ("gemm", "scores", "low")
STACK = (
    "slow", "side", "scores", "passes", "low", "layer_s", "moe_s", "step_s", "network", "hop_s",
    "dp_hidden", "zero_hidden", "tp_hidden", "p2p_hidden",
)  # fmt: skip
SPACE = ("param_bytes", "grad_bytes", "state_bytes", "saved", "logits", "reserve", "fragments")
OWN_TIME = {"nanotron": ("cross_s", "stall_s"), "megatron": ("monthly",)}
OWN_SPACE = {"nanotron": ("flight", "gathered")}
"""Constants of one stack alone: what is seen there and nowhere else."""
SWITCHES = ("flash", "last", "zero")
"""Constants that are read in a source, not fitted."""
ENOUGH = 6
"""Rows that a layer of its own takes."""
SHARP = 4.0
"""How much more a wrong "does not fit", or a missed one, weighs than an error of as many bytes."""
PULL = 0.05
"""Loss of a layer above the default that moves one constant through all its range, over the root
of its rows: few rows move little."""
CAP = 180
"""Rows of one source that are looked at."""

Values = Mapping[str, float]
Ratio = Callable[[Measured, Constants], float]
"""Predicted over measured."""


@dataclass
class Fitted:
    """Constants by layer."""

    default: dict[str, float] = field(default_factory=dict[str, float])
    device: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    stack: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))

    def of(self, x: Measured) -> Constants:
        """What prices a row: the last layer that has a constant counts."""
        own = {**self.device.get(x.device, {}), **switches(x.stack), **self.stack.get(x.stack, {})}
        return replace(Constants(), **{**self.default, **own})


def switches(stack: str) -> dict[str, float]:
    """What a stack's table says that is not fitted."""
    return {k: float(v) for k, v in stacks()[stack].items() if k in SWITCHES}


def bent(ratio: float) -> float:
    """The loss of a row by predicted over measured."""
    return abs(ratio - 1) if ratio < 2 else 1 + 0.3 * (ratio - 2)


def fit(rows: Sequence[Measured], rounds: int = 350) -> Fitted:
    """All layers: for bytes first, which decide what plans leave open, then for seconds."""
    made = Fitted()
    full = _sample([x for x in rows if x.memory or device_bytes(x.row)], CAP)
    made.default |= _layer(made, full, SPACE, _bytes, 2 * rounds, above=False)
    _stacks(made, full, SPACE, _bytes, rounds)
    rows = [x for x in rows if "layout" not in x.plan.open]
    timed = [_closed(made, x) for x in _sample([x for x in rows if x.step_s], CAP)]
    made.default |= _layer(made, timed, TIME, _seconds, 2 * rounds, above=False)
    for device, some in _by(timed, "device").items():
        made.device[device] |= _layer(made, some, DEVICE, _seconds, rounds // 3)
    _stacks(made, timed, STACK, _seconds, rounds)
    return made


def _stacks(
    made: Fitted, rows: Sequence[Measured], names: tuple[str, ...], ratio: Ratio, rounds: int
) -> None:
    """Fit the constants of each stack."""
    for stack, some in _by(rows, "stack").items():
        own = (OWN_TIME if names is STACK else OWN_SPACE).get(stack, ())
        if stack != "default":
            made.stack[stack] |= _layer(made, some, names + own, ratio, 2 * rounds)


def _closed(made: Fitted, x: Measured) -> Measured:
    """The row with what its plan leaves open decided."""
    return replace(x, plan=settled(Machine(x.cluster, made.of(x)), x.model, x.plan))


def _sample(rows: list[Measured], most: int) -> list[Measured]:
    """At most so many rows of a source, the same every time."""
    out: list[Measured] = []
    for some in _by(rows, "source", least=1).values():
        out += random.Random(0).sample(some, most) if len(some) > most else some
    return out


def _by(rows: Sequence[Measured], key: str, least: int = ENOUGH) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = defaultdict(list)
    for x in rows:
        found[getattr(x, key)].append(x)
    return {name: some for name, some in sorted(found.items()) if len(some) >= least}


def _seconds(x: Measured, c: Constants) -> float:
    assert x.step_s
    return price(Machine(x.cluster, c), x.model, x.plan).step_s / x.step_s


def _bytes(x: Measured, c: Constants) -> float:
    """Predicted over measured bytes; without a measurement, over the device's where the row ran
    and is said not to fit, or the reverse, and otherwise 1."""
    found = memory(Machine(x.cluster, c), x.model, x.plan).total
    if x.memory:
        return found / x.memory
    over = SHARP * (found / (device_bytes(x.row) or found) - 1)
    return 1 + (max(over, 0.0) if x.row["status"] == "ok" else min(over, 0.0))


def _layer(
    made: Fitted,
    rows: Sequence[Measured],
    names: tuple[str, ...],
    ratio: Ratio,
    rounds: int,
    *,
    above: bool = True,
) -> dict[str, float]:
    """Values of some constants for some rows; a layer above the default is pulled back to it."""
    count = Counter(x.source for x in rows)
    alike: dict[tuple[str, str], list[tuple[Measured, float]]] = defaultdict(list)
    for x in rows:
        alike[x.device, x.stack].append((x, count[x.source] ** -0.5))
    parts = [(made.of(some[0][0]), some) for some in alike.values()]
    weight = sum(w for _, some in parts for _, w in some)
    start = {name: getattr(parts[0][0], name) for name in names}
    pull = PULL / len(rows) ** 0.5 if above else 0.0

    def loss(values: Values) -> float:
        total = 0.0
        for base, some in parts:
            c = replace(base, **values)
            total += sum(w * bent(ratio(x, c)) for x, w in some)
        far = sum(abs(values[n] - start[n]) / (BOUNDS[n][1] - BOUNDS[n][0]) for n in names)
        return total / weight + pull * far

    return search(loss, start, rounds)


def search(loss: Callable[[Values], float], start: Values, rounds: int) -> dict[str, float]:
    """A random walk downhill: a few constants at a time, in steps that follow its success."""
    draw, values, step = random.Random(0), dict(start), 0.08
    best = loss(values)
    for _ in range(rounds):
        tried = dict(values)
        for name in draw.sample(sorted(values), min(len(values), draw.choice((1, 1, 2, 3)))):
            low, high = BOUNDS[name]
            tried[name] = min(max(values[name] + draw.gauss(0, step) * (high - low), low), high)
        if (found := loss(tried)) < best:
            values, best, step = tried, found, min(1.3 * step, 0.2)
        else:
            step = max(0.985 * step, 0.005)
    return values
