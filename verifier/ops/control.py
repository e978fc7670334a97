"""Repeated blocks."""

from shardproof.verifier.kernel.ops.control import scan
from shardproof.verifier.ops.facets import describe

describe(scan, doc="A block repeated `length` times.", analytic=True)
