"""Has a patch read again: the program that its ranks run, captured from the patched source."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.synthesis.emit.patch import Patch
from shardproof.synthesis.execute.job import Job, patched_folder, place_of, run_child
from shardproof.synthesis.frontends.torch import random_states
from shardproof.synthesis.frontends.torch.asserted import Asserted
from shardproof.synthesis.frontends.torch.captured import ModelFacts
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.frontends.torch.rolling.paths import Group, members
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.contract import Contract, layout_from_json, output_key
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Output, Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.jsonio import loads

OUTSIDE = (
    "The loss that is computed from the outputs is a {kind} over the batch: each {dp} rank takes "
    "that of its own part."
)


@dataclass(frozen=True)
class Order:
    """What of a patched model is read."""

    inputs: tuple[InputSpec, ...]
    """With the extents of one rank."""
    tied: tuple[tuple[str, ...], ...] = ()
    groups: tuple[Group, ...] = ()
    """The repeated blocks, and how many of each were traced."""
    untrained: tuple[str, ...] = ()
    """Parameters that no gradient reaches."""
    asserts: tuple[Asserted, ...] = ()
    """Asserts on values of tensors, which are left out."""
    whole: bool = False
    """Whether rows that values choose are read as all rows."""
    returned: tuple[str, ...] = ()
    """What `forward` calls its results on one device."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """SHA-256 of the owner's files that were captured, by their place."""
    patched: tuple[str, ...] = ()
    """The places of those that the patch changes."""
    drawn: Mapping[str, str] = field(default_factory=dict[str, str])
    """How what forward draws is distributed, by its name."""


@dataclass(frozen=True)
class Reading:
    """What the ranks of a patched model run."""

    program: Program
    contract: Contract
    ranks: tuple[int, ...]
    """Those that were traced; the others are taken to follow the same rules."""
    size: int

    @property
    def assumptions(self) -> tuple[str, ...]:
        if len(self.ranks) == self.size:
            return ()
        read = ", ".join(map(str, self.ranks))
        return (
            f"The patched code was traced on ranks {read} of {self.size}: the others are taken to "
            "run the same program, what depends on the rank growing evenly along the mesh.",
        )


def read_patch(
    request: CaptureRequest,
    patch: Patch,
    plan: Plan,
    facts: ModelFacts,
    sequential: Program,
    planned: Contract,
    consts: Mapping[str, NDArray[Any]],
    known_ops: Path | None = None,
) -> Reading:
    """Apply the patch in a scratch folder, and trace it on ranks of the plan's mesh.

    No processes of a group, no weights: ranks are traced one by one, under a process group whose
    other ranks are not there, at the extents of one rank. Layouts of parameters and gradients are
    those of the placements that the patched code gave them; inputs and outputs are laid out as
    `planned` says. `sequential` is the one-device program, in primitives, and `consts` are its
    tables: of one that a rank makes a chunk of, the layout is that. `known_ops` is a folder where
    readings of patches of one model leave what ops give, for the next.

    Raises:
        EmitError: git refuses the patch.
        CaptureError: the patched code cannot be traced, or its ranks run no one program.
        ExecuteError: the process that traces it was ended.
    """
    file, root = place_of(request, patch)
    inputs = tuple(
        replace(spec, shape=planned.inputs[spec.name].local_shape)
        if spec.name in planned.inputs
        else spec
        for spec in facts.inputs
    )
    untrained = (*facts.unused, *facts.untrained)
    order = Order(
        inputs,
        facts.tied,
        facts.groups,
        untrained,
        facts.asserts,
        facts.whole,
        facts.returned,
        {f.location: f.sha256 for f in facts.files} if root else {},
        tuple((root / path).as_posix() for path in patch.files) if root else (),
        {d.name: d.law for d in facts.draws},
    )
    with patched_folder(patch, root) as folder:
        arrays: Any = {k: np.asarray(v) for k, v in consts.items()}
        np.savez(folder / "consts.npz", **arrays)
        (folder / "order.json").write_text(json.dumps(asdict(order)))
        job = Job(
            request,
            plan,
            request.dtype,
            file,
            str(root or ""),
            patch.function,
            train=facts.train,
            known_ops=str(known_ops or ""),
            patched_new=patch.files[file][0] is None,
        )
        run_child("read", job, folder)
        problem = folder / "error.json"
        if problem.is_file():
            raise CaptureError(**json.loads(problem.read_text()))
        program = loads((folder / "distributed.json").read_text())
        found = json.loads((folder / "layouts.json").read_text())
    layouts = {
        name: layout_from_json(at) for name, at in Cursor(found, "layouts.json")["params"].entries()
    }
    mesh = plan.mesh
    for name, placed in found["tables"].items():
        kind, _, dim = placed.partition("@")
        shape = planned.inputs[name].global_shape
        layouts[name] = from_placements(shape, [(dim, mesh[dim], kind)])
    contract = _contract(sequential, planned, layouts, facts, plan, program)
    program = _asked(program, sequential, plan)
    return Reading(program, contract, tuple(found["ranks"]), plan.mesh.size)


def _contract(
    sequential: Program,
    planned: Contract,
    layouts: Mapping[str, Layout],
    facts: ModelFacts,
    plan: Plan,
    program: Program,
) -> Contract:
    """Parameters and gradients as the patched code places them, tables as its ranks hold them, all
    else as it was planned."""

    def placed(path: str) -> Layout:
        """Of a repeated block, the layout of its first member that was traced, layer by layer."""
        names = members(path, facts.groups)
        layout = next((layouts[n] for n in names if n in layouts), None)
        if layout is None:
            raise CaptureError(f"the patched code has no parameter {path}")
        if names == [path]:
            return layout
        return Layout((whole(len(names)), *layout.dims), layout.partial)

    inputs = dict(planned.inputs)
    held = {i.name: i.type for i in program.inputs}
    for item in sequential.inputs:
        if item.role == "const" and item.name in layouts:
            inputs[item.name] = layouts[item.name]
        elif item.role == "const" and held.get(item.name) == item.type:
            inputs[item.name] = Layout.replicate(item.type.shape)
        elif item.role == "param":
            inputs[item.name] = placed(item.path)
    outputs = dict(planned.outputs)
    for out in sequential.outputs:
        if out.role == "grad":
            outputs[output_key(out)] = placed(out.path)
    assumed = planned.assumptions
    if plan.data_size > 1 and any(i.role == "cotangent" for i in sequential.inputs):
        assumed = (*assumed, OUTSIDE.format(kind=plan.loss, dp=" and ".join(plan.data_dims)))
    assumed = (*assumed, *_drawn(inputs, facts, plan.mesh))
    return replace(planned, inputs=inputs, outputs=outputs, assumptions=assumed)


def _drawn(inputs: Mapping[str, Layout], facts: ModelFacts, mesh: Mesh) -> Iterator[str]:
    """What is taken for granted of the random states of ranks. Raises CaptureError where they would
    have to draw alike and apart from one state."""
    drawn = [d for d in facts.draws if d.name in inputs]
    if not drawn:
        return
    if (found := random_states.clash(drawn, inputs, mesh)) is not None:
        dim, alike, split = found
        raise CaptureError(
            f"what is drawn is split over {dim}, and what {alike} draws is not: one random state "
            "does not do both",
            file=split.file,
            line=split.line,
            text=split.text,
        )
    yield from random_states.assumed(drawn, inputs, mesh)


def _asked(program: Program, sequential: Program, plan: Plan) -> Program:
    """The program with the outputs that one device has, read as the plan says.

    The loss of all is that of the ranks, averaged over the mesh dim of the batch or added up. Where
    the owner's script computes the loss from the outputs, it does so on each rank alike: with a
    mean over the batch, what comes back to a rank is as many times larger as there are ranks.
    """
    asked = {(o.role, o.path) for o in sequential.outputs}
    b = Builder(program.name, program.mesh)
    b.reserve(program.types)
    names: dict[str, str] = {}
    for item in program.inputs:
        b.input(item.name, item.type, item.role, item.path)
        if item.role == "cotangent" and plan.loss == "mean" and plan.data_size > 1:
            names[item.name] = b.add("mul_scalar", item.name, value=Fraction(plan.data_size))
    for node in program.nodes:
        inputs = tuple(names.get(v, v) for v in node.inputs)
        b.append(replace(node, inputs=inputs))
    for out in program.outputs:
        if (out.role, out.path) in asked:
            value = names.get(out.value, out.value)
            b.output(_over_ranks(b, replace(out, value=value), plan), out.role, out.path)
    return b.build()


def _over_ranks(b: Builder, out: Output, plan: Plan) -> str:
    value = out.value
    for name in plan.data_dims if out.role == "loss" else ():
        reduce = "sum" if plan.loss == "sum" and name in plan.batch_dims else "avg"
        value = b.add("all_reduce", value, mesh_dim=name, reduce=reduce)
    return value


def added_up(program: Program, plan: Plan) -> Program:
    """The program with the losses of the ranks that share the batch added up, not averaged."""
    made, nodes = program.producers(), {n.outputs[0]: n for n in program.nodes}
    for out in program.outputs:
        value = out.value
        for name in reversed(plan.batch_dims) if out.role == "loss" else ():
            node = made[value]
            if node.op != "all_reduce" or node.attrs["mesh_dim"] != name:
                break
            nodes[value] = replace(node, attrs={**node.attrs, "reduce": "sum"})
            value = node.inputs[0]
    return replace(program, nodes=tuple(nodes.values()))


def outputs_alone(program: Program, role: str) -> Program:
    """The program with its outputs of one role alone, and what they need."""
    outputs = tuple(o for o in program.outputs if o.role == role)
    return live(replace(program, outputs=outputs))
