"""Captures PyTorch models as programs. Nothing here imports torch before a worker needs it."""

from synthesis.frontends.torch.capture import capture
from synthesis.frontends.torch.captured import Captured, ModelFacts, ModuleFact, SourceFile
from synthesis.frontends.torch.errors import CaptureError
from synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    Limits,
    read_config,
)
from synthesis.frontends.torch.rolling.paths import Group, members

__all__ = [
    "CaptureError",
    "CaptureRequest",
    "Captured",
    "Group",
    "InputSpec",
    "Limits",
    "ModelFacts",
    "ModuleFact",
    "SourceFile",
    "capture",
    "members",
    "read_config",
]
