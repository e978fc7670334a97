"""`python -m benchmarks.artifact_bugs`: the 14 bugs of the TrainVerify artifact, one row each.

Each bug of its section 8.3 (SOSP 2025) is one edit of the program that all ranks run, in a whole
training step of Llama 3 8B with 2 replicas, 2 tensor ranks, 2 stages and 2 micro-batches, at full
size. A bug must be refuted, with a difference that was replayed on numbers, or refused as no
program, with its place; the plan as it was written must be proved. Exits 1 where one is not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import islice

import numpy as np

from benchmarks.mutation_testing.edits import Site, sites
from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import MODELS, Degrees, Model
from benchmarks.steps.step import training_step
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Attr, Source
from shardproof.verifier.kernel.program.where import ranks_where
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.printing import to_text
from shardproof.verifier.verdict import Counterexample, Proof, Trace

DEGREES = Degrees(dp=2, tp=2, pp=2, micro_batches=2, scan_layers=True)
PLAN = "plan.txt"
"""What the text of the distributed program is called where a place in it is named."""
Edit = Callable[[Program], Program]


@dataclass(frozen=True)
class Bug:
    """One edit of the distributed program. `of` are the degrees of the plan it is made in."""

    number: int
    kind: str
    title: str
    edit: Edit
    degrees: Degrees = DEGREES

    def __str__(self) -> str:
        return f"{self.number:02d} {self.title}"


@dataclass(frozen=True)
class Judged:
    """What is said of one bug, or of the plan as written."""

    name: str
    verdict: str
    """`proved`, `refuted`, `refused` (no program, located), `unknown` or `crashed`."""
    where: str
    """The op and its line in the text of the plan."""
    witness: str
    seconds: float
    cpu: float
    """Seconds of the processor, which do not count what else it did."""

    @property
    def found(self) -> bool:
        return self.verdict in ("refuted", "refused") and bool(self.where and self.witness)


def located(program: Program, lines: Sequence[str] | None = None, at: int = 0) -> Program:
    """The program with every node's line in its own text as its source.

    A body that several blocks share stays shared, with the lines of the first.
    """
    lines = to_text(program).splitlines() if lines is None else lines
    return _located(program, lines, at, {})[0]


def _located(
    program: Program, lines: Sequence[str], at: int, bodies: dict[int, Program]
) -> tuple[Program, int]:
    nodes: list[Node] = []
    for node in program.nodes:
        head = f"%{node.outputs[0]}"
        while lines[at].split(" = ")[0].split(",")[0].strip() != head:
            at += 1
        source = Source(PLAN, at + 1, program.name, lines[at].strip())
        at += 1
        body = node.body
        if body is not None:
            first = bodies.get(id(body))
            made, at = _located(body, lines, at, bodies)
            body = bodies.setdefault(id(body), made) if first is None else first
        nodes.append(replace(node, source=source, body=body))
    return replace(program, nodes=tuple(nodes)), at


# Edits


Find = Callable[[Program, Node], bool]


def found(program: Program, find: Find, which: int = 0) -> Site:
    """The place that `find` accepts for the `which`-th time, in program order."""
    places = (s for s in sites(program) if find(s.scope, s.node))
    return next(islice(places, which, None))


def put(
    program: Program,
    site: Site,
    nodes: Sequence[Node],
    renamed: tuple[str, str] | None = None,
) -> Program:
    """The program with other nodes in place of one; later uses of a name read another.

    Nothing is checked, as nothing is when a plan is edited by mistake.
    """
    scope = site.scope
    after, outputs = list(scope.nodes[site.index + 1 :]), list(scope.outputs)
    if renamed is not None:
        old, new = renamed
        after = [replace(n, inputs=tuple(new if v == old else v for v in n.inputs)) for n in after]
        outputs = [replace(o, value=new) if o.value == old else o for o in outputs]
    edited = (*scope.nodes[: site.index], *nodes, *after)
    scope = replace(scope, nodes=tuple(edited), outputs=tuple(outputs))
    for depth in range(len(site.path) - 1, -1, -1):
        outer = program
        for index in site.path[:depth]:
            body = outer.nodes[index].body
            assert body is not None
            outer = body
        changed = list(outer.nodes)
        changed[site.path[depth]] = replace(changed[site.path[depth]], body=scope)
        scope = replace(outer, nodes=tuple(changed))
    return scope


def is_op(op: str, scope: str = "", **attrs: Attr) -> Find:
    """A node of an op with these attributes; in programs of a name, where one is given."""
    return lambda p, n: (
        n.op == op
        and (not scope or p.name == scope)
        and all(n.attrs.get(k) == v for k, v in attrs.items())
    )


def without(find: Find, which: int = 0) -> Edit:
    """The node is gone, and its operand is read in place of its result."""

    def edit(program: Program) -> Program:
        site = found(program, find, which)
        return put(program, site, [], (site.node.outputs[0], site.node.inputs[0]))

    return edit


def dangling(find: Find, which: int = 0) -> Edit:
    """The node is gone, and its result is still read."""
    return lambda program: put(program, found(program, find, which), [])


def otherwise(find: Find, which: int = 0, op: str | None = None, **attrs: Attr) -> Edit:
    """Another op, or other attributes; those of another op replace all that the node had."""

    def edit(program: Program) -> Program:
        site = found(program, find, which)
        kept = {} if op else site.node.attrs
        node = replace(site.node, op=op or site.node.op, attrs={**kept, **attrs})
        return put(program, site, [node])

    return edit


Change = Callable[[Program, Node], Sequence[Node]]
"""The nodes that compute the result of a node otherwise; the last one makes it."""


def on_ranks(find: Find, change: Change, which: int = 0, **ranks: int) -> Edit:
    """On the ranks at these coordinates the node is another; on all others it is as it was."""

    def edit(program: Program) -> Program:
        site = found(program, find, which)
        mesh, scope, node = program.mesh, site.scope, site.node
        (result,) = node.outputs
        if site.path:
            outer = dict(program.nodes[site.path[0]].where)
        else:
            outer = dict(regions(program).values[result])
        here = ranks_where(mesh, {**outer, **{k: (v,) for k, v in ranks.items()}})
        nodes = [
            replace(n, where=here, outputs=(f"{n.outputs[0]}.here",), source=node.source)
            for n in change(scope, node)
        ]
        pieces = [nodes[-1].outputs[0]]
        held = dict(ranks)
        for name in reversed(ranks):
            others = tuple(i for i in range(mesh[name]) if i != held[name])
            chosen = {**outer, **{k: (v,) for k, v in held.items()}, name: others}
            piece = f"{result}.not.{name}"
            nodes.append(replace(node, where=ranks_where(mesh, chosen), outputs=(piece,)))
            pieces.append(piece)
            del held[name]
        nodes.append(Node("merge", tuple(pieces), (result,), {}, node.source))
        return put(program, site, nodes)

    return edit


def attributes(**attrs: Attr) -> Change:
    return lambda _, n: [replace(n, attrs={**n.attrs, **attrs})]


def scaled(value: Fraction) -> Change:
    """The result times a constant."""

    def change(_: Program, node: Node) -> list[Node]:
        out = node.outputs[0]
        twice = Node("mul_scalar", (f"{out}.unscaled.here",), (out,), {"value": value})
        return [replace(node, outputs=(f"{out}.unscaled",)), twice]

    return change


def scaled_everywhere(find: Find, value: Fraction, which: int = 0) -> Edit:
    def edit(program: Program) -> Program:
        site = found(program, find, which)
        node = site.node
        (out,) = node.outputs
        made = replace(node, outputs=(f"{out}.unscaled",))
        times = replace(
            node, op="mul_scalar", inputs=(f"{out}.unscaled",), attrs={"value": value}, body=None
        )
        return put(program, site, [made, times])

    return edit


def early(which: int = 0) -> Edit:
    """A gradient is summed over the replicas before the last micro-batch is added to it."""

    def edit(program: Program) -> Program:
        site = found(program, is_op("all_reduce", mesh_dim="dp"), which)
        reduce = site.node
        add = next(n for n in program.nodes if n.outputs == reduce.inputs)
        first, last = add.inputs
        sums = replace(reduce, inputs=(first,), outputs=(f"{reduce.outputs[0]}.early",))
        late = replace(add, inputs=(sums.outputs[0], last), outputs=reduce.outputs)
        return put(program, site, [sums, late])

    return edit


# The fourteen

BLOCK, BACK = "layer", "layer.back"
AFTER_ATTENTION = is_op("all_reduce", BLOCK, mesh_dim="tp", reduce="sum")
INTO_THE_BLOCK = is_op("all_reduce", BACK, mesh_dim="tp", reduce="sum")
EPSILON = is_op("add_scalar", BLOCK)


def squares(program: Program, node: Node) -> bool:
    """`x ** 2`, in the norm of a block."""
    return program.name == BLOCK and node.op == "mul" and len(set(node.inputs)) == 1


def first_power(program: Program, node: Node) -> list[Node]:
    return [replace(node, op="pow", inputs=node.inputs[:1], attrs={"exponent": Fraction(1)})]


def uses_summed(program: Program, node: Node) -> bool:
    """The sum of what comes back from two of the three uses of the input of attention."""
    consumers = [n for n in program.nodes if node.outputs[0] in n.inputs]
    return (
        program.name == BACK
        and node.op == "add"
        and len(consumers) == 1
        and consumers[0].op == "add"
        and any(n.op == "all_reduce" and consumers[0].outputs[0] in n.inputs for n in program.nodes)
    )


def same_use_twice(program: Program, node: Node) -> list[Node]:
    return [replace(node, inputs=(node.inputs[1], node.inputs[1]))]


def rotation_undone(program: Program, node: Node) -> bool:
    """What comes back to the keys, or to the queries, through their rotation."""
    made = {v: n for n in program.nodes for v in n.outputs}
    readers = [n.op for n in program.nodes if node.outputs[0] in n.inputs]
    return (
        program.name == BACK
        and node.op == "add"
        and any(v in made and made[v].op == "pad" for v in node.inputs)
        and readers == ["permute"]
    )


def halves_swapped(program: Program, node: Node) -> list[Node]:
    out, wide = node.outputs[0], program.types[node.outputs[0]].shape[3]

    def half(name: str, start: int, stop: int) -> Node:
        cut: dict[str, Attr] = {"dim": 3, "start": start, "stop": stop}
        return Node("slice", (f"{out}.whole.here",), (f"{out}.{name}",), cut)

    return [
        replace(node, outputs=(f"{out}.whole",)),
        half("low", 0, wide // 2),
        half("high", wide // 2, wide),
        Node("concat", (f"{out}.high.here", f"{out}.low.here"), (out,), {"dim": 3}),
    ]


def queries_for_keys(program: Program) -> Program:
    """What comes back to the queries goes on to the keys, and the other way round."""
    keys, queries = (found(program, rotation_undone, i).node.outputs[0] for i in (0, 1))
    body = found(program, rotation_undone).scope
    places = [
        (body.nodes.index(n), n.inputs[0])
        for n in body.nodes
        if n.op == "permute" and n.inputs[0] in (keys, queries)
    ]
    for index, value in places:
        site = replace(found(program, rotation_undone), index=index)
        other = queries if value == keys else keys
        program = put(program, site, [replace(site.node, inputs=(other,))])
    return program


def every_gradient_doubled(program: Program) -> Program:
    """The gradient of the loss by itself is 2 in place of 1, in both micro-batches."""
    starts = [
        s for s in sites(program) if is_op("full", shape=(), value=Fraction(1))(s.scope, s.node)
    ]
    for site in starts:
        again = replace(site, scope=program)
        program = put(
            program, again, [replace(site.node, attrs={**site.node.attrs, "value": Fraction(2)})]
        )
    return program


def gradient(program: Program, node: Node) -> bool:
    """A gradient of a micro-batch, summed over micro-batches, before it is summed over replicas."""
    readers = [n for n in program.nodes if node.outputs[0] in n.inputs]
    return (
        node.op == "add"
        and bool(program.types[node.outputs[0]].shape)
        and any(n.op == "all_reduce" and n.attrs["mesh_dim"] == "dp" for n in readers)
    )


BUGS = (
    Bug(1, "communication", "all_reduce missing", without(AFTER_ATTENTION)),
    Bug(2, "communication", "all_reduce missing, its result still read", dangling(AFTER_ATTENTION)),
    Bug(3, "communication", "all_gather in place of all_reduce",
        otherwise(AFTER_ATTENTION, op="all_gather", mesh_dim="tp", dim=0)),
    Bug(4, "communication", "all_reduce in place of all_gather",
        otherwise(is_op("all_gather", BLOCK), op="all_reduce", mesh_dim="tp", reduce="sum"),
        replace(DEGREES, sequence_parallel=True)),
    Bug(5, "communication", "all_reduce missing in the backward pass", without(INTO_THE_BLOCK)),
    Bug(6, "rank assignment", "a stage sends to the wrong stage",
        otherwise(is_op("send"), src=1, dst=0)),
    Bug(7, "computation", "another epsilon on one rank",
        on_ranks(EPSILON, attributes(value=Fraction(1)), dp=0, tp=0)),
    Bug(8, "computation", "exponent 1 in place of 2 on one rank",
        on_ranks(squares, first_power, dp=0, tp=0)),
    Bug(9, "computation", "another epsilon on several ranks",
        on_ranks(EPSILON, attributes(value=Fraction(1)), dp=0)),
    Bug(10, "computation", "the wrong use in a sum of gradients, on one rank",
        on_ranks(uses_summed, same_use_twice, dp=0, tp=0)),
    Bug(11, "computation", "gradients of rotary halves swapped on one rank",
        on_ranks(rotation_undone, halves_swapped, dp=0, tp=0)),
    Bug(12, "scaling", "a gradient scaled on one rank",
        on_ranks(gradient, scaled(Fraction(2)), dp=0, tp=0)),
    Bug(13, "scaling", "a gradient scaled on all ranks",
        scaled_everywhere(gradient, Fraction(2))),
    Bug(14, "scheduling", "gradients summed before the last micro-batch", early(2)),
)  # fmt: skip


VARIANTS = (
    Bug(11, "computation", "gradients of queries and keys swapped", queries_for_keys),
    Bug(12, "scaling", "every gradient doubled on all ranks", every_gradient_doubled),
    Bug(13, "scaling", "one micro-batch counted twice",
        otherwise(is_op("full", value=Fraction(1)), value=Fraction(2))),
    Bug(14, "scheduling", "the loss summed before the last micro-batch", early(1)),
)  # fmt: skip
"""Other readings of the same lines of that table."""
ALL = (*BUGS, *VARIANTS)


@cache
def plan(model: Model, degrees: Degrees) -> Step:
    """The training step, whose distributed program names its own lines."""
    step = training_step(model, degrees)
    return replace(step, distributed=located(step.distributed))


def judge(step: Step, many: Program, name: str) -> Judged:
    """The verdict on one program, with what shows it."""
    begin, cpu = time.perf_counter(), time.process_time()
    verdict, where, witness = _verdict(step, many)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return Judged(name, verdict, where, witness, wall, cpu)


def _verdict(step: Step, many: Program) -> tuple[str, str, str]:
    try:
        with np.errstate(all="ignore"):
            said = verify(
                Problem(step.sequential, many, step.contract, consts=preconditions(step)),
                simpler=False,
            )
    except (IRError, ContractError) as error:
        place, _, what = str(error).partition(": ")
        return "refused", place, what
    except Exception as error:  # noqa: BLE001  (a crash of the verifier is an outcome, and a bad one)
        return "crashed", "", f"{type(error).__name__}: {error}"
    if isinstance(said, Proof):
        return "proved", "", f"{len(step.contract.outputs)} outputs"
    place = said.location
    where = "" if place is None else f"{place.op} {place.source.file}:{place.source.line}"
    if not isinstance(said, Counterexample):
        return "unknown", where, said.reason
    w = said.witness
    if isinstance(w, Trace):
        return "refuted", where, f"{w.check}: {w.message}"
    rank = ",".join(f"{k}={v}" for k, v in w.rank.items())
    return (
        "refuted",
        where,
        f"{w.output}{list(w.index)} {w.got:.8g}, not {w.expected:.8g}, on {rank}",
    )


def run(bug: Bug | None, model: Model) -> Judged:
    """Judge one bug; the plan as it was written, where none is given."""
    step = plan(model, DEGREES if bug is None else bug.degrees)
    if bug is None:
        return judge(step, step.distributed, "the plan as written")
    return judge(step, bug.edit(step.distributed), str(bug))


def _at(index: int | None, model: Model) -> Judged:
    """As `run`, for another process, which takes no functions."""
    return run(None if index is None else ALL[index], model)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.artifact_bugs", description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="llama3-8b")
    parser.add_argument(
        "--plan", choices=("L3", "D3"), help="in one step and one rank of a plan of thousands"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("numbers", nargs="*", type=int, default=[])
    given = parser.parse_args(arguments)
    chosen = [i for i, b in enumerate(ALL) if not given.numbers or b.number in given.numbers]
    rows: list[int | None] = [*chosen] if given.numbers else [None, *chosen]
    begin = time.perf_counter()
    work = partial(_at, model=MODELS[given.model])
    if given.plan:
        from benchmarks.planted import PLACES, PLANTED, judged

        print(f"{given.plan}: {PLACES[given.plan]}")
        chosen = [b.number for b in PLANTED if not given.numbers or b.number in given.numbers]
        rows = [*chosen] if given.numbers else [None, *chosen]
        work = partial(judged, given.plan)
    right = True
    print(f"{'bug':<55} {'verdict':<8} {'s':>5} {'cpu s':>5}  {'where':<28} witness")
    with ProcessPoolExecutor(given.processes) as pool:
        for index, row in zip(rows, pool.map(work, rows), strict=True):
            right &= row.verdict == "proved" if index is None else row.found
            seconds = f"{row.seconds:>5.2f} {row.cpu:>5.2f}"
            print(f"{row.name:<55} {row.verdict:<8} {seconds}  {row.where:<28} {row.witness}")
            sys.stdout.flush()
    print(f"{time.perf_counter() - begin:.1f} s in all")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
