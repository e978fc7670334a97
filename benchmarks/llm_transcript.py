"""Every question and answer as a line of JSON, and a model that answers from such lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardproof.agent.chat.models import digest
from shardproof.agent.llm.answers import Answer, Completion, Failed, NoModel, Trouble, Usage
from shardproof.agent.llm.client import Form, Message, Model
from shardproof.agent.llm.secret import Secret, redacted
from shardproof.agent.run.errors import InputError

FORMAT = 1


class Recorded:
    """A model whose questions and answers are written to a file that only its owner reads."""

    def __init__(self, model: Model, path: Path, *secrets: Secret) -> None:
        self.model = model
        self.path = path
        self.secrets = secrets
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.fchmod(file, 0o600)
        os.close(file)

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """As the model answers."""
        begun = time.time()
        answer = self.model.ask(messages, form)
        line = {
            "format": FORMAT,
            "at": round(begun, 3),
            "question": digest(messages, form),
            "form": form.name if form else "",
            "template": form.template if form else "",
            "rendering": form.rendering if form else "",
            "messages": [dict(m) for m in messages],
            "answer": type(answer).__name__,
            **asdict(answer),
        }
        text = redacted(json.dumps(line, ensure_ascii=True), *self.secrets)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        return answer


class Replayed:
    """Answers from a transcript: the same question gets the answers it got, in order."""

    def __init__(self, path: Path) -> None:
        self.answers: dict[str, list[Answer]] = {}
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], 1):  # a last line without its end is torn
            try:
                data = json.loads(line)
                answer = _answer(data)
                question = str(data["question"])
            except (ValueError, KeyError, TypeError):
                raise InputError("not a line of a transcript", where=f"{path}:{number}") from None
            self.answers.setdefault(question, []).append(answer)

    def ask(self, messages: Sequence[Message], form: Form | None = None) -> Answer:
        """The recorded answer; `NoModel` where this was never asked."""
        left = self.answers.get(digest(messages, form), [])
        return left.pop(0) if left else NoModel("the transcript has no answer to this question")


def _answer(data: dict[str, Any]) -> Answer:
    if data["format"] != FORMAT:
        raise ValueError
    if data["answer"] == "Completion":
        return Completion(str(data["text"]), Usage(**data["usage"]), model=str(data["model"]))
    if data["answer"] == "Failed":
        return Failed(Trouble(data["kind"]), str(data["message"]))
    return NoModel("the recorded question was not answered")
