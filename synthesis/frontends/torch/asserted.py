"""An assert that capture left out. Plain data: no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Asserted:
    """An assert that is taken to hold."""

    file: str
    """The name of the file, without its folder."""
    line: int
    condition: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, {self.condition}"
