"""`DistributedVerifier`: the core's verdicts on a class program, question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardproof.compat.errors import ProgramError
from shardproof.compat.lowering import Lowered, Lowering
from shardproof.compat.program import Program
from shardproof.compat.sharding import Placement, ShardingSpec
from shardproof.compat.tensor import TensorState
from shardproof.compat.verdicts import (
    VerifyResult,
    answer,
    ask,
    inputs_of,
    layout_asked,
    legality,
    mesh_of,
    order,
    placements,
    problem_of,
    shapes,
    timed,
)
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.verdict import Proof

Expected = Mapping[str, ShardingSpec | Sequence[Placement]]


class DistributedVerifier:
    """Decides class programs. Results of all questions are kept in `results`."""

    def __init__(self) -> None:
        self.results: list[VerifyResult] = []

    def verify_all(
        self,
        program: Program,
        final_tensors: Mapping[str, TensorState],
        bwd_program: Program | None = None,
        initial_shapes: Mapping[str, Sequence[int]] | None = None,
        output_names: Sequence[str] | None = None,
        multi_device_states: Mapping[int, Mapping[str, TensorState]] | None = None,
        *,
        reference: Program | None = None,
        expected: Expected | None = None,
    ) -> list[VerifyResult]:
        """Every question about a program and the states that were derived (or claimed) for it.

        Args:
            program: what the ranks run.
            final_tensors: states by name; those of its inputs are the contract, the others claims.
            bwd_program: what the ranks run backward, with names `grad_<tensor>`.
            initial_shapes: whole shapes of inputs, to be compared with the states.
            output_names: what must be right; by default all names that nothing reads.
            multi_device_states: states by device, for tensors that only some devices hold.
            reference: the one-device program; by default the same ops, communication being the
                identity.
            expected: placements that outputs must have; by default whole or sharded ones as found.
        """
        start = len(self.results)
        mesh = mesh_of(final_tensors.values())
        problem = problem_of(program, final_tensors, mesh)
        lowered: Lowered | None = None
        if problem is None and mesh is not None:
            given = inputs_of([program, *([reference] if reference else [])], final_tensors,
                              multi_device_states)  # fmt: skip
            try:
                lowered = Lowering(mesh, given).lower(program, reference)
            except (ProgramError, IRError) as error:
                problem = str(error)
        if lowered is None:
            self._add(VerifyResult(False, "program", problem or "no tensors are registered"))
            return self.results[start:]
        wanted = reference.outputs if reference is not None else []
        names = list(output_names or dict.fromkeys([*program.outputs, *wanted]))
        self._postconditions(lowered, names, expected or {})
        proved = all(r.passed for r in self.results[start:])
        self._add(legality(lowered, proved))
        self._add(placements(lowered, final_tensors, proved))
        self._add(shapes(lowered, final_tensors, initial_shapes or {}))
        if bwd_program is not None:
            self.verify_gradient_duality(program, bwd_program, final_tensors)
        if timed(program):
            self._add(order(program, lowered))
        return self.results[start:]

    def _postconditions(self, lowered: Lowered, names: Sequence[str], expected: Expected) -> None:
        if not names:
            self._add(VerifyResult(False, "postcondition", "the program has no output"))
        contract = lowered.contract
        asked: dict[str, Layout] = {}
        for name in names:
            if name not in lowered.values or lowered.want(name) is None:
                side = "the ranks" if name not in lowered.values else "one device"
                why = f"{side} never compute a value of this name"
                self._add(VerifyResult(False, f"postcondition {name}", why))
                continue
            asked[name] = layout_asked(lowered, name, expected.get(name))
        if not asked:
            return
        whole = ask(lowered, contract, asked)
        for name, layout in asked.items():
            verdict = whole
            if not isinstance(whole, Proof) and len(asked) > 1:
                verdict = ask(lowered, contract, {name: layout})
            self._add(answer(f"postcondition {name}", verdict, lowered, name))

    def _add(self, result: VerifyResult) -> VerifyResult:
        self.results.append(result)
        return result

    def verify_postcondition(
        self,
        t: TensorState,
        expected_partial: bool = False,
        expected_placement: Placement | None = None,
    ) -> VerifyResult:
        """Whether a state is as its caller wants it. Of values it says nothing."""
        if t.sharding is None:
            return self._add(VerifyResult(False, f"state {t.name}", t.relation))
        wrong = ""
        if t.partial != expected_partial:
            wrong = f"is {t.sharding}, expected {'' if expected_partial else 'no '}pending sum"
        elif expected_placement is not None and any(
            p != expected_placement for p in t.sharding.placements
        ):
            wrong = f"is {t.sharding}, expected {expected_placement}"
        return self._add(VerifyResult(not wrong, f"state {t.name}", wrong))

    def verify_gradient_duality(
        self,
        fwd: Program,
        bwd: Program,
        states: Mapping[str, TensorState] | None = None,
        reference: Program | None = None,
    ) -> VerifyResult:
        """Whether the backward of the ranks computes the gradients of the one-device program."""
        from shardproof.compat.gradients import check_backward

        return self._add(check_backward(fwd, bwd, states or {}, reference))

    def verify_communication_legality(
        self,
        program: Program,
        tensor_states: Mapping[str, TensorState],
        multi_device_states: Mapping[int, Mapping[str, TensorState]] | None = None,
    ) -> VerifyResult:
        """Whether every communication op has a relation, and runs on whole groups."""
        try:
            mesh = mesh_of(tensor_states.values())
            assert mesh is not None, "no tensors are registered"
            given = inputs_of([program], tensor_states, multi_device_states)
            return self._add(legality(Lowering(mesh, given).lower(program)))
        except (AssertionError, ProgramError, IRError) as error:
            return self._add(VerifyResult(False, "communication legality", str(error)))

    def verify_placement_consistency(
        self, program: Program, final_tensors: Mapping[str, TensorState]
    ) -> VerifyResult:
        """Whether states are what the core finds, for every value of a program."""
        return self._one("placement consistency", program, final_tensors, {})

    def verify_shape_consistency(
        self,
        program: Program,
        final_tensors: Mapping[str, TensorState],
        initial_shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> VerifyResult:
        """Whether shapes on a rank follow from those of the whole, and states say the same."""
        return self._one("shape consistency", program, final_tensors, initial_shapes or {})

    def _one(
        self,
        condition: str,
        program: Program,
        states: Mapping[str, TensorState],
        initial: Mapping[str, Sequence[int]],
    ) -> VerifyResult:
        asker = DistributedVerifier()
        results = asker.verify_all(program, states, initial_shapes=initial)
        found = next((r for r in results if r.condition == condition), results[0])
        return self._add(found)

    def verify_pp_deadlock_free(
        self, schedule: object, sends: Sequence[object] = (), recvs: Sequence[object] = ()
    ) -> VerifyResult:
        """Whether the messages of a pipeline meet: `(src, dst, name)`, or a schedule with them."""
        from shardproof.compat.deadlock import DeadlockChecker

        checker = DeadlockChecker()
        ok, errors = checker.check_all(schedule, sends, recvs)
        return self._add(VerifyResult(ok, "pipeline deadlock freedom", "; ".join(errors)))

    def summary(self) -> str:
        """Counts, then one line for each question that failed."""
        failed = [r for r in self.results if not r.passed]
        passed = len(self.results) - len(failed)
        lines = [f"Verification Summary: {passed} passed, {len(failed)} failed"]
        return "\n".join([*lines, *(f"  {r}" for r in failed)])
