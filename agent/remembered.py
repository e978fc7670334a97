"""Proofs of large programs kept between runs: an edited program is proved by what changed."""

import os
from dataclasses import dataclass
from pathlib import Path

from agent.run import Run
from verifier.kernel.program.program import Program
from verifier.reuse import Base, Carried, proved_again
from verifier.reuse.reading import reread
from verifier.reuse.store import Kept, Store
from verifier.smt.answers import Answers
from verifier.text.parser import Spans, parse_text


def directory() -> Path:
    """Where proofs are kept: `$XDG_CACHE_HOME/shardproof/proofs`, or the same in `~/.cache`."""
    return _kept() / "proofs"


def answers(cache: bool = True) -> Answers:
    """What Z3 said of the steps of proofs: kept beside them, in memory alone without `cache`."""
    return Answers(_kept() / "steps.json" if cache else None)


def _kept() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "shardproof"


@dataclass(frozen=True)
class Files:
    """The three files of a question, as read."""

    sequential: bytes
    distributed: bytes
    contract: bytes

    @property
    def text(self) -> str | None:
        """The distributed program as text; None for JSON or what is no UTF-8."""
        try:
            found = self.distributed.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return None if found.lstrip()[:1] in ("{", "[") else found


def read(sequential: Path, distributed: Path, contract: Path) -> Files | None:
    """The bytes of three files; None where one cannot be read, or holds more than programs do."""
    try:
        files = Files(*(p.read_bytes() for p in (sequential, distributed, contract)))
    except OSError:
        return None
    return files if files.text is not None else None


def recall(run: Run, files: Files) -> tuple[Carried, str] | None:
    """What holds by what was proved before, and what to say of it; None where there is none."""
    with run.phase("recall") as phase:
        kept = Store(directory()).kept(files.sequential, files.contract)
        if kept is None:
            phase.summary = "nothing kept for these files"
            return None
        found, said = _recalled(*kept, files)
        phase.summary = said
        if found is None:
            return None
        phase.facts.update(again=found.again, nodes=found.nodes)
    return found, said


def _recalled(kept: Kept, name: str, files: Files) -> tuple[Carried | None, str]:
    text, base = files.text, kept.base
    assert text is not None
    if text == kept.text:
        said = f"the same as proved before ({name[:12]}, {kept.claims} claims accepted)"
        return Carried(base.scope, base.assumptions, 0, base.nodes), said
    program = reread(text, kept.text, base.written, kept.spans)
    found = None if program is None else proved_again(base, program)
    if found is None:
        return None, "the change reaches too far, or breaks the proof; proving all of it"
    many = f"{found.again} of {found.nodes} ops"
    return found, f"{many} proved again, the others as proved before ({name[:12]})"


def parse(files: Files, name: str) -> tuple[Program, Spans]:
    """The distributed program, and where its statements stand. Raises MalformedError."""
    spans, text = Spans(), files.text
    assert text is not None
    return parse_text(text, name, spans), spans


def remember(run: Run, files: Files, base: Base, spans: Spans, claims: int) -> None:
    """Keep a proof whose certificate was accepted; a directory that cannot be written is told."""
    store, text = Store(directory()), files.text
    assert text is not None
    try:
        with run.phase("keep"):
            store.keep(Kept(base, files.sequential, files.contract, text, spans, claims))
    except OSError as error:
        run.warn(f"the proof is not kept for later: {error}")
