"""Questions about a lowered class program, each answered by the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from textwrap import shorten

from shardproof.compat.lowering import Given, Lowered, source_of
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import Program
from shardproof.compat.sharding import Placement, ShardingSpec
from shardproof.compat.tensor import TensorState
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.layout import Layout, split_leading
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Output, Program as CoreProgram
from shardproof.verifier.kernel.program.where import members
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.facts import describe
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.verdict import Counterexample, Location, Proof, Unknown, Verdict, Witness


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


def mesh_of(states: Iterable[TensorState]) -> DeviceMesh | None:
    """The mesh that the states are on."""
    return next((s.sharding.mesh for s in states if s.sharding is not None), None)


def problem_of(
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
    found, one by which the output is proved, of those that the shapes on a rank and of the whole
    suggest, else the first of them.
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
    guesses = list(_guesses(lowered, name, shape))
    for layout in guesses:
        if isinstance(ask(lowered, lowered.contract, {name: layout}), Proof):
            return layout
    return guesses[0] if guesses else Layout.replicate(shape)


def _guesses(lowered: Lowered, name: str, shape: tuple[int, ...]) -> Iterator[Layout]:
    """Splits in blocks that give the shape on a rank, those of fewer mesh dims first."""
    local = lowered.many.types[lowered.values[name].many].shape
    live = [(n, size) for n, size in lowered.mesh.core.dims if size > 1]
    choices = product((-1, *range(len(shape))), repeat=len(live))
    for chosen in sorted(choices, key=lambda c: sum(d >= 0 for d in c)):
        layout: Layout | None = Layout.replicate(shape)
        for (mesh_dim, size), dim in zip(live, chosen, strict=True):
            if layout is None or dim < 0:
                continue
            split = split_leading(layout.dims[dim], size, mesh_dim)
            layout = layout.with_dim(dim, split) if split is not None else None
        if layout is not None and layout.local_shape == local:
            yield layout


def ask(lowered: Lowered, contract: Contract, layouts: Mapping[str, Layout]) -> Verdict:
    """The core's verdict on some outputs."""
    one, many = with_outputs(lowered, layouts)
    wanted = {f"output:{n}": where for n in layouts if (where := lowered.asked_on(n))}
    asked = replace(
        contract, outputs={f"output:{n}": lay for n, lay in layouts.items()}, wanted=wanted
    )
    try:
        return verify(Problem(one, many, asked))
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
            why = f"not proved: {shorten(verdict.reason, 400, placeholder=' ...')}{where}"
            return VerifyResult(False, condition, why, None, verdict)


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


def legality(lowered: Lowered, proved: bool = False) -> VerifyResult:
    """Communication: every op of it on whole groups, on a value it can be applied to, every message
    received. Where all outputs are proved, values without a relation did no harm."""
    wrong = [f"{m.node.op}: {m.reason}" for m in regions(lowered.many).faults()]
    wrong += [f"{op}: nobody receives it (no matching Recv)" for op in lowered.unreceived]
    for value, op in lowered.made.items():
        if op.is_communication() and not lowered.facts[value] and not proved:
            why = next((b.refused.reason for b in lowered.breaks if value in b.node.outputs), "")
            wrong.append(f"{op}: {why or 'its operand has no relation'}")
    return VerifyResult(not wrong, "communication legality", "; ".join(wrong))


def placements(lowered: Lowered, claimed: Mapping[str, TensorState], proved: bool) -> VerifyResult:
    """Every value has a relation, and every state that was handed in says what the core finds.

    Where all outputs are proved, a value between may do without; a claim about it is refused."""
    wrong: list[str] = []
    lost = [n for n, v in lowered.values.items() if v.state.sharding is None]
    if lost and not proved:
        more = f" (nor have {', '.join(lost[1:3])}{' ...' if lost[3:] else ''})" if lost[1:] else ""
        wrong.append(f"{lost[0]} has {lowered.values[lost[0]].state.relation}{more}")
    for name, value in lowered.values.items():
        state, claim = value.state, claimed.get(name)
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


def timed(program: Program) -> bool:
    """Whether ops run side by side: handles, messages, overlapped regions."""
    return any(hasattr(op, "inner") for op in program) or any(
        op.is_async() or op.is_p2p() or getattr(op, "handle", None) for op in program.flat()
    )


def order(program: Program, lowered: Lowered) -> VerifyResult:
    """Whether no execution of the ops goes wrong: waits, buffers in use, messages."""
    from shardproof.compat.order import verify_temporal

    ids, core = lowered.mesh.ids, lowered.mesh.core
    holders = {
        name: tuple(ids[r] for r in members(where, core))
        for name in program.inputs
        if (where := lowered.places.get(name)) is not None
    }
    result = verify_temporal(program, lowered.mesh, holders)
    return VerifyResult(result.is_safe, "order in time", result.summary())
