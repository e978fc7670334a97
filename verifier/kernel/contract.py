"""The contract: how inputs of the one-device program are laid out, and how results must be.

It comes from the user or the plan, never from the program under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardproof.verifier.kernel.layout import FOLDS, Atom, Layout, normal
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Output, Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, ranks_where, show, within


class ContractError(ValueError):
    """A contract that does not fit the programs: what, expected, got."""


@dataclass(frozen=True, slots=True)
class Balanced:
    """An assumption: this value of the one-device program, a sum over the batch, has equal parts
    on all ranks of a mesh dim, or of several (for example the number of labels that count)."""

    value: str
    mesh_dim: str
    """One, or several with commas, outermost first: the parts of all their ranks are equal."""
    why: str

    @property
    def mesh_dims(self) -> tuple[str, ...]:
        return tuple(self.mesh_dim.split(","))

    def __str__(self) -> str:
        return f"{self.why} is the same on every rank along {' x '.join(self.mesh_dims)}"


@dataclass(frozen=True)
class Contract:
    """Layouts by input name and by output key (`role:path`), plus assumptions for the report."""

    inputs: dict[str, Layout]
    outputs: dict[str, Layout]
    balanced: tuple[Balanced, ...] = ()
    assumptions: tuple[str, ...] = field(default=())
    held: dict[str, Where] = field(default_factory=dict[str, Where])
    """The ranks that are given an input, where not all of them are."""
    wanted: dict[str, Where] = field(default_factory=dict[str, Where])
    """The ranks on which an output is asked for, where not on all of them."""

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": {k: layout_to_json(v) for k, v in self.inputs.items()},
            "outputs": {k: layout_to_json(v) for k, v in self.outputs.items()},
            "balanced": [[b.value, b.mesh_dim, b.why] for b in self.balanced],
            "assumptions": list(self.assumptions),
            **({"held": _places(self.held)} if self.held else {}),
            **({"wanted": _places(self.wanted)} if self.wanted else {}),
        }

    @classmethod
    def from_json(cls, data: object, filename: str = "<json>") -> Contract:
        """What `to_json` wrote. Raises MalformedError, with the path inside the document."""
        at = Cursor(data, filename)
        at.only("inputs", "outputs", "balanced", "assumptions", "held", "wanted")
        return cls(
            {name: layout_from_json(item) for name, item in at["inputs"].entries()},
            {key: layout_from_json(item) for key, item in at["outputs"].entries()},
            tuple(_read_balanced(item) for item in at.get("balanced", []).items()),
            tuple(item.text() for item in at.get("assumptions", []).items()),
            {name: where_from_json(item) for name, item in at.get("held", {}).entries()},
            {key: where_from_json(item) for key, item in at.get("wanted", {}).entries()},
        )


def _places(places: Mapping[str, Where]) -> dict[str, Any]:
    return {key: [[name, list(at)] for name, at in where] for key, where in places.items()}


def _read_balanced(at: Cursor) -> Balanced:
    value, mesh_dim, why = at.tuple(3, "[value, mesh dim, what it is]")
    return Balanced(value.text(), mesh_dim.text(), why.text())


def output_key(out: Output) -> str:
    """The name of an output in a contract."""
    return f"{out.role}:{out.path}"


def layout_to_json(layout: Layout) -> dict[str, Any]:
    return {
        "dims": [[[a.size, a.mesh_dim] for a in dim] for dim in layout.dims],
        "partial": [list(p) for p in layout.partial],
    }


def layout_from_json(at: Cursor) -> Layout:
    """Raises MalformedError."""
    at.only("dims", "partial")
    dims = tuple(tuple(_atom(a) for a in dim.items()) for dim in at["dims"].items())
    pairs = [item.tuple(2, "[mesh dim, fold]") for item in at["partial"].items()]
    return Layout(dims, tuple((name.text(), fold.text()) for name, fold in pairs))


def _atom(at: Cursor) -> Atom:
    size, name = at.tuple(2, "[size, mesh dim or null]")
    return Atom(size.integer(), None if name.value is None else name.text())


def where_from_json(at: Cursor) -> Where:
    """Raises MalformedError."""
    pairs = [item.tuple(2, "[mesh dim, [coordinates]]") for item in at.items()]
    return tuple(
        (name.text(), tuple(c.integer() for c in chosen.items())) for name, chosen in pairs
    )


def check(sequential: Program, distributed: Program, contract: Contract) -> None:
    """Raise ContractError unless the contract fits both programs."""
    mesh = distributed.mesh
    for _, node in sequential.distinct():
        if lookup(node.op).kind in ("collective", "movement"):
            raise ContractError(f"the sequential program calls {node.op}")
    if sequential.mesh.dims:
        raise ContractError("the sequential program must have no mesh")
    if not sequential.outputs:
        raise ContractError("the sequential program returns nothing")
    theirs = {i.name: i for i in distributed.inputs}
    unknown = sorted(set(contract.inputs) - {i.name for i in sequential.inputs})
    if unknown:
        raise ContractError(f"the sequential program has no input %{unknown[0]}")
    for item in sequential.inputs:
        if item.name not in contract.inputs:
            raise ContractError(f"the contract says nothing of the input %{item.name}")
        layout = contract.inputs[item.name]
        held = contract.held.get(item.name, EVERYWHERE)
        fits("input", item.name, layout, item.type.shape, mesh, held)
        if item.name in theirs:
            got = theirs[item.name].type
            bytes_too = (got.dtype == "u8") == (item.type.dtype == "u8")
            if got.shape != layout.local_shape or got.kind != item.type.kind or not bytes_too:
                raise ContractError(
                    f"input %{item.name}: the contract gives each rank {item.type.dtype}"
                    f"{list(layout.local_shape)}, the distributed program takes {got}"
                )
    for item in distributed.inputs:
        if item.name not in contract.inputs:
            raise ContractError(f"the distributed program has an input %{item.name} of its own")
        held = contract.held.get(item.name, EVERYWHERE)
        if not within(item.where, held):
            raise ContractError(
                f"input %{item.name} is read on {show(item.where) or 'all ranks'}, the contract "
                f"gives it on {show(held)}"
            )
    for kind, laid, places in (
        ("input", contract.inputs, contract.held),
        ("output", contract.outputs, contract.wanted),
    ):
        if stray := sorted(places.keys() - laid.keys()):
            raise ContractError(
                f"the contract places an {kind} {stray[0]}, which it never lays out"
            )
    for assumed in contract.balanced:
        _assumable(sequential, contract, assumed, mesh)
    ours = [output_key(o) for o in sequential.outputs]
    keys = [output_key(o) for o in distributed.outputs]
    for key in (*contract.outputs, *keys):
        if key not in ours:
            raise ContractError(f"the sequential program has no output {key}")
    values = {output_key(o): o.value for o in distributed.outputs}
    for out in sequential.outputs:
        key = output_key(out)
        if ours.count(key) != 1:
            raise ContractError(f"the sequential program returns {key} more than once")
        if key not in contract.outputs:
            raise ContractError(f"the contract says nothing of the output {key}")
        shape, wanted = sequential.types[out.value].shape, contract.wanted.get(key, EVERYWHERE)
        fits("output", key, contract.outputs[key], shape, mesh, wanted)
        if keys.count(key) != 1:
            raise ContractError(
                f"the distributed program returns {key} {keys.count(key)} times, expected once"
            )
        want, got = sequential.types[out.value], distributed.types[values[key]]
        if got.kind != want.kind:
            raise ContractError(f"output {key} is {want}, the distributed program returns {got}")


def _assumable(sequential: Program, contract: Contract, assumed: Balanced, mesh: Mesh) -> None:
    """What no input changes has the parts that it has: there is nothing to assume of it."""
    producers = sequential.producers()
    dims = assumed.mesh_dims
    known = len(set(dims)) == len(dims) and all(name in mesh for name in dims)
    if assumed.value not in sequential.types or not known:
        raise ContractError(
            f"%{assumed.value} is assumed to have equal parts along {assumed.mesh_dim}, but the "
            "programs have no such value or mesh dim"
        )
    todo, seen = [assumed.value], set[str]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in contract.inputs:
            return
        if value in producers:
            todo += producers[value].inputs
    raise ContractError(
        f"the parts of %{assumed.value} are assumed to be equal along {assumed.mesh_dim}, but it "
        "depends on no input; leave the assumption out"
    )


def _stands(what: str, where: Where, layout: Layout, mesh: Mesh) -> None:
    try:
        normal_form = ranks_where(mesh, dict(where))
    except ValueError as error:
        raise ContractError(f"{what}: {error}") from None
    if normal_form != where:
        raise ContractError(f"{what}: write its ranks as {show(normal_form) or 'all'}")
    across = layout.mentioned & set(dict(where))
    if across:
        raise ContractError(
            f"{what} is laid out over {min(across)}, and asked for on {show(where)} only"
        )


def fits(
    kind: str, name: str, layout: Layout, shape: tuple[int, ...], mesh: Mesh, where: Where
) -> None:
    """The layout of one input or output means something for its shape, the mesh and the ranks.

    Raises:
        ContractError: what does not fit.
    """
    what = f"{kind} %{name}" if kind == "input" else f"{kind} {name}"
    if layout.global_shape != shape:
        raise ContractError(f"{what} has shape {list(shape)}, the contract says {layout}")
    if layout != Layout(tuple(map(normal, layout.dims)), tuple(sorted(layout.partial))):
        raise ContractError(f"{what}: atoms of size 1, or side by side, in {layout}")
    folds = {fold for _, fold in layout.partial}
    if len(folds) > 1 or not folds <= set(FOLDS):
        raise ContractError(f"{what}: folds other than one of {', '.join(FOLDS)} in {layout}")
    if any(a.size < 0 for d in layout.dims for a in d):
        raise ContractError(f"{what}: an atom of negative size in {layout}")
    if kind == "input" and layout.partial:
        raise ContractError(f"{what} cannot be partial")
    _stands(what, where, layout, mesh)
    seen: set[str] = set()
    for mesh_dim, size in [
        *((a.mesh_dim, a.size) for d in layout.dims for a in d if a.mesh_dim),
        *((n, dict(mesh.dims).get(n, 0)) for n, _ in layout.partial),
    ]:
        if mesh_dim not in mesh or mesh[mesh_dim] != size:
            raise ContractError(f"{what}: {layout} does not fit the mesh {mesh or 'of one device'}")
        if mesh_dim in seen:
            raise ContractError(f"{what}: {mesh_dim} is used twice in {layout}")
        seen.add(mesh_dim)
