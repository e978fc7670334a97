"""The large things a session works on, made from its state when they are asked for.

They are kept in memory for as long as what they were made from stays the same. After a resume they
are made again: programs and captured models from their artifacts, plans and verdicts by the same
deterministic search and proof, whose result is compared with what the journal says.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shardproof.agent.actions.models import Captured as Words, Parallelize
from shardproof.agent.chat.state import KINDS, Model, Source
from shardproof.agent.run.errors import InputError
from shardproof.agent.verdict import verdicts
from shardproof.verifier.problem import Problem

if TYPE_CHECKING:
    from shardproof.agent.chat.engine import Session
    from shardproof.synthesis.emit import ModelFacts, Patch
    from shardproof.synthesis.frontends.torch.captured import Captured
    from shardproof.synthesis.frontends.torch.observed import Observed
    from shardproof.synthesis.frontends.torch.request import CaptureRequest
    from shardproof.synthesis.planner.planner import Synthesis
    from shardproof.synthesis.planner.scoring import Search
    from shardproof.verifier.kernel.program.program import Program
    from shardproof.verifier.text.contract import Stated
    from shardproof.verifier.verdict import Verdict

T = TypeVar("T")
ROOT = "<the root of the session>/"


@dataclass(frozen=True)
class Pair(Problem):
    """What is compared: a one-device program, a program of the ranks, and how they correspond."""

    of: str = ""
    """What all of it was made from."""
    stated: Stated | None = None
    written: Program | None = None
    """The program of the ranks as its file has it, without what the contract puts around it."""


class Workspace:
    """What is at hand."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._kept: dict[str, tuple[str, Any]] = {}

    def _once(self, what: str, of: str, make: Callable[[], T]) -> T:
        known = self._kept.get(what)
        if known is None or known[0] != of:
            known = (of, make())
            self._kept[what] = known
        return known[1]

    def put(self, what: str, of: str, value: object) -> None:
        """Keep what was just made."""
        self._kept[what] = (of, value)

    def forget(self, what: str) -> None:
        """Make it again when it is asked for next."""
        self._kept.pop(what, None)

    def observed(self, of: str, request: CaptureRequest, tell: Callable[[str], None]) -> Observed:
        """What became of a target that capture refuses, and of its code on samples."""
        from shardproof.synthesis.frontends.torch.capture import attempt

        return self._once("observed", of, lambda: attempt(request, tell))

    def held(self) -> dict[str, tuple[str, Any]]:
        """What is at hand now, for `back_to`."""
        return dict(self._kept)

    def back_to(self, held: dict[str, tuple[str, Any]]) -> None:
        """Forget what came to hand since."""
        self._kept = held

    # -- models ------------------------------------------------------------------------------

    def model(self) -> Model:
        """The model that was loaded.

        Raises:
            InputError: none was.
        """
        model = self.session.state.model
        if model is None:
            raise InputError("no model is loaded", hint="/load path/model.py:Class, or hf:Class")
        return model

    def request(self) -> CaptureRequest:
        return self.model().request()

    def asked(self, where: str = "", **more: Any) -> Parallelize:
        """What the session asks of `parallelize`: model, mesh, constraints, settings, and `more`.

        Raises:
            InputError: no model is loaded, or one of `more` cannot be used.
        """
        from shardproof.agent.chat import planning

        state = self.session.state
        model, settings = self.model(), state.settings
        mesh = ",".join(f"{name}={size}" for name, size in state.mesh.items()) or None
        return Parallelize.of(
            where,
            {name: getattr(model, name) for name in Words.model_fields}
            | {"mesh": mesh, "hardware": settings.hardware, "guard": settings.guard}
            | {"run": {"auto": None, "always": True, "never": False}[settings.run]}
            | {"inline": settings.inline, **planning.constraint_options(self.session), **more},
        )

    def captured(self) -> Captured:
        name = self.model().captured
        return self._once("captured", name, lambda: unpacked(self._text(name)))

    def facts(self) -> ModelFacts | None:
        """What the emitter knows; None for a translation, whose source is not edited."""
        from shardproof.synthesis.emit.facts import ModelFacts
        from shardproof.synthesis.frontends.torch.captured import load

        name = self.model().facts
        if not name:
            return None
        return self._once("facts", name, lambda: load(ModelFacts, self._text(name)))

    def translated(self) -> list[str] | None:
        """What is assumed of the code where the model is a translation; None where it is not."""
        model = self.session.state.model
        if self.session.state.subject != "model" or model is None or model.translated is None:
            return None
        return model.translated.assumptions

    def splits_loss(self) -> bool:
        """Whether the loss may be computed on split logits."""
        from shardproof.synthesis.emit import loss_obstacle

        facts = self.facts()
        return facts is None or loss_obstacle(facts) is None

    def keep(self, text: str) -> str:
        """Keep JSON as an artifact that does not say where the session's root lies."""
        return self.session.artifacts.keep(text.replace(self._root(), ROOT))

    def _text(self, name: str) -> str:
        return self.session.artifacts.text(name).replace(ROOT, self._root())

    def _root(self) -> str:
        return json.dumps(f"{self.session.root}/")[1:-1]

    # -- plans -------------------------------------------------------------------------------

    def space(self, make: Callable[[], Search]) -> Search:
        """The points of the search for what a plan would be chosen for now."""
        return self._once("space", self.planned_of(), make)

    def planned_of(self) -> str:
        """What a plan would be chosen for now."""
        state = self.session.state
        return key(
            self.model().captured,
            self.model().facts,
            state.mesh,
            state.settings.hardware,
            [w.model_dump() for w in state.constraints],
        )

    def made(self) -> Synthesis:
        """The plan with its programs; searched again after a resume.

        Raises:
            InputError: no plan, a plan for something else, or a search that comes out otherwise.
        """
        from shardproof.agent.chat import planning
        from shardproof.synthesis.planner.plan import to_json

        planned = self.session.state.planned
        if planned is None:
            raise InputError("there is no plan", hint=self.towards_plan())
        if planned.of != self.planned_of():
            raise InputError("the plan is for another model, mesh or constraints", hint="/plan")

        def again() -> Synthesis:
            with self.session.run.phase("plan again"):
                made = planning.search(self.session, planned.ideas)
            if self.session.artifacts.keep(to_json(made.plan)) != planned.plan:
                raise InputError("the search comes to another plan than before", hint="/plan")
            return made

        return self._once("made", planned.of, again)

    def towards_plan(self) -> str:
        """What is still to be said for a plan."""
        state = self.session.state
        steps = [
            *([] if state.model else ["/load path/model.py:Class"]),
            *([] if state.mesh else ["/mesh tp=2"]),
            "/plan",
        ]
        return ", then ".join(steps)

    def patch(self) -> Patch:
        """The plan as source.

        Raises:
            InputError: there is no plan, or it is one of a translation.
        """
        from shardproof.synthesis.emit import emit
        from shardproof.synthesis.emit.guarding import layouts

        facts = self.facts()
        if facts is None:
            raise InputError(
                "there is no patch: the plan is one of a translation, whose source is not edited",
                where=self.model().target,
                hint="/report writes plan, programs and certificate",
            )
        made = self.made()
        planned = self.session.state.planned
        assert planned is not None
        settings, lowered = self.session.state.settings, made.lowered
        watched = layouts(lowered.program, lowered.contract) if settings.guard else None
        of = key(planned.of, settings.guard, settings.inline)

        def write() -> Patch:
            return emit(facts, made.plan, self.session.root, watched, settings.inline)

        return self._once("patch", of, write)

    # -- programs ----------------------------------------------------------------------------

    def pair(self) -> Pair:
        """What verify, cex and repair are about.

        Raises:
            InputError: nothing was loaded, or there is no plan yet.
        """
        state = self.session.state
        if state.subject == "programs":
            return self._programs()
        if state.subject != "model":
            raise InputError(
                "nothing is loaded",
                hint="/load path/model.py:Class, or /load sequential S distributed D contract C",
            )
        made = self.made()
        assert state.planned is not None
        lowered = made.lowered
        consts = self.captured().consts
        return Pair(made.found.program, lowered.program, lowered.contract, consts, state.planned.of)

    def _programs(self) -> Pair:
        programs = self.session.state.programs
        missing = programs.missing()
        if missing:
            raise InputError(
                f"no {' and no '.join(missing)} is loaded",
                expected="a sequential program, a distributed program and a contract",
                hint=" ".join(["/load", *(f"{name} FILE" for name in missing)]),
            )
        parts = [getattr(programs, name) for name in KINDS]
        of = key(*(part.sha256 for part in parts))
        return self._once("programs", of, lambda: self._read(parts, of))

    def _read(self, parts: list[Source], of: str) -> Pair:
        from shardproof.verifier.text.contract import compose

        one, written = self.program(parts[0]), self.program(parts[1])
        stated = self.contract(parts[2], one, written)
        many, contract = compose(written, stated)
        return Pair(one, many, contract, {}, of, stated, written)

    def program(self, source: Source) -> Program:
        """The program in a file as it was read."""
        from shardproof.verifier.text.jsonio import loads
        from shardproof.verifier.text.parser import parse_text

        text = self.session.artifacts.text(source.sha256)
        read = loads if text.lstrip()[:1] in ("{", "[") else parse_text
        return read(text, source.path)

    def contract(self, source: Source, one: Program, many: Program) -> Stated:
        from shardproof.verifier.text.contract import load_contract

        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / Path(source.path).name
            path.write_text(self.session.artifacts.text(source.sha256), encoding="utf-8")
            try:
                return load_contract(path, one, many)
            except Exception as error:
                said = getattr(error, "args", ("",))[0]
                if isinstance(said, str) and str(path) in said:
                    error.args = (said.replace(str(path), source.path), *error.args[1:])
                raise

    # -- verdicts ----------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """The verdict on `pair`; proved or refuted again after a resume."""
        pair = self.pair()

        def judge() -> Verdict:
            from shardproof.synthesis.repair.diagnosis import verify

            with self.session.run.phase("verify") as phase:
                found = verify(
                    pair,
                    fixes=True,
                    relations=True,
                    progress=self.session.run.note,
                )
                phase.summary = verdicts.word(found)
                phase.facts.update(found.stats)
            return self._assuming(found)

        return self._once("verdict", pair.of, judge)

    def _assuming(self, verdict: Verdict) -> Verdict:
        """A proof about a translation says what is assumed of the code."""
        from shardproof.verifier.verdict import Proof

        more = self.translated()
        if more is None or not isinstance(verdict, Proof):
            return verdict
        return replace(verdict, assumptions=(*verdict.assumptions, *more))


def key(*parts: object) -> str:
    """One hash of everything that something was made from."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def packed(captured: Captured) -> str:
    """A captured model as one text, without what differs from run to run."""
    from shardproof.synthesis.frontends.torch import captured as format

    return format.dump(format.Captured, replace(captured, timings={}, peak_bytes=0))


def unpacked(text: str) -> Captured:
    """Read what `packed` wrote. Raises InputError for a text of another version."""
    from shardproof.synthesis.frontends.torch import captured as format

    try:
        return format.load(format.Captured, text)
    except ValueError:
        what = "the captured model was kept by another version of shardproof"
        raise InputError(what, hint="load it again") from None
