"""Which dim of an operand becomes which dim of a result."""

from math import prod

from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import PRODUCTS


def dim_of(program: Program, node: Node, operand: str, dim: int | None) -> int | None:
    """The dim of an operand that a dim of the result is, or is part of; None where there is no
    such."""
    before, after = program.types[operand].shape, program.types[node.outputs[0]].shape
    if dim is None:
        return None
    if node.op == "permute":
        return node.numbers("dims")[dim]
    if node.op == "reshape":
        inner, whole = prod(after[dim + 1 :]), prod(after[dim:])
        steps = [prod(before[j + 1 :]) for j in range(len(before))]
        within = zip(steps, before, strict=True)
        return next(
            (j for j, (step, n) in enumerate(within) if step <= inner and whole <= n * step),
            None,
        )
    if node.op == "sum":
        reduced = () if node.attrs.get("keepdim") else node.numbers("dims")
        return [d for d in range(len(before)) if d not in reduced][dim]
    if node.op in PRODUCTS and dim == len(after) - (1 if operand == node.inputs[0] else 2):
        return None  # the other operand's
    at = dim + len(before) - len(after)
    return at if at >= 0 and before[at] in (1, after[dim]) else None
