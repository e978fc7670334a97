"""Pipeline schedules: generate, read, check and draw them."""

from synthesis.schedules.check import Fault as Fault, check_schedule as check_schedule
from synthesis.schedules.draw import draw_svg as draw_svg, draw_text as draw_text
from synthesis.schedules.generate import (
    GENERATORS as GENERATORS,
    bound as bound,
    generate as generate,
)
from synthesis.schedules.slots import (
    Memory as Memory,
    Schedule as Schedule,
    Slot as Slot,
    in_flight as in_flight,
)
from synthesis.schedules.steps import to_events as to_events
from synthesis.schedules.text import parse as parse, to_text as to_text
from synthesis.schedules.timeline import Timeline as Timeline, timeline as timeline
