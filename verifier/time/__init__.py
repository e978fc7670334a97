"""Programs in time: what each rank does on its streams, and whether the order can go wrong."""

from __future__ import annotations

from verifier.time.builder import TimeBuilder
from verifier.time.checks import CHECKS, Check
from verifier.time.events import Machine, TimeProgram
from verifier.time.from_program import from_program
from verifier.time.machine import Outcome, replay
from verifier.time.printing import to_text
from verifier.time.text import parse_text
from verifier.time.verify import shown, verify_time
from verifier.time.violation import Trace, Violation

__all__ = [
    "CHECKS",
    "Check",
    "Machine",
    "Outcome",
    "TimeBuilder",
    "TimeProgram",
    "Trace",
    "Violation",
    "from_program",
    "parse_text",
    "replay",
    "shown",
    "to_text",
    "verify_time",
]
