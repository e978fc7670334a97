"""The training step on a pipeline of stages: who computes what when, and what is sent.

Each stage is a program of its own that runs on its ranks. Activations go to the next stage, their
cotangents come back. The order on every stage is GPipe (Huang et al. 2019) or 1F1B (Narayanan et
al. 2019); values do not depend on it. Nobody waits for what it sends: neighbours that did would
wait for each other.
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

Slot = tuple[str, int]
"""`F` or `B`, and the micro-batch."""


def order(schedule: str, stage: int, stages: int, count: int) -> list[Slot]:
    """What a stage runs, in order."""
    warm = count if schedule == "gpipe" else min(count, stages - 1 - stage)
    out: list[Slot] = [("F", m) for m in range(warm)]
    for m in range(count - warm):
        out += [("F", warm + m), ("B", m)]
    return out + [("B", m) for m in range(count - warm, count)]


@dataclass
class Stage:
    """A stage while the program is written."""

    index: int
    joint: Joint
    left: list[Slot]
    parts: dict[int, Part] = field(default_factory=dict[int, Part])
    sums: dict[str, str] = field(default_factory=dict[str, str])
    arrived: dict[Slot, str] = field(default_factory=dict[Slot, str])
    """What was sent to this stage for a slot."""


class Pipeline:
    """Writes the slots of all stages, each as soon as what it needs was sent."""

    def __init__(self, b: Builder, model: Model, degrees: Degrees, count: int) -> None:
        self.b, self.degrees, self.last = b, degrees, degrees.pp - 1
        kind, pp = degrees.schedule, degrees.pp
        bodies: dict[str, Program] = {}
        self.stages: list[Stage] = []
        for i in range(pp):
            joint = stage_program(model, degrees, i)
            joint = Joint(shared(joint.program, bodies), joint.forward)
            self.stages.append(Stage(i, joint, order(kind, i, pp, count)))

    def run(self) -> None:
        while any(stage.left for stage in self.stages):
            ready = [s for s in self.stages if s.left and self._ready(s)]
            assert ready, "a schedule in which every stage waits"
            for stage in ready:
                kind, m = stage.left.pop(0)
                with self.b.on(pp=stage.index):
                    if kind == "F":
                        self._forward(stage, m)
                    else:
                        self._backward(stage, m)

    def _ready(self, stage: Stage) -> bool:
        kind, m = stage.left[0]
        start = stage.index == (0 if kind == "F" else self.last)
        return start or (kind, m) in stage.arrived

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
        i, part = stage.index, stage.parts.pop(m)
        if i < self.last:
            part.bind({"ct.x": self._receive(stage, "B", m)})
        part.backward(self.b)
        found = part.outputs()
        found.pop("output:x", None)
        if i > 0:
            self._send(found.pop("grad:x"), "B", m, i, i - 1)
        added(self.b, stage.sums, found)


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
    shares: list[str] = []
    for i, found in enumerate(sums):
        if "loss:loss" not in found:
            continue
        with b.on(pp=i):
            share = found["loss:loss"]
            if degrees.data:
                share = b.add("all_reduce", share, mesh_dim=sync.over(degrees.data), reduce="sum")
        shares.append(share)
    if len(shares) == 1:
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
