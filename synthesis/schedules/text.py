"""Reads and writes schedules, as text and as JSON.

    schedule mine
    micro_batches 4
    chunks 1
    sends blocking            # async, paired or blocking
    messages fifo             # or tagged
    activations 2             # buffers a stage has for activations of a chunk
    limit 2 1                 # how many a stage may keep, for each stage
    stage 0: F0 F1 B0 F2 B1 F3 B2 B3 R
    stage 1: F0 B0 F1 B1 F2 B2 F3 B3 R

All but the stages may be left out. The JSON form is an object with the same names, `name`, and
`stages`, a list of lists of slots.
"""

import difflib
import re
from typing import Any, cast

from shardproof.synthesis.schedules.slots import KINDS, MESSAGES, SENDS, Schedule, Slot
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.text.jsonio import parse as parse_json

_SLOT = re.compile(r"([FBW])(\d{1,9})(?:\.(\d{1,9}))?|R")
_STAGE = re.compile(r"\s*(?:stage\s+)?(\d{1,9})\s*:(.*)")
_WORDS = ("schedule", "micro_batches", "chunks", "sends", "messages", "activations", "limit")


def parse(text: str, filename: str = "<text>") -> Schedule:
    """Read the text form, or JSON where the text begins with a brace.

    Raises:
        MalformedError: one message with its place.
    """
    if text.lstrip().startswith("{"):
        return _from_json(text, filename)
    said: dict[str, Any] = {}
    stages: dict[int, tuple[tuple[Slot, ...], Source]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        if line.strip():
            try:
                _line(line, Source(filename, number), said, stages)
            except MalformedError as error:
                raise error.at(f"{filename}:{number}") from None
    missing = [stage for stage in range(max(stages, default=0) + 1) if stage not in stages]
    if missing:
        raise MalformedError(
            "a schedule", where=filename, expected=f"a line for stage {missing[0]}", got="none"
        )
    lists = tuple(stages[stage][0] for stage in range(len(stages)))
    sources = tuple(stages[stage][1] for stage in range(len(stages)))
    return _schedule(lists, sources, said, filename)


def _line(
    line: str,
    source: Source,
    said: dict[str, Any],
    stages: dict[int, tuple[tuple[Slot, ...], Source]],
) -> None:
    match = _STAGE.fullmatch(line)
    if match:
        stage = int(match[1])
        if stage in stages:
            raise MalformedError(f"stage {stage}", expected="one line", got="a second one")
        if stage > 100_000:
            raise MalformedError("a stage", expected="at most 100000", got=str(stage))
        stages[stage] = tuple(read_slot(word) for word in match[2].split()), source
        return
    word, *rest = line.split()
    if word not in _WORDS:
        near = difflib.get_close_matches(word, (*_WORDS, "stage"), 1)
        raise MalformedError(
            "a line of a schedule",
            expected=f"stage N: SLOTS, or one of {', '.join(_WORDS)}",
            got=line.strip(),
            hint=f"did you mean {near[0]}?" if near else "",
        )
    if word in said:
        raise MalformedError(word, expected="one line", got="a second one")
    if not rest or (len(rest) > 1 and word != "limit"):
        raise MalformedError(word, expected="one value", got=" ".join(rest) or "nothing")
    said[word] = [_number(word, item) for item in rest] if word == "limit" else rest[0]


def read_slot(word: str) -> Slot:
    """A slot as `str` writes it. Raises MalformedError."""
    match = _SLOT.fullmatch(word)
    if match is None:
        kinds = ", ".join(f"{key} ({what})" for key, what in KINDS.items())
        raise MalformedError(
            "a slot",
            expected=f"F0, B2, W1.1 (micro-batch 1, chunk 1) or R; kinds {kinds}",
            got=word,
        )
    if word == "R":
        return Slot("R")
    return Slot(match[1], int(match[2]), int(match[3] or 0))


def _number(what: str, word: object) -> int:
    text = str(word)
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise MalformedError(what, expected="a number, 1 or more", got=text)
    return int(text)


def _schedule(
    stages: tuple[tuple[Slot, ...], ...],
    sources: tuple[Source, ...],
    said: dict[str, Any],
    filename: str,
) -> Schedule:
    try:
        slots = [slot for stage in stages for slot in stage]
        most = max((slot.micro_batch for slot in slots), default=-1) + 1
        chunks = max((slot.chunk for slot in slots), default=0) + 1
        micro_batches = _number("micro_batches", said.get("micro_batches", max(most, 1)))
        for word, allowed in (("sends", SENDS), ("messages", MESSAGES)):
            if said.get(word, allowed[0]) not in allowed:
                raise MalformedError(word, expected=", ".join(allowed), got=str(said[word]))
        limit = said.get("limit")
        if limit is not None and len(limit) != len(stages):
            raise MalformedError(
                "limit", expected=f"{len(stages)} numbers, one a stage", got=str(len(limit))
            )
        kept = said.get("activations")
        return Schedule(
            stages,
            micro_batches,
            _number("chunks", said.get("chunks", chunks)),
            str(said.get("schedule", "schedule")),
            str(said.get("sends", SENDS[0])),
            str(said.get("messages", MESSAGES[0])),
            None if kept is None else _number("activations", kept),
            None if limit is None else tuple(limit),
            sources,
        )
    except MalformedError as error:
        raise error.at(filename) from None


def _from_json(text: str, filename: str) -> Schedule:
    said = cast("dict[str, Any]", parse_json(text, filename))
    lists = said.pop("stages", None)
    if "name" in said:
        said["schedule"] = said.pop("name")
    unknown = sorted(set(said) - set(_WORDS))
    try:
        if unknown:
            expected = f"{', '.join(_WORDS)}, stages"
            raise MalformedError("a schedule", expected=expected, got=unknown[0])
        stages = [
            tuple(read_slot(str(word)) for word in _list("a stage", stage))
            for stage in _list("stages", lists)
        ]
        if not stages:
            raise MalformedError("stages", expected="one or more", got="none")
        if "limit" in said:
            said["limit"] = [_number("limit", item) for item in _list("limit", said["limit"])]
    except MalformedError as error:
        raise error.at(filename) from None
    return _schedule(tuple(stages), (), said, filename)


def _list(what: str, data: object) -> list[Any]:
    if not isinstance(data, list):
        raise MalformedError(what, expected="a list", got=str(data))
    return cast("list[Any]", data)


def to_text(schedule: Schedule) -> str:
    """The text form."""
    lines = [
        f"schedule {schedule.name}",
        f"micro_batches {schedule.micro_batches}",
        f"chunks {schedule.chunks}",
        f"sends {schedule.sends}",
        f"messages {schedule.messages}",
    ]
    if schedule.activations is not None:
        lines.append(f"activations {schedule.activations}")
    if schedule.limit is not None:
        lines.append(f"limit {' '.join(map(str, schedule.limit))}")
    for stage, slots in enumerate(schedule.stages):
        lines.append(f"stage {stage}: {' '.join(map(str, slots))}")
    return "\n".join(lines) + "\n"
