"""Rolls the repeated blocks of a program, list by list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardproof.synthesis.frontends.torch.rolling.build import Roll
from shardproof.synthesis.frontends.torch.rolling.match import Blocks, Run
from shardproof.synthesis.frontends.torch.rolling.paths import Group
from shardproof.synthesis.frontends.torch.rolling.wiring import find_run
from shardproof.verifier.kernel.program.program import Program


@dataclass(frozen=True)
class Rolled:
    program: Program
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Stretch:
    """Entries of a list that stand for more than were traced."""

    start: int
    period: int
    traced: int
    """Steps that are in the program."""
    count: int
    """Steps that the model has."""


class NotRolledError(Exception):
    """Entries that were to stand for others do not roll: the sentence says which."""


def roll(
    program: Program,
    backward: frozenset[str],
    lists: Sequence[str],
    stretch: Mapping[str, Stretch] | None = None,
) -> Rolled:
    """Roll every run of equal blocks in the module lists `lists`, outer lists first.

    `backward` names the values of the backward pass.

    Raises:
        NotRolledError: the entries that `stretch` names are not one run.
    """
    groups: list[Group] = []
    done: list[str] = []
    for prefix in sorted(lists, key=lambda p: (p.count("."), p)):
        if any(prefix.startswith(outer + ".") for outer in done):
            continue
        entries = Blocks(program, prefix, backward).entries
        if not entries:
            continue
        total = entries[-1] + 1
        pending = [entries]
        if stretch and prefix in stretch:
            s = stretch[prefix]
            stop = s.start + s.period * s.traced
            middle = [i for i in entries if s.start <= i < stop]
            found = find_run(Blocks(program, prefix, backward), middle, pairs=False)
            total = max(total, s.start + s.period * s.count)
            made = None
            group = _stretched(prefix, s, total, found[0]) if found else None
            if found and group:
                made = Roll(program, *found, group).build()
            if made is None or group is None:
                raise NotRolledError(f"{prefix}: entries {s.start} to {stop - 1} are not alike")
            program = made
            groups.append(group)
            done.append(prefix)
            pending = [[i for i in entries if i < s.start], [i for i in entries if i >= stop]]
        while pending:
            entries = pending.pop(0)
            found = find_run(Blocks(program, prefix, backward), entries)
            if found is None:
                continue
            run, _ = found
            count = len(run.steps)
            group = Group(prefix, run.start, run.period, count, total, count)
            made = Roll(program, *found, group).build()
            if made is None:
                continue
            program = made
            groups.append(group)
            done.append(prefix)
            pending.append([i for i in entries if i < run.start])
            pending.append([i for i in entries if i >= run.start + count * run.period])
    return Rolled(program, tuple(groups))


def _stretched(prefix: str, stretch: Stretch, total: int, run: Run) -> Group | None:
    """The repeated block that a run over all traced entries stands for; None where it is not one.

    Its period is shorter than that of the kinds where kinds differ in nothing that was traced.
    """
    traced = stretch.period * stretch.traced
    if len(run.steps) * run.period != traced or stretch.period % run.period:
        return None
    count = stretch.count * (stretch.period // run.period)
    return Group(prefix, stretch.start, run.period, count, total, len(run.steps))
