"""`python -m benchmarks.readability`: the English of pages and help texts, within limits.

Measured are the words of `docs/`, the length of sentences and of table cells, the share of
sentences in the passive voice, and retired words. Code, generated blocks and generated pages are
left out. Exits 1 with `file:line`, what is allowed and what was found; `--show` prints the measures
of each page.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from benchmarks.blocks import DOCS, ROOT, without

GENERATED = ("aten.md", "first-session.md", "ops.md")
"""Pages written by `make docs` as a whole."""
WORDS = 25_000
"""Of all pages in `docs/` together."""
SENTENCE, CELL = 45, 60
"""Words of the longest sentence, and of the longest cell of a table."""


@dataclass(frozen=True)
class Limits:
    mean: float
    """Words of a sentence, on the mean of a text."""
    p95: int
    """Words that 95 % of its sentences do not exceed."""
    passive: float
    """Share of its sentences that have a passive."""


PAGE = Limits(mean=17, p95=35, passive=0.14)
CHANGES = Limits(mean=13, p95=24, passive=0.08)
HELP = Limits(mean=8.5, p95=16, passive=0.08)
"""Of all help texts together."""
FEW = 10
"""Texts with fewer sentences have no shares."""

RETIRED = {
    r"roads?": "pipeline",
    r"desk": "workspace",
    r"peels?": "loop peeling",
    r"mend(s|ed|ing)?": "repair, fix",
    r"twins?": "right version, counterpart",
    r"wish(es|ed)?": "constraint",
    r"told|tells?|telling": "say, print, show, distinguish",
    r"alike": "equal, the same, replicated",
    r"came by": "found",
    r"dearer": "more expensive",
    r"(held|hold) (to|against)": "compared with, tested against",
    r"marks": "sentinel labels",
    r"rungs?": "format tier",
    r"at its word": "as it is",
    r"(is|are) taken (at|for|to)": "assumed, treated as",
    r"stands? for": "means, replaces",
    r"whole way": "end to end",
    r"takes? for granted|taken for granted": "assumes",
    r"goes on where": "resumes",
    r"dealt to|deals out": "distribute",
    r"seconds of the processor": "processor seconds",
}
"""Words of an earlier dialect, as patterns of whole words, and what to write instead."""
OPENING = re.compile(r"What (is|are|was|were)\b(?!.*\?)")
"""A sentence whose subject is a relative clause without a head."""

CODE = "c0de"
"""In place of what stands in backticks."""
SENTENCES = re.compile(rf"(?<=[.!?])\s+(?=[A-Z\"(]|{CODE}|shardproof )|(?<=:)\s+(?=[A-Z])")

IRREGULAR = (
    "begun|bound|bought|broken|brought|built|caught|chosen|cut|dealt|done|drawn|driven|fed|felt|"
    "forgotten|found|given|gone|held|hidden|hit|kept|known|laid|left|lost|made|meant|met|opened|"
    "paid|proven|put|read|run|said|seen|sent|set|shown|shut|split|spent|stated|stood|taken|taught|"
    "thought|told|tried|understood|worn|written"
)
STATES = "accepted|defined|proved|refused|refuted|rejected|related|replicated|sharded"
"""Verdicts and layouts: states, in which nobody acts."""
PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+(?:(?:not|never|only|also|then|again|always|first|"
    rf"\w+ly)\s+)*(?!(?:{STATES})\b)(?:\w{{2,}}ed|{IRREGULAR})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sentence:
    line: int
    text: str
    cell: bool = False
    """Of a table: not counted as a sentence."""

    @cached_property
    def words(self) -> int:
        return len(re.findall(r"\w[\w'’.,/-]*", self.text))

    @property
    def passive(self) -> bool:
        return PASSIVE.search(self.text) is not None


@dataclass(frozen=True)
class Text:
    name: str
    sentences: tuple[Sentence, ...]

    @property
    def prose(self) -> list[Sentence]:
        return [s for s in self.sentences if not s.cell and s.words > 2]

    def measured(self) -> Limits:
        """Mean and 95th percentile of the words of its sentences, and their share of passives."""
        lengths = sorted(s.words for s in self.prose) or [0]
        return Limits(
            sum(lengths) / len(lengths),
            lengths[min(len(lengths) - 1, int(0.95 * len(lengths)))],
            sum(s.passive for s in self.prose) / max(len(self.prose), 1),
        )


def _plain(line: str) -> str:
    """Prose without markup; code is one word."""
    line = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", line)
    line = re.sub(r"`[^`]*`", CODE, line)
    line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
    return re.sub(r"\*{1,2}([^*\n]+)\*{1,2}", r"\1", line)


def _split(begin: int, lines: Sequence[str]) -> Iterator[Sentence]:
    """The sentences of a paragraph that begins on a line."""
    text = _plain("\n".join(lines))
    at = 0
    for part in SENTENCES.split(text):
        found = text.index(part, at)
        at = found + len(part)
        yield Sentence(begin + text[:found].count("\n"), " ".join(part.split()))


def markdown(page: str) -> tuple[Sentence, ...]:
    """The sentences and cells of a page; of generated blocks none."""
    kept = re.sub(
        r"<!-- ([\w -]+): written by [^\n]* -->\n.*?<!-- end of \1 -->",
        lambda block: "\n" * block[0].count("\n"),
        page,
        flags=re.DOTALL,
    )
    out: list[Sentence] = []
    paragraph: list[str] = []
    begin = 0
    fenced = False
    for number, line in enumerate([*kept.splitlines(), ""], 1):
        bare = line.strip()
        fence = bare.startswith("```")
        fresh = re.match(r"(- |\d+\. |#)", bare)
        if paragraph and (fence or fresh or not bare or bare.startswith("|")):
            out += _split(begin, paragraph)
            paragraph = []
        if fence:
            fenced = not fenced
        elif bare.startswith("|") and not fenced:
            cells = (_plain(c).strip() for c in re.split(r"(?<!\\)\|", bare)[1:-1])
            out += [Sentence(number, c, cell=True) for c in cells if c]
        elif bare and not fenced and not bare.startswith(("#", "<")):
            if not paragraph:
                begin = number
            paragraph.append(re.sub(r"^(- |\d+\. )", "", bare))
    return tuple(out)


def helps() -> Iterator[Text]:
    """The help of every command and of what a session's commands say."""
    import typer

    from shardproof.agent.chat.registry import registered
    from shardproof.agent.cli.main import app

    for name, command in sorted(cast(Any, typer.main.get_command(app)).commands.items()):
        texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params)]
        prose = "\n\n".join(re.split(r"(?m)^\s*Examples?:", t)[0] for t in texts)
        yield Text(f"shardproof {name} --help", markdown(prose))
    for name, found in registered().items():
        yield Text(f"/{name}", markdown(f"{found.summary}\n\n{found.__doc__ or ''}"))


def pages() -> list[Path]:
    """The pages that are read, without those that are generated as a whole."""
    docs = [page for page in sorted(DOCS.glob("*.md")) if page.name not in GENERATED]
    others = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")
    return [*docs, *(ROOT / name for name in others)]


def counted() -> dict[str, int]:
    """Words of each page of `docs/`, code included and generated blocks left out."""
    docs = [page for page in pages() if page.parent == DOCS]
    return {p.name: len(without(p.read_text(encoding="utf-8")).split()) for p in docs}


def retired(text: Text) -> list[str]:
    """Each retired word of a text, with its place and what to write."""
    out: list[str] = []
    for sentence in text.sentences:
        for pattern, better in RETIRED.items():
            found = re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", sentence.text, re.IGNORECASE)
            if found:
                at = f"{text.name}:{sentence.line}"
                out.append(f"{at}: expected {better!r}, got {found[0]!r}: {sentence.text}")
        if OPENING.match(sentence.text) and not sentence.cell:
            out.append(
                f"{text.name}:{sentence.line}: expected a subject with a noun, got: {sentence.text}"
            )
    return out


def faults(text: Text, limits: Limits | None) -> list[str]:
    """What exceeds the limits in a text, each with its place, what is allowed and what was found.

    A mean or a share is shown at the sentence that adds most to it. Without limits, retired words
    and long sentences alone count.
    """
    out = retired(text)
    for s in text.sentences:
        most = CELL if s.cell else SENTENCE
        if s.words > most:
            kind = "cell" if s.cell else "sentence"
            at = f"{text.name}:{s.line}"
            out.append(f"{at}: expected a {kind} of at most {most} words, got {s.words}: {s.text}")
    if limits is None or len(text.prose) < FEW:
        return out
    got = text.measured()
    longest = max(text.prose, key=lambda s: s.words)
    worst = max(text.prose, key=lambda s: (s.passive, s.words))
    for name, allowed, found, at in (
        ("words a sentence on the mean", limits.mean, got.mean, longest),
        ("words in 95 % of sentences", limits.p95, got.p95, longest),
        ("of sentences in the passive", limits.passive, got.passive, worst),
    ):
        if found > allowed:
            out.append(
                f"{text.name}:{at.line}: expected at most {allowed:g} {name}, got {found:.2f}; "
                f"for one: {at.text}"
            )
    return out


def too_long(words: dict[str, int], most: int = WORDS) -> list[str]:
    """Whether pages have too many words together, shown at the longest."""
    total = sum(words.values())
    longest = max(words, key=lambda name: words[name])
    if total <= most:
        return []
    return [f"docs/{longest}:1: expected at most {most:,} words in docs/, got {total:,}"]


def texts() -> Iterator[tuple[Text, Limits | None]]:
    """Every text with its limits."""
    for page in pages():
        name = str(page.relative_to(ROOT))
        limits = CHANGES if page.name == "CHANGELOG.md" else PAGE
        yield Text(name, markdown(page.read_text(encoding="utf-8"))), limits
    of_help = list(helps())
    yield from ((text, None) for text in of_help)
    together = (s for text in of_help for s in text.sentences)
    yield Text("help texts", tuple(together)), HELP


def measures(found: Iterable[tuple[Text, Limits | None]]) -> str:
    """A row for each text with enough sentences."""
    rows = ["text | sentences | mean | p95 | passive"]
    for text, _ in found:
        got = text.measured()
        if len(text.prose) >= FEW:
            cells = (len(text.prose), f"{got.mean:.1f}", got.p95, f"{got.passive:.0%}")
            rows.append(" | ".join(map(str, (text.name, *cells))))
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.readability")
    parser.add_argument("--show", action="store_true", help="print the measures of each page")
    found = list(texts())
    words = counted()
    if parser.parse_args().show:
        print(f"{sum(words.values()):,} words in docs/")
        print(measures(found))
    said = too_long(words) + [line for text, limits in found for line in faults(text, limits)]
    for line in dict.fromkeys(said):
        print(line, file=sys.stderr)
    return int(bool(said))


if __name__ == "__main__":
    raise SystemExit(main())
