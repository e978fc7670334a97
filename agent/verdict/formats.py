"""What a run found, in the formats that CI reads: GitHub, SARIF, rdjsonl and JUnit."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from shardproof.agent import __version__
from shardproof.agent.run import events

TOOL = "shardproof"
RULES = {
    "refuted": "The parallel program does not compute what one device computes.",
    "rejected": "A file of the directory is not what it says it is.",
    "repaired": "Wrong, and proved after the edits that the message names.",
    "unknown": "Neither proved nor refuted.",
    "error": "Something given cannot be used, or the run ended early.",
}
_WARNINGS = ("repaired", "unknown")
_PLACE = re.compile(r"^(?P<file>[^\s:][^:\n]*?):(?P<line>\d+)\b")


@dataclass(frozen=True)
class Finding:
    """One result of a run."""

    name: str
    """What it is about: the command's target, or a job of a batch."""
    rule: str
    """`proved`, or one of `RULES`."""
    message: str
    file: str = ""
    """Relative to the working directory; empty where it is not known."""
    line: int = 0

    @property
    def good(self) -> bool:
        return self.rule == "proved"


def findings(seen: Sequence[events.Event]) -> list[Finding]:
    """What the events of a run found, in order."""
    words = [w for e in seen if isinstance(e, events.RunStarted) for w in e.arguments]
    commands = [e.command for e in seen if isinstance(e, events.RunStarted)]
    targets = [w for w in words[1:] if not w.startswith("-")]
    name = targets[0] if targets else (commands or [TOOL])[0]
    out: list[Finding] = []
    for event in seen:
        match event:
            case events.Repaired(edits=edits, sources=sources) if edits:
                text = "\n".join(["; ".join(edits), event.diff])
                out.append(Finding(name, "repaired", text, *_place("\n".join(sources), words)))
            case events.VerdictReached(verdict="proved") if out and out[-1].rule == "repaired":
                pass  # it is proved as repaired
            case events.VerdictReached(verdict=verdict, message=message, where=where):
                rule = "proved" if verdict == "accepted" else verdict
                out.append(Finding(name, rule, message, *_place(where, words)))
            case events.Problem(message=message, where=where):
                details = [f"{word}: {text}" for word, text in event.details().items()]
                text = "\n".join([message, *details])
                out.append(Finding(name, "error", text, *_place(where, words)))
            case events.JobCompleted(job=job, verdict=verdict, message=message, status=status):
                rule = verdict if verdict in RULES or verdict == "proved" else "error"
                out.append(Finding(job, rule, message or status))
            case _:
                pass
    return out


def _place(where: str, words: Sequence[str]) -> tuple[str, int]:
    """File and line of `model.py:14 ...`; the file beside what the command was given, where it is
    not one from here."""
    found = _PLACE.match(where)
    if found is None:
        return "", 0
    file = Path(found["file"])
    beside = [Path(w.rpartition("=")[2].rpartition(":")[0] or w).parent / file for w in words]
    known = next((p for p in (file, *beside) if p.is_file()), file).resolve()
    here = Path.cwd().resolve()
    shown = known.relative_to(here) if known.is_relative_to(here) else file
    return shown.as_posix(), int(found["line"])


def github(found: Sequence[Finding]) -> str:
    """Workflow commands: annotations at the line."""
    return "\n".join(map(_annotation, found))


def _annotation(f: Finding) -> str:
    kind = "notice" if f.good else "warning" if f.rule in _WARNINGS else "error"
    at = {"file": f.file, "line": f.line} if f.file else {}
    parts = {**at, "title": f"{TOOL}: {f.rule}"}
    given = ",".join(f"{k}={_escaped(str(v), ':,')}" for k, v in parts.items())
    return f"::{kind} {given}::{_escaped(f.message)}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)


def sarif(found: Sequence[Finding]) -> str:
    """A SARIF 2.1.0 log; what is proved is no result."""
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()]
    driver = {"name": TOOL, "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_result(f) for f in found if not f.good]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(f: Finding) -> dict[str, Any]:
    level = "warning" if f.rule in _WARNINGS else "error"
    result: dict[str, Any] = {
        "ruleId": f.rule,
        "ruleIndex": list(RULES).index(f.rule),
        "level": level,
        "message": {"text": f.message or RULES[f.rule]},
    }
    if f.file:
        place = {
            "artifactLocation": {"uri": quote(f.file)},
            "region": {"startLine": max(f.line, 1)},
        }
        result["locations"] = [{"physicalLocation": place}]
    return result


def rdjsonl(found: Sequence[Finding]) -> str:
    """One diagnostic of the Reviewdog Diagnostic Format a line."""
    return "\n".join(json.dumps(_diagnostic(f)) for f in found if not f.good)


def _diagnostic(f: Finding) -> dict[str, Any]:
    location: dict[str, Any] = {"path": f.file}
    if f.line:
        location["range"] = {"start": {"line": f.line}}
    return {
        "message": f.message,
        "location": location,
        "severity": "WARNING" if f.rule in _WARNINGS else "ERROR",
        "source": {"name": TOOL},
        "code": {"value": f.rule},
    }


def junit(found: Sequence[Finding]) -> str:
    """A JUnit report: each finding is a test case."""
    counts = {
        "tests": str(len(found)),
        "failures": str(sum(not f.good and f.rule != "error" for f in found)),
        "errors": str(sum(f.rule == "error" for f in found)),
    }
    suite = ElementTree.Element("testsuite", {"name": TOOL, **counts})
    for f in found:
        place = {"file": f.file, "line": str(f.line)} if f.file else {}
        case = ElementTree.SubElement(
            suite, "testcase", {"name": f.name, "classname": TOOL, **place}
        )
        if not f.good:
            kind = "error" if f.rule == "error" else "failure"
            first = f.message.split("\n")[0]
            inner = ElementTree.SubElement(
                case, kind, {"type": f.rule, "message": _printable(first)}
            )
            inner.text = _printable(f.message)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Without characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


FORMATS: Mapping[str, Callable[[Sequence[Finding]], str]] = {
    "github": github,
    "sarif": sarif,
    "rdjsonl": rdjsonl,
    "junit": junit,
}
