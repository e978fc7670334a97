"""Extents that are written by name: `rearrange(x, "b n (h d) -> b h n d", h=self.heads)`."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.source import Edit, SourceText

FUNCTIONS = frozenset({"rearrange", "repeat", "reduce"})
DOTS = "..."
_GROUP = re.compile(r"\(([^()]*)\)|(\S+)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes that a call of einops takes its operand apart into."""

    call: ast.Call
    groups: tuple[tuple[str, ...], ...]
    """Of each dim of the operand, the axes it consists of."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group)

    def given(self, name: str) -> ast.keyword | None:
        """The keyword that says how long an axis is."""
        return next((k for k in self.call.keywords if k.arg == name), None)


def axes_of(call: ast.Call) -> Axes | None:
    """Read a call of einops whose pattern is a literal; None of any other."""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    patterns = [a.value for a in call.args if isinstance(a, ast.Constant)]
    pattern = next((p for p in patterns if isinstance(p, str) and "->" in p), None)
    if name not in FUNCTIONS or pattern is None:
        return None
    return Axes(call, groups_of(pattern))


def groups_of(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Of each dim of what `b (h d) -> b h d` takes, the axes it consists of."""
    return _groups(pattern.partition("->")[0])


def made(pattern: str) -> tuple[str, ...]:
    """The dims of what `b n h -> b h n 1` gives, `` for one that several axes make up."""
    groups = _groups(pattern.partition("->")[2])
    return tuple(group[0] if len(group) == 1 else "" for group in groups)


def _groups(side: str) -> tuple[tuple[str, ...], ...]:
    found = _GROUP.findall(side)
    return tuple(tuple((inner or single).split()) for inner, single in found)


def over_dims(names: Sequence[str], rank: int) -> tuple[str, ...]:
    """The axes of a pattern, an ellipsis as often as there are dims that it stands for."""
    at = names.index(DOTS) if DOTS in names else len(names)
    missing = rank - len(names) + 1
    return (*names[:at], *[DOTS] * (missing if DOTS in names else 0), *names[at + 1 :])


def without_lengths(source: SourceText, axes: Axes, names: Sequence[str], where: str) -> list[Edit]:
    """Leave it to einops how long these axes are.

    Raises:
        EmitError: another axis of the same dim has no length either; it starts with `where`.
    """
    edits: list[Edit] = []
    for name in dict.fromkeys(n for n in names if n != DOTS):
        group = next(g for g in axes.groups if name in g)
        others = [n for n in group if n != name and _NAME.fullmatch(n)]
        keyword = axes.given(name)
        if keyword is None:
            continue
        if any(axes.given(n) is None or n in names for n in others):
            dim = " ".join(group)
            raise EmitError(f"{where}: no length but that of {name} is given in ({dim})")
        start, end = source.span(keyword)
        before = [source.span(a)[1] for a in (*axes.call.args, *axes.call.keywords)]
        edits.append(Edit(max(at for at in before if at <= start), end, ""))
    return edits
