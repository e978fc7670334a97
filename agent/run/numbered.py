"""Sentences that differ in one number that counts up, as one sentence."""

import re
from collections.abc import Iterable

FEW = 3
"""Fewer sentences than this are shown one by one."""
_NUMBER = re.compile(r"\d+")


def counted_up(lines: Iterable[str]) -> list[str]:
    """The sentences in order, runs of them as one: `micro-batch 0`, `micro-batch 1`, ... become
    `micro-batch 0 to 15`."""
    out: list[str] = []
    run: list[str] = []
    for line in lines:
        if run and not _next(run[0], run[-1], line):
            out += _said(run)
            run = []
        run.append(line)
    return out + _said(run)


def _place(first: str, second: str) -> int | None:
    """Which of their numbers two sentences differ in, where it is one and all else is alike."""
    if _NUMBER.split(first) != _NUMBER.split(second):
        return None
    pairs = zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    unlike = [k for k, (a, b) in enumerate(pairs) if a != b]
    return unlike[0] if len(unlike) == 1 else None


def _next(first: str, last: str, line: str) -> bool:
    place = _place(last, line)
    if place is None or (first != last and _place(first, line) != place):
        return False
    before, after = (int(_NUMBER.findall(text)[place]) for text in (last, line))
    return after == before + 1


def _said(run: list[str]) -> list[str]:
    place = _place(run[0], run[-1]) if len(run) >= FEW else None
    if place is None:
        return run
    numbers = list(_NUMBER.finditer(run[0]))
    last = _NUMBER.findall(run[-1])[place]
    end = numbers[place].end()
    return [f"{run[0][:end]} to {last}{run[0][end:]}"]
