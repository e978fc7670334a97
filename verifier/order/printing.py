"""Events in the text form that `shardproof.verifier.order.text` reads."""

from shardproof.verifier.order import events as ev


def _accesses(event: ev.Event) -> list[str]:
    def words(name: str, items: tuple[ev.Access, ...]) -> list[str]:
        return [f"{name} {', '.join(map(str, items))}"] if items else []

    return [*words("reads", event.reads), *words("writes", event.writes)]


def _transfer(event: ev.Transfer) -> list[str]:
    words = [f"send to {event.peer}" if isinstance(event, ev.Send) else f"recv from {event.peer}"]
    words += [f"via {event.channel}"] if event.channel else []
    words += [f"as {event.tag}"] if event.tag else []
    words += [f"size {event.size}"] if event.size is not None else []
    return words + _accesses(event)


def _body(event: ev.Event) -> list[str]:
    kind = type(event)
    if isinstance(event, ev.Transfer):
        return _transfer(event)
    if isinstance(event, ev.Collective):
        words = [f"{event.op} {event.comm}"]
        words += [f"root {event.root}"] if event.root is not None else []
        words += [f"size {event.size}"] if event.size is not None else []
        return words + _accesses(event)
    verb = next(verb for verb, known in ev.VERBS.items() if known is kind)
    if kind in ev.NAMED:
        return [f"{verb} {getattr(event, ev.NAMED[kind][0])}"]
    if kind in (ev.Alloc, ev.Free):
        return [f"{verb} {', '.join(map(str, event.writes))}"]
    return [verb, *_accesses(event)]


def show_event(event: ev.Event) -> str:
    """One line, without its source; the parts of a group in braces."""
    words = [f"{event.label}:"] if event.label else []
    words += _body(event)
    if handle := ev.handle_of(event):
        words.append(f"handle {handle}")
    if event.stream != ev.MAIN:
        words.append(f"stream {event.stream}")
    for name, value in event.when:
        words.append(f"when {'' if value else 'not '}{name}")
    if isinstance(event, ev.Group):
        words.append("{ " + "; ".join(" ".join(_transfer(part)) for part in event.parts) + " }")
    return " ".join(words)
