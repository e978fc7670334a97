"""Writes event programs in the text form that `shardproof.verifier.order.text` reads."""

from __future__ import annotations

from shardproof.verifier.order.events import RankEvents, TimeProgram
from shardproof.verifier.order.printing import show_event
from shardproof.verifier.text.source_note import show as show_source


def _rank(item: RankEvents) -> list[str]:
    lines = ["", f"rank {item.rank}"]
    for name, group in item.groups:
        lines.append(f"  communicator {name} = ({', '.join(map(str, group))})")
    if item.holds:
        lines.append(f"  holds {', '.join(sorted(item.holds))}")
    for event in item.events:
        note = show_source(event.source)
        lines.append(f"  {show_event(event)}{f'  {note}' if note else ''}")
    return lines


def to_text(program: TimeProgram) -> str:
    """The text form: one section a rank."""
    lines = [f"events {program.name}"]
    if program.machine.concurrent:
        lines.append("machine concurrent")
    if program.machine.buffered:
        lines.append("machine buffered")
    for name, local in sorted(program.conditions.items()):
        lines.append(f"condition {name}{' local' if local else ''}")
    if program.shared:
        lines.append(f"shared {', '.join(sorted(program.shared))}")
    for item in program.ranks:
        lines += _rank(item)
    return "\n".join(lines) + "\n"
