"""Captures PyTorch models as programs. Nothing here imports torch before a worker needs it."""

from verifier.frontend.capture import Reference, capture, reference
from verifier.frontend.captured import Captured, ModelFacts, ModuleFact, SourceFile
from verifier.frontend.errors import CaptureError
from verifier.frontend.request import (
    CaptureRequest,
    InputSpec,
    Limits,
    read_config,
)
from verifier.frontend.rolling.paths import Group, members

__all__ = [
    "CaptureError",
    "CaptureRequest",
    "Captured",
    "Group",
    "InputSpec",
    "Limits",
    "ModelFacts",
    "ModuleFact",
    "Reference",
    "SourceFile",
    "capture",
    "members",
    "read_config",
    "reference",
]
