"""Pipeline schedules: generate, read, check and draw them."""

from __future__ import annotations

from verifier.schedules.check import Fault, check_schedule
from verifier.schedules.draw import draw_svg, draw_text
from verifier.schedules.generate import GENERATORS, bound, generate
from verifier.schedules.slots import Memory, Schedule, Slot, in_flight
from verifier.schedules.steps import to_events
from verifier.schedules.text import parse, to_text
from verifier.schedules.timeline import Timeline, timeline

__all__ = [
    "GENERATORS",
    "Fault",
    "Memory",
    "Schedule",
    "Slot",
    "Timeline",
    "bound",
    "check_schedule",
    "draw_svg",
    "draw_text",
    "generate",
    "in_flight",
    "parse",
    "timeline",
    "to_events",
    "to_text",
]
