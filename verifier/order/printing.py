"""Writes event programs in the text form that `verifier.order.text` reads."""

from __future__ import annotations

from verifier.order.events import (
    MAIN,
    Access,
    Alloc,
    Await,
    Collective,
    Event,
    Free,
    Group,
    Join,
    RankEvents,
    Record,
    Recv,
    Send,
    Sync,
    TimeProgram,
    Transfer,
    Wait,
)
from verifier.text.source_note import show as show_source


def _accesses(event: Event) -> list[str]:
    def words(name: str, items: tuple[Access, ...]) -> list[str]:
        return [f"{name} {', '.join(map(str, items))}"] if items else []

    return [*words("reads", event.reads), *words("writes", event.writes)]


def _transfer(event: Transfer) -> list[str]:
    words = [f"send to {event.peer}" if isinstance(event, Send) else f"recv from {event.peer}"]
    words += [f"via {event.channel}"] if event.channel else []
    words += [f"as {event.tag}"] if event.tag else []
    words += [f"size {event.size}"] if event.size is not None else []
    return words + _accesses(event)


def _body(event: Event) -> list[str]:
    match event:
        case Collective():
            words = [f"{event.op} {event.comm}"]
            words += [f"root {event.root}"] if event.root is not None else []
            words += [f"size {event.size}"] if event.size is not None else []
            return words + _accesses(event)
        case Send() | Recv():
            return _transfer(event)
        case Group():
            return ["group"]
        case Wait():
            return [f"wait {event.handle}"]
        case Record():
            return [f"record {event.mark}"]
        case Await():
            return [f"await {event.mark}"]
        case Join():
            return [f"join {event.other}"]
        case Alloc() | Free():
            word = "alloc" if isinstance(event, Alloc) else "free"
            return [f"{word} {', '.join(map(str, event.writes))}"]
        case Sync():
            return ["sync"]
        case _:
            return ["compute", *_accesses(event)]


def show_event(event: Event) -> str:
    """One line, without its source; the parts of a group in braces."""
    words = [f"{event.label}:"] if event.label else []
    words += _body(event)
    if isinstance(event, Collective | Transfer | Group) and event.handle:
        words.append(f"handle {event.handle}")
    if event.stream != MAIN:
        words.append(f"stream {event.stream}")
    for name, value in event.when:
        words.append(f"when {'' if value else 'not '}{name}")
    if isinstance(event, Group):
        words.append("{ " + "; ".join(" ".join(_transfer(part)) for part in event.parts) + " }")
    return " ".join(words)


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
