"""The one language for sequential and distributed programs."""

from verifier.kernel.program.builder import Builder
from verifier.kernel.program.errors import IRError, ShapeError
from verifier.kernel.program.program import Input, Node, Output, Program
from verifier.kernel.program.types import Affine, Attr, Mesh, Source, TensorType

__all__ = [
    "Affine",
    "Attr",
    "Builder",
    "IRError",
    "Input",
    "Mesh",
    "Node",
    "Output",
    "Program",
    "ShapeError",
    "Source",
    "TensorType",
]
