"""Sums over what was put along a dim: of what was put.

The backward of log_softmax sums what nll_loss puts at the label of each row. A number that is put
at no place of its row, as at a label that is ignored, is in no sum: indices must be known to be
places. The op that puts stays, and with it what is asked of its indices.
"""

import math
from collections import Counter
from collections.abc import Mapping

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import CUTS, REARRANGING, SPREADING


def sums_of_puts(program: Program, below: Mapping[str, int]) -> Program:
    """The program with such sums taken before anything is put, where something else reads what is
    put; the same where there is none. Each input that `below` names has integers from 0 to that
    less one."""
    uses = Counter(v for node in program.nodes for v in node.inputs)
    uses.update(out.value for out in program.outputs)

    def most(r: Rewriting, value: str) -> int:
        """What all entries are below, from 0 on; 0 where it is not known."""
        node = r.node(value)
        if node is None:
            return below.get(value, 0)
        if node.op == "full":
            number = r.number(value)
            return int(number) + 1 if number is not None and number >= 0 else 0
        if node.op not in (*REARRANGING, *CUTS, *SPREADING) or node.where:
            return 0
        found = [most(r, v) for v in node.inputs]
        return max(found) if all(found) else 0

    def summed(r: Rewriting, node: Node) -> str | None:
        put = r.made(node.inputs[0], "put_along")
        if put is None or uses[node.inputs[0]] < 2 or put.attrs.get("offset", 0) != 0:
            return None
        if put.number("dim") not in node.numbers("dims"):
            return None
        if not 0 < most(r, put.inputs[1]) <= put.number("size"):
            return None
        given, shape = r.type(put.inputs[0]), r.type(node.outputs[0]).shape
        if given.size == math.prod(shape):
            return r.reshape(put.inputs[0], shape)
        return r.add("sum", put.inputs[0], **node.attrs)

    return rewrite(program, {"sum": summed})
