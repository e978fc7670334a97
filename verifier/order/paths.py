"""The programs that a program with conditions can be: one for each way they turn out."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.order.events import Event, TimeProgram

LIMIT = 4096
"""More ways than these are refused."""


def paths(program: TimeProgram) -> Iterator[tuple[tuple[str, ...], TimeProgram]]:
    """(how the conditions turn out, the program then).

    A condition that each rank decides for itself turns out in every combination over the ranks
    that ask for it.

    Raises:
        MalformedError: there are more than `LIMIT`.
    """
    asked = [
        (name, item.rank if program.conditions[name] else -1)
        for item in program.ranks
        for event in item.events
        for name, _ in event.when
    ]
    keys = list(dict.fromkeys(asked))
    if 2 ** len(keys) > LIMIT:
        raise MalformedError(
            f"conditions of {program.name}",
            expected=f"at most {LIMIT} ways for them to turn out",
            got=f"2^{len(keys)}",
            hint="give fewer ranks or conditions",
        )
    for values in product((True, False), repeat=len(keys)):
        chosen = dict(zip(keys, values, strict=True))
        said = tuple(_say(name, rank, value) for (name, rank), value in chosen.items())
        ranks = tuple(
            replace(
                item,
                events=tuple(
                    event for event in item.events if _happens(event, item.rank, program, chosen)
                ),
            )
            for item in program.ranks
        )
        yield said, replace(program, ranks=ranks)


def _happens(
    event: Event, rank: int, program: TimeProgram, chosen: dict[tuple[str, int], bool]
) -> bool:
    return all(
        chosen[name, rank if program.conditions[name] else -1] == value
        for name, value in event.when
    )


def _say(name: str, rank: int, value: bool) -> str:
    where = f" on rank {rank}" if rank >= 0 else ""
    return f"{name}{where} is {'true' if value else 'false'}"
