"""Repeated blocks."""

from verifier.kernel.ops.control import scan
from verifier.ops.facets import describe

describe(scan, doc="A block repeated `length` times.", analytic=True)
