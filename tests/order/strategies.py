"""Small programs of events, and every execution of one."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from shardproof.verifier.order.builder import RankBuilder, TimeBuilder, access
from shardproof.verifier.order.events import Record, Recv, Send, TimeProgram, handle_of
from shardproof.verifier.order.machine import Execution
from shardproof.verifier.order.matching import Step

CALLS = ("tp", "dp", "cast", "fold", "0>1", "1>0", "swap", "swap")
BUFFERS = ("a", "b", "a[0:2]", "a[1:3]", "c", "out")


@st.composite
def programs(draw: st.DrawFn, most: int = 4) -> TimeProgram:
    """Two ranks with a few events each; right ones and wrong ones."""
    builder = TimeBuilder("random")
    builder.communicator("tp", (0, 1))
    builder.communicator("dp", (0, 1))
    if draw(st.integers(0, 3)) == 0:
        builder.shared.add("out")
    plan = draw(st.lists(st.sampled_from(CALLS), max_size=2))
    for rank in (0, 1):
        r = builder.rank(rank)
        r.holds("a", "b", *(["out"] if draw(st.booleans()) else []))
        calls = list(plan)
        if draw(st.integers(0, 4)) == 0:
            calls = draw(st.permutations(calls)) if draw(st.booleans()) else calls[:-1]
        fill = draw(st.integers(0, max(0, most - len(calls) - 1)))
        order = draw(st.permutations([*range(len(calls)), *([-1] * fill)]))
        todo = iter(calls)
        for k in order:
            _event(draw, r, next(todo) if k >= 0 else "")
        for handle in [h for e in r.events if (h := handle_of(e))]:
            if draw(st.integers(0, 4)):
                r.wait(handle)
    return builder.build()


def _event(draw: st.DrawFn, r: RankBuilder, call: str) -> None:
    stream = draw(st.sampled_from(["main", "main", "side"]))
    buffer, other = draw(st.sampled_from(BUFFERS)), draw(st.sampled_from(BUFFERS))
    label = f"e{len(r.events)}"
    handle = f"h{len(r.events)}" if draw(st.booleans()) else ""
    timed = {"stream": stream, "handle": handle, "label": label}
    if call in ("tp", "dp"):
        r.collective("all_reduce", call, buffer, buffer, **timed)
    elif call in ("cast", "fold"):
        op = "broadcast" if call == "cast" else "reduce"
        r.collective(op, "tp", buffer, other, root=draw(st.just(0)), **timed)
    elif call == "swap":
        parts = (Send(peer=1 - r.rank, reads=(access(buffer),)),
                 Recv(peer=1 - r.rank, writes=(access(other),)))  # fmt: skip
        r.group(*draw(st.permutations(parts)), **timed)
    elif call and call[0] == str(r.rank):
        r.send(1 - r.rank, buffer, **timed)
    elif call:
        r.recv(1 - r.rank, buffer, **timed)
    else:
        _local(draw, r, stream, buffer, label)


def _local(draw: st.DrawFn, r: RankBuilder, stream: str, buffer: str, label: str) -> None:
    issued = [h for e in r.events if (h := handle_of(e))]
    written = [e.label for e in r.events if e.label]
    match draw(st.integers(0, 11)):
        case 0 | 1 if issued:
            r.wait(draw(st.sampled_from(issued)), stream=stream)
        case 2:
            r.join(stream, "side" if stream == "main" else "main")
        case 3:
            r.sync(stream=stream)
        case 4:
            r.record("m") if not any(isinstance(e, Record) for e in r.events) else r.sync()
        case 5:
            r.wait_mark("m", stream=stream)
        case 6:
            r.alloc(buffer, stream=stream)
        case 7:
            r.free(buffer, stream=stream)
        case 8 | 9 if written:
            r.compute(f"{buffer} from {draw(st.sampled_from(written))}", (), stream=stream)
        case _:
            reads, writes = draw(st.sampled_from([(buffer, ()), ((), buffer), (buffer, buffer)]))
            r.compute(reads, writes, stream=stream, label=label)


def states(program: TimeProgram, mode: str) -> Iterator[Execution]:
    """Every state that an execution can reach, once.

    Two executions with the same steps behind them go on alike: what they may do next, and who
    touches what, depends on the steps alone.
    """
    seen: set[frozenset[Step]] = set()
    todo = [(frozenset[Step](), Execution(program, mode))]
    while todo:
        steps, run = todo.pop()
        enabled = run.enabled()
        yield run
        for step in enabled:
            then = steps | {step}
            if then not in seen:
                seen.add(then)
                further = run.copy()
                further.do(step)
                todo.append((then, further))
