"""The loss of a rank and the loss of the model, where the ranks' rows are not the same."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from fractions import Fraction
from math import prod

from shardproof.agent.check import dropout
from shardproof.agent.check.contract import Placed, Statements, agree
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.logged_loss import logged_losses
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT, STATE
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, Told
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Node, Output, Program
from shardproof.verifier.kernel.program.types import Attr
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where
from shardproof.verifier.problem import Problem
from shardproof.verifier.verification import walk

OUTSIDE = (
    "The loss that is computed from the outputs is a mean over the rows: each {over} rank takes "
    "that of its own rows."
)


def losses(side: Told, one: Program) -> Set[str]:
    """The loss; of a model that is run without gradients, the scalar called so, or the only one; of
    a step what it returns of it."""
    found = {o.path for o in one.outputs if o.role == "loss"}
    if found or any(o.role == "grad" for o in one.outputs):
        return found
    types = ((o.path, one.types[o.value]) for o in one.outputs)
    scalars = {path for path, t in types if t.shape == () and t.is_float}
    if any(o.path.startswith(STATE) for o in one.outputs):
        return logged_losses([p for p in scalars if not p.startswith(STATE)], side.losses)
    return {"loss"} & scalars or (scalars if len(scalars) == 1 else set())


def averaged(
    captured: RanksCaptured, many: Program, stated: Statements, tables: Mapping[str, str]
) -> tuple[str, ...]:
    """The mesh dims that inputs are split over, where the model returns a loss of no stated layout
    that a rank is not seen to return as it is."""
    named = losses(captured.one, captured.one.program)
    if not named or any(line.fits(name) for line in stated.outputs for name in named):
        return ()
    question, placed = _question(captured, many, stated, tables)
    split = {d for p in placed if p.kind == "input" for d in p.layout.sharded}
    over = tuple(n for n, size in many.mesh.dims if n in split and size > 1)
    return over if over and not walk(question).holds else ()


def mean_loss(program: Program, over: Sequence[str], named: Set[str]) -> Program:
    """The ranks' program with the mean of their losses in place of the loss of each."""
    nodes, types = list(program.nodes), dict(program.types)
    outputs: list[Output] = []
    for out in program.outputs:
        value = out.value
        for name in over if out.path in named and out.role != "grad" else ():
            made = f"{out.value}.mean.{name}"
            attrs: dict[str, Attr] = {"mesh_dim": name, "reduce": "avg"}
            found = ((i, n.where) for i, n in enumerate(nodes) if value in n.outputs)
            at, where = next(found, (-1, EVERYWHERE))
            nodes.insert(at + 1, Node("all_reduce", (value,), (made,), attrs, where=where))
            types[made] = types[value]
            value = made
        outputs.append(replace(out, value=value))
    return replace(program, nodes=tuple(nodes), outputs=tuple(outputs), types=types)


def outside(
    captured: RanksCaptured,
    many: Program,
    stated: Statements,
    tables: Mapping[str, str],
    said: str,
) -> tuple[tuple[str, ...], tuple[Placed, ...]]:
    """The mesh dims over which a loss computed from the outputs is the mean of those of the ranks.

    `said` is `mean`, `sum` or empty: then over dims along which DistributedDataParallel or
    fully_shard averages gradients, where a sum is not seen to be right. With them, the layouts of
    inputs and outputs.

    Raises:
        InputError: `said` for a model that returns its loss.
    """
    cotangents = {i.name for i in captured.one.program.inputs if i.role == "cotangent"}
    if said and not cotangents:
        raise InputError(
            "the model returns its loss, or no gradient is checked",
            where=f"--loss {said}",
            hint="--output-layout loss=P(sum)@dp says how the losses of the ranks are added",
        )
    if said == "sum" or not cotangents:
        return (), ()
    question, placed = _question(captured, many, stated, tables)
    split = {d for name in cotangents for d in question.contract.inputs[name].sharded}
    means = {d for rank in captured.ranks for d in rank.averaged}
    over = tuple(n for n, _ in many.mesh.dims if n in split and (said or n in means))
    return (over if over and (said or not walk(question).holds) else ()), placed


def mean_outside(program: Program, placed: Sequence[Placed], over: Sequence[str]) -> Program:
    """The ranks' program where each takes the mean over its own rows: what comes back to an output
    that is split is as many times larger as there are ranks, and so is the gradient of an input."""

    def times(kind: str, name: str) -> int:
        dims = next((p.layout.sharded for p in placed if (p.kind, p.name) == (kind, name)), ())
        return prod(program.mesh[d] for d in over if d in dims)

    types, nodes = dict(program.types), list(program.nodes)
    names: dict[str, str] = {}

    def scaled(value: str, factor: Fraction, where: Where) -> Node:
        made = f"{value}.outside"
        types[made] = types[value]
        return Node("mul_scalar", (value,), (made,), {"value": factor}, where=where)

    first: list[Node] = []
    for item in program.inputs:
        if item.role == "cotangent" and (many := times("output", item.path)) > 1:
            first.append(scaled(item.name, Fraction(many), item.where))
            names[item.name] = first[-1].outputs[0]
    nodes = [
        *first,
        *(replace(n, inputs=tuple(names.get(v, v) for v in n.inputs)) for n in nodes),
    ]
    outputs: list[Output] = []
    for out in program.outputs:
        value = names.get(out.value, out.value)
        whole = out.path.removeprefix(GRAD_OF_INPUT)
        if out.role == "grad" and whole != out.path and (many := times("input", whole)) > 1:
            where = next((n.where for n in nodes if value in n.outputs), EVERYWHERE)
            nodes.append(scaled(value, Fraction(1, many), where))
            value = nodes[-1].outputs[0]
        outputs.append(replace(out, value=value))
    return replace(program, nodes=tuple(nodes), outputs=tuple(outputs), types=types)


def _question(
    captured: RanksCaptured, many: Program, stated: Statements, tables: Mapping[str, str]
) -> tuple[Problem, tuple[Placed, ...]]:
    one = captured.one.program
    masks = dropout.choices(captured, many.mesh, stated)[0]
    contract, placed = agree(captured, many, stated, tables, masks)
    return Problem(inline(one), inline(many), contract, captured.one.consts), placed
