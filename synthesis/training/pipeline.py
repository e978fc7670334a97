"""The training step on a pipeline of stages: who computes what when, and what is sent.

Each stage is a program of its own that runs on its ranks. Activations go to the next stage, their
cotangents come back. The order on every stage is that of a schedule; values do not depend on it.
Nobody waits for what it sends: neighbours that did would wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from synthesis.training import declare, optimizer, sync
from synthesis.training.blocks import row
from synthesis.training.include import Part, shared
from synthesis.training.microbatch import BATCH, Joint, added
from synthesis.training.model import Degrees, Model, Optimizer
from synthesis.training.rank import stage_program, stage_weights
from synthesis.training.weights import Weight, weights
from verifier.ir.builder import Builder
from verifier.ir.program import Program, Timing
from verifier.ir.types import Attr
from verifier.schedules import Slot, generate


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
    """Writes the slots of all stages, each as soon as what it needs was sent."""

    def __init__(self, b: Builder, model: Model, degrees: Degrees, count: int) -> None:
        self.b, self.degrees, self.last = b, degrees, degrees.pp - 1
        kind, pp = degrees.schedule, degrees.pp
        schedule = generate(kind, pp, count)
        self.split = schedule.split
        bodies: dict[str, Program] = {}
        self.stages: list[Stage] = []
        for i in range(pp):
            joint = stage_program(model, degrees, i)
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
        part.bind({n: row(self.b, n, m) for n in BATCH if n in names})
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
        added(
            self.b, stage.sums, {k: v for k, v in found.items() if k not in ("output:x", "grad:x")}
        )


def program(model: Model, degrees: Degrees, opt: Optimizer) -> Program:
    """The whole step: all micro-batches, reductions, clipping by the norm of all stages, AdamW."""
    table = weights(model, degrees)
    b = Builder("step", degrees.mesh)
    declare.inputs(b, model, degrees, table)
    last = degrees.pp - 1
    with b.on(pp=last):
        declare.inverse_count(b, degrees)
    pipeline = Pipeline(b, model, degrees, degrees.micro_batches)
    pipeline.run()
    sums = [stage.sums for stage in pipeline.stages]
    loss = _loss(b, sums, degrees)
    b.output(loss, "loss", "loss")
    grads = [
        {w.name: sums[i][f"grad:{w.path}"] for w in stage_weights(model, degrees, i)}
        for i in range(degrees.pp)
    ]
    _tie(b, table, grads, degrees)
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


def _loss(b: Builder, sums: list[dict[str, str]], degrees: Degrees) -> str:
    """The loss on all ranks: of the last stage, and what experts of other stages add to it."""
    alone = [i for i, found in enumerate(sums) if "loss:loss" in found] == [degrees.pp - 1]
    shares: list[str] = []
    for i, found in enumerate(sums):
        with b.on(pp=i):
            share = found.get("loss:loss", "")
            if share and degrees.data:
                share = b.add("all_reduce", share, mesh_dim=sync.over(degrees.data), reduce="sum")
            if not share and not alone:
                share = b.add("full", shape=(), value=Fraction(0), dtype="f32")
        shares += [share] if share else []
    if alone:
        return b.add("broadcast", shares[0], mesh_dim="pp", index=degrees.pp - 1)
    return b.add("all_reduce", b.add("merge", *shares), mesh_dim="pp", reduce="sum")


def _tie(b: Builder, table: list[Weight], grads: list[dict[str, str]], degrees: Degrees) -> None:
    """Sum the gradient of a parameter that several stages hold; the other stages add nothing."""
    for w in table:
        if len(w.stages) == 1:
            continue
        pieces: list[str] = []
        like = b.types[grads[w.stages[0]][w.name]]
        for i in range(degrees.pp):
            with b.on(pp=i):
                if i in w.stages:
                    pieces.append(grads[i][w.name])
                else:
                    zero = b.add("full", shape=like.shape, value=Fraction(0), dtype=like.dtype)
                    pieces.append(zero)
        whole = b.add("all_reduce", b.add("merge", *pieces), mesh_dim="pp", reduce="sum")
        for i in w.stages:
            with b.on(pp=i):
                grads[i][w.name] = b.add("only", whole)
