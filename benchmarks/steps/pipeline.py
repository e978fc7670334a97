"""The training step on a pipeline of stages: who computes what when, and what is sent.

Each stage is a program of its own that runs on its ranks. Activations go to the next stage, their
cotangents come back. The order on every stage is that of a schedule; values do not depend on it.
Nobody waits for what it sends: neighbours that did would wait for each other. Micro-batches may
also be one repeated block, the way of one through all stages; a schedule is then checked apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from benchmarks.steps import declare, sync
from benchmarks.steps.include import BATCH, Joint, Part, renamed, shared
from benchmarks.steps.model import Degrees, Model
from benchmarks.steps.rank import stage_program, stage_weights
from benchmarks.steps.weights import weights
from shardproof.synthesis.schedules import Slot, generate
from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.microbatch import added, row
from shardproof.synthesis.training.optimizer import Optimizer
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, Timing
from shardproof.verifier.kernel.program.types import Attr, TensorType

BETWEEN = ("output:x", "grad:x")
"""Outputs of a stage that go to its neighbours."""


@dataclass
class Stage:
    """A stage while the program is written."""

    index: int
    joint: Joint
    left: list[Slot]
    """What it has still to run, in order."""
    parts: dict[int, Part] = field(default_factory=dict[int, Part])
    sums: dict[str, str] = field(default_factory=dict[str, str])
    arrived: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """What was sent to this stage, by kind of the slot it is for and micro-batch."""


class Pipeline:
    """Writes the slots of all stages, each as soon as what it needs was sent.

    With `alone`, what is in reach under the names of the batch is one micro-batch, and not all.
    """

    def __init__(
        self, b: Builder, model: Model, degrees: Degrees, count: int, *, alone: bool = False
    ) -> None:
        self.b, self.degrees, self.last, self.alone = b, degrees, degrees.pp - 1, alone
        kind, pp = degrees.schedule, degrees.pp
        schedule = generate(kind, pp, count)
        self.split = schedule.split
        bodies: dict[str, Program] = {}
        self.stages: list[Stage] = []
        for i, joint in enumerate(_joints(model, degrees)):
            joint = Joint(shared(joint.program, bodies), joint.forward)
            slots = [slot for slot in schedule.stages[i] if slot.kind != "R"]
            self.stages.append(Stage(i, joint, slots))

    def run(self) -> None:
        while any(stage.left for stage in self.stages):
            ready = [s for s in self.stages if s.left and self._ready(s)]
            assert ready, "a schedule in which every stage waits"
            for stage in ready:
                slot = stage.left.pop(0)
                with self.b.on(pp=stage.index):
                    if slot.kind == "F":
                        self._forward(stage, slot.micro_batch)
                    if slot.kind == "B":
                        self._backward(stage, slot.micro_batch)
                    if slot.kind == "W" or (slot.kind == "B" and not self.split):
                        self._weights(stage, slot.micro_batch)

    def _ready(self, stage: Stage) -> bool:
        slot = stage.left[0]
        start = stage.index == (0 if slot.kind == "F" else self.last)
        return start or slot.kind == "W" or (slot.kind, slot.micro_batch) in stage.arrived

    def _send(self, value: str, kind: str, m: int, source: int, target: int) -> None:
        ends: dict[str, Attr] = {"mesh_dim": "pp", "src": source, "dst": target}
        (sent,) = self.b.add_node(
            "send",
            [value],
            ends,
            outputs=[f"sent.{kind}{m}.{source}"],
            timing=Timing(asynchronous=True),
        )
        self.stages[target].arrived[kind, m] = sent

    def _receive(self, stage: Stage, kind: str, m: int) -> str:
        source = stage.index - 1 if kind == "F" else stage.index + 1
        message = stage.arrived.pop((kind, m))
        return self.b.add("recv", message, mesh_dim="pp", src=source, dst=stage.index)

    def _forward(self, stage: Stage, m: int) -> None:
        i, program = stage.index, stage.joint.program
        part = Part(program, stage.joint.forward, f"s{i}.mb{m}.")
        names = [item.name for item in program.inputs]
        part.bind({n: n for n in names if n not in (*BATCH, "x", "ct.x")})
        part.bind({n: n if self.alone else row(self.b, n, m) for n in BATCH if n in names})
        if i > 0:
            part.bind({"x": self._receive(stage, "F", m)})
        part.forward(self.b)
        stage.parts[m] = part
        if i < self.last:
            self._send(part.outputs()["output:x"], "F", m, i, i + 1)

    def _backward(self, stage: Stage, m: int) -> None:
        """What the stage before needs."""
        i, part = stage.index, stage.parts[m]
        if i < self.last:
            part.bind({"ct.x": self._receive(stage, "B", m)})
        if i > 0:
            part.backward(self.b, "grad:x")
            self._send(part.outputs()["grad:x"], "B", m, i, i - 1)

    def _weights(self, stage: Stage, m: int) -> None:
        """The gradients of the parameters."""
        part = stage.parts.pop(m)
        part.backward(self.b)
        found = part.outputs()
        added(self.b, stage.sums, {k: v for k, v in found.items() if k not in BETWEEN})


def _joints(model: Model, degrees: Degrees) -> list[Joint]:
    """The programs of all stages; of alike ones between the ends, one is written and renamed."""
    out: list[Joint] = []
    like: dict[object, int] = {}
    for i in range(degrees.pp):
        table = stage_weights(model, degrees, i)
        key = [(w.path.removeprefix(f"stages.{i}."), w.shape, w.tp, w.ep) for w in table]
        inner = degrees.scan_layers and 0 < i < degrees.pp - 1
        first = like.setdefault(tuple(key), i) if inner else i
        if first == i:
            out.append(stage_program(model, degrees, i))
            continue
        pairs = list(zip(stage_weights(model, degrees, first), table, strict=True))
        names, paths = ({a.name: b.name for a, b in pairs}, {a.path: b.path for a, b in pairs})
        found = out[first]
        out.append(Joint(renamed(found.program, names, paths), found.forward))
    return out


def program(model: Model, degrees: Degrees, opt: Optimizer) -> Program:
    """The whole step: all micro-batches, reductions, clipping by the norm of all stages, AdamW."""
    table = weights(model, degrees)
    b = Builder("step", degrees.mesh)
    declare.inputs(b, model, degrees, table)
    last = degrees.pp - 1
    with b.on(pp=last):
        declare.inverse_count(b, degrees)
    sums = (_repeated if degrees.scan_micro_batches else _unrolled)(b, model, degrees)
    b.output(_loss(b, sums, degrees), "loss", "loss")
    grads = _gradients(b, sums, model, degrees)
    norms: list[str] = []
    for i, shares in enumerate(grads):
        held = sync.units(stage_weights(model, degrees, i), degrees)
        with b.on(pp=i):
            grads[i] = sync.reduced(b, held, shares, degrees)
            counted = [unit for unit in held if unit.stages[0] == i]
            norms.append(sync.norm_squared(b, counted, grads[i], degrees))
    norm2 = b.add("all_reduce", b.add("merge", *norms), mesh_dim="pp", reduce="sum")
    factor = optimizer.clip_factor(b, norm2, opt)
    for unit in sync.units(table, degrees):
        copies = [grads[i][unit.name] for i in unit.stages]
        grad = copies[0] if len(copies) == 1 else b.add("merge", *copies)
        with b.on(pp=unit.stages):
            sync.update(b, unit, grad, factor, degrees, opt)
    return b.build()


@dataclass
class Sums:
    """Gradients and losses over all micro-batches, by output key."""

    own: list[dict[str, str]]
    """What one stage alone adds up, by stage."""
    common: dict[str, str]
    """What several stages add to: on every stage its share of the sum."""


def _several(line: Pipeline) -> frozenset[str]:
    """Keys that more than one stage adds to."""
    count = Counter(output_key(o) for s in line.stages for o in s.joint.program.outputs)
    return frozenset(key for key, times in count.items() if times > 1 and key not in BETWEEN)


def _merged(b: Builder, shares: Mapping[int, str], pp: int) -> str:
    """One value from the shares of stages; the others add nothing."""
    like = b.types[next(iter(shares.values()))]
    pieces: list[str] = []
    for i in range(pp):
        with b.on(pp=i):
            pieces.append(shares[i] if i in shares else _zero(b, like))
    return b.add("merge", *pieces)


def _zero(b: Builder, type: TensorType) -> str:
    return b.add("full", shape=type.shape, value=Fraction(0), dtype=type.dtype)


def _shares(line: Pipeline, key: str) -> dict[int, str]:
    return {s.index: s.sums[key] for s in line.stages if key in s.sums}


def _unrolled(b: Builder, model: Model, degrees: Degrees) -> Sums:
    """The sums after all micro-batches in the order of the schedule."""
    line = Pipeline(b, model, degrees, degrees.micro_batches)
    line.run()
    common = {key: _merged(b, _shares(line, key), degrees.pp) for key in sorted(_several(line))}
    return Sums([stage.sums for stage in line.stages], common)


def _repeated(b: Builder, model: Model, degrees: Degrees) -> Sums:
    """The sums, carried by a scan over the micro-batches from zero on."""
    inner = Builder("micro_batch", degrees.mesh)
    line = Pipeline(inner, model, degrees, 1, alone=True)
    several, zeros = _several(line), list[str]()
    carried: dict[tuple[int, str], str] = {}
    for stage in line.stages:
        program = stage.joint.program
        for out in program.outputs:
            key = output_key(out)
            at = stage.index if key not in several else -1
            if key in BETWEEN or (at, key) in carried:
                continue
            type = program[out.value]
            on = {} if at < 0 else {"pp": at}
            with b.on(**on), inner.on(**on):
                zeros.append(_zero(b, type))
                name = key if at < 0 else f"{at}.{key}"
                carried[at, key] = inner.input(name, type, "carry")
    batch = [item for item in b.inputs if item.name in BATCH]
    for item in batch:
        one = TensorType(item.type.shape[1:], item.type.dtype)
        inner.input(item.name, one, "xs", where=item.where)
    read = {i.name for s in line.stages for i in s.joint.program.inputs}
    consts = [n for n in b.types if n in read and n not in BATCH]
    for name in consts:
        inner.input(name, b.types[name], "const", where=b.held[name])
    line.run()
    for (at, key), before in carried.items():
        if at < 0:
            share = _merged(inner, _shares(line, key), degrees.pp)
            inner.output(inner.add("add", before, share), "carry", before)
        else:
            with inner.on(pp=at):
                inner.output(inner.add("add", before, line.stages[at].sums[key]), "carry", before)
    names = [*zeros, *(item.name for item in batch), *consts]
    attrs: dict[str, Attr] = {"length": degrees.micro_batches, "carry": len(zeros)}
    attrs |= {"xs": len(batch), "reverse": False}
    results = b.add_node("scan", names, attrs, body=inner.build())
    out = Sums([{} for _ in line.stages], {})
    for (at, key), value in zip(carried, results, strict=True):
        (out.common if at < 0 else out.own[at])[key] = value
    return out


def _loss(b: Builder, sums: Sums, degrees: Degrees) -> str:
    """The loss on all ranks: of the last stage, and what experts of other stages add to it."""
    last, key = degrees.pp - 1, "loss:loss"
    with b.on(**({} if key in sums.common else {"pp": last})):
        share = sums.common.get(key) or sums.own[last][key]
        if degrees.data:
            share = b.add("all_reduce", share, mesh_dim=sync.over(degrees.data), reduce="sum")
    if key in sums.common:
        return b.add("all_reduce", share, mesh_dim="pp", reduce="sum")
    return b.add("broadcast", share, mesh_dim="pp", index=last)


def _gradients(b: Builder, sums: Sums, model: Model, degrees: Degrees) -> list[dict[str, str]]:
    """The gradients of every stage; those of a parameter that several stages hold are summed."""
    held = [stage_weights(model, degrees, i) for i in range(degrees.pp)]
    out: list[dict[str, str]] = [{} for _ in held]
    whole: dict[str, str] = {}
    for i, table in enumerate(held):
        for w in table:
            key = f"grad:{w.path}"
            if key not in sums.common:
                out[i][w.name] = sums.own[i][key]
                continue
            if key not in whole:
                share = sums.common[key]
                whole[key] = b.add("all_reduce", share, mesh_dim="pp", reduce="sum")
            with b.on(pp=i):
                out[i][w.name] = b.add("only", whole[key])
    return out
