"""The one language for sequential and distributed programs."""

from verifier.ir.builder import Builder
from verifier.ir.errors import IRError, ShapeError
from verifier.ir.program import Input, Node, Output, Program
from verifier.ir.types import Affine, Attr, Mesh, Source, TensorType

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
