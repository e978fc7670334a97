"""`/verify`, `/explain`, `/cex` and `/repair`: what was decided, and why."""

from dataclasses import replace

from shardproof.agent.actions.programs import Repairing
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome
from shardproof.agent.verdict import verdicts as shown
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

GROUP = "verdicts"


@command(group=GROUP, effect="reads", examples=("/verify",))
def verify(session: Session, words: Words) -> Outcome:
    """Prove the plan, or the loaded programs, or refute them; a proof is checked a second time.

    The certificate of a proof is replayed by a checker that shares no rule with the prover.
    """
    from shardproof.agent.verdict.certificates import second

    pair = session.workspace.pair()
    verdict, _ = second(session.run, session.workspace.verdict(), pair)
    outcome = shown.report(session.run, replace(verdict, relations=()))
    session.judged(pair.of)
    return _next(session, outcome)


def _next(session: Session, outcome: Outcome) -> Outcome:
    """Say what a verdict leads to."""
    model = session.state.subject == "model"
    steps = {
        "proved": "the plan is proved, its patch not yet: /diff shows it, /apply proves and writes",
        "refuted": "/cex steps through it, /repair looks for the fewest edits",
        "unknown": "/explain says what is missing, /repair looks for edits that are proved",
    }
    if session.workspace.translated():
        steps["proved"] = "/report writes plan, programs and certificate"
    if outcome.verdict != "proved" or model:
        session.say(f"next: {steps[outcome.verdict]}")
    return outcome


@command(
    "[VALUE | MODULE]",
    group=GROUP,
    effect="reads",
    owners=("model",),
    options={"model": False},
    free=True,
    completes=("module",),
    examples=("/explain", "/explain %y", "/explain down", "/explain --model why only one rank?"),
)
def explain(session: Session, words: Words) -> Outcome:
    """Explain the verdict; what a value of the ranks was found to be; why a module is placed so.

    With --model, a language model puts the verdict in words; the verdict stays what it is.
    """
    if words.has("model"):
        from shardproof.agent.chat import conversation as talk

        return talk.explained(session, " ".join(words.words))
    if not words.words:
        return session.say(_explained(session.workspace.verdict()))
    name = words.words[0]
    if not name.startswith("%") and session.state.subject == "model":
        return session.say(_module(session, name))
    return session.say(_value(session, name.removeprefix("%")))


def _explained(verdict: Verdict) -> str:
    match verdict:
        case Proof():
            lines = ["proved, for", *(f"  {line}" for line in verdict.scope)]
            if verdict.assumptions:
                lines += ["assuming", *(f"  {line}" for line in verdict.assumptions)]
            lines.append(f"{len(verdict.relations)} values of the ranks related, each by a rule")
            return "\n".join(lines)
        case Counterexample():
            head = ["refuted: " + shown.message(verdict)]
            if verdict.wrong_outputs:
                head.append("wrong outputs: " + ", ".join(verdict.wrong_outputs[:8]))
        case Unknown():
            head = ["unknown: " + shown.message(verdict)]
    place = shown.place(verdict)
    return "\n".join([*head, *([f"at {place}"] if place else [])])


def _value(session: Session, name: str) -> str:
    import difflib

    verdict = session.workspace.verdict()
    for relation in verdict.relations:
        if relation.value == name:
            return shown.shown(relation)
    near = difflib.get_close_matches(name, [r.value for r in verdict.relations], 4, 0.4)
    raise InputError(
        f"the ranks have no value %{name}",
        where="/explain",
        expected=", ".join(f"%{n}" for n in near) or "a value of the program of the ranks",
    )


def _module(session: Session, path: str) -> str:
    import difflib

    from shardproof.synthesis.frontends.torch.rolling.paths import covers, one_of, stacked

    plan = session.workspace.made().plan
    known = {p.rpartition(".")[0] for p in plan.params} | {m.path for m in plan.modules}
    if path not in known:  # the layers of a repeated block are planned as one
        path = next((p for p in sorted(known) if covers(p, path)), path)
    found = plan.module(path)
    params = {p: at for p, at in plan.params.items() if p.rpartition(".")[0] == path}
    if found is None and not params:
        near = difflib.get_close_matches(path, known, 4, 0.4) or sorted(known)[:6]
        raise InputError(
            f"the plan has no module {path!r}", where="/explain", expected=", ".join(near)
        )
    lines = [f"{path}: left whole on every rank"]
    if found is not None:
        lines = [f"{path} ({found.kind}): {found.style}, {found.input} -> {found.output}"]
        lines += [f"  {found.reason}"] if found.reason else []
    for name, placed in params.items():
        lines.append(f"  {name}: " + " ".join(f"{p}@{dim}" for dim, p in placed.items()))
    for use in plan.collectives:
        if use.where == path or (stacked(path) and one_of(use.where) == one_of(path)):
            lines.append(
                f"  {use.phase}: {use.op} over {use.mesh_dim}, {use.bytes:,} bytes x {use.count}"
                f": {use.reason}"
            )
    return "\n".join(lines)


@command(
    "[next | back | first | N]",
    group=GROUP,
    effect="reads",
    completes=("value",),
    examples=("/cex", "/cex next", "/cex 0"),
)
def cex(session: Session, words: Words) -> Outcome:
    """Step through a counterexample, rank by rank: what each holds where the programs part.

    The first step is the finding; then one step a rank; a run that goes wrong is stepped through
    event by event.
    """
    from shardproof.agent.chat import steps

    verdict = session.workspace.verdict()
    if not isinstance(verdict, Counterexample):
        raise InputError(
            f"there is no counterexample: the verdict is {shown.word(verdict)}", where="/cex"
        )
    with session.run.phase("replay"):
        found = steps.of(session.workspace.pair(), verdict)
    at = _at(words, session.state.at if session.state.judged else 0, len(found))
    session.change(at=at + 1)
    rest = (
        f"\n/cex next: {at + 2} of {len(found)}"
        if at + 1 < len(found)
        else "\nthe last step; /cex first begins again"
    )
    return session.say(f"{at + 1} of {len(found)}: {found[at]}{rest}")


def _at(words: Words, now: int, count: int) -> int:
    word = words.words[0] if words.words else "next"
    where = {"next": now, "back": now - 2, "first": 0, "last": count - 1}
    if word not in where and not word.isdecimal():
        raise InputError("no such step", where="/cex", expected="next, back, first, last, or N")
    at = where[word] if word in where else int(word)
    return max(0, min(at, count - 1))


@command(
    "",
    group=GROUP,
    effect="reads",
    owners=("model",),
    options={"model": False},
    takes=(Repairing, ("max_edits", "seconds", "rounds", "feedback")),
    examples=("/repair", "/repair --edits 2"),
)
def repair(session: Session, words: Words) -> Outcome:
    """Repair the program of the ranks: the fewest edits after which it is proved.

    The one-device program and the contract stay as they are. With --model, a language model is
    asked for edits where the search finds none; what it answers is proved or thrown away.
    """
    from shardproof.agent.chat import repairs as repairing

    return repairing.fix(session, words)
