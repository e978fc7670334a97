"""Which parts of a plan it fails at, where no error names one: found by halves."""

from collections.abc import Generator, Sequence

READINGS = 8
"""Plans that are tried for one that failed."""

Part = frozenset[str]


def halves(parts: Sequence[Part]) -> Generator[Part, bool, None]:
    """What to split, of a plan that splits all `parts` and fails; is sent whether that holds.

    What held stays split, so that the last that held is the most. Where one part is at fault, twice
    the logarithm of their number is asked.
    """
    held, failed = Part(), {Part().union(*parts)}
    todo = _halved(parts)
    while todo:
        some = todo.pop(0)
        wanted = held.union(*some)
        if wanted not in failed and (yield wanted):
            held = wanted
            continue
        failed.add(wanted)
        todo[:0] = _halved(some)


def _halved(parts: Sequence[Part]) -> list[Sequence[Part]]:
    middle = len(parts) // 2
    return [parts[:middle], parts[middle:]] if middle else []
