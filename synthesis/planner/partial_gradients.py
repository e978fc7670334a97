"""Parameters that every rank holds in full, and that meet a split activation: the gradient which a
rank finds is a share of the sum over all of them."""

from collections.abc import Iterable, Mapping

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Lowered
from shardproof.synthesis.lower.state import Pair
from shardproof.synthesis.planner.roles import Module
from shardproof.verifier.kernel.program.program import Program

Value = tuple[str, str]
"""(scope, value), the scope as that of a `Pair`."""


def of_parameters(program: Program, lowered: Lowered) -> dict[Value, frozenset[str]]:
    """The values of a one-device program that depend on constants alone, and those of its forward
    pass that depend on parameters and constants, with the names of those parameters."""
    found: dict[Value, frozenset[str]] = {}
    for item in program.inputs:
        if item.role in ("param", "const"):
            found["", item.name] = frozenset({item.name} if item.role == "param" else ())
    forward = forward_values(program)

    def follow(pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            out = pair.scope, pair.one.outputs[0]
            held = [found.get((pair.scope, v)) for v in pair.one.inputs]
            known = [names for names in held if names is not None]
            names = frozenset[str]().union(*known)
            if len(known) == len(held) and pair.one.body is None and (out in forward or not names):
                found[out] = names

    follow(pair for pair in lowered.pairs if not pair.scope)
    for node in program.nodes:
        if node.body is not None:
            inner = zip(node.body.inputs, node.inputs, strict=True)
            pairs = ((i, found.get(("", v))) for i, v in inner if i.role != "carry")
            found |= {(node.outputs[0], i.name): names for i, names in pairs if names is not None}
    follow(pair for pair in lowered.pairs if pair.scope)
    return found


def met(pair: Pair, alone: Mapping[Value, frozenset[str]], tp: str) -> frozenset[str]:
    """The parameters whose whole values an op joins with an activation that is split over `tp`."""
    if tp not in pair.result.sharded or pair.one.body is not None:
        return frozenset()
    operands = zip(pair.one.inputs, pair.operands, strict=False)  # none of what a rank makes
    whole = [alone.get((pair.scope, v)) for v, layout in operands if tp not in layout.sharded]
    mixed = any((pair.scope, v) not in alone for v in pair.one.inputs)
    return frozenset[str]().union(*(names for names in whole if names)) if mixed else frozenset()


def summed(program: Program, lowered: Lowered, modules: list[Module], tp: str) -> frozenset[str]:
    """Paths of the modules of which every own parameter gets a share of its gradient on a rank."""
    alone, forward = of_parameters(program, lowered), forward_values(program)
    pairs = (p for p in lowered.pairs if (p.scope, p.one.outputs[0]) in forward)
    names = frozenset[str]().union(*(met(pair, alone, tp) for pair in pairs))
    return frozenset(
        m.path for m in modules if m.params and names.issuperset(p.name for p in m.params)
    )
