"""Programs in time: what each rank does on its streams, and whether the order can go wrong."""

from __future__ import annotations

from verifier.order.builder import TimeBuilder
from verifier.order.checks import CHECKS, Check
from verifier.order.events import Machine, TimeProgram
from verifier.order.from_program import from_program
from verifier.order.machine import Outcome, replay
from verifier.order.printing import to_text
from verifier.order.text import parse_text
from verifier.order.verify import shown, verify_time
from verifier.order.violation import Trace, Violation

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
