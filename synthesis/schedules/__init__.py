"""Pipeline schedules: generate, read, check and draw them."""

from shardproof.synthesis.schedules.check import Fault as Fault, check_schedule as check_schedule
from shardproof.synthesis.schedules.draw import draw_svg as draw_svg, draw_text as draw_text
from shardproof.synthesis.schedules.generate import (
    GENERATORS as GENERATORS,
    bound as bound,
    generate as generate,
)
from shardproof.synthesis.schedules.slots import (
    Memory as Memory,
    Schedule as Schedule,
    Slot as Slot,
    in_flight as in_flight,
)
from shardproof.synthesis.schedules.steps import to_events as to_events
from shardproof.synthesis.schedules.text import parse as parse, to_text as to_text
from shardproof.synthesis.schedules.timeline import Timeline as Timeline, timeline as timeline
