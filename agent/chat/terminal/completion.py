"""What Tab offers: commands, and what each of their words may be."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from shardproof.agent.chat import journal, registry
from shardproof.agent.run.errors import ShardproofError

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent

    from shardproof.agent.chat.engine import Session

MESHES = ("tp=2", "tp=4", "tp=8", "dp=2,tp=2")


class Completions(Completer):
    """Reads the registry and the state of the session; runs nothing."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        head, blank, rest = text[1:].partition(" ")
        if not blank:
            yield from self._commands(head, len(text))
            return
        found = registry.registered().get(head)
        if found is None:
            return
        words = rest.split(" ")
        word = words[-1]
        if word.startswith("--"):
            yield from _fitting(word, [f"--{name}" for name in found.options])
            return
        kinds = found.completes
        kind = kinds[min(len([w for w in words if not w.startswith("--")]), len(kinds)) - 1 :][:1]
        for name in kind:
            yield from self._words(name, word, complete_event)

    def _commands(self, head: str, length: int) -> Iterator[Completion]:
        for name, found in registry.registered().items():
            if name.startswith(head):
                yield Completion(f"/{name}", -length, display_meta=found.summary[:60])

    def _words(self, kind: str, word: str, event: CompleteEvent) -> Iterator[Completion]:
        if kind in ("path", "target"):
            path, colon, _ = word.partition(":")
            if kind == "target" and path == "hf" and colon:
                yield from _fitting(word, [f"hf:{name}" for name in library()])
                return
            offered = self._paths.get_completions(Document(word), event)
            yield from (found for found in offered if found.text)
            if kind == "target" and path.endswith(".py"):
                yield from _fitting(word, [f"{path}:{name}" for name in _classes(path)])
            elif kind == "target":
                yield from _fitting(word, ["sequential", "distributed", "contract", "hf:"])
            return
        yield from _fitting(word, self._known(kind))

    def _known(self, kind: str) -> list[str]:
        state = self.session.state
        if kind == "module":
            return modules(self.session)
        if kind == "style":
            from shardproof.synthesis.planner.plan import STYLES

            return list(STYLES)
        if kind == "command":
            return [*registry.registered(), *(f"/{n}" for n in registry.registered())]
        if kind == "mesh":
            return list(MESHES)
        if kind == "setting":
            return [n for n in state.settings.model_dump() if n != "model"]
        if kind == "session":
            return [s.session for s in journal.listed(self.session.journal.folder.parent)]
        return []


def modules(session: Session) -> list[str]:
    """Module paths of the model that is loaded; `*` for the number of a layer that is repeated."""
    if session.state.model is None:
        return []
    try:
        known = session.workspace.captured().facts.modules
    except ShardproofError:
        return []
    return list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.|$)", "*", path) for path in known if path))


def library() -> list[str]:
    """Classes of transformers with a head, as its registry lists them; it is read, not imported."""
    found = importlib.util.find_spec("transformers")
    for folder in (found.submodule_search_locations or ()) if found else ():
        with suppress(OSError):
            text = (Path(folder) / "models/auto/modeling_auto.py").read_text(encoding="utf-8")
            return sorted(set(re.findall(r'"([A-Z]\w+(?:For[A-Z]\w+|LMHeadModel))"', text)))
    return []


def _fitting(word: str, known: Iterable[str]) -> Iterator[Completion]:
    for text in known:
        if text.startswith(word):
            yield Completion(text, -len(word))


def _classes(path: str) -> list[str]:
    """Names of the classes at the top of a Python file; nothing of it is run."""
    import ast

    try:
        tree = ast.parse(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RuntimeError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
