"""Small programs of events, and every execution of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from verifier.time import TimeBuilder, TimeProgram
from verifier.time.machine import Execution
from verifier.time.violation import Step


@st.composite
def programs(draw: st.DrawFn, most: int = 4) -> TimeProgram:
    """Two ranks with a few events each; right ones and wrong ones."""
    builder = TimeBuilder("random")
    builder.communicator("tp", (0, 1))
    builder.communicator("dp", (0, 1))
    plan = draw(st.lists(st.sampled_from(["tp", "dp", "0>1", "1>0"]), max_size=2))
    for rank in (0, 1):
        r = builder.rank(rank)
        r.holds("a", "b")
        calls = list(plan)
        if draw(st.integers(0, 4)) == 0:
            calls = draw(st.permutations(calls)) if draw(st.booleans()) else calls[:-1]
        count = 0
        issued: list[str] = []
        for call in [*calls, *([None] * draw(st.integers(0, max(0, most - len(calls) - 1))))]:
            stream = draw(st.sampled_from(["main", "main", "side"]))
            buffer = draw(st.sampled_from(["a", "b", "a[0:2]", "a[1:3]"]))
            handle = f"h{count}" if draw(st.booleans()) else ""
            count += 1
            if call in ("tp", "dp"):
                r.collective("all_reduce", call, buffer, buffer, handle=handle, stream=stream)
            elif call is not None and call[0] == str(rank):
                r.send(1 - rank, buffer, handle=handle, stream=stream)
            elif call is not None:
                r.recv(1 - rank, buffer, handle=handle, stream=stream)
            elif draw(st.booleans()) and issued:
                r.wait(draw(st.sampled_from(issued)), stream=stream)
                continue
            elif draw(st.integers(0, 3)) == 0:
                r.join(stream, "side" if stream == "main" else "main")
                continue
            else:
                r.compute(*draw(st.sampled_from([(buffer, ()), ((), buffer)])), stream=stream)
                continue
            if handle:
                issued.append(handle)
        for handle in issued:
            if draw(st.integers(0, 4)):
                r.wait(handle)
    return builder.build()


def states(program: TimeProgram, mode: str) -> Iterator[Execution]:
    """The end of every way an execution can go, one for each state that is reached.

    Two executions with the same steps behind them go on alike, so each state is met once.
    """
    seen: set[frozenset[Step]] = set()
    todo: list[tuple[Step, ...]] = [()]
    while todo:
        steps = todo.pop()
        key = frozenset(steps)
        if key in seen:
            continue
        seen.add(key)
        run = Execution(program, mode)
        for step in steps:
            run.do(step)
        enabled = run.enabled()
        yield run
        todo += [(*steps, step) for step in enabled]


def without(program: TimeProgram, rank: int, index: int) -> TimeProgram:
    """The program less one event."""
    ranks = tuple(
        replace(item, events=item.events[:index] + item.events[index + 1 :])
        if item.rank == rank
        else item
        for item in program.ranks
    )
    return replace(program, ranks=ranks)
