"""`DistributedVerifier`: the core's verdicts on a class program, question by question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from verifier.contract import Contract, ContractError
from verifier.face.errors import ProgramError
from verifier.face.lowering import Given, Lowered, Lowering, source_of
from verifier.face.mesh import DeviceMesh
from verifier.face.program import Program
from verifier.face.sharding import Placement, ShardingSpec
from verifier.face.tensor import TensorState
from verifier.ir import IRError
from verifier.ir.program import Output
from verifier.ir.program import Program as CoreProgram
from verifier.ir.where import members
from verifier.layout import Layout, split_leading
from verifier.regions import regions
from verifier.relate import describe
from verifier.verdict import Counterexample, Location, Proof, Unknown, Verdict, Witness
from verifier.verify import verify, well_formed

Expected = Mapping[str, ShardingSpec | Sequence[Placement]]


@dataclass
class VerifyResult:
    """The answer to one question."""

    passed: bool
    condition: str
    details: str = ""
    counterexample: Counterexample | None = None
    verdict: Verdict | None = None

    def __str__(self) -> str:
        mark = "pass" if self.passed else "FAIL"
        return f"{mark}  {self.condition}" + (f": {self.details}" if self.details else "")


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
        problem = _problem(program, final_tensors, mesh)
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
        names = list(output_names) if output_names else _merge(program.outputs, wanted)
        self._postconditions(lowered, names, expected or {})
        self._add(legality(lowered))
        self._add(placements(lowered, final_tensors))
        self._add(shapes(lowered, final_tensors, initial_shapes or {}))
        if bwd_program is not None:
            self.verify_gradient_duality(program, bwd_program, final_tensors)
        if any(op.is_async() or op.is_p2p() for op in program.flat()) or overlaps(program):
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
        from verifier.face.gradients import check_backward

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

    def verify_pp_deadlock_free(
        self, schedule: object, sends: Sequence[object] = (), recvs: Sequence[object] = ()
    ) -> VerifyResult:
        """Whether the messages of a pipeline meet: `(src, dst, name)`, or a schedule with them."""
        from verifier.face.deadlock import DeadlockChecker

        checker = DeadlockChecker()
        ok, errors = checker.check_all(schedule, sends, recvs)
        return self._add(VerifyResult(ok, "pipeline deadlock freedom", "; ".join(errors)))

    def summary(self) -> str:
        """Counts, then one line for each question that failed."""
        failed = [r for r in self.results if not r.passed]
        passed = len(self.results) - len(failed)
        lines = [f"Verification Summary: {passed} passed, {len(failed)} failed"]
        return "\n".join([*lines, *(f"  {r}" for r in failed)])


def _merge(first: Iterable[str], second: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*first, *second]))


def mesh_of(states: Iterable[TensorState]) -> DeviceMesh | None:
    """The mesh that the states are on."""
    return next((s.sharding.mesh for s in states if s.sharding is not None), None)


def _problem(
    program: Program, states: Mapping[str, TensorState], mesh: DeviceMesh | None
) -> str | None:
    if not len(program):
        return "an empty program computes nothing"
    if mesh is None:
        return "no state with a placement was given"
    known = {*states, *getattr(states, "given", {})}
    missing = [n for n in program.inputs if n not in known]
    own = {n for op in program.flat() for n in op.input_names if _brought(op, n)}
    missing = [n for n in missing if n not in own]
    return f"no tensor state of {', '.join(missing)}" if missing else None


def _brought(op: object, name: str) -> bool:
    """Whether an op brings this input of its own."""
    given = {getattr(op, attr) for attr, _ in getattr(op, "given", ())}
    return name in given or (hasattr(op, "needs") and name.startswith("expert"))


def inputs_of(
    programs: Sequence[Program],
    states: Mapping[str, TensorState],
    devices: Mapping[int, Mapping[str, TensorState]] | None = None,
) -> dict[str, Given]:
    """The states that programs start from, and who holds them."""
    out: dict[str, Given] = {}
    for name in dict.fromkeys(n for p in programs for n in p.inputs):
        known: Given | None = getattr(states, "given", {}).get(name)
        if known is not None:
            out[name] = Given(known.state, known.devices)
            continue
        if name not in states:
            continue
        holders = tuple(d for d, held in (devices or {}).items() if name in held)
        some = holders if devices and len(holders) < len(devices) else None
        out[name] = Given(states[name], some or None)
    return out


def layout_asked(
    lowered: Lowered, name: str, expected: ShardingSpec | Sequence[Placement] | None
) -> Layout:
    """The layout that an output must have.

    What is found is taken where the caller asks for nothing, with sums done. Where nothing is
    found, the layout that the shapes on a rank and of the whole suggest.
    """
    want = lowered.want(name)
    assert want is not None
    shape = lowered.one.terms.shape(want)
    if expected is not None:
        spec = expected if isinstance(expected, ShardingSpec) else None
        spec = spec or ShardingSpec(tuple(expected), lowered.mesh)  # type: ignore[arg-type]
        return spec.layout(shape)
    fact = lowered.fact(name)
    if fact is not None and fact.layout.global_shape == shape:
        return fact.layout.with_partial(())
    local = lowered.many.types[lowered.values[name].many].shape
    layout = Layout.replicate(shape)
    if len(local) == len(shape):
        for mesh_dim, size in lowered.mesh.core.dims:
            for dim, n in enumerate(local):
                if size > 1 and layout.local_shape[dim] == n * size:
                    split = split_leading(layout.dims[dim], size, mesh_dim)
                    if split is not None:
                        layout = layout.with_dim(dim, split)
                        break
    return layout


def ask(lowered: Lowered, contract: Contract, layouts: Mapping[str, Layout]) -> Verdict:
    """The core's verdict on some outputs."""
    one, many = with_outputs(lowered, layouts)
    wanted = {f"output:{n}": where for n in layouts if (where := lowered.asked_on(n))}
    asked = replace(
        contract, outputs={f"output:{n}": lay for n, lay in layouts.items()}, wanted=wanted
    )
    try:
        return verify(one, many, asked)
    except (ContractError, IRError) as error:
        return Unknown(str(error))


def with_outputs(lowered: Lowered, names: Iterable[str]) -> tuple[CoreProgram, CoreProgram]:
    """The two core programs, returning these values."""
    names = list(names)
    ones = tuple(Output(lowered.values[n].one, "output", n) for n in names)
    manys = tuple(Output(lowered.values[n].many, "output", n) for n in names)
    return replace(lowered.one.program, outputs=ones), replace(lowered.many, outputs=manys)


def answer(condition: str, verdict: Verdict, lowered: Lowered, name: str) -> VerifyResult:
    """A verdict as a result."""
    fact = lowered.fact(name)
    found = describe(lowered.one, fact) if fact else "without a relation"
    match verdict:
        case Proof():
            return VerifyResult(True, condition, found, None, verdict)
        case Counterexample():
            pending = fact is not None and bool(fact.layout.partial)
            why = f"{name} is PARTIAL, a reduction is pending; " if pending else ""
            return VerifyResult(False, condition, why + told(verdict, name), verdict, verdict)
        case Unknown():
            place = located(verdict.location)
            source = source_of(lowered, name)
            where = place or (f"  ({source})" if str(source) else "")
            return VerifyResult(
                False, condition, f"not proved: {verdict.reason}{where}", None, verdict
            )


def located(location: Location | None) -> str:
    if location is None:
        return ""
    at = f"  ({location.source})" if str(location.source) else ""
    return f"; {location.text}: {location.reason}{at}"


def told(verdict: Counterexample, name: str) -> str:
    """A counterexample in a line: what, where, expected, got."""
    w = verdict.witness
    if isinstance(w, Witness):
        rank = ", ".join(f"{k}={v}" for k, v in w.rank.items())
        head = (
            f"{name} differs on rank {rank} at {list(w.index)}: expected {w.expected:.6g}, "
            f"got {w.got:.6g}"
        )
    else:
        head = f"{w.check}: {w.message}"
    return head + located(verdict.location)


def legality(lowered: Lowered) -> VerifyResult:
    """Communication: every op of it on whole groups, on a value it can be applied to, every message
    received."""
    wrong = [f"{m.node.op}: {m.reason}" for m in regions(lowered.many).faults()]
    wrong += [f"{op}: nobody receives it (no matching Recv)" for op in lowered.unreceived]
    for value, op in lowered.made.items():
        if op.is_communication() and not lowered.facts[value]:
            why = next((b.refused.reason for b in lowered.breaks if value in b.node.outputs), "")
            wrong.append(f"{op}: {why or 'its operand has no relation'}")
    return VerifyResult(not wrong, "communication legality", "; ".join(wrong))


def placements(lowered: Lowered, claimed: Mapping[str, TensorState]) -> VerifyResult:
    """Every value has a relation, and every state that was handed in says what the core finds."""
    wrong: list[str] = []
    lost = [n for n, v in lowered.values.items() if v.state.sharding is None]
    if lost:
        more = f" (nor have {', '.join(lost[1:3])}{' ...' if lost[3:] else ''})" if lost[1:] else ""
        wrong.append(f"{lost[0]} has {lowered.values[lost[0]].state.relation}{more}")
    for name, value in lowered.values.items():
        state, claim = value.state, claimed.get(name)
        if state.sharding is None:
            continue
        if claim is not None and claim.sharding != state.sharding:
            wrong.append(f"{name} is {state.sharding}, the state says {claim.sharding}")
    return VerifyResult(not wrong, "placement consistency", "; ".join(wrong))


def shapes(
    lowered: Lowered,
    claimed: Mapping[str, TensorState],
    initial: Mapping[str, Sequence[int]],
) -> VerifyResult:
    """Shapes on a rank follow from those of the whole, by the core's type rules."""
    wrong: list[str] = []
    try:
        well_formed(lowered.many)
    except IRError as error:
        wrong.append(str(error))
    for name, value in lowered.values.items():
        claim, local = claimed.get(name), lowered.many.types[value.many].shape
        if claim is not None and (claim.local_shape, claim.global_shape) != (
            local,
            value.state.global_shape,
        ):
            wrong.append(
                f"{name} is {list(local)} of {list(value.state.global_shape)}, the state says "
                f"{list(claim.local_shape)} of {list(claim.global_shape)}"
            )
    for name, shape in initial.items():
        held = claimed.get(name)
        if held is None or tuple(shape) != held.global_shape:
            got = list(held.global_shape) if held else "no tensor state"
            wrong.append(f"{name}: initial shape {list(shape)}, got {got}")
    return VerifyResult(not wrong, "shape consistency", "; ".join(wrong))


def overlaps(program: Program) -> bool:
    """Whether ops run side by side."""
    return len(program.flat()) != len(program.ops) or any(hasattr(op, "inner") for op in program)


def order(program: Program, lowered: Lowered) -> VerifyResult:
    """Whether no execution of the ops goes wrong: waits, buffers in use, messages."""
    from verifier.face.order import verify_temporal

    ids, core = lowered.mesh.ids, lowered.mesh.core
    holders = {
        name: tuple(ids[r] for r in members(where, core))
        for name in program.inputs
        if (where := lowered.places.get(name)) is not None
    }
    result = verify_temporal(program, lowered.mesh, holders)
    return VerifyResult(result.is_safe, "order in time", result.summary())
