"""Errors of the front end.

CaptureError         the model could not be captured: bad request, user code that fails, unknown op
└── HandwrittenError   a backward that is written by hand, which `torch.export` would drop
"""

import re
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

OR_TRANSLATE = "; or translate it: shardproof translate"
"""The end of a hint where capture cannot take code that runs."""


@dataclass(eq=False, repr=False)
class CaptureError(Exception):
    """A model that could not be captured: what, where (file:line), and what to try."""

    message: str
    _: KW_ONLY
    file: str = ""
    line: int = 0
    text: str = ""
    """The source line itself, stripped."""
    hint: str = ""
    module: str = ""
    """Path of the module in which it was, where that is known."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        at = "   ".join(part for part in (place, self.text) if part)
        lines = [
            self.message,
            f"  at {at}" if at else "",
            f"  try: {self.hint}" if self.hint else "",
        ]
        return "\n".join(line for line in lines if line)


class HandwrittenError(CaptureError):
    """A backward that is written by hand."""


def shown(file: str, root: str) -> str:
    """A path relative to the user's folder or to site-packages."""
    if root and file and Path(file).is_relative_to(root):
        return str(Path(file).relative_to(root))
    return re.sub(r"^.*/(site-packages|dist-packages)/", "", file)
