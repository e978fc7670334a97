"""Repairs measured, kept as they come, taken up again where a run stopped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import described
from benchmarks.repair.outcome import Outcome, keep, kept, repaired, summary, tactics
from benchmarks.repair.programs import PARTS, size, wrong
from benchmarks.repair.tables import page
from shardproof.agent.actions.models import Asking
from shardproof.agent.repair import Level, Settings
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome as Ended, Run

FOLDER = Path("build/repair")
"""Where outcomes are kept between runs, where no directory is given."""


@dataclass(frozen=True)
class Choice:
    """What is to be measured."""

    parts: tuple[str, ...] = ()
    """All if empty."""
    limit: int | None = None
    """Programs of each part at most."""
    seconds: float = 10.0
    """Of one program: of the processor without a model, of the clock with one."""
    rounds: int = 3
    llm: str = "none"
    levels: tuple[str, ...] = ()
    """Levels of feedback, by which a model alone is measured; none: the search comes first."""
    stop: float | None = None
    """Seconds after which to stop, and go on another time."""

    def name(self, level: str) -> str:
        """Of the files of one setting."""
        model = re.sub(r"[^\w.-]+", "-", self.llm)
        return f"repair-{model}" + (f"-{level}" if level else "")


def command(run: Run, choice: Choice, out: Path | None) -> Ended:
    """Measure every setting, and write its results.

    Raises:
        InputError: a part or a level that does not exist, or a folder that cannot be written.
    """
    parts = choice.parts or PARTS
    for part in parts:
        if part not in PARTS:
            raise InputError("no such part", expected=", ".join(PARTS), got=part)
    levels = tuple(level.value for level in Level) if "all" in choice.levels else choice.levels
    for level in levels:
        if level not in [known.value for known in Level]:
            known = ", ".join(["all", *Level])
            raise InputError("no such level", where="--feedback", expected=known, got=level)
    if levels and choice.llm == "none":
        raise InputError("feedback is for a model", where="--feedback", hint="give --llm")
    folder = out or FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("cannot be written", where=str(folder), got=str(error)) from None
    measured = _Measured(run, choice, folder, time.monotonic())
    results = {level: measured.setting(level, parts) for level in levels or ("",)}
    tables: list[str] = []
    wrongly = 0
    for level, outcomes in results.items():
        tables.append(_write(run, choice, folder, level, outcomes))
        wrongly += sum(o.repaired and not o.right for o in outcomes)
    if wrongly:
        run.warn(f"{wrongly} programs were accepted though they are wrong")
        return Ended(Exit.NOT_PROVED, "refuted", str(folder), answer="\n".join(tables))
    return Ended(Exit.PROVED, "proved", str(folder), answer="\n".join(tables))


@dataclass
class _Measured:
    run: Run
    choice: Choice
    folder: Path
    begun: float

    def setting(self, level: str, parts: Sequence[str]) -> list[Outcome]:
        """All parts at one level; what was measured before is not measured again."""
        path = self.folder / f"{self.choice.name(level)}.jsonl"
        choice = self.choice
        model = Asking(llm=choice.llm).asker(self.run)
        if choice.llm != "none" and model is None:
            raise InputError("no model to measure", where="--llm", got=choice.llm)
        settings = Settings(
            choice.rounds,
            choice.seconds,
            0.0 if level else choice.seconds * 0.4,
            Level(level) if level else Level.FIXES,
            clock=time.process_time if model is None else time.perf_counter,
        )
        before = {(o.part, o.name): o for o in kept(path)}
        found: list[Outcome] = []
        for part in parts:
            with self.run.phase(f"{part} {level}".strip()) as phase:
                done: list[Outcome] = []
                total = size(part, choice.limit)
                for make in wrong(part, choice.limit):
                    outcome = before.get((part, make.name))
                    if outcome is None:
                        if self._late():
                            break
                        outcome = repaired(part, make.made(), settings, model)
                        keep(path, outcome)
                    done.append(outcome)
                    phase.summary = _said(done, total)
                    self.run.note(f"{part}: {phase.summary}")
                phase.facts["programs"] = len(done)
                phase.facts["repaired"] = sum(o.repaired for o in done)
            found += done
        if model is not None:
            model.close()
        return found

    def _late(self) -> bool:
        stop = self.choice.stop
        return stop is not None and time.monotonic() - self.begun > stop


def _said(done: Sequence[Outcome], total: int) -> str:
    mine = [o for o in done if not o.none]
    done_right = sum(o.repaired for o in mine)
    return f"{len(done)} of {total}: {done_right} of {len(mine)} programs repaired"


def _write(run: Run, choice: Choice, folder: Path, level: str, outcomes: list[Outcome]) -> str:
    name = choice.name(level)
    about = described()
    data = {
        "machine": about,
        "settings": asdict(choice) | {"level": level},
        "summary": summary(outcomes),
        "tactics": tactics(outcomes),
    }
    text = page(name, about, summary(outcomes), tactics(outcomes), outcomes)
    try:
        path = folder / f"{name}.json"
        path.write_text(_lines(data, outcomes), encoding="utf-8")
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("cannot be written", where=str(folder), got=str(error)) from None
    run.emit(events.Written(directory=str(folder), report=str(folder / f"{name}.md")))
    return text


def _without_tally(outcome: Outcome) -> dict[str, object]:
    return {k: v for k, v in asdict(outcome).items() if k != "tally"}


def _lines(head: Mapping[str, object], outcomes: Sequence[Outcome]) -> str:
    """JSON with one outcome a line."""
    rows = ",\n".join(json.dumps(_without_tally(o)) for o in outcomes)
    return f'{json.dumps(head, indent=1)[:-2]},\n "outcomes": [\n{rows}\n]}}\n'
