"""Answers that a model gave before: an equal question to the same model gets the same answer.

Questions are equal where they differ in their boundary word alone. Only answers are kept, no
failures, in a folder that its owner alone reads; `--no-answer-cache`, `SHARDPROOF_ANSWER_CACHE=0`
and `answer_cache = false` in a config switch it off.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shardproof.agent.llm.endpoint import Endpoint
from shardproof.agent.run import events
from shardproof.agent.run.files import user_folder, write_whole

MOST = 2000
"""Answers that are kept; beyond that the oldest go."""
OLD_S = 30 * 24 * 3600.0
"""Seconds after which a question is asked anew."""


@dataclass(frozen=True)
class AnswerCache:
    """Answers by question and endpoint, a file each."""

    folder: Path = field(default_factory=lambda: user_folder("CACHE") / "answers")
    now: Callable[[], float] = time.time

    def get(self, question: str, endpoint: Endpoint) -> events.ModelAnswered | None:
        """The answer that was given, as one that costs nothing; None where there is none."""
        path = self._path(question, endpoint)
        try:
            if self.now() - path.stat().st_mtime > OLD_S:
                return None
            found = events.ModelAnswered.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            return None
        if (found.question, found.answer) != (question, "Completion"):
            return None
        free = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.0}
        return found.model_copy(update={**free, "usd": 0.0, "cached": True})

    def put(self, told: events.ModelAnswered, endpoint: Endpoint) -> None:
        """Keep an answer; a file that cannot be written is no reason to fail."""
        if told.answer != "Completion" or told.cached:
            return
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            os.chmod(self.folder, 0o700)  # noqa: PTH101  (raises where it is not ours)
            write_whole(self._path(told.question, endpoint), told.model_dump_json().encode())
            self._prune()

    def _prune(self) -> None:
        kept = sorted(self.folder.glob("*.json"), key=lambda p: p.stat().st_mtime)
        for path in kept[: max(0, len(kept) - MOST)]:
            path.unlink(missing_ok=True)

    def _path(self, question: str, endpoint: Endpoint) -> Path:
        """By all that an answer depends on; what it may cost is not of it."""
        asked = (
            question, endpoint.base_url, endpoint.model, endpoint.structured, endpoint.max_tokens,
            endpoint.temperature, endpoint.reasoning_effort, dict(endpoint.extra_body),
        )  # fmt: skip
        name = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
        return self.folder / f"{name}.json"
