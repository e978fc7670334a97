"""Gradients of composite ops that have better ones than their expansion has."""

from shardproof.verifier.kernel.composites import layers
from shardproof.verifier.ops.facets import describe, from_output, stops

detach = describe(layers.detach)


detach.vjp(stops)


describe(layers.softmax).vjp(from_output("softmax_backward"))
describe(layers.log_softmax).vjp(from_output("log_softmax_backward"))
