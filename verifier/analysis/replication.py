"""What holds of the numbers on ranks whatever these are: which are equal, which not negative."""

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, mesh_dims
from shardproof.verifier.kernel.rank_sets import Regions

Dims = frozenset[str]


def alike(program: Program, contract: Contract, places: Regions) -> dict[str, Dims]:
    """For each value, mesh dims along which the ranks that hold it hold equal numbers.

    Inputs are alike along mesh dims that their layout does not mention. A local op keeps what all
    its operands have in common. What moves along a mesh dim, is cut by it, counts with it, or is
    put together from several ranks is taken to differ along it.
    """
    every = frozenset(program.mesh.names)
    out: dict[str, Dims] = {}
    for item in program.inputs:
        layout = contract.inputs.get(item.name)
        out[item.name] = every - layout.mentioned if layout is not None else frozenset()
    for node in program.nodes:
        shared = every
        for value in node.inputs:
            shared &= out[value]
        shared = _after(node, shared, every)
        for name in node.outputs:
            limited = {d for v in (*node.inputs, name) for d, _ in places.values[v]}
            out[name] = shared - limited if node.op == "merge" else shared
    return out


def _after(node: Node, shared: Dims, every: Dims) -> Dims:
    if node.op == "scan":
        return frozenset()
    for value in node.attrs.values():
        if isinstance(value, Affine):
            shared -= {name for name, _ in value.terms}
    op = lookup(node.op)
    if op.kind in ("collective", "movement") and "mesh_dim" in node.attrs:
        names = frozenset(mesh_dims(node.attrs["mesh_dim"]))  # type: ignore[arg-type]
        return shared | names if op.traits.levels else shared - names
    return shared & every


def positive(program: Program) -> frozenset[str]:
    """Values that are 0 or more on every rank that holds them, whatever the inputs are."""
    out: set[str] = set()
    for node in program.nodes:
        known = lookup(node.op).traits
        square = node.op == "mul" and node.inputs[0] == node.inputs[1]
        kept = known.keeps is not None and all(v in out for v in node.inputs)
        if square or ((kept or known.sign is not None) and not known.needs):
            out |= set(node.outputs)
    return frozenset(out)
