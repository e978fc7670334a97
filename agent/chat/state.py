"""What a session knows: typed, small, and rebuilt from its journal alone.

Anything large (a captured model, programs, a patch) lies beside the journal under its hash and is
named here. A step changes fields; the new values stand in its `step.completed` event.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shardproof.agent.actions.models import Captured
from shardproof.agent.run import events


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Part):
    """A file as it was read."""

    path: str
    sha256: str


class Refused(Captured):
    """A target that capture refused."""

    def reads(self) -> list[str]:
        """The files that its words name."""
        named = [entry for entry in self.config if "=" not in entry]
        return [self.target.rpartition(":")[0], *named]


class Translated(Part):
    """What a proof about a translation assumes about the code that it was compared with."""

    assumptions: list[str]


class Model(Captured):
    """A PyTorch model that was captured, or whose translation was bound to its code."""

    captured: str
    """Artifact."""
    facts: str
    """Artifact: what the emitter knows of the modules; empty for a translation."""
    files: tuple[Source, ...] = ()
    translated: Translated | None = None


class Programs(Part):
    """Programs in text form: what one device runs, what the ranks run, how they correspond."""

    sequential: Source | None = None
    distributed: Source | None = None
    contract: Source | None = None
    repaired: str = ""
    """Artifact: the program of the ranks after a repair that was proved; empty if there is none."""

    def missing(self) -> list[str]:
        return [name for name in KINDS if getattr(self, name) is None]


KINDS = ("sequential", "distributed", "contract")


class Planned(Part):
    """A plan that was chosen, and the hash that the same search must come to again."""

    plan: str
    """Artifact: plan.json."""
    strategy: str
    ideas: list[str] = []
    """Ideas of a model that the search started from, besides its tactics."""
    of: str
    """What it was chosen for: captured model, mesh, cluster, constraints."""


class Judged(Part):
    """A verdict that was reached, and on what."""

    verdict: events.VerdictWord
    of: str
    message: str
    where: str = ""
    patch: str = ""
    """What was done with the patch of the plan; empty where nothing was."""


class Constraint(Part):
    """What the owner asks of a plan."""

    kind: Literal["pin", "ban", "constrain"]
    words: str


class Idea(Part):
    """A placement that a model proposed, after it was priced and judged."""

    name: str
    tactic: str
    stream: str
    styles: dict[str, str]
    reason: str
    verdict: events.VerdictWord
    told: str


class Turn(Part):
    """A question to the model and its answer."""

    asked: str
    answered: str


class Spent(Part):
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    seconds: float = 0.0
    usd: float | None = 0.0
    """None where a price was not known."""
    models: list[str] = []
    """Those that answered, as their endpoints name them."""

    def words(self) -> str:
        """Calls, tokens and money in one line."""
        about = "about " if self.estimated else ""
        usd = "cost not known" if self.usd is None else f"{self.usd:.4f} USD"
        calls = f"{self.calls} call{'s' * (self.calls != 1)}"
        tokens = f"{about}{self.prompt_tokens:,} tokens in, {self.completion_tokens:,} out"
        return f"{calls}, {tokens}, {usd}"

    def plus(self, answer: events.ModelAnswered) -> Spent:
        known = self.usd is not None and (answer.usd is not None or not answer.calls)
        return Spent(
            calls=self.calls + answer.calls,
            prompt_tokens=self.prompt_tokens + answer.prompt_tokens,
            completion_tokens=self.completion_tokens + answer.completion_tokens,
            estimated=self.estimated or answer.estimated,
            seconds=self.seconds + answer.seconds,
            usd=(self.usd or 0.0) + (answer.usd or 0.0) if known else None,
            models=list(dict.fromkeys([*self.models, *([answer.model] if answer.model else [])])),
        )


class Budget(Part):
    """Limits of this session on the model; they only lower those of the config."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


class Settings(Part):
    hardware: str = "h100"
    run: Literal["auto", "always", "never"] = "auto"
    """Whether a patch is run on local processes before it is applied."""
    guard: bool = False
    """Whether a patch watches what ranks exchange as it runs."""
    inline: bool = False
    """Whether what a patch needs is pasted into it."""
    repair_seconds: float = Field(default=30.0, gt=0, lt=1e6)
    repair_edits: int = Field(default=3, ge=1, lt=1_000_000)
    model: str = ""
    """Another model at the same endpoint; empty: the one that is configured."""


class State(Part):
    """Everything that a resumed session goes on from."""

    title: str = ""
    subject: Literal["", "model", "programs"] = ""
    """What verify, cex, explain and repair are about."""
    model: Model | None = None
    refused: Refused | None = None
    """What capture refused last; /translate is about it."""
    programs: Programs = Programs()
    mesh: dict[str, int] = {}
    constraints: list[Constraint] = []
    planned: Planned | None = None
    judged: Judged | None = None
    at: int = 0
    """Where /cex stands."""
    ideas: list[Idea] = []
    said: list[Turn] = []
    budget: Budget = Budget()
    settings: Settings = Settings()

    def changes(self, before: State) -> dict[str, Any]:
        """Fields that differ, as JSON data."""
        new, old = self.model_dump(mode="json"), before.model_dump(mode="json")
        return {name: value for name, value in new.items() if value != old[name]}

    def after(self, changes: dict[str, Any]) -> State:
        """With these changes. Raises pydantic.ValidationError."""
        return State.model_validate({**self.model_dump(mode="json"), **changes})
