"""Inserts the communication that a program of compute ops lacks, given how its inputs are split.

The ops are gone through in order. Where one has no relation to its one-device value, the pending
sums and splits of its operands are settled until it has; sums that pass through stay pending, so
that several may be settled at once. What comes out is proved against the program that went in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from shardproof.compat.errors import ProgramError
from shardproof.compat.lowering import Lowered
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import IROp, Program
from shardproof.compat.repairs import Edit, edits_of, lower, proved
from shardproof.compat.sharding import ShardingSpec, compute_local_shape
from shardproof.compat.tensor import TensorState
from shardproof.synthesis.repair.attempts import first
from shardproof.verifier.kernel.program.errors import IRError

States = Mapping[str, TensorState]


@dataclass
class SynthesisResult:
    """What a search came to."""

    success: bool
    program: Program | None = None
    edits: list[str] = field(default_factory=list[str])
    iterations: int = 0
    """Programs that were looked at."""
    reason: str = ""

    def summary(self) -> str:
        """One line."""
        if not self.success:
            return f"not found after {self.iterations} programs: {self.reason}"
        return f"proved after {self.iterations} programs: {', '.join(self.edits) or 'as it was'}"


class SynthesisEngine:
    """Searches for communication that makes a program right.

    Args:
        max_tactics: edits tried for one op.
        max_search_depth: edits of operands that one op may need together.
    """

    def __init__(self, max_tactics: int = 40, max_search_depth: int = 3) -> None:
        self.max_tactics, self.max_search_depth = max_tactics, max_search_depth

    def synthesize(
        self, program: Program, states: States, mesh: DeviceMesh | None = None
    ) -> SynthesisResult:
        """The program with communication, proved, or why none was found."""
        out = SynthesisResult(False)
        if mesh is not None and any(
            s.sharding is not None and s.sharding.mesh.core != mesh.core for s in states.values()
        ):
            out.reason = "the states are on another mesh"
            return out
        current = program
        while True:
            out.iterations += 1
            at, lowered = first_open(current, states, program)
            if at is None:
                break
            step = self._settled(current, at, lowered, states, program, out)
            if step is None:
                out.reason = f"nothing fixes {current.ops[at]}"
                return out
            current, names = step
            out.edits += names
        if proved(current, states, program, program.outputs):
            out.success, out.program = True, current
        else:
            out.reason = "every op has a relation, but the whole is not proved"
        return out

    def _settled(
        self,
        program: Program,
        at: int,
        lowered: Lowered | None,
        states: States,
        reference: Program,
        out: SynthesisResult,
    ) -> tuple[Program, list[str]] | None:
        """The program with edits after which the op at `at` has a relation."""

        def judge(edits: tuple[Edit, ...]) -> tuple[Program, list[str]] | None:
            trial = program
            for edit in sorted(edits, key=lambda e: -e.index):
                trial = edit.apply(trial)
            out.iterations += 1
            reached, _ = first_open(trial, states, reference)
            known = reached is None or reached > at + len(edits)
            return (trial, [str(e) for e in edits]) if known else None

        return first(islice(self._choices(program, at, lowered, states), self.max_tactics), judge)

    def _choices(
        self, program: Program, at: int, lowered: Lowered | None, states: States
    ) -> Iterator[tuple[Edit, ...]]:
        """Sets of edits of the operands of one op, and of its result, the small ones first."""
        op = program.ops[at]
        known = lowered or lower(Program(program.name, program.ops[:at]), states)
        made = {n: i for i, o in enumerate(program.ops[:at]) for n in o.output_names}
        found = {n: v.state for n, v in known.values.items()}
        found |= {n: states[n] for n in op.input_names if n not in found and n in states}
        inputs = [e for n in op.input_names for e in edits_of(n, found.get(n), made.get(n, -1))]
        result = [e for n in op.output_names for e in edits_of(n, found.get(n), at)]
        for size in range(1, self.max_search_depth + 1):
            if size == 1:
                yield from ((e,) for e in [*inputs, *result])
                continue
            for chosen in combinations(inputs, size):
                if len({e.tensor for e in chosen}) == size:
                    yield chosen


def first_open(
    program: Program, states: States, reference: Program
) -> tuple[int | None, Lowered | None]:
    """The first op whose result is not related to its one-device value, or that cannot run; the
    op that makes an output with a pending sum, where that is all. None where nothing is open."""
    try:
        lowered = lower(program, states, reference)
    except (ProgramError, IRError):
        low, high = 0, len(program)
        while low + 1 < high:
            middle = (low + high) // 2
            try:
                lower(Program(program.name, program.ops[:middle]), states, reference)
                low = middle
            except (ProgramError, IRError):
                high = middle
        return high - 1, None
    wanted = set(reference.outputs)
    pending: int | None = None
    for index, op in enumerate(program.ops):
        for name in op.output_names:
            fact, want = lowered.fact(name), lowered.want(name)
            if fact is None or (want is not None and fact.ref != want):
                return index, lowered
            if name in wanted and fact.layout.partial:
                pending = index if pending is None else pending
    return pending, lowered


def synthesize_parallel_program(
    compute_ops: Sequence[IROp],
    input_shapes: Mapping[str, Sequence[int]],
    sharding_specs: Mapping[str, ShardingSpec],
    verbose: bool = False,
) -> SynthesisResult:
    """Insert communication into compute ops, given shapes and placements of their inputs.

    Raises:
        ProgramError: an input without a placement.
    """
    states: dict[str, TensorState] = {}
    for name, shape in input_shapes.items():
        if name not in sharding_specs:
            raise ProgramError(f"input {name} has a shape and no placement")
        spec = sharding_specs[name]
        states[name] = TensorState(name, tuple(shape), compute_local_shape(shape, spec), spec)
    result = SynthesisEngine().synthesize(Program("synthesized", list(compute_ops)), states)
    if verbose:
        print(result.summary())  # noqa: T201
    return result
