"""The training step on every rank of a mesh, and the contract that ties it to one device."""

from __future__ import annotations

from benchmarks.steps import declare, pipeline, sync
from benchmarks.steps.include import BATCH, accumulated
from benchmarks.steps.model import Degrees, Model, check
from benchmarks.steps.rank import stage_program
from benchmarks.steps.reference import reference
from benchmarks.steps.weights import Weight, layout, state_layout, weights
from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.optimizer import Optimizer
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where


def training_step(
    model: Model, degrees: Degrees, opt: Optimizer | None = None, name: str = ""
) -> Step:
    """The pair of programs for one model, and its contract.

    Raises:
        TrainingError: degrees that do not fit the model.
    """
    check(model, degrees)
    opt = opt or Optimizer()
    one = reference(model, degrees, opt)
    many = (
        pipeline.program(model, degrees, opt) if degrees.pp > 1 else _program(model, degrees, opt)
    )
    return Step(name or str(degrees.mesh), one, many, contract(model, degrees, one))


def _program(model: Model, degrees: Degrees, opt: Optimizer) -> Program:
    table = weights(model, degrees)
    b = Builder("step", degrees.mesh)
    declare.inputs(b, model, degrees, table)
    declare.inverse_count(b, degrees)
    joint = stage_program(model, degrees, 0)
    sums = accumulated(b, joint, degrees.micro_batches, scan=degrees.scan_micro_batches)
    loss = sums["loss:loss"]
    if degrees.data:
        loss = b.add("all_reduce", loss, mesh_dim=sync.over(degrees.data), reduce="sum")
    b.output(loss, "loss", "loss")
    group = sync.units(table, degrees)
    grads = sync.reduced(b, group, {w.name: sums[f"grad:{w.path}"] for w in table}, degrees)
    norm2 = sync.norm_squared(b, group, grads, degrees)
    factor = optimizer.clip_factor(b, norm2, opt)
    for unit in group:
        sync.update(b, unit, grads[unit.name], factor, degrees, opt)
    return b.build()


def contract(model: Model, degrees: Degrees, one: Program) -> Contract:
    """Layouts of all inputs and outputs of the step."""
    table = {w.name: w for w in weights(model, degrees)}
    inputs: dict[str, Layout] = {}
    for item in one.inputs:
        name, _, moment = item.name.rpartition(".")
        if item.name in table:
            inputs[item.name] = layout(table[item.name], degrees, split=degrees.zero == 3)
        elif moment in ("first", "second") and name in table:
            inputs[item.name] = state_layout(table[name], degrees)
        else:
            inputs[item.name] = _batch_layout(item.name, item.type.shape, degrees)
    outputs: dict[str, Layout] = {}
    paths = {w.path: w for w in table.values()}
    for out in one.outputs:
        path = out.path.removesuffix(".new")
        if path in paths:
            outputs[output_key(out)] = layout(paths[path], degrees, split=degrees.zero == 3)
        elif out.role == "output":
            w = paths[path.rpartition(".")[0]]
            outputs[output_key(out)] = state_layout(w, degrees)
        else:
            outputs[output_key(out)] = Layout.replicate(one[out.value].shape)
    held = {n: w for n in inputs if (w := _place(n, table, degrees))}
    wanted = {k: w for k in outputs if (w := _place(k.partition(":")[2], paths, degrees))}
    return Contract(inputs, outputs, held=held, wanted=wanted)


def _place(name: str, table: dict[str, Weight], degrees: Degrees) -> Where:
    """The ranks that hold an input, or an output by its path."""
    if degrees.pp == 1:
        return EVERYWHERE
    if name in BATCH:
        return ranks_where(degrees.mesh, {"pp": (0 if name == "ids" else degrees.pp - 1,)})
    for ending in (".new", ".first", ".second"):
        name = name.removesuffix(ending)
    return ranks_where(degrees.mesh, {"pp": table[name].stages}) if name in table else EVERYWHERE


def _batch_layout(name: str, shape: tuple[int, ...], degrees: Degrees) -> Layout:
    if name in BATCH:
        dims = {"dp": "S(1)", "ep": "S(1)", "cp": "S(2)"}
    elif name in ("cos", "sin", "positions"):
        dims = {"cp": "S(0)"}
    else:
        dims = {}
    return from_placements(shape, [(n, degrees.size(n), p) for n, p in dims.items()])
