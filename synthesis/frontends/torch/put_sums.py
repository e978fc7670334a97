"""Sums over what was put along a dim: of what was put.

The backward of log_softmax sums what nll_loss puts at the label of each row. A number that is put
at no place of its row, as at a label that is ignored, is in no sum: indices must be known to be
places. The op that puts stays, and with it what is asked of its indices. This is for steps: of a
module a cross entropy is known by its sum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from shardproof.synthesis.frontends.torch.masked_gather import is_among
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import CUTS, REARRANGING, SPREADING

Ranges = Mapping[str, tuple[int, int | None]]
"""By input, what its integers are below, from 0 on, and one that they may be besides."""


def ranges_of(specs: Iterable[InputSpec]) -> Ranges:
    """What is stated of inputs."""
    return {s.name: (s.below, s.ignored) for s in specs}


def sums_of_puts(program: Program, ranges: Ranges) -> Program:
    """The program with such sums taken before anything is put, where something else reads what is
    put; the same where there is none."""
    uses = Counter(v for node in program.nodes for v in node.inputs)
    uses.update(out.value for out in program.outputs)

    def most(r: Rewriting, value: str, but: int | None = None) -> int:
        """What all entries are below, from 0 on, or all that are not `but`; 0 where it is not
        known."""
        node = r.node(value)
        if node is None:
            below, beside = ranges.get(value, (0, None))
            return below if beside in (None, but) else 0
        if node.where:
            return 0
        if node.op == "full":
            number = r.number(value)
            return int(number) + 1 if number is not None and number >= 0 else 0
        made = r.made(node.inputs[0], "ne") if node.op == "where" else None
        beside = r.number(made.inputs[1]) if made is not None else None
        if made is not None and made.inputs[0] == node.inputs[1] and beside is not None:
            found = [most(r, node.inputs[1], int(beside)), most(r, node.inputs[2])]
        elif node.op in (*REARRANGING, *CUTS, *SPREADING):
            found = [most(r, v, but) for v in node.inputs]
        else:
            return 0
        return max(found) if found and all(found) else 0

    def summed(r: Rewriting, node: Node) -> str | None:
        put = r.made(node.inputs[0], "put_along")
        if put is None or uses[node.inputs[0]] < 2 or put.attrs.get("offset", 0) != 0:
            return None
        if put.number("dim") not in node.numbers("dims"):
            return None
        index, size = put.inputs[1], put.number("size")
        if not 0 < most(r, index) <= size and not is_among(r, index, size):
            return None
        given, shape = r.type(put.inputs[0]), r.type(node.outputs[0]).shape
        if given.size == math.prod(shape):
            return r.reshape(put.inputs[0], shape)
        return r.add("sum", put.inputs[0], **node.attrs)

    return rewrite(program, {"sum": summed})
