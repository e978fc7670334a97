"""Right translations with one fault put in: all are found but those that compute the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from shardproof.agent.llm.replies import ReplyError
from shardproof.agent.llm.translating import read_reply
from shardproof.agent.translation.binding import bind
from shardproof.agent.translation.trial import Trial
from shardproof.agent.translation.trust import Bound

pytestmark = pytest.mark.torch

REPLIES = Path(__file__).parent / "replies"
OTHER = {
    "gt": ("ge", "lt"), "ge": ("gt", "le"), "lt": ("le", "gt"), "add": ("sub",), "sub": ("add",),
    "mul": ("add", "div"), "div": ("mul",), "relu": ("abs", "silu"), "maximum": ("minimum",),
    "minimum": ("maximum",), "softmax": ("log_softmax",), "silu": ("sigmoid", "gelu"),
    "sigmoid": ("tanh",), "tanh": ("sigmoid",), "gelu_tanh": ("gelu",), "abs": ("relu",),
    "sqrt": ("abs",), "sum": ("mean", "amax"), "mean": ("sum",), "amax": ("sum",),
    "detach": ("neg",),
}  # fmt: skip
SAME = {
    "activation_clip: gt -> ge": "the factor is 1 at the edge",
    "early_exit: lt -> le": "an edge that no sample hits exactly",
    "halving: gt -> ge": "an edge that no sample hits exactly",
    "cached_mask: value=-2000000000": "a mask as good as the other",
    "cached_mask: value=-999999999999/1000": "a mask as good as the other",
    "cached_mask: value=1/1000": "all scores of a row shifted alike",
    "ragged_mean: drop cast": "integers count as numbers",
}
"""What may be accepted, and why."""
_NODE = re.compile(r"\s+%(\S+) = (\w+) ?([^{@]*)(\{[^}]*\})?")
NAMES = sorted({p.stem.partition(".")[0] for p in REPLIES.glob("*.txt")} - {"apex_norm"})


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """(What was changed, the program)."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = _NODE.match(line)
        if found is None:
            continue
        for what, changed in changes(line, found):
            yield what, "\n".join([*lines[:number], changed, *lines[number + 1 :]])


def changes(line: str, found: re.Match[str]) -> Iterator[tuple[str, str]]:
    op, operands = found[2], [v.strip() for v in found[3].split(",") if v.strip()]
    for other in OTHER.get(op, ()):
        yield f"{op} -> {other}", line.replace(f"= {op} ", f"= {other} ", 1)
    if len(operands) == 2 and op not in ("add", "mul", "maximum", "minimum"):
        yield f"swap {op}", line.replace(found[3].strip(), ", ".join(reversed(operands)))
    if op != "mul_scalar":
        for operand in operands:
            yield f"drop {op}", f"  %{found[1]} = mul_scalar {operand} {{value=1}}"
    for key, value in re.findall(r"(\w+)=(-?[\w./]+)", found[4] or ""):
        if key in ("value", "eps", "scale") and Fraction(value):
            by = Fraction(value)
            for new in (2 * by, by + Fraction(1, 1000), -by):
                yield f"{key}={new}", line.replace(f"{key}={value}", f"{key}={new}")
        elif key in ("value",):
            yield f"{key}=1/1000", line.replace(f"{key}={value}", f"{key}=1/1000")
        elif key == "causal":
            yield "causal", line.replace("causal=true", "causal=false")
        elif key in ("k", "start", "stop", "ignore_index"):
            for new in (int(value) + 1, int(value) - 1):
                yield f"{key}={new}", line.replace(f"{key}={value}", f"{key}={new}")


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_found(name: str, trials: dict[str, Trial]) -> None:
    trial = trials[name]
    (subject,), (task,) = trial.subjects(), trial.tasks()
    right = (REPLIES / f"{name}.right.txt").read_text()
    judged = 0
    accepted: set[str] = set()
    for what, text in mutants(right):
        try:
            made = read_reply(task, json.dumps({"program": text, "unsupported": []}))
        except ReplyError:
            continue
        assert made.program is not None
        judged += 1
        if isinstance(bind(made.program, subject), Bound):
            accepted.add(f"{name}: {what}")
    assert judged >= 1
    assert accepted <= set(SAME)
