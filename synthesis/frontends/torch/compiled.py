"""What `torch.compile` compiles runs as it is written while it is traced, and that is said."""

# pyright: basic

import sys
from typing import Any

import torch
from torch import nn

_USED: list[str] = []
"""What the owner's code read to compile with."""


def read(value: Any, name: str) -> None:
    """The owner's code reads an attribute: from `torch.compile` and `Module.compile` on, this
    process runs compiled code op by op."""
    if name == "compile" and (value is torch or isinstance(value, nn.Module)):
        if not _USED:
            torch.compiler.set_stance("force_eager")  # which imports the compiler
        _USED.append(name)


def as_written() -> None:
    """From now on this process runs op by op what was compiled so far, where something was."""
    if "torch._dynamo.eval_frame" in sys.modules:
        torch.compiler.set_stance("force_eager")


def told() -> list[str]:
    """The sentence about compiled code, if there is any."""
    return ["What torch.compile makes computes what the code computes."] if _USED else []
