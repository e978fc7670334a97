"""Fills the data model of a report from what a run found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shardproof.agent.chat.state import Spent
from shardproof.agent.report import model as m
from shardproof.agent.run import events
from shardproof.agent.verdict.verdicts import message, word
from shardproof.synthesis.emit import Patch
from shardproof.synthesis.frontends.torch.captured import Captured
from shardproof.synthesis.frontends.torch.rolling.paths import one_of, stacked
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.optimum.linear import within
from shardproof.synthesis.planner.plan import PassedOver, Plan
from shardproof.synthesis.planner.scoring import StepPrice
from shardproof.synthesis.strategy import words
from shardproof.verifier.checker import Accepted, Result
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.refute.search import MAX_ELEMENTS
from shardproof.verifier.verdict import (
    Counterexample,
    Location,
    Proof,
    Trace,
    Unknown,
    Verdict,
    Witness,
)

if TYPE_CHECKING:
    from shardproof.synthesis.execute.run.running import Ran

NOT_PROVED = (
    "Equality is over the real numbers: the order of floating-point sums changes, and so their "
    "rounding.",
    "What PyTorch records of the model and of the patched code on tensors without memory, under a "
    "process group that sends nothing, is trusted to be what they run, and so is the communication "
    "library; a run on local processes is the check on them.",
    "Times are estimates on a described cluster, not measurements.",
)


@dataclass
class Findings:
    """What the phases of a run found, as far as it got."""

    target: str
    command: str
    captured: Captured
    cluster: Cluster
    plan: Plan
    verdict: Verdict
    before: StepPrice
    after: StepPrice
    checked: Result | None = None
    checked_s: float | None = None
    certificate_sha256: str = ""
    patch: Patch | None = None
    ran: Ran | None = None
    run_note: str = ""
    launcher: m.Launcher | None = None
    """That of the patch, where one is asked for."""
    again: str = ""
    """What came of proving the patch itself, in words."""
    read: Verdict | None = None
    """The verdict on the patched source, read again as its ranks run it; None where it was not."""
    stats: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the verdict on the plan, whatever became of its patch."""
    model: m.ModelUse | None = None
    """None where no language model was asked."""
    configuration: m.Strategy | None = None
    candidates: Sequence[PassedOver] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    peak_memory: int | None = None
    exit_code: int = 0

    @property
    def patch_standing(self) -> str:
        """What was done with the patch itself; empty where there was none."""
        made = self.patch is not None or self.ran is not None or self.read is not None
        return patch_standing(self.read, self.ran) if made else ""


def strategy(plan: Plan) -> str:
    """The plan in plain words."""
    parts: list[str] = []
    if plan.tp and plan.tp_size > 1:
        styles = Counter(module.style for module in plan.modules if module.style != "replicate")
        what = ", ".join(f"{n} {style.replace('_', ' ')}" for style, n in styles.most_common())
        parts.append(f"{plan.tp}={plan.tp_size}: {what or 'everything replicated'}")
        if plan.sequence_parallel:
            parts.append("activations between blocks sharded along the sequence")
        if plan.loss_parallel:
            parts.append("vocabulary-parallel loss")
        if plan.whole_attention:
            parts.append(f"attention stays whole: {', '.join(plan.whole_attention)}")
        if not plan.useful:
            parts.append(f"not useful: shards {sharded(plan)}")
    if plan.dp and plan.batch_ranks > 1:
        kept = "" if plan.zero == 2 else "parameters, "
        how = f"{kept}gradients and optimizer sharded" if plan.data == "fsdp" else "replicas"
        if plan.replicate:
            parts.append(f"{plan.replicate}={plan.mesh[plan.replicate]}: batch sharded, replicas")
        parts.append(f"{plan.dp}={plan.mesh[plan.dp]}: batch sharded, {how}")
    if plan.cp:
        parts.append(f"{plan.cp}={plan.mesh[plan.cp]}: rows of the sequence, in attention heads")
    if plan.recompute != "none":
        parts.append(words.KEPT[plan.recompute])
    return "; ".join(parts) or "one device"


def sharded(plan: Plan) -> str:
    """How much of a model a plan shards, in words."""
    parts = [
        f"{plan.estimates[name]:.0%} of {what}"
        for name, what in (
            ("split_share", "the shardable parameters"),
            ("compute_share", "the compute"),
        )
        if name in plan.estimates
    ]
    return " and ".join(parts)


def build(found: Findings) -> m.Report:
    """The report of one run of `parallelize`."""
    plan, verdict, captured = found.plan, found.verdict, found.captured
    proof = verdict if isinstance(verdict, Proof) else None
    return m.Report(
        title=f"{found.target} on {plan.mesh}",
        verdict=word(verdict),
        headline=_headline(verdict, captured.program),
        patch_standing=found.patch_standing,
        patch_notes=tuple(filter(None, (found.again, found.run_note))),
        command=found.command,
        created_with=dict(found.versions),
        strategy=strategy(plan),
        configuration=found.configuration,
        mesh=tuple(_mesh_dim(plan, name, size) for name, size in plan.mesh.dims),
        scope=proof.scope if proof else (),
        assumptions=assumptions(found),
        not_proved=NOT_PROVED,
        plan=tuple(_module_rows(plan, captured)),
        collectives=tuple(plan.collectives),
        memory=m.Memory(
            dict(found.before.held),
            dict(found.after.held),
            int(found.cluster.device.memory_bytes),
        ),
        time=_time(found.after, found.cluster, found.plan),
        proof=_proof(found, proof) if proof else None,
        refuter=refuter(verdict, found.stats),
        execution=_execution(found),
        patch=m.Patch(diff=found.patch.diff, run=found.patch.entry) if found.patch else None,
        launcher=found.launcher,
        obligations=found.patch.obligations if found.patch else plan.obligations,
        candidates=tuple(found.candidates),
        counterexample=_counterexample(verdict) if isinstance(verdict, Counterexample) else None,
        missing=_missing(verdict) if isinstance(verdict, Unknown) else None,
        capture=_capture(captured),
        timings=dict(found.seconds),
        peak_memory=found.peak_memory,
        reproduce=m.Reproduce(
            commands=(found.command, "shardproof verify ."),
            versions=dict(found.versions),
            hashes={f.path: f.sha256 for f in captured.facts.files if f.location},
        ),
        model_use=found.model,
        exit_code=found.exit_code,
    )


def patch_standing(read: Verdict | None, ran: Ran | None) -> str:
    """What was done with the patch itself: `read` is the verdict on its source, read again as the
    ranks run it, and `ran` what came of running it; None where it was not."""
    parts: list[str] = []
    match read:
        case Proof():
            parts.append("read again and proved")
        case Counterexample():
            parts.append("read again and refuted")
        case Unknown():
            parts.append("read again, not proved")
        case None:
            pass
    if ran is not None:
        how = "agrees" if ran.agrees else "differs"
        parts.append(f"run on {ran.ranks} processes, {how}")
    return " | ".join([*parts, *(["not read"] if read is None else [])])


def spent_in(seen: Iterable[events.Event]) -> Spent:
    """What the events of a run say that a model took."""
    total = Spent()
    for event in seen:
        if isinstance(event, events.ModelAnswered):
            total = total.plus(event)
    return total


def model_use(spent: Spent) -> m.ModelUse | None:
    """What a language model took; None where none was asked."""
    if not spent.calls and not spent.models:
        return None
    cost = "cost not known" if spent.usd is None else f"{spent.usd:.4f} USD"
    if not spent.calls:
        cost = "answered before"
    tokens = spent.prompt_tokens + spent.completion_tokens
    return m.ModelUse(calls=spent.calls, tokens=tokens, models=tuple(spent.models), cost=cost)


def assumptions(found: Findings) -> tuple[str, ...]:
    """All that the verdict rests on: what the proof assumes, and what capture took for granted."""
    proof = found.verdict.assumptions if isinstance(found.verdict, Proof) else ()
    return tuple(dict.fromkeys((*proof, *found.captured.assumptions)))


def _headline(verdict: Verdict, program: Program) -> str:
    """One line under the verdict."""
    if not isinstance(verdict, Proof):
        return message(verdict).split("\n")[0]
    names = [o.path or o.role for o in program.outputs if o.role != "grad"]
    gradients = sum(1 for o in program.outputs if o.role == "grad")
    names += [f"{gradients} gradients"] if gradients else []
    listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return f"The parallel program computes {listed} of one device, over the real numbers."


def _mesh_dim(plan: Plan, name: str, size: int) -> m.MeshDim:
    does, stores = "", name == plan.tp or plan.data == "fsdp"
    if name == plan.tp:
        does = "splits heads, hidden units and the vocabulary"
    elif name == plan.dp:
        does = "splits the batch" + (", parameters and gradients" if plan.data == "fsdp" else "")
    elif name == plan.replicate:
        does, stores = "splits the batch; each group has all parameters", False
    elif name == plan.cp:
        does = "splits the sequence, in attention heads; parameters and gradients"
    return m.MeshDim(name, size, does, stores, data=name in plan.data_dims)


def _module_rows(plan: Plan, captured: Captured) -> list[m.ModuleRow]:
    types = {i.path: i.type for i in captured.program.inputs if i.role == "param"}
    rows: list[m.ModuleRow] = []
    for module in plan.modules:
        prefix = module.path + "." if module.path else ""
        owned = [p for p in plan.params if p.startswith(prefix) and "." not in p[len(prefix) :]]
        params: list[m.Parameter] = []
        whole = local = 0
        for path in owned:
            placed = {n: p for n, p in plan.params[path].items() if p != "R"}
            words = {n: p.replace("S(", "Shard(") for n, p in placed.items()}
            tensor = types.get(path)
            if tensor is not None:
                ways = prod(plan.mesh[name] for name in placed)
                whole += tensor.nbytes
                local += tensor.nbytes // ways
                shape = tensor.shape[stacked(path) :]
                params.append(m.Parameter(path[len(prefix) :], shape, words, tensor.dtype))
        fact = captured.facts.modules.get(one_of(module.path))
        rows.append(
            m.ModuleRow(
                path=module.path,
                kind=module.kind,
                style=module.style,
                input=module.input,
                output=module.output,
                parameters=tuple(params),
                bytes=whole or None,
                local_bytes=local or None,
                source=Source(fact.file, fact.line) if fact and fact.line else NOWHERE,
                reason=module.reason,
            )
        )
    return rows


def _time(price: StepPrice, cluster: Cluster, plan: Plan) -> m.TimeEstimate:
    model = f"{cluster.name}; fitted to published measurements"
    gap = plan.estimates.get("cost_gap")
    if gap is not None:
        model += f"; {within(gap)}"
    return m.TimeEstimate(dict(price.spent), model, price.exchange_s)


def _proof(found: Findings, proof: Proof) -> m.ProofFacts:
    checker = "not run"
    if found.checked is not None:
        checker = "accepted" if isinstance(found.checked, Accepted) else "rejected"
    return m.ProofFacts(
        rules=dict(sorted(_rules(proof.certificate).items())),
        engine=proof.engine,
        seconds=proof.stats.get("relate_s"),
        segments=_segments(found.captured.program),
        certificate="certificate.json",
        certificate_sha256=found.certificate_sha256,
        checker=checker,
        checker_seconds=found.checked_s,
    )


def _rules(certificate: dict[str, Any]) -> Counter[str]:
    """How often each rule stands in a certificate."""
    rows: Counter[str] = Counter()
    for claims in (certificate.get("claims", {}), *certificate.get("blocks", ())):
        for facts in cast("dict[str, list[dict[str, Any]]]", claims.get("values", {})).values():
            rows.update(str(fact["rule"]) for fact in facts)
    return rows


def _segments(program: Program) -> str:
    lengths = [node.attrs["length"] for node in program.nodes if node.body is not None]
    if not lengths:
        return ""
    covered = ", ".join(map(str, lengths))
    return f"{len(lengths)} repeated blocks proved once each, by induction over {covered} layers"


def refuter(verdict: Verdict, stats: Mapping[str, float]) -> m.RefuterFacts:
    if "refuter_ran" not in stats:
        return m.RefuterFacts(result="not run: it was decided before any value was looked at")
    if not stats["refuter_ran"] and stats["refuter_elements"] <= MAX_ELEMENTS:
        why = "no input was found on which what the contract assumes holds"
        return m.RefuterFacts(result=f"not run: {why}")
    if not stats["refuter_ran"]:
        held = f"{stats['refuter_elements']:,.0f} numbers over all ranks"
        limit = f"it runs at most {MAX_ELEMENTS:,}"
        return m.RefuterFacts(result=f"not run: one run of both programs holds {held}, {limit}")
    return m.RefuterFacts(
        result=_where(verdict) if isinstance(verdict, Counterexample) else "no difference",
        prime="two primes of 31 bits",
        seconds=stats.get("refute_s"),
    )


def _where(verdict: Counterexample) -> str:
    witness = verdict.witness
    return witness.message if isinstance(witness, Trace) else f"differs at {witness.output}"


def _execution(found: Findings) -> m.Execution | None:
    if found.ran is None:
        return None
    return m.Execution(
        agrees=found.ran.agrees,
        world_size=found.ran.ranks,
        tolerance=found.ran.tolerance,
        differences=found.ran.differences,
        dtype=found.ran.dtype,
        seconds=found.ran.seconds,
    )


def _counterexample(verdict: Counterexample) -> m.Counterexample:
    location = verdict.location or Location("", "", "")
    found = m.Counterexample(
        check=location.op or "equality",
        message=location.reason or "the programs differ",
        mesh=verdict.mesh,
        output=", ".join(verdict.wrong_outputs),
        op=location.text,
        source=location.source,
        relations=tuple((f"operand {i}", text) for i, text in enumerate(location.operands)),
        fixes=verdict.fixes,
    )
    match verdict.witness:
        case Trace(check=check, message=said, steps=steps):
            told = tuple((f"step {i}", text) for i, text in enumerate(steps))
            return replace(found, check=check, message=said, relations=told)
        case Witness() as w:
            return replace(
                found,
                rank=_flat(verdict.mesh, w.rank),
                output=w.output,
                index=w.index,
                expected=f"{w.expected:.9g}",
                got=f"{w.got:.9g}",
                tensors=tuple(_views(w.inputs)),
                coordinates=dict(w.rank),
            )


def _views(inputs: Mapping[str, Any]) -> Iterator[m.TensorView]:
    """The small inputs of a counterexample."""
    for name, nested in inputs.items():
        array = np.asarray(nested, dtype=np.float64)
        if 0 < array.size <= 64:
            values = tuple(float(v) for v in array.ravel())
            yield m.TensorView(name=name, shape=array.shape, values=values)


def _flat(mesh: str, coordinates: Mapping[str, int]) -> int:
    """Rank number of coordinates on a mesh written as `dp=2,tp=2`, last dim fastest."""
    rank = 0
    for part in mesh.split(","):
        name, _, size = part.partition("=")
        rank = rank * int(size or 1) + coordinates.get(name, 0)
    return rank


def _missing(verdict: Unknown) -> m.Missing:
    location = verdict.location
    return m.Missing(
        reason=verdict.reason + (f": {location.reason}" if location else ""),
        op=location.text if location else "",
        source=location.source if location else NOWHERE,
        next_steps=verdict.fixes,
    )


def _capture(captured: Captured) -> m.Capture:
    program = captured.program
    kinds = {True: "joint forward and backward", False: "forward"}
    joint = any(o.role == "grad" for o in program.outputs)
    return m.Capture(
        origin=f"torch.export, {kinds[joint]}",
        ops=sum(1 for _ in program.walk()),
        parameters=captured.facts.param_count,
        rolled={
            pattern: group.count for group in captured.facts.groups for pattern in group.patterns
        },
        inputs=tuple(f"{i.path} {i.type}" for i in program.inputs if i.role == "input"),
        casts=tuple(_casts(program)),
    )


def _casts(program: Program) -> list[str]:
    """Edges on which a float changes its dtype, with how often each stands in the text."""
    seen: Counter[str] = Counter()
    for scope, node in program.walk():
        if node.op != "cast":
            continue
        old, new = scope.types[node.inputs[0]], scope.types[node.outputs[0]]
        if old.is_float and new.is_float and old.dtype != new.dtype:
            at = node.source.module or str(node.source)
            seen[f"{old.dtype} -> {new.dtype} at {at}"] += 1
    return [edge if n == 1 else f"{edge} ({n} times)" for edge, n in seen.items()]
