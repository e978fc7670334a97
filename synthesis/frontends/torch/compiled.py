"""What `torch.compile` compiles runs as it is written while it is traced, and that is said."""

# pyright: basic

from functools import wraps
from typing import Any

import torch

_MADE: list[Any] = []
"""What was compiled in this process."""


def as_written() -> None:
    """From now on this process runs compiled code op by op, and notes that there is some."""
    original: Any = torch.compile
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        if not _MADE:
            torch.compiler.set_stance("force_eager")  # which imports the compiler
        _MADE.append(args)
        return original(*args, **kwargs)

    torch.compile = compile


def told() -> list[str]:
    """The sentence about compiled code, if there is any."""
    return ["What torch.compile makes computes what the code computes."] if _MADE else []
