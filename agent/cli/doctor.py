"""What is installed here, and what each missing part would give."""

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from shardproof.agent import __version__
from shardproof.agent.llm.endpoint import shown
from shardproof.agent.run.errors import Exit
from shardproof.agent.run.run import Outcome, Run

_PARTS = (
    ("numpy", "numpy", True, "programs on numbers"),
    ("z3", "z3-solver", True, "rules, side conditions, scalar goals"),
    ("pydantic", "pydantic", True, "events and replies"),
    ("jinja2", "jinja2", True, "reports, and questions to a model"),
    ("rich", "rich", True, "what a session shows"),
    ("prompt_toolkit", "prompt-toolkit", True, "what is typed in a session"),
    ("openai", "openai", True, "questions to a language model"),
    ("torch", "torch", False, "capture and execution: pip install 'shardproof[torch]'"),
    ("transformers", "transformers", False, "hf: targets: pip install 'shardproof[hf]'"),
    ("ray", "ray", False, "batches over machines: pip install 'shardproof[ray]'"),
)


@dataclass(frozen=True)
class Part:
    name: str
    found: str
    """Version or path; empty where it is missing."""
    needed: bool
    gives: str


def model(probe: bool) -> Part:
    """The language model, if there is one; with `probe` it is asked how it gives structure."""
    try:
        from shardproof.agent.llm.client import Client
        from shardproof.agent.llm.probe import visit
    except ModuleNotFoundError as error:
        return Part("model", "", False, f"not looked for: {error.name} is missing")

    seen = visit(Client.of_user(), ask=probe)
    return Part("model", seen.rung, False, seen.line)


def parts() -> list[Part]:
    """Every part we can use, none of them imported."""
    found: list[Part] = [Part("python", platform.python_version(), True, sys.executable)]
    for module, distribution, needed, gives in _PARTS:
        found.append(Part(distribution, _version(module, distribution), needed, gives))
    found.append(Part("git", shutil.which("git") or "", False, "git apply --check of patches"))
    address = os.environ.get("SHARDPROOF_BASE_URL") or os.environ.get("OPENAI_BASE_URL", "")
    endpoint = shown(address) if address else ""
    found.append(Part("endpoint", endpoint, False, "a language model (optional): OPENAI_BASE_URL"))
    return found


def _version(module: str, distribution: str) -> str:
    if importlib.util.find_spec(module) is None:
        return ""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "present"


def table(found: list[Part]) -> str:
    """One line a part."""
    lines = [f"shardproof {__version__}"]
    for part in found:
        state = part.found or ("MISSING" if part.needed else "-")
        get = f"; pip install {part.name}" if part.needed and not part.found else ""
        lines.append(f"  {part.name:<15}{state:<18}{part.gives}{get}".rstrip())
    return "\n".join(lines)


def show(run: Run, probe: bool) -> Outcome:
    """`shardproof doctor`: 2 where a needed part is missing."""
    with run.phase("look") as phase:
        found = [*parts(), model(probe)]
        missing = [part.name for part in found if part.needed and not part.found]
        phase.summary = f"{len(missing)} needed parts missing" if missing else "nothing missing"
        phase.facts.update({part.name: part.found for part in found})
    return Outcome(Exit.INPUT if missing else Exit.PROVED, answer=table(found))
