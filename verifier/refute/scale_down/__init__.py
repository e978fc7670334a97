"""The same pair of programs at small extents, so that large programs can be compared on numbers."""

from verifier.refute.scale_down.refuting import SmallDifference, refute_resized, shrink
from verifier.refute.scale_down.resized import Resized, Size, resize
from verifier.refute.scale_down.system import Declined

__all__ = ["Declined", "Resized", "Size", "SmallDifference", "refute_resized", "resize", "shrink"]
