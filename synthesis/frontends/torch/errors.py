"""Errors of the front end.

CaptureError    the model could not be captured: bad request, user code that fails, unknown op
"""

OR_TRANSLATE = "; or translate it: shardproof translate"
"""The end of a hint where capture cannot take code that runs."""


class CaptureError(Exception):
    """A model that could not be captured: what, where (file:line), and what to try."""

    def __init__(
        self,
        message: str,
        *,
        file: str = "",
        line: int = 0,
        text: str = "",
        hint: str = "",
        module: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.text = text
        """The source line itself, stripped."""
        self.hint = hint
        self.module = module
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
