"""Communication that a class program lacks, or has too much of: single edits, each proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from shardproof.compat.comm import AllGather, AllReduce, ReduceScatter
from shardproof.compat.errors import ProgramError
from shardproof.compat.lowering import Lowered, Lowering
from shardproof.compat.program import IROp, Program
from shardproof.compat.sharding import Partial, StridedShard
from shardproof.compat.tensor import TensorState
from shardproof.compat.verdicts import VerifyResult, ask, inputs_of, layout_asked, mesh_of
from shardproof.synthesis.repair.attempts import first
from shardproof.verifier.kernel.layout import bound
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.verdict import Proof


def lower(
    program: Program, states: Mapping[str, TensorState], reference: Program | None = None
) -> Lowered:
    """Raises ProgramError where the program cannot run."""
    mesh = mesh_of(states.values())
    if mesh is None:
        raise ProgramError("no tensor has a state with a placement")
    programs = [program, *([reference] if reference else [])]
    return Lowering(mesh, inputs_of(programs, states)).lower(program, reference)


def unproved(lowered: Lowered, outputs: Sequence[str]) -> list[str]:
    """Outputs that are not proved to be the one-device value, whole or in pieces."""
    wrong: list[str] = []
    for name in outputs:
        known = name in lowered.values and lowered.want(name) is not None
        layouts = {name: layout_asked(lowered, name, None)} if known else {}
        if not known or not isinstance(ask(lowered, lowered.contract, layouts), Proof):
            wrong.append(name)
    return wrong


@dataclass
class PlacementAnalysis:
    """What was found about a program."""

    partial_tensors: list[str] = field(default_factory=list[str])
    """Tensors with a pending reduction."""
    missing_collectives: list[tuple[int, str, str]] = field(
        default_factory=list[tuple[int, str, str]]
    )
    """(index of the op after which, tensor, op to insert), each proved to fix the program."""
    redundant_collectives: list[int] = field(default_factory=list[int])
    """Indices of collectives without which the program is proved."""
    open_outputs: list[str] = field(default_factory=list[str])
    error: str = ""

    @property
    def collectives_ok(self) -> bool:
        return not (self.missing_collectives or self.redundant_collectives)

    @property
    def is_correct(self) -> bool:
        return not self.open_outputs and not self.error


class PlacementAnalyzer:
    """Looks for single edits after which a program is proved."""

    def analyze(self, program: Program, states: Mapping[str, TensorState]) -> PlacementAnalysis:
        """Never raises for a program that is wrong: `error` says what kept it from running."""
        out = PlacementAnalysis()
        reference, outputs = program, program.outputs
        try:
            lowered = lower(program, states, reference)
        except (ProgramError, IRError) as error:
            out.error = str(error)
            lowered = None
        if lowered is not None:
            for name, value in lowered.values.items():
                if value.state.sharding is not None and value.state.partial:
                    out.partial_tensors.append(name)
            out.open_outputs = unproved(lowered, outputs)
        if not out.open_outputs and not out.error:
            return out

        def judge(edit: Edit) -> Edit | None:
            return edit if proved(edit.apply(program), states, reference, outputs) else None

        found = first(edits(program, states, lowered), judge)
        if found is not None and found.insert is None:
            out.redundant_collectives.append(found.index)
        elif found is not None:
            kind = type(found.insert).__name__
            out.missing_collectives.append((found.index, found.tensor, kind))
        return out


def proved(
    program: Program,
    states: Mapping[str, TensorState],
    reference: Program,
    outputs: Sequence[str],
) -> bool:
    """Whether every output of a program is proved against the reference."""
    try:
        return not unproved(lower(program, states, reference), outputs)
    except (ProgramError, IRError):
        return False


@dataclass(frozen=True)
class Edit:
    """Insert an op after the op at `index`, renaming what it reads; or drop that op."""

    index: int
    tensor: str
    insert: IROp | None = None

    def __str__(self) -> str:
        if self.insert is None:
            return f"drop the op that makes {self.tensor}"
        return f"{type(self.insert).__name__} of {self.tensor}"

    def apply(self, program: Program) -> Program:
        """The edited program: the tensor keeps its name after the edit."""
        ops = list(program.ops)
        if self.insert is None:
            dropped = ops.pop(self.index)
            swap = {dropped.output_names[0]: dropped.input_names[0]}
            ops[self.index :] = [rename(op, swap, {}) for op in ops[self.index :]]
            return Program(program.name, ops)
        if self.index < 0:
            swap = {self.tensor: f"{self.tensor}.whole"}
            rest = [rename(op, swap, {}) for op in ops]
            first = rename(self.insert, {}, {self.insert.output_names[0]: swap[self.tensor]})
            return Program(program.name, [first, *rest])
        fresh = f"{self.tensor}.before"
        ops[self.index] = rename(ops[self.index], {}, {self.tensor: fresh})
        made = rename(self.insert, {self.tensor: fresh}, {self.insert.output_names[0]: self.tensor})
        return Program(program.name, [*ops[: self.index + 1], made, *ops[self.index + 1 :]])


def rename(op: IROp, reads: Mapping[str, str], writes: Mapping[str, str]) -> IROp:
    """The op under other names, at its old source line."""
    changes: dict[str, object] = {}
    for fields, names in ((op.reads, reads), (op.writes, writes)):
        for name in fields:
            value = getattr(op, name)
            if isinstance(value, str):
                changes[name] = names.get(value, value)
            else:
                changes[name] = [names.get(v, v) for v in value]
    made = copy(op)
    vars(made).update(changes)
    return made


def edits(
    program: Program, states: Mapping[str, TensorState], lowered: Lowered | None
) -> Iterator[Edit]:
    """Edits to try: finish what is pending, join what is split, drop what is too much.

    Where the program does not even run, the ops before the first that fails are looked at.
    """
    known: dict[str, TensorState] = {n: s for n, s in states.items() if n in program.inputs}
    if lowered is not None:
        known |= {n: v.state for n, v in lowered.values.items()}
    else:
        for count in range(len(program), 0, -1):
            try:
                part = lower(Program(program.name, program.ops[:count]), states)
            except (ProgramError, IRError):
                continue
            known |= {n: v.state for n, v in part.values.items()}
            break
    made = {n: i for i, op in enumerate(program.ops) for n in op.output_names}
    listed = [e for n, s in known.items() for e in edits_of(n, s, made.get(n, -1))]
    yield from (e for e in listed if isinstance(e.insert, AllReduce))
    for index, op in enumerate(program.ops):
        if isinstance(op, AllReduce):
            yield Edit(index, op.output)
    yield from (e for e in listed if not isinstance(e.insert, AllReduce))


def edits_of(name: str, state: TensorState | None, index: int) -> Iterator[Edit]:
    """Insertions after the op at `index` that settle what is pending in its result, or split."""
    if state is None or state.sharding is None:
        return
    named = zip(state.spec.mesh.dim_names, state.spec.placements, strict=True)
    pending = [n for n, p in named if isinstance(p, Partial)]
    for mesh_dim in pending:
        yield Edit(index, name, AllReduce(name, f"{name}.sum", mesh_dim=mesh_dim))
    strided = any(isinstance(p, StridedShard) for p in state.spec.placements)
    for dim, atoms in enumerate(() if strided else state.spec.layout(state.global_shape).dims):
        for mesh_dim in bound(atoms):
            yield Edit(index, name, AllGather(name, f"{name}.all", dim, mesh_dim))
    for mesh_dim in pending:
        for dim in range(len(state.global_shape)):
            part = ReduceScatter(name, f"{name}.part", dim, mesh_dim=mesh_dim)
            yield Edit(index, name, part)


__all__ = ["Edit", "PlacementAnalysis", "PlacementAnalyzer", "VerifyResult", "edits", "proved"]
