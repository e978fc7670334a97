"""Pipeline schedules: generate, read, check and draw them."""

from synthesis.schedules.check import Fault, check_schedule
from synthesis.schedules.draw import draw_svg, draw_text
from synthesis.schedules.generate import GENERATORS, bound, generate
from synthesis.schedules.slots import Memory, Schedule, Slot, in_flight
from synthesis.schedules.steps import to_events
from synthesis.schedules.text import parse, to_text
from synthesis.schedules.timeline import Timeline, timeline

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
