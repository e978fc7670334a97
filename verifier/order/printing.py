"""Events in the text form that `verifier.order.text` reads."""

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
    Record,
    Recv,
    Send,
    Sync,
    Transfer,
    Wait,
)


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
