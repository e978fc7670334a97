"""The one language for sequential and distributed programs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from verifier.kernel.program.errors import IRError, ShapeError
from verifier.kernel.program.program import Input, Node, Output, Program
from verifier.kernel.program.types import Affine, Attr, Mesh, Source, TensorType

if TYPE_CHECKING:
    from verifier.kernel.program.builder import Builder

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


def __getattr__(name: str) -> Any:
    """The builder, which whoever checks a program does without, once it is asked for."""
    if name != "Builder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("verifier.kernel.program.builder").Builder
