"""Writes what one rank was seen to do as a program. Every collective that it calls stays."""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import fx

from shardproof.synthesis.frontends.torch.aten.table import Emit
from shardproof.synthesis.frontends.torch.cancelled import TALKING, without_cancelled
from shardproof.synthesis.frontends.torch.constants import Constant, table
from shardproof.synthesis.frontends.torch.fused import separate_products
from shardproof.synthesis.frontends.torch.leading_dims import leading_dims
from shardproof.synthesis.frontends.torch.lower import Lowered, Lowering, type_of
from shardproof.synthesis.frontends.torch.masked_gather import read_windows
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.put_sums import ranges_of, sums_of_puts
from shardproof.synthesis.frontends.torch.range_fold import in_declared_range
from shardproof.synthesis.frontends.torch.ranks.constant_ids import of_windows
from shardproof.synthesis.frontends.torch.ranks.pads import as_pads
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.rolling.order import typed
from shardproof.synthesis.frontends.torch.roots import without_roots
from shardproof.synthesis.frontends.torch.trace import Traced
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Output, Program, live
from shardproof.verifier.kernel.program.types import Attr, Mesh

_KEPT = "kept."


class _Apart(Emit):
    """Never makes one collective of two, and none where a group is one rank."""

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        if lookup(op).kind not in TALKING:
            return super().add(op, *inputs, **attrs)
        return inputs[0] if attrs["mesh_dim"] == () else self.b.add(op, *inputs, **attrs)


class _Opened(_Apart):
    fused = False


class _RankLowering(Lowering):
    emit: type[Emit] = _Opened
    opened = True

    def _unfolded(self, constants: set[fx.Node]) -> set[fx.Node]:
        return of_windows(self.traced, constants)

    def _state(self, node: fx.Node, name: str) -> None:
        """A buffer of floats that the forward changes, or that something else fills, is given as a
        parameter is; where a program is written as capture does, it is a table."""
        if not self.opened:
            super()._state(node, name)
            return
        kind, path = type_of(node.meta["val"]), self.canonical.get(name, name)
        role = "param" if kind.is_float else "const"
        self.values[node] = self.b.input(path, kind, role, path)
        if role == "const":
            self.state[path] = self.buffers[name].detach().numpy()


class _AsCaptured(_RankLowering):
    emit = _Apart
    opened = False


class _Tables(_Opened):
    tables = True


class _OfTables(_RankLowering):
    emit = _Tables
    recognise = staticmethod(table)


def lower_rank(
    traced: Traced,
    buffers: Mapping[str, torch.Tensor],
    provenance: Provenance,
    canonical: Mapping[str, str],
    name: str,
    mesh: Mesh,
    groups: Mapping[str, tuple[str, ...]],
    opened: bool = True,
    known: dict[str, Constant] | None = None,
    filled: Mapping[str, str] | None = None,
    below: Mapping[str, int] | None = None,
    ignored: Mapping[str, int] | None = None,
    tables: bool = False,
) -> Lowered:
    """The program of a rank, on the whole mesh; `groups` maps process groups to the mesh dims that
    they run along. `opened`: in primitive ops, rows merged as `leading_dims` has them; else as it
    was lowered, as capture has it on one device. `known`: constants of other ranks, by how they
    are derived; those of this one are added to them. `filled`: buffers of any value. `below`:
    integers of an input are from 0 to that less one. `ignored`: an integer that entries of an
    input may be besides. `tables`: constants are tables, such as positions whose order is stated.

    Raises:
        CaptureError: an op that has no meaning in the language, with its source line.
    """
    kind = _OfTables if tables else _RankLowering if opened else _AsCaptured
    lowering = kind(
        *(traced, buffers, provenance, canonical, name, mesh),
        *(groups, known, filled, below, ignored),
    )
    lowered = lowering.run()
    program = live(_spoken(inline(lowered.program) if opened else lowered.program))
    program = _silent(leading_dims(program) if opened else program)
    return replace(lowered, program=_without_idle(program))


def joined_form(program: Program, specs: Sequence[InputSpec], step: bool = False) -> Program:
    """The program as it is compared with those of other ranks: masked lookups through windows,
    without terms that cancel and comparisons that the range of an input decides, pads for joins
    with zeros, values numbered alike."""
    padded = separate_products(live(as_pads(_spoken(program))))
    below = {s.name: s.limit for s in specs}
    summed = sums_of_puts(padded, ranges_of(specs)) if step else padded
    spoken = in_declared_range(read_windows(summed), below)
    spoken = without_roots(without_cancelled(spoken, below, _KEPT), step)
    return _renumbered(_without_idle(_silent(spoken)))


def _without_idle(program: Program) -> Program:
    read = {v for n in program.nodes for v in n.inputs} | {o.value for o in program.outputs}
    inputs = tuple(i for i in program.inputs if i.role != "const" or i.name in read)
    return replace(program, inputs=inputs)


def _renumbered(program: Program) -> Program:
    """Values named by their place, so that ranks that do alike have one text."""
    names = {i.name: i.name for i in program.inputs}
    taken, count = set(names), 0
    for node in program.nodes:
        for value in node.outputs:
            count += 1
            while f"v{count}" in taken:
                count += 1
            names[value] = f"v{count}"
    return typed(program, program.types).renamed(names)


def _spoken(program: Program) -> Program:
    """Results of collectives are outputs for a while, so that none is left out as unused."""
    more = [
        Output(value, "output", f"{_KEPT}{value}")
        for node in program.nodes
        if lookup(node.op).kind in TALKING
        for value in node.outputs
    ]
    return replace(program, outputs=(*program.outputs, *more))


def _silent(program: Program) -> Program:
    outputs = tuple(o for o in program.outputs if not o.path.startswith(_KEPT))
    return replace(program, outputs=outputs)
