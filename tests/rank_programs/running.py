"""Runs the texts of all ranks, each for itself: collectives meet, messages are passed.

Nothing of `synthesis.frontends.rank_programs` is used: what the texts mean is read a second time.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.ops import facets

Values = dict[str, Array]
Call = tuple[str, tuple[int, ...], Array, dict[str, Any]]
_LINE = re.compile(
    r"(?P<outs>%\S+(?:, %\S+)*) = (?P<op>\w+)(?P<ins>(?: %[^\s,{]+,?)*)(?: \{(?P<attrs>[^}]*)\})?"
)


class WrongError(Exception):
    """Texts that cannot run: ranks wait for ever, or a line cannot be computed."""


def run(texts: Sequence[str], inputs: Sequence[Mapping[str, Array]]) -> list[Values]:
    """What every rank returns, by output. Raises WrongError."""
    ranks = [_program(text.splitlines(), given) for text, given in zip(texts, inputs, strict=True)]
    calls: dict[int, Call] = {}
    results: dict[int, Values] = {}

    def resume(rank: int, value: Array | None) -> None:
        try:
            with np.errstate(all="ignore"):
                step = next(ranks[rank]) if value is None else ranks[rank].send(value)
            calls[rank] = step
        except StopIteration as done:
            results[rank] = done.value
        except Exception as error:
            raise WrongError(f"rank {rank}: {error!r}") from error

    for rank in range(len(ranks)):
        resume(rank, None)
    while calls:
        group = next((c[1] for c in calls.values() if _together(c[1], calls)), None)
        if group is None:
            raise WrongError("ranks wait for ever")
        op, _, _, attrs = calls[group[0]]
        given = [calls.pop(r)[2] for r in group]
        try:
            made = list(facets(op).meaning(Floats(), given, **attrs))
        except Exception as error:
            raise WrongError(f"{op}: {error!r}") from error
        for rank, value in zip(group, made, strict=True):
            resume(rank, np.asarray(value))
    return [results[r] for r in range(len(ranks))]


def _together(group: tuple[int, ...], calls: Mapping[int, Call]) -> bool:
    if any(r not in calls for r in group):
        return False
    op, _, _, attrs = calls[group[0]]
    return all((calls[r][0], calls[r][1], calls[r][3]) == (op, group, attrs) for r in group)


def _program(lines: list[str], given: Mapping[str, Array]) -> Generator[Call, Array, Values]:
    values: Values = {}
    made = yield from _block(iter(lines[1:-1]), values, given)
    return made


def _block(
    lines: Iterator[str], values: Values, given: Mapping[str, Array]
) -> Generator[Call, Array, Values]:
    for line in map(str.strip, lines):
        words = line.split()
        if not words:
            continue
        if words[0] in ("input", "param", "const", "carry", "xs"):
            name = words[1].rstrip(":")
            values[name] = given[name]
            continue
        if words[0] == "return":
            shown = [re.findall(r'%[^\s,]+|"[^"]*"', part) for part in line[6:].split(",")]
            return {key[-1].strip('%"'): values[key[0]] for key in shown}
        found = _LINE.match(line)
        if found is None:
            raise ValueError(f"no line: {line}")
        outs, op = found["outs"].split(", "), found["op"]
        ins = [values[n.rstrip(",")] for n in found["ins"].split()]
        attrs = _attrs(found["attrs"] or "")
        if op == "scan":
            results = yield from _scan(lines, ins, attrs)
            values |= zip(outs, results, strict=True)
            continue
        if "ranks" in attrs:
            group = attrs.pop("ranks")
            named = {**lookup(op).with_defaults(attrs), "mesh_dim": "any"}
            values[outs[0]] = yield op, group, ins[0], named
        elif op in ("only", "merge"):
            (values[outs[0]],) = ins
        else:
            full = lookup(op).with_defaults(attrs)
            values[outs[0]] = np.asarray(facets(op).meaning(Floats(), *ins, **full))
        _fits(line, values[outs[0]])
    raise ValueError("no return")


def _scan(
    lines: Iterator[str], ins: list[Array], attrs: Mapping[str, Any]
) -> Generator[Call, Array, list[Array]]:
    body: list[str] = []
    for line in lines:
        if line.strip() == "}":
            break
        body.append(line.strip())
    names = [
        w.split()[1].rstrip(":") for w in body if w.split()[0] in ("input", "carry", "xs", "const")
    ]
    carries, xs = attrs["carry"], attrs["xs"]
    if len(names) != len(ins):
        raise ValueError("operands of a block")
    carry, rows = ins[:carries], list[list[Array]]()
    steps = range(attrs["length"])
    for step in reversed(steps) if attrs.get("reverse") else steps:
        sliced = [x[step] for x in ins[carries : carries + xs]]
        entering = dict(zip(names, [*carry, *sliced, *ins[carries + xs :]], strict=True))
        made = list((yield from _block(iter(body), {}, entering)).values())
        carry = made[:carries]
        rows.append(made[carries:])
    if attrs.get("reverse"):
        rows.reverse()
    return [*carry, *(np.stack([row[k] for row in rows]) for k in range(len(rows[0])))]


def _attrs(text: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in re.findall(r"(\w+)=(\[[^\]]*\]|[^,]+)", text):
        out[name] = _value(value.strip())
    return out


def _value(text: str) -> Any:
    if text.startswith("["):
        return tuple(int(part) for part in text[1:-1].split(",") if part.strip())
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return Fraction(text)
    except ValueError:
        return text


def _fits(line: str, value: Array) -> None:
    shape = re.search(r" : \w+\[([\d, ]*)\]", line)
    if shape is not None and value.shape != tuple(int(n) for n in shape[1].split(",") if n.strip()):
        raise ValueError(f"another shape: {line}")
