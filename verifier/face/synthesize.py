"""Inserts the communication that a program of compute ops lacks, given how its inputs are split.

A best-first search over edits: an edit is kept where the program comes further, and what leaves
the search is proved against the program as it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verifier.face.errors import ProgramError
from verifier.face.mesh import DeviceMesh
from verifier.face.program import IROp, Program
from verifier.face.repairs import Edit, edits, lower, proved, unproved
from verifier.face.sharding import ShardingSpec, compute_local_shape
from verifier.face.tensor import TensorState
from verifier.ir import IRError


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
        max_search_depth: edits at most.
        beam_width: programs kept after each edit.
    """

    def __init__(
        self, max_tactics: int = 40, max_search_depth: int = 6, beam_width: int = 4
    ) -> None:
        self.max_tactics, self.max_search_depth = max_tactics, max_search_depth
        self.beam_width = beam_width

    def synthesize(
        self,
        program: Program,
        states: Mapping[str, TensorState],
        mesh: DeviceMesh | None = None,
    ) -> SynthesisResult:
        """The program with communication, proved, or why none was found."""
        if mesh is not None and any(
            s.sharding is not None and s.sharding.mesh.core != mesh.core for s in states.values()
        ):
            return SynthesisResult(False, reason="the states are on another mesh")
        outputs, out = program.outputs, SynthesisResult(False)
        beam: list[tuple[Program, list[str]]] = [(program, [])]
        if proved(program, states, program, outputs):
            return SynthesisResult(True, program, [], 1)
        seen: set[str] = {str(program)}
        for _ in range(self.max_search_depth):
            found: list[tuple[tuple[int, int], Program, list[str]]] = []
            for current, done in beam:
                for edit in self._edits(current, states):
                    trial = edit.apply(current)
                    if str(trial) in seen:
                        continue
                    seen.add(str(trial))
                    out.iterations += 1
                    if proved(trial, states, program, outputs):
                        out.success, out.program, out.edits = True, trial, [*done, str(edit)]
                        return out
                    found.append((_worth(trial, states, program), trial, [*done, str(edit)]))
            if not found:
                break
            found.sort(key=lambda item: item[0], reverse=True)
            beam = [(trial, done) for _, trial, done in found[: self.beam_width]]
        out.reason = "no sequence of edits is proved"
        return out

    def _edits(self, program: Program, states: Mapping[str, TensorState]) -> list[Edit]:
        try:
            lowered = lower(program, states)
        except (ProgramError, IRError):
            lowered = None
        return list(edits(program, states, lowered))[: self.max_tactics]


def _worth(
    trial: Program, states: Mapping[str, TensorState], reference: Program
) -> tuple[int, int]:
    """How far a program comes: ops that run and have a relation, then fewer open outputs."""
    for count in range(len(trial), 0, -1):
        part = Program(trial.name, trial.ops[:count])
        try:
            lowered = lower(part, states, reference)
        except (ProgramError, IRError):
            continue
        related = sum(bool(f) for f in lowered.facts.values())
        unrelated = len(lowered.facts) - related
        open_outputs = len(unproved(lowered, reference.outputs)) if count == len(trial) else 0
        return count - unrelated - (len(trial) - len(reference)), -open_outputs
    return 0, 0


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
