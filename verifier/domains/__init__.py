"""The values a program can be run on: floats, a prime field, Z3 expressions."""

from verifier.domains.base import Domain
from verifier.domains.field import Field
from verifier.domains.floats import Floats

__all__ = ["Domain", "Field", "Floats"]
