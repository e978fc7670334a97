"""What the owner asks of a plan: pins, bans, a limit on memory. Each is kept, or named as the one
that cannot hold, with what could."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from shardproof.synthesis.planner.assign import PIECES, PlanError, Point, misfit, options
from shardproof.synthesis.planner.dialects import DIALECTS, PYTORCH
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.synthesis.planner.uses import whole_path

Supported = Callable[[Module, str], bool]
Kind = Literal["pin", "ban", "constrain"]
STYLES = (
    "replicate",
    "column",
    "row",
    "fused_column",
    "vocab",
    "experts",
    "channels",
    "gathered",
    "recurrent",
)
"""Styles that the search chooses between; `sequence` and `kv_column` follow from them."""
ALIASES = {
    "whole": "replicate",
    "replicated": "replicate",
    "colwise": "column",
    "colwiseparallel": "column",
    "rowwise": "row",
    "rowwiseparallel": "row",
}
UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{unit}i": 1024.0**n for n, unit in enumerate("KMGT", 1)
}
FLAGS = {
    "sequence_parallel": ("sequence_parallel", True),
    "no_sequence_parallel": ("sequence_parallel", False),
    "no_loss_parallel": ("loss_parallel", False),
}


class ConstraintError(PlanError):
    """A constraint that cannot be read or cannot hold: which, what was expected, and why."""

    def __init__(
        self, what: str, constraint: str, *, expected: str = "", got: str = "", hint: str = ""
    ) -> None:
        self.what, self.constraint, self.expected, self.got, self.hint = (
            what,
            constraint,
            expected,
            got,
            hint,
        )
        parts = [f"{constraint}: {what}" if constraint else what, got]
        parts += [f"expected {expected}"] if expected else []
        super().__init__("; ".join(filter(None, [*parts, hint])))


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints for one plan, as data."""

    pins: tuple[tuple[str, str], ...] = ()
    """(module path or pattern, style): the plan gives every such module this style."""
    bans: tuple[tuple[str, str], ...] = ()
    """(module path or pattern, style): the plan gives no such module this style."""
    tactics: tuple[str, ...] = ()
    """Tactics that seed nothing."""
    memory_bytes: int | None = None
    """Per rank, as estimated."""
    sequence_parallel: bool | None = None
    """Whether the residual stream is split over the sequence; None: as the search finds."""
    loss_parallel: bool | None = None
    """False: the loss is computed on whole logits."""
    dialect: str = PYTORCH.name
    """In whose words the plan is written, of `DIALECTS`."""

    def __bool__(self) -> bool:
        return self != NO_CONSTRAINTS

    def with_constraint(self, kind: Kind, words: str) -> Constraints:
        """With one more constraint, in the words of the command line.

        `pin`: `PATH=STYLE`. `ban`: `PATH=STYLE` or a tactic. `constrain`: `memory=80GB`,
        `sequence_parallel`, `no_sequence_parallel`, `no_loss_parallel`.

        Raises:
            ConstraintError: words that cannot be read.
        """
        if kind == "constrain":
            return self._constrained(words.strip())
        path, equals, style = (part.strip() for part in words.rpartition("="))
        if not equals:
            if kind == "ban" and style in TACTICS:
                return replace(self, tactics=_more(self.tactics, style))
            known = f"PATH=STYLE{' or a tactic: ' + ', '.join(TACTICS) if kind == 'ban' else ''}"
            raise ConstraintError("cannot be read", f"{kind} {words}", expected=known)
        style = ALIASES.get(style.lower(), style)
        if style not in STYLES:
            raise ConstraintError(
                f"no style {style!r}",
                f"{kind} {words}",
                expected=", ".join(STYLES),
                hint=_follows(style),
            )
        if kind == "pin":
            other = dict(self.pins).get(path, style)
            if other != style:
                raise ConstraintError(f"{path} is pinned to {other} already", f"pin {words}")
            return replace(self, pins=_more(self.pins, (path, style)))
        return replace(self, bans=_more(self.bans, (path, style)))

    def in_dialect(self, name: str) -> Constraints:
        """The same for a plan in a dialect.

        Raises:
            ConstraintError: a constraint that it has no words for.
        """
        dialect = DIALECTS[name]
        if self.sequence_parallel and not dialect.sequence:
            other = f"--dialect {PYTORCH.name}"
            what = f"a plan of {name} does not split the sequence"
            raise ConstraintError(what, "constrain sequence_parallel", hint=other)
        sequence = self.sequence_parallel if dialect.sequence else False
        loss = self.loss_parallel if dialect.loss else False
        return replace(self, dialect=name, sequence_parallel=sequence, loss_parallel=loss)

    def _constrained(self, words: str) -> Constraints:
        name, _, value = (part.strip() for part in words.partition("="))
        if name == "memory":
            return replace(self, memory_bytes=read_bytes(value))
        flag = FLAGS.get(words.replace("-", "_"))
        if flag is None:
            known = ", ".join(("memory=80GB", *FLAGS))
            raise ConstraintError("cannot be read", f"constrain {words}", expected=known)
        return replace(self, **{flag[0]: flag[1]})

    def each(self) -> Iterator[tuple[str, Constraints]]:
        """Every constraint in words, with the constraints that are left without it."""
        for at, (path, style) in enumerate(self.pins):
            yield f"pin {path}={style}", replace(self, pins=self.pins[:at] + self.pins[at + 1 :])
        for at, (path, style) in enumerate(self.bans):
            yield f"ban {path}={style}", replace(self, bans=self.bans[:at] + self.bans[at + 1 :])
        for name in self.tactics:
            yield f"ban {name}", replace(self, tactics=tuple(t for t in self.tactics if t != name))
        if self.memory_bytes is not None:
            yield f"memory {show_bytes(self.memory_bytes)}", replace(self, memory_bytes=None)
        if self.sequence_parallel is not None:
            word = "sequence_parallel" if self.sequence_parallel else "no_sequence_parallel"
            yield word, replace(self, sequence_parallel=None)
        if self.loss_parallel is not None:
            yield "no_loss_parallel", replace(self, loss_parallel=None)

    def lines(self) -> list[str]:
        """The constraints, one a line."""
        return [words for words, _ in self.each()]

    def to_json(self) -> dict[str, Any]:
        """As plain data; entries that say nothing are left out."""
        rows: dict[str, Any] = {
            "pins": [list(pair) for pair in self.pins],
            "bans": [list(pair) for pair in self.bans],
            "tactics": list(self.tactics),
            "memory_bytes": self.memory_bytes,
            "sequence_parallel": self.sequence_parallel,
            "loss_parallel": self.loss_parallel,
        }
        rows["dialect"] = None if self.dialect == PYTORCH.name else self.dialect
        return {name: value for name, value in rows.items() if value not in (None, [])}


NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True)
class Rules:
    """What the constraints leave of the search."""

    allowed: Mapping[str, Sequence[str]]
    """Styles of each module, likeliest first where pinned: that one alone."""
    streams: tuple[str, ...]
    tactics: tuple[str, ...]
    fixed: frozenset[str] = frozenset()
    """Modules whose style is pinned, and those that hold no pieces."""

    def keep(self, point: Point) -> Point:
        """The point nearest to this one that keeps every constraint."""
        styles = tuple((p, self._style(p, style)) for p, style in point.styles)
        stream = point.stream if point.stream in self.streams else self.streams[0]
        return replace(point, styles=styles, stream=stream)

    def _style(self, path: str, style: str) -> str:
        left = self.allowed[path]
        if style in left:
            return style
        return "replicate" if "replicate" in left else left[0]


def settle(
    constraints: Constraints,
    modules: Sequence[Module],
    size: int,
    supported: Supported | None = None,
) -> Rules:
    """The styles, streams and tactics that are left.

    Raises:
        ConstraintError: a pin or a ban that names no module, a style that does not fit, or
            nothing left.
    """
    dialect = DIALECTS[constraints.dialect]

    def written(module: Module, style: str) -> bool:
        return style == "replicate" or (
            (supported is None or supported(module, style)) and dialect.says(module, style, size)
        )

    allowed = {m.path: [s for s in options(m, size) if written(m, s)] for m in modules}
    rows: dict[str, int] = {}
    pieces = [m for m in modules if whole_path(m.path) != m.path]
    for m in pieces:
        rows[whole_path(m.path)] = rows.get(whole_path(m.path), 0) + m.weight.shape[0]
    allowed |= {m.path: ["replicate"] for m in pieces if rows[whole_path(m.path)] % size}
    pinned: dict[str, tuple[str, str]] = {}
    for path, style in constraints.pins:
        words = f"pin {path}={style}"
        for module in named(path, modules, words):
            style = _of_piece(module, style)
            if style not in allowed[module.path]:
                why = (
                    misfit(module, style, size) or f"no {style} style is emitted for {module.kind}"
                )
                fit = ", ".join(allowed[module.path])
                raise ConstraintError(f"{module.path}: {why}", words, expected=fit)
            before = pinned.get(module.path)
            if before is not None and before[0] != style:
                raise ConstraintError(f"{module.path} is pinned twice", words, got=before[1])
            pinned[module.path] = style, words
    allowed |= {path: [style] for path, (style, _) in pinned.items()}
    for path, style in constraints.bans:
        words = f"ban {path}={style}"
        for module in named(path, modules, words) if style != PIECES else ():
            left = [s for s in allowed[module.path] if s != _of_piece(module, style)]
            if not left:
                what = f"no style is left for {module.path}"
                fit = ", ".join(options(module, size))
                raise ConstraintError(
                    what, words, got=pinned.get(module.path, ("", ""))[1], expected=fit
                )
            allowed[module.path] = left
    fixed = {
        *pinned,
        *(m.path for p, s in constraints.bans if s == PIECES for m in named(p, modules)),
    }
    streams = {None: ("R", "S(1)"), True: ("S(1)",), False: ("R",)}[constraints.sequence_parallel]
    tactics = tuple(name for name in TACTICS if name not in constraints.tactics)
    if not tactics:
        raise ConstraintError("no tactic is left to start from", f"ban {constraints.tactics[-1]}")
    return Rules(allowed, streams, tactics, frozenset(fixed))


def _of_piece(module: Module, style: str) -> str:
    """The style of a piece of fused weights, where that of the whole is named."""
    piece = whole_path(module.path) != module.path
    return "column" if piece and style == "fused_column" and module.parts == 1 else style


def named(path: str, modules: Sequence[Module], words: str = "") -> list[Module]:
    """Modules of this path; a path with `*` names all that it matches.

    Raises:
        ConstraintError: none does.
    """
    exact = [m for m in modules if path in (m.path, whole_path(m.path))]
    if exact:
        return exact
    matching = [m for m in modules if fnmatchcase(m.path, path)] if "*" in path else []
    if matching:
        return matching
    layered = re.sub(r"(?<=\.)\d+(?=\.)", "*", path)
    if any(m.path == layered for m in modules):
        raise ConstraintError(
            "layers of a repeated block are planned as one", words or path, expected=layered
        )
    tied = next((m for m in modules if m.head == path), None)
    if tied is not None:
        what = f"{path} shares its weight with {tied.path} and follows it"
        raise ConstraintError(what, words or path, expected=tied.path)
    known = [m.path for m in modules]
    near = difflib.get_close_matches(path, known, 4, 0.4) or known[:6]
    raise ConstraintError("no such module with parameters", words or path, expected=", ".join(near))


def read_bytes(text: str) -> int:
    """`80GB`, `80GiB`, `512M` or a plain number of bytes.

    Raises:
        ConstraintError: not of that form, or not above 0.
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?i?)B?\s*", text, re.IGNORECASE)
    unit = found[2][:1].upper() + found[2][1:].lower() if found else ""
    try:
        count = float(found[1]) * UNITS[unit] if found else 0
    except (ValueError, KeyError):
        count = 0
    if not 1 <= count < 1e18:
        constraint, expected = f"memory {text}", "for example 80GB or 512MiB"
        raise ConstraintError("the size cannot be read", constraint, expected=expected)
    return int(count)


def show_bytes(count: float) -> str:
    """Bytes in decimal units, as `read_bytes` reads them."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.0f}B"


def _follows(style: str) -> str:
    return {
        "sequence": "norms follow the stream: constrain sequence_parallel",
        "kv_column": "it follows where heads are fewer than ranks; pin replicate",
    }.get(style, "")


def _more(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    return items if item in items else (*items, item)
