"""The schedules of the field, generated."""

from collections.abc import Callable
from functools import partial

from shardproof.synthesis.schedules.slots import Schedule, Slot
from shardproof.verifier.kernel.program.errors import MalformedError

REDUCE = Slot("R")


def generate(kind: str, stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """A right schedule of a known kind.

    Args:
        kind: `gpipe` (Huang et al. 2019), `1f1b` (Narayanan et al. 2019, the variant that flushes),
            `interleaved_1f1b` (Narayanan et al. 2021), `zero_bubble` or, with twice its memory,
            `zero_bubble_2p` (Qi et al. 2023, ZB-H1 and ZB-H2).
        stages: pipeline stages.
        micro_batches: micro-batches of a step.
        chunks: chunks of layers a stage, for `interleaved_1f1b`.

    Raises:
        MalformedError: an unknown kind or sizes that it cannot have.
    """
    if kind not in GENERATORS:
        raise MalformedError("schedule", expected=f"one of {', '.join(GENERATORS)}", got=kind)
    for what, value in (("stages", stages), ("micro_batches", micro_batches), ("chunks", chunks)):
        if value < 1:
            raise MalformedError(f"{what} of {kind}", expected="1 or more", got=str(value))
    if chunks > 1 and kind != "interleaved_1f1b":
        raise MalformedError(
            f"chunks of {kind}", expected="1", got=str(chunks), hint="take interleaved_1f1b"
        )
    if kind == "interleaved_1f1b" and chunks > 1 and micro_batches % stages:
        raise MalformedError(
            f"micro_batches of {kind}",
            expected=f"a multiple of the {stages} stages",
            got=str(micro_batches),
        )
    lists = GENERATORS[kind](stages, micro_batches, chunks)
    full = tuple((*slots, REDUCE) for slots in lists)
    limit = tuple(bound(kind, stage, stages, micro_batches, chunks) for stage in range(stages))
    return Schedule(full, micro_batches, chunks, name=kind, limit=limit)


def bound(kind: str, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> int:
    """How many activations a stage of such a schedule keeps at most."""
    match kind:
        case "1f1b" | "interleaved_1f1b":
            warm_up = _warm_up(stage, stages, micro_batches, chunks)
            return min(warm_up + 1, micro_batches * chunks)
        case "zero_bubble":
            return min(stages, micro_batches)
        case "zero_bubble_2p":
            return min(2 * stages - 1, micro_batches)
        case _:
            return micro_batches * chunks


def _gpipe(stages: int, micro_batches: int, chunks: int) -> list[list[Slot]]:
    forward = [Slot("F", m) for m in range(micro_batches)]
    backward = [Slot("B", m) for m in range(micro_batches)]
    return [forward + backward for _ in range(stages)]


def _warm_up(stage: int, stages: int, micro_batches: int, chunks: int) -> int:
    """Forwards before the first backward."""
    if chunks == 1:
        return min(stages - stage - 1, micro_batches)
    return min((stages - stage - 1) * 2 + (chunks - 1) * stages, micro_batches * chunks)


def _one_forward_one_backward(stages: int, micro_batches: int, chunks: int) -> list[list[Slot]]:
    """Forwards to warm up, then one of each in turn, then the backwards that are left.

    With chunks, micro-batches go through in groups of `stages`; a group takes one chunk after
    another.
    """
    total = micro_batches * chunks
    forward = [_nth("F", k, stages, chunks) for k in range(total)]
    backward = [_nth("B", k, stages, chunks) for k in range(total)]
    out: list[list[Slot]] = []
    for stage in range(stages):
        warm_up = _warm_up(stage, stages, micro_batches, chunks)
        slots = forward[:warm_up]
        for k in range(total - warm_up):
            slots += [forward[warm_up + k], backward[k]]
        out.append(slots + backward[total - warm_up :])
    return out


def _nth(kind: str, k: int, stages: int, chunks: int) -> Slot:
    """The k-th forward or backward of a stage."""
    if chunks == 1:
        return Slot(kind, k)
    group, within = divmod(k, stages * chunks)
    chunk, offset = divmod(within, stages)
    return Slot(kind, group * stages + offset, chunks - 1 - chunk if kind == "B" else chunk)


def _zero_bubble(
    stages: int, micro_batches: int, chunks: int, *, ahead: int = 1
) -> list[list[Slot]]:
    """1F1B with split backwards. Stage s puts off `ahead` * s weight gradients, which fill its end.

    With as many micro-batches as a stage keeps or more, and slots of one length, each stage is
    idle for stages - 1 slots; where `ahead` is 2, only before its first and after its last.
    """
    out: list[list[Slot]] = []
    for stage in range(stages):
        warm_up = min(ahead * (stages - stage) - (ahead - 1), micro_batches)
        put_off = min(ahead * stage, micro_batches - warm_up)
        slots = [Slot("F", m) for m in range(warm_up)]
        for k in range(micro_batches):
            slots.append(Slot("B", k))
            if k >= put_off:
                slots.append(Slot("W", k - put_off))
            if warm_up + k < micro_batches:
                slots.append(Slot("F", warm_up + k))
        slots += [Slot("W", k) for k in range(micro_batches - put_off, micro_batches)]
        out.append(slots)
    return out


GENERATORS: dict[str, Callable[[int, int, int], list[list[Slot]]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved_1f1b": _one_forward_one_backward,
    "zero_bubble": _zero_bubble,
    "zero_bubble_2p": partial(_zero_bubble, ahead=2),
}
