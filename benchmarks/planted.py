"""The 14 bugs in one layer, one micro-batch, one stage and one rank of a plan with repeated blocks.

One micro-batch is written out of the block that repeats them, and in it one layer of a stage,
forward and backward: the same program (`verifier/kernel/peeling.py`), in which one op can be
changed on one rank. A bug of a collective is made in one group of ranks, as a group runs it or
waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from benchmarks.artifact_bugs import (
    Change,
    Edit,
    Judged,
    attributes,
    dangling,
    first_power,
    halves_swapped,
    judge,
    located,
    on_ranks,
    otherwise,
    same_use_twice,
    scaled,
    scaled_everywhere,
)
from benchmarks.steps.scale import PLANS, Point
from benchmarks.steps.step import training_step
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.peeling import Peel, PeelError, peeled
from shardproof.verifier.kernel.program.program import Node, Program

REDUCTIONS = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Place:
    """One step of every repeated block, and one rank."""

    micro_batch: int
    stage: int
    layer: int
    rank: dict[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        rank = " ".join(f"{k}={v}" for k, v in self.rank.items())
        return f"micro-batch {self.micro_batch}, stage {self.stage}, layer {self.layer}, {rank}"


PLACES = {
    "L3": Place(5, 9, 4, {"dp": 37, "tp": 5}),
    "D3": Place(5, 3, 3, {"dp": 21, "tp": 5}),
}


@dataclass(frozen=True)
class Written:
    """A plan with one micro-batch written out, and in it one layer of one stage."""

    step: Step
    place: Place
    loop: str
    """What the block of micro-batches was called."""
    forward: str
    backward: str
    """What the blocks of layers of the stage were called, in the micro-batch written out."""

    @property
    def program(self) -> Program:
        return self.step.distributed

    def of_layer(self, block: str, find: Callable[[Node], bool]) -> list[Node]:
        """The nodes of the layer that is written out, in one direction."""
        prefix = f"{block}.{self.place.layer}."
        return [n for n in self.program.nodes if n.outputs[0].startswith(prefix) and find(n)]


def _one_step(program: Program, block: str, step: int) -> Peel:
    """The peel that writes one step of a block of the program itself out."""
    node = next(n for n in program.nodes if n.body is not None and n.outputs[0] == block)
    length = node.attrs["length"]
    assert isinstance(length, int), node.attrs
    if not 0 <= step < length:
        raise PeelError(f"%{block} has {length} steps, no step {step}")
    return Peel(block, tuple((a, b) for a, b in ((0, step), (step + 1, length)) if a < b))


def write_out(step: Step, place: Place) -> Written:
    """The step with the micro-batch and the layer of a place written out, and every node's line.

    Raises:
        PeelError: a place that the plan does not have.
    """
    many = step.distributed
    loop = next(n.outputs[0] for n in many.nodes if n.body is not None)
    many = peeled(many, [_one_step(many, loop, place.micro_batch)])
    prefix = f"{loop}.{place.micro_batch}.s{place.stage}."
    blocks = [n.outputs[0] for n in many.nodes if n.body and n.outputs[0].startswith(prefix)]
    forward, backward = blocks[-2], blocks[-1]
    if len(blocks) == 4:  # two kinds of layers in a stage: the last kind
        forward, backward = blocks[1], blocks[2]
    for name in (forward, backward):
        many = peeled(many, [_one_step(many, name, place.layer)])
    step = replace(step, distributed=located(many))
    return Written(step, place, loop, forward, backward)


def plan_named(name: str, *, gathering: bool = False) -> Point:
    """One of the published plans. Where it is asked to gather and does not, with the parameters
    split over the replicas, as its experts rule sequence parallelism out."""
    point = next(p for p in PLANS if p.name == name)
    if not gathering or point.degrees.sequence_parallel:
        return point
    return replace(point, degrees=replace(point.degrees, zero=3))


@dataclass(frozen=True)
class Planted:
    """A bug of the artifact: how to make it at a place."""

    number: int
    title: str
    make: Callable[[Written], Edit]
    gathering: bool = False
    """In a plan that gathers, as only that has the op."""
    last_micro_batch: bool = False

    def __str__(self) -> str:
        return f"{self.number:02d} {self.title}"

    def place(self, given: Place, point: Point) -> Place:
        if not self.last_micro_batch:
            return given
        return replace(given, micro_batch=point.degrees.micro_batches - 1)

    def written(self, point: Point, place: Place) -> tuple[Written, Program]:
        """The plan as it should be, and with the bug in it."""
        step = training_step(point.model, point.degrees)
        right = write_out(step, self.place(place, point))
        return right, self.make(right)(right.program)


def _this(node: Node) -> Callable[[Program, Node], bool]:
    return lambda _, n: n is node


def _over_tp(node: Node) -> bool:
    return (
        node.op in REDUCTIONS and node.attrs["mesh_dim"] == "tp" and node.attrs["reduce"] == "sum"
    )


def _after_attention(w: Written) -> Node:
    return w.of_layer(w.forward, _over_tp)[0]


def _into_attention(w: Written) -> Node:
    return w.of_layer(w.backward, _over_tp)[-1]


def _not_summed(program: Program, node: Node) -> list[Node]:
    """What a rank holds of the result when nothing is summed: its own share."""
    if node.op == "reduce_scatter":
        attrs = {k: node.attrs[k] for k in ("mesh_dim", "dim")}
        return [replace(node, op="shard_slice", attrs=attrs)]
    return [replace(node, op="reshape", attrs={"shape": program.types[node.outputs[0]].shape})]


def _group(w: Written) -> dict[str, int]:
    """The group over tp that the rank is in."""
    return {k: v for k, v in w.place.rank.items() if k != "tp"}


def _missing(node: Callable[[Written], Node]) -> Callable[[Written], Edit]:
    return lambda w: on_ranks(_this(node(w)), _not_summed, **_group(w))


def _epsilon(w: Written) -> Node:
    return w.of_layer(w.forward, lambda n: n.op == "add_scalar")[0]


def _square(w: Written) -> Node:
    return w.of_layer(w.forward, lambda n: n.op == "mul" and len(set(n.inputs)) == 1)[0]


def _readers(program: Program, node: Node) -> list[Node]:
    return [n for n in program.nodes if node.outputs[0] in n.inputs]


def _two_uses(w: Written) -> Node:
    """The sum of what comes back from two uses of a value, before it is summed over tp."""

    def summed(node: Node) -> bool:
        return any(_over_tp(n) for n in _readers(w.program, node))

    return w.of_layer(w.backward, lambda n: n.op == "add" and summed(n))[0]


def _rotation(w: Written) -> Node:
    """What comes back through a rotation of halves."""
    made = w.program.producers()

    def padded(node: Node) -> bool:
        return node.op == "add" and any(v in made and made[v].op == "pad" for v in node.inputs)

    return w.of_layer(
        w.backward, lambda n: padded(n) and not any(map(padded, _readers(w.program, n)))
    )[0]


def _gradient(w: Written) -> Node:
    """The gradient of a matrix of the layer in the micro-batch, before it joins the others."""
    made = w.program.producers()
    types = w.program.types
    join = next(
        n
        for n in w.program.nodes
        if n.op == "concat"
        and n.outputs[0].startswith(f"{w.loop}.{w.place.micro_batch}.")
        and any(p.startswith(f"{w.backward.rsplit('.', 1)[0]}.") for p in n.inputs)
        and len(types[n.outputs[0]].shape) == 3
        and w.program.nodes.index(n) > _index(w, w.backward)
    )
    return next(made[v] for v in join.inputs if made[v].op == "reshape")


def _index(w: Written, block: str) -> int:
    """Where the layer written out of a block begins."""
    prefix = f"{block}.{w.place.layer}."
    return next(i for i, n in enumerate(w.program.nodes) if n.outputs[0].startswith(prefix))


def _message(w: Written) -> Edit:
    """The stage sends back what the next one waits for."""
    stage = w.place.stage
    name = f"{w.loop}.{w.place.micro_batch}.sent.F0.{stage}"
    sent = next(n for n in w.program.nodes if n.outputs[0] == name)
    return otherwise(_this(sent), src=stage, dst=stage - 1)


def _too_early(w: Written) -> Edit:
    """At one place along tp, a gradient is summed over dp before the last micro-batch is in it."""
    made = w.program.producers()

    def late(node: Node) -> bool:
        add = made.get(node.inputs[0]) if node.inputs else None
        return (
            node.op == "all_reduce"
            and node.attrs["mesh_dim"] == "dp"
            and dict(node.where).get("pp") == (w.place.stage,)
            and len(w.program.types[node.outputs[0]].shape) == 3
            and add is not None
            and add.op == "add"
        )

    reduce = next(n for n in w.program.nodes if late(n))
    add = made[reduce.inputs[0]]

    def early(_: Program, node: Node) -> list[Node]:
        sums = replace(node, inputs=add.inputs[:1], outputs=(f"{node.outputs[0]}.early",))
        late = (f"{node.outputs[0]}.early.here", add.inputs[1])
        return [sums, replace(add, inputs=late, outputs=node.outputs)]

    return on_ranks(_this(reduce), early, tp=w.place.rank["tp"])


def _on_rank(node: Callable[[Written], Node], change: Change) -> Callable[[Written], Edit]:
    return lambda w: on_ranks(_this(node(w)), change, **w.place.rank)


def _gathered(w: Written) -> Edit:
    return otherwise(_this(_after_attention(w)), op="all_gather", mesh_dim="tp", dim=0)


def _reduced(w: Written) -> Edit:
    gather = w.of_layer(w.forward, lambda n: n.op == "all_gather")[0]
    return otherwise(
        _this(gather), op="all_reduce", mesh_dim=gather.attrs["mesh_dim"], reduce="sum"
    )


PLANTED = (
    Planted(1, "all_reduce missing in one group", _missing(_after_attention)),
    Planted(2, "all_reduce missing, its result still read",
            lambda w: dangling(_this(_after_attention(w)))),
    Planted(3, "all_gather in place of all_reduce", _gathered),
    Planted(4, "all_reduce in place of all_gather", _reduced, gathering=True),
    Planted(5, "all_reduce missing in the backward pass of one group", _missing(_into_attention)),
    Planted(6, "a stage sends to the wrong stage", _message),
    Planted(7, "another epsilon on one rank",
            _on_rank(_epsilon, attributes(value=Fraction(1)))),
    Planted(8, "exponent 1 in place of 2 on one rank", _on_rank(_square, first_power)),
    Planted(9, "another epsilon on several ranks",
            lambda w: on_ranks(_this(_epsilon(w)), attributes(value=Fraction(1)), **_group(w))),
    Planted(10, "the wrong use in a sum of gradients, on one rank",
            _on_rank(_two_uses, same_use_twice)),
    Planted(11, "gradients of rotary halves swapped on one rank",
            _on_rank(_rotation, halves_swapped)),
    Planted(12, "a gradient scaled on one rank", _on_rank(_gradient, scaled(Fraction(2)))),
    Planted(13, "a gradient scaled on all ranks of the stage",
            lambda w: scaled_everywhere(_this(_gradient(w)), Fraction(2))),
    Planted(14, "gradients summed before the last micro-batch, on one rank of tp", _too_early,
            last_micro_batch=True),
)  # fmt: skip


def judged(name: str, number: int | None) -> Judged:
    """The verdict on one bug in a published plan; on the plan with its steps written out, if None.

    One process; the seconds are those of `verify` alone.
    """
    if number is None:
        point = plan_named(name)
        right = write_out(training_step(point.model, point.degrees), PLACES[name])
        return judge(right.step, right.program, "as it should be, with its steps written out")
    bug = next(b for b in PLANTED if b.number == number)
    right, many = bug.written(plan_named(name, gathering=bug.gathering), PLACES[name])
    return judge(right.step, many, str(bug))
