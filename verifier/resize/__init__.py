"""The same pair of programs at small extents, so that large programs can be compared on numbers."""

from verifier.resize.refuting import SmallDifference, refute_resized, shrink
from verifier.resize.resized import Resized, Size, resize
from verifier.resize.system import Declined

__all__ = ["Declined", "Resized", "Size", "SmallDifference", "refute_resized", "resize", "shrink"]
