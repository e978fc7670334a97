"""Gradients of composite ops that have better ones than their expansion has."""

from shardproof.verifier.kernel.composites import layers
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import AttrMap
from shardproof.verifier.ops.facets import Names, Pulled, Vjp, describe, stops


def _from_output(backward: str) -> Vjp:
    """A cotangent that another composite computes from the result."""

    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        return [b.add(backward, cts[0], outs[0])]

    return rule


detach = describe(layers.detach)


detach.vjp(stops)


describe(layers.softmax).vjp(_from_output("softmax_backward"))
describe(layers.log_softmax).vjp(_from_output("log_softmax_backward"))
