"""Repeated blocks."""

from verifier.kernel.ops.control import scan
from verifier.ops.facets import Facets, describe

describe(scan, Facets(doc="A block repeated `length` times.", analytic=True))
