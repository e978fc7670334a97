"""How the steps of a run hang together: what is carried on, what stays the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardproof.synthesis.frontends.torch.rolling.match import Blocks, Run, Step

MAX_PERIOD = 8
"""Longest repeating pattern of block kinds that is looked for."""


@dataclass(frozen=True)
class Carried:
    """The k-th entering value comes from value number `source` of the step before."""

    initial: str
    source: int


@dataclass(frozen=True)
class Invariant:
    """The k-th entering value is the same in all steps."""

    value: str


Entry = Carried | Invariant


@dataclass(frozen=True)
class Wiring:
    forward: tuple[Entry, ...]
    backward: tuple[Entry, ...]


def _classify(
    entered: Sequence[list[str]], local: Sequence[dict[str, int]], inside: set[str]
) -> tuple[Entry, ...] | None:
    """Entries of one direction, steps in running order; None where they do not fit."""
    out: list[Entry] = []
    for k, first in enumerate(entered[0]):
        values = [step[k] for step in entered]
        if all(v == first for v in values):
            if first in inside:
                return None
            out.append(Invariant(first))
            continue
        sources = {before.get(v, -1) for before, v in zip(local, values[1:], strict=False)}
        if len(sources) != 1 or -1 in sources or first in inside:
            return None
        out.append(Carried(first, sources.pop()))
    return tuple(out)


def wire(steps: Sequence[Step]) -> Wiring | None:
    """None where a value enters the steps in a way that a scan does not have."""
    forward_inside = {v for s in steps for v in s.local}
    backward_inside = {v for s in steps for v in s.local_backward}
    forward = _classify([s.entered for s in steps], [s.local for s in steps], forward_inside)
    if forward is None:
        return None
    back = list(reversed(steps))
    backward = _classify(
        [s.entered_backward for s in back],
        [s.local_backward for s in back],
        backward_inside | forward_inside,
    )
    return None if backward is None else Wiring(forward, backward)


def fit(run: Run) -> tuple[Run, Wiring] | None:
    """The longest part of a run that hangs together: steps at the ends may have to stay outside."""
    count = len(run.steps)
    for length in range(count, 1, -1):
        for first in range(count - length + 1):
            steps = run.steps[first : first + length]
            wiring = wire(steps)
            if wiring is not None:
                return Run(run.start + first * run.period, run.period, steps), wiring
    return None


def find_run(
    blocks: Blocks, entries: Sequence[int], pairs: bool = True
) -> tuple[Run, Wiring] | None:
    """The run that covers most entries; the shortest period among equals. A chain of `pairs` has
    two products or more in a step: one splits what the next takes."""
    best: tuple[Run, Wiring] | None = None
    covered = 0
    for run in _runs(blocks, entries):
        if covered == len(entries):
            break
        if len(run.steps) * run.period <= covered:
            continue
        fitted = fit(run)
        if fitted is None or (pairs and _single(blocks, *fitted)):
            continue
        if len(fitted[0].steps) * run.period > covered:
            best, covered = fitted, len(fitted[0].steps) * run.period
    return best


def _single(blocks: Blocks, run: Run, wiring: Wiring) -> bool:
    """Whether a run is a chain of steps with one matrix each, and nothing goes around its
    product."""
    step = run.steps[0]
    read = [ref[1] for n in step.forward for ref in step.refs[n.outputs[0]] if ref[0] == "ext"]
    carried = [k for k, entry in enumerate(wiring.forward) if isinstance(entry, Carried)]
    matrices = sum(len(blocks.program.types[name].shape) > 1 for name in step.params)
    return matrices == 1 and list(map(read.count, carried)) == [1]


def _runs(blocks: Blocks, entries: Sequence[int]) -> Iterator[Run]:
    """Longest runs of equal forms, for each period and each first entry, shortest period first."""
    for period in range(1, min(MAX_PERIOD, len(entries) // 2) + 1):
        steps: dict[int, Step] = {}
        for at in range(len(entries) - period + 1):
            window = list(entries[at : at + period])
            if window == list(range(window[0], window[0] + period)):
                steps[window[0]] = blocks.step(window)
        for first in steps:
            before = steps.get(first - period)
            if before is not None and before.form == steps[first].form:
                continue
            run = [steps[first]]
            while (after := steps.get(first + len(run) * period)) is not None:
                if after.form != run[0].form:
                    break
                run.append(after)
            if len(run) > 1:
                yield Run(first, period, tuple(run))
