"""The role of a strategist: training configurations beside those that the search prices best."""

from dataclasses import dataclass, fields

from shardproof.agent.actions.words import read_fixed
from shardproof.agent.llm.client import Form, Model
from shardproof.agent.llm.dialogue import Result, put
from shardproof.agent.llm.hygiene import one_line
from shardproof.agent.llm.proposing import described
from shardproof.agent.llm.replies import Configurations, ReplyError, read, schema
from shardproof.agent.llm.source import boundary
from shardproof.agent.run.errors import InputError
from shardproof.prompts import render
from shardproof.synthesis.strategy import words
from shardproof.synthesis.strategy.choice import Choice
from shardproof.synthesis.strategy.space import FIXED

FORM = Form("configurations", schema(Configurations))
MOST = 3
Fixed = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True)
class Configured:
    """What of a configuration is chosen, in words of `--fix`; the search chooses the rest."""

    fixed: Fixed
    reason: str


def configure(model: Model, chosen: Choice, tokens: str) -> Result[tuple[Configured, ...]]:
    """Ask for configurations; each is one of the space, and neither priced nor tried."""
    shape = chosen.space.model
    named = ((f.name, getattr(shape, f.name)) for f in fields(shape))
    prompt = render(
        "configure",
        boundary=boundary(),
        keys=[{"name": k, "takes": "|".join(w) or "a number"} for k, w in FIXED.items()],
        model=one_line(", ".join(f"{name} {value}" for name, value in named if value), 800),
        cluster=f"{chosen.space.gpus} devices; {described(chosen.space.machine.cluster)}",
        tokens=one_line(tokens, 300),
        table=_table(chosen),
        most=MOST,
    )
    return put(model, prompt, FORM, lambda reply: _read(chosen, reply.text))


def _table(chosen: Choice) -> list[str]:
    rows = [chosen.best, *([chosen.emitted] if chosen.emitted else []), *chosen.front[1:]]
    priced = [
        f"{words.short(p.plan)}: step {p.step_s:.3g} s, {p.price.memory.total / 1e9:.1f} GB"
        f"{'; planned, not written yet' if words.beyond(p.plan) else '; can be written'}"
        for p in rows
    ]
    return [*dict.fromkeys(priced), *(f"{other.name}: {other.why}" for other in chosen.others)]


def _read(chosen: Choice, text: str) -> tuple[Configured, ...]:
    reply = read(Configurations, text)
    problems: list[str] = []
    found: list[Configured] = []
    for index, wire in enumerate(reply.configurations[:MOST]):
        try:
            fixed = read_fixed((*(f"{k}={v}" for k, v in chosen.space.fixed), wire.fix))
        except InputError as error:
            wrong = f"{one_line(error.where, 80)}: {error}; expected {error.expected}"
            problems.append(f"configurations[{index}].fix: {wrong}")
            continue
        found.append(Configured(fixed, wire.reason))
    if not found:
        raise ReplyError(problems or ["configurations: empty"])
    return tuple(found)
