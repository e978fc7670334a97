"""Few repetitions of a block stand for all: which are traced, and the program of all that they
make."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardproof.synthesis.frontends.torch.prune import prune
from shardproof.synthesis.frontends.torch.rolling.between import with_entries
from shardproof.synthesis.frontends.torch.rolling.recompute import compute_once, recompute_views
from shardproof.synthesis.frontends.torch.rolling.roll import Rolled, Stretch, roll
from shardproof.verifier.kernel.program.program import Program

MAX_PERIOD = 8


@dataclass(frozen=True)
class Depth:
    """Which layers to trace: `head`, then `traced` periods, then `tail`."""

    prefixes: tuple[str, ...]
    head: int
    period: int
    traced: int
    count: int
    """Periods in the whole model."""
    tail: int

    @property
    def layers(self) -> int:
        return self.head + self.period * self.traced + self.tail

    @property
    def total(self) -> int:
        return self.head + self.period * self.count + self.tail

    @property
    def kept(self) -> list[int]:
        """Numbers of the whole model's layers that the traced layers stand at."""
        stop = self.head + self.period * self.traced
        return [*range(stop), *range(self.total - self.tail, self.total)]

    def whole_path(self, path: str) -> str:
        """What a path of the traced model is called in the whole one."""
        for prefix in self.prefixes:
            if path.startswith(prefix + "."):
                number, dot, rest = path[len(prefix) + 1 :].partition(".")
                if number.isdigit() and int(number) < self.layers:
                    return f"{prefix}.{self.kept[int(number)]}{dot}{rest}"
        return path

    def stretch(self) -> dict[str, Stretch]:
        one = Stretch(self.head, self.period, self.traced, self.count)
        return dict.fromkeys(self.prefixes, one)

    def sentence(self) -> str:
        return (
            f"{self.layers} of the {self.total} layers of {', '.join(self.prefixes)} were traced. "
            f"All {self.total} were built, and compared by class tree, parameter and buffer shapes "
            "and scalar attributes; the traced ones were compared op by op, forward and backward. "
            "Not checked: that the code of an untraced layer does the same as that of a traced "
            "layer of its kind (--full-depth traces them all)."
        )


def choose(kinds: Mapping[str, tuple[Any, ...]], margin: int = 0) -> Depth | None:
    """The fewest layers in which every kind comes at its place; None where all are needed.

    `margin` periods more stay outside of the run at either end.
    """
    if not kinds:
        return None
    joint = list(zip(*kinds.values(), strict=True))
    total = len(joint)
    best: Depth | None = None
    for period in range(1, min(MAX_PERIOD, total // 2) + 1):
        traced = 3 if period <= 2 else 2
        for first in range(min(total, 8)):
            stop = first + period
            while stop < total and joint[stop] == joint[stop - period]:
                stop += 1
            head = first + margin * period
            count = (stop - first) // period - 2 * margin
            tail = total - head - count * period
            if count <= traced:
                continue
            found = Depth(tuple(kinds), head, period, traced, count, tail)
            if best is None or found.layers < best.layers:
                best = found
    return best


def renumber(program: Program, depth: Depth) -> Program:
    """Give the layers of the tail the numbers they have in the whole model."""
    if not depth.tail or depth.total == depth.layers:
        return program
    path = depth.whole_path
    found = program.renamed({v: path(v) for v in program.types})
    return replace(
        found,
        inputs=tuple(replace(i, path=path(i.path)) for i in found.inputs),
        nodes=tuple(
            replace(n, source=replace(n.source, module=path(n.source.module))) for n in found.nodes
        ),
        outputs=tuple(replace(o, path=path(o.path)) for o in found.outputs),
    )


def roll_program(
    flat: Program, backward: frozenset[str], lists: list[str], depth: Depth | None
) -> Rolled:
    """The program with repeated blocks as scans, without what nothing reads."""
    once = prune(compute_once(flat, backward))
    program, backward = recompute_views(once, backward)
    program = prune(program)
    if depth is not None:
        program = renumber(program, depth)
    program = with_entries(program, backward, lists)
    rolled = roll(program, backward, lists, depth.stretch() if depth else None)
    return replace(rolled, program=prune(rolled.program))
