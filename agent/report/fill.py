"""Parts of a report read off the values the other packages hand over."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from agent.report import model
from agent.report.drawings.flow import frame_of
from synthesis.cost import Estimate
from synthesis.execute.job import RunResult
from synthesis.plan import ModulePlan, Plan
from verifier import verdict
from verifier.ir.program import Program
from verifier.ir.types import Source, TensorType

MOST_INPUTS = 64
"""Elements of an input of a counterexample that are shown."""


def mesh_dims(plan: Plan) -> tuple[model.MeshDim, ...]:
    return tuple(_mesh_dim(plan, name, size) for name, size in plan.mesh.dims)


def _mesh_dim(plan: Plan, name: str, size: int) -> model.MeshDim:
    if name == plan.dp:
        sliced = plan.data == "fsdp"
        does = "splits the batch" + (" and stores parameters in slices (fsdp)" if sliced else "")
        return model.MeshDim(name, size, does, sliced)
    if name != plan.tp:
        return model.MeshDim(name, size)
    styles = {module.style for module in plan.modules}
    parts = ["heads and hidden units"] if styles & {"column", "row", "fused_column"} else []
    parts += ["the vocabulary"] if "vocab" in styles else []
    parts += ["the sequence between blocks"] if plan.sequence_parallel else []
    return model.MeshDim(name, size, "splits " + ", ".join(parts) if parts else "", True)


def plan_rows(plan: Plan, program: Program) -> tuple[model.ModuleRow, ...]:
    """One row for each module of the plan; shapes and source lines from the captured program."""
    types = {item.path: item.type for item in program.inputs if item.role == "param"}
    sources: dict[str, Source] = {}
    for _, node in program.walk():
        sources.setdefault(node.source.module, node.source)
    return tuple(_row(plan, module, types, sources) for module in plan.modules)


def _row(
    plan: Plan, module: ModulePlan, types: Mapping[str, TensorType], sources: Mapping[str, Source]
) -> model.ModuleRow:
    prefix = module.path + "." if module.path else ""
    rest = {path: path.removeprefix(prefix) for path in plan.params if path.startswith(prefix)}
    own = [path for path, name in rest.items() if "." not in name and path in types]
    whole = local = 0
    parameters: list[model.Parameter] = []
    for path in own:
        kind, placed = types[path], plan.params[path]
        cuts = [plan.mesh[dim] for dim, where in placed.items() if "S" in where]
        whole += kind.nbytes
        local += kind.nbytes // math.prod(cuts)
        words = {dim: in_full(where) for dim, where in placed.items()}
        shape = kind.shape[path.count("*") :]
        parameters.append(model.Parameter(rest[path], shape, words, kind.dtype))
    return model.ModuleRow(
        path=module.path,
        kind=module.kind,
        style=module.style,
        input=module.input,
        output=module.output,
        parameters=tuple(parameters),
        bytes=whole if own else None,
        local_bytes=local if own else None,
        source=source_line(sources.get(module.path)),
        reason=module.reason,
    )


def in_full(placement: str) -> str:
    """`S(0)` in PyTorch's words."""
    if placement in ("R", "P"):
        return {"R": "Replicate", "P": "Partial(sum)"}[placement]
    return re.sub(r"^S(?=\()", "Shard", placement)


def source_line(source: Source | None) -> model.SourceLine | None:
    if source is None or not source.file:
        return None
    return model.SourceLine(source.file, source.line, source.text)


def collectives(plan: Plan) -> tuple[model.Collective, ...]:
    return tuple(
        model.Collective(
            op=use.op,
            mesh_dim=use.mesh_dim,
            phase=cast("model.Phase", use.phase),
            where=use.where,
            count=use.count,
            bytes=use.bytes,
            reason=use.reason,
        )
        for use in plan.collectives
    )


def memory(before: Estimate, after: Estimate, capacity: float | None) -> model.Memory:
    """`before` is the estimate of the one-device program."""
    room = int(capacity) if capacity else None
    return model.Memory(_memory_use(before), _memory_use(after), room)


def _memory_use(estimate: Estimate) -> model.MemoryUse:
    return model.MemoryUse(
        parameters=estimate.parameters,
        gradients=estimate.gradients,
        optimizer=estimate.optimizer,
        activations=estimate.activations,
    )


def time_estimate(estimate: Estimate, source: str) -> model.TimeEstimate:
    """`source` says where the rates come from."""
    spent: dict[str, float] = {}
    for use in estimate.uses:
        dim = "+".join(use.mesh_dims)
        spent[dim] = spent.get(dim, 0.0) + use.seconds * use.count
    parts = [model.TimePart("compute", estimate.compute_s)]
    parts += [model.TimePart(f"{dim} communication", s, dim) for dim, s in spent.items()]
    return model.TimeEstimate(tuple(parts), source)


def capture(program: Program, origin: str) -> model.Capture:
    params = [item for item in program.inputs if item.role == "param"]
    rolled = {frame_of(i.path): i.type.shape[0] for i in params if "*" in i.path}
    casts: Counter[str] = Counter()
    for scope, node in program.walk():
        if node.op == "cast":
            came, goes = scope.types[node.inputs[0]].dtype, scope.types[node.outputs[0]].dtype
            casts[f"{came} to {goes} in {node.source.module or 'the model'}"] += 1
    return model.Capture(
        origin=origin,
        ops=sum(1 for _ in program.walk()),
        parameters=sum(item.type.size for item in params),
        rolled=rolled,
        inputs=tuple(f"{i.path} {i.type}" for i in program.inputs if i.role == "input"),
        casts=tuple(f"{text} ({n} times)" if n > 1 else text for text, n in casts.items()),
    )


def execution(result: RunResult, tolerance: float, dtype: str) -> model.Execution:
    return model.Execution(
        agrees=result.max_rel_diff <= tolerance,
        world_size=result.ranks,
        tolerance=tolerance,
        dtype=dtype,
        seconds=result.seconds,
        differences=tuple(model.Difference(d.name, d.relative, d.kind) for d in result.differences),
    )


def rule_counts(certificate: Mapping[str, Any]) -> dict[str, int]:
    """Rule to instances, most used first."""
    return dict(Counter(_rules(certificate)).most_common())


def _rules(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in cast("dict[str, Any]", part).items():
            if key == "rule" and isinstance(value, str):
                yield value
            else:
                yield from _rules(value)
    elif isinstance(part, list):
        for item in cast("list[Any]", part):
            yield from _rules(item)


def counterexample(found: verdict.Counterexample) -> model.Counterexample:
    witness, location = found.witness, found.location
    sizes = [part.split("=") for part in found.mesh.split(",") if "=" in part]
    rank = 0
    for name, size in sizes:
        rank = rank * int(size) + witness.rank.get(name, 0)
    operands = location.operands if location else ()
    return model.Counterexample(
        check=location.op if location else "replay",
        message=location.reason if location else f"{witness.output} differs from one device.",
        mesh=found.mesh,
        rank=rank,
        coordinates=dict(witness.rank),
        output=witness.output,
        index=witness.index,
        expected=f"{witness.expected:.6g}",
        got=f"{witness.got:.6g}",
        op=location.text if location else "",
        source=source_line(location.source) if location else None,
        relations=tuple(
            model.OperandRelation(f"operand {i}", (), "", text) for i, text in enumerate(operands)
        ),
        tensors=tuple(_views(witness.inputs)),
        fixes=tuple(model.Fix(text=text) for text in found.fixes),
    )


def _views(inputs: Mapping[str, Any]) -> Iterator[model.TensorView]:
    for name, nested in inputs.items():
        shape, values = flat(nested)
        if 0 < len(values) <= MOST_INPUTS:
            yield model.TensorView(name=name, owner="one device", shape=shape, values=values)


def flat(nested: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Shape and row-major values of nested lists of numbers."""
    if not isinstance(nested, Sequence):
        return (), (float(nested),)
    parts = [flat(item) for item in cast("Sequence[Any]", nested)]
    shape = parts[0][0] if parts else ()
    return (len(parts), *shape), tuple(v for _, values in parts for v in values)


def missing(found: verdict.Unknown) -> model.Missing:
    location = found.location
    open_outputs = ", ".join(found.open_outputs)
    return model.Missing(
        reason=found.reason,
        op=location.text if location else "",
        source=source_line(location.source) if location else None,
        tried=(f"no relation for {open_outputs}",) if open_outputs else (),
        next_steps=tuple(found.fixes),
    )
