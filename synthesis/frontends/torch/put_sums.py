"""Sums over what was put along a dim: of what was put.

The backward of log_softmax sums what nll_loss puts at the label of each row. PyTorch raises where a
label is none of the row's places, so that each number that is put is in the sum. The op that puts
them stays, and with it what is asked of its indices.
"""

import math
from collections import Counter

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program


def sums_of_puts(program: Program) -> Program:
    """The program with such sums taken before anything is put, where something else reads what is
    put; the same where there is none."""
    uses = Counter(v for node in program.nodes for v in node.inputs)
    uses.update(out.value for out in program.outputs)

    def summed(r: Rewriting, node: Node) -> str | None:
        put = r.made(node.inputs[0], "put_along")
        if put is None or uses[node.inputs[0]] < 2 or put.attrs.get("offset", 0) != 0:
            return None
        if put.number("dim") not in node.numbers("dims"):
            return None
        given, shape = r.type(put.inputs[0]), r.type(node.outputs[0]).shape
        if given.size == math.prod(shape):
            return r.reshape(put.inputs[0], shape)
        return r.add("sum", put.inputs[0], **node.attrs)

    return rewrite(program, {"sum": summed})
