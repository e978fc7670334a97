"""The tasks: what is asked, what it begins with, and what must be true of session and files then.

A check reads the state, the files and the events of what ran, and computes what it compares with by
itself. Where a question is answered in words, the words must hold what is true, and something of
the session must have been looked at; words alone solve nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from shardproof.agent.chat import planning
from shardproof.agent.chat.engine import Session
from shardproof.agent.run import events
from shardproof.synthesis.planner.why import why_not
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Witness


@dataclass(frozen=True)
class Seen:
    """A session after a task."""

    session: Session
    before: Mapping[str, bytes]
    """Files when it began."""
    after: Mapping[str, bytes]
    events: list[events.Event] = field(default_factory=list[events.Event])
    """Of the inputs of the task."""

    def of(self, kind: type[events.Event]) -> list[events.Event]:
        return [e for e in self.events if isinstance(e, kind)]

    @property
    def answer(self) -> str:
        said = self.of(events.Said)
        return "\n".join(e.text for e in said if isinstance(e, events.Said) and e.by == "model")

    def looked(self, *names: str) -> bool:
        """Whether one of these commands was run."""
        ran = [e.command for e in self.events if isinstance(e, events.CommandRun)]
        return any(line[1:].split()[0] in names for line in ran)


Check = Callable[[Seen], str]
"""Why a task is not solved; empty where it is."""


@dataclass(frozen=True)
class Task:
    """One task."""

    name: str
    base: str
    asked: tuple[str, ...]
    """What the owner types, an input each."""
    check: Check
    writes: bool = False
    """The owner's files may change; else they must not."""


def unsolved(task: Task, seen: Seen) -> str:
    """Why a task is not solved; empty where it is."""
    if not task.writes and seen.before != seen.after:
        return "files changed"
    try:
        return task.check(seen)
    except Exception as error:  # noqa: BLE001  (what is not there to be read is not solved)
        return f"{type(error).__name__}: {error}"


# -- parts of checks -------------------------------------------------------------------------


def both(*checks: Check) -> Check:
    return lambda seen: next((why for check in checks if (why := check(seen))), "")


def true(what: str, test: Callable[[Seen], bool]) -> Check:
    return lambda seen: "" if test(seen) else f"not so: {what}"


def planned(**dims: int) -> Check:
    """The plan is for the session as it is now, and, where dims are given, for that mesh."""

    def check(seen: Seen) -> str:
        state, workspace = seen.session.state, seen.session.workspace
        if state.planned is None or state.planned.of != workspace.planned_of():
            return "there is no plan for the session as it is"
        if dims and {n: s for n, s in state.mesh.items() if s > 1} != dims:
            return f"the mesh is {state.mesh}"
        return ""

    return check


def ranks(count: int) -> Check:
    return true(f"{count} ranks", lambda s: prod(s.session.state.mesh.values()) == count)


def style(path: str, test: Callable[[str], bool]) -> Check:
    def held(seen: Seen) -> bool:
        return test(seen.session.workspace.made().found.best.point.style(path))

    return true(f"the style of {path}", held)


def constraint(kind: str, words: str, there: bool = True) -> Check:
    def held(seen: Seen) -> bool:
        found = [
            w.words.replace(" ", "=") for w in seen.session.state.constraints if w.kind == kind
        ]
        return (words in found) == there

    return true(f"{'a' if there else 'no'} {kind} {words}", held)


def fits(limit: float) -> Check:
    def held(seen: Seen) -> bool:
        return seen.session.workspace.made().found.best.memory_bytes <= limit

    return true(f"{limit:.3g} bytes a rank", held)


def setting(name: str, value: object) -> Check:
    return true(f"{name} is {value}", lambda s: getattr(s.session.state.settings, name) == value)


def judged(verdict: str) -> Check:
    """This verdict was reached on what the session is about now."""

    def held(seen: Seen) -> bool:
        found = seen.session.state.judged
        of = seen.session.workspace.pair().of
        return found is not None and found.verdict == verdict and found.of == of

    return true(f"it is {verdict}", held)


def looked(*names: str) -> Check:
    return true(f"one of {', '.join(names)} was run", lambda s: s.looked(*names))


def shown(seen: Seen) -> str:
    return "" if seen.of(events.PatchShown) else "no diff was shown"


NUMBER = re.compile(r"(\d[\d,]*\.?\d*(?:e-?\d+)?)\s*([a-zA-Zµ]*)")
UNITS = {
    "s": 1.0, "seconds": 1.0, "second": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "b": 1.0,
    "bytes": 1.0, **{f"{p}b": 10.0 ** (3 * n) for n, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024.0**n for n, p in enumerate("kmgt", 1)},
}  # fmt: skip


def figures(text: str) -> list[float]:
    """The quantities of a text, in seconds or bytes."""
    found = (NUMBER.match(m[0]) for m in NUMBER.finditer(text))
    return [
        float(m[1].replace(",", "")) * UNITS[m[2].lower()]
        for m in found
        if m and m[2].lower() in UNITS
    ]


def says(*amounts: Callable[[Seen], float]) -> Check:
    """The answer holds these quantities, to 3 % (binary units taken for decimal ones too)."""

    def check(seen: Seen) -> str:
        said = figures(seen.answer)
        for amount in amounts:
            want = amount(seen)
            if not any(abs(f / want - 1) < 0.03 for f in said):
                return f"the answer does not say {want:.4g}"
        return ""

    return check


def tells(truth: Callable[[Seen], str], least: int = 3) -> Check:
    """The answer holds so many words of what is true that the question does not."""

    def words(text: str) -> set[str]:
        return set(re.findall(r"[a-z_*.]{4,}|\d[\d,.]*", text.lower()))

    def check(seen: Seen) -> str:
        asked = " ".join(e.input for e in seen.events if isinstance(e, events.StepStarted))
        wanted = words(truth(seen)) - words(asked)
        found = wanted & words(seen.answer)
        enough = len(found) >= min(least, len(wanted))
        return "" if enough and wanted else f"of what is true the answer says {sorted(found)}"

    return check


def names(*wanted: str) -> Check:
    """The answer has each of these words."""
    return true(
        f"the answer names {', '.join(wanted)}", lambda s: all(w in s.answer for w in wanted)
    )


# -- what is true ----------------------------------------------------------------------------


def step_s(seen: Seen) -> float:
    return seen.session.workspace.made().found.best.estimate.step_s


def memory(seen: Seen) -> float:
    return float(seen.session.workspace.made().plan.estimates["memory_bytes_after"])


def alone(seen: Seen) -> float:
    return float(seen.session.workspace.made().plan.estimates["memory_bytes_before"])


def sent(seen: Seen) -> float:
    return float(seen.session.workspace.made().plan.estimates["comm_bytes"])


def price(seen: Seen, **dims: int) -> events.PlanJudged:
    return planning.priced(seen.session, Mesh(tuple(dims.items())))


MESHES = ({"tp": 4}, {"dp": 4}, {"dp": 2, "tp": 2})


def fastest(seen: Seen) -> str:
    """The mesh of the session is the fastest of the three."""
    best = min(MESHES, key=lambda dims: price(seen, **dims).step_s or 0.0)
    return planned(**best)(seen)


def faster(seen: Seen) -> str:
    """The answer calls the faster mesh so, and not the other."""
    times = {"tp=4": price(seen, tp=4).step_s, "dp=2,tp=2": price(seen, dp=2, tp=2).step_s}
    first, second = sorted(times, key=lambda name: times[name] or 0.0)
    text = re.sub(
        r"tp=2 (with|and|,) ?dp=2|dp=2, tp=2|dp=2 (with|and) tp=2", "dp=2,tp=2", seen.answer
    )
    word = r"(is|are|wins|faster|fastest|quicker)"
    said = rf"{first}\b[^.;:=]{{0,30}}\b{word}|{word}[^.;:]{{0,30}}{first}\b"
    other = rf"{second}\b[^.;:=]{{0,30}}\b{word}"
    right = re.search(said, text) and not re.search(other, text)
    return "" if right else f"the answer does not call {first} the faster"


def smallest(seen: Seen) -> str:
    """The smallest of three meshes that needs at most 60 GB."""
    for tp in (2, 4, 8):
        if (price(seen, tp=tp).memory_bytes or 0) <= 60e9:
            return planned(tp=tp)(seen)
    return "none of them fits"


def reason(path: str, other: str) -> Callable[[Seen], str]:
    """Why a module does not have a style."""

    def truth(seen: Seen) -> str:
        session = seen.session
        found = why_not(planning.judge(session, session.workspace.made()), path, other)
        return "\n".join(found.lines())

    return truth


def placed(path: str) -> Callable[[Seen], str]:
    def truth(seen: Seen) -> str:
        plan = seen.session.workspace.made().plan
        found = plan.module(path)
        used = [f"{u.op} over {u.mesh_dim} {u.bytes}" for u in plan.collectives if u.where == path]
        return " ".join([found.style if found else "", *used])

    return truth


def assumed(seen: Seen) -> str:
    found = seen.session.workspace.verdict()
    assert isinstance(found, Proof)
    return " ".join([*found.scope, *found.assumptions])


def counterexample(seen: Seen) -> Counterexample:
    found = seen.session.workspace.verdict()
    assert isinstance(found, Counterexample)
    return found


def place(seen: Seen) -> str:
    found = counterexample(seen).location
    assert found is not None
    line = str(found.source).partition(" ")[0]
    return (
        ""
        if line in seen.answer or f"%{found.text.split()[0].strip('%')}" in seen.answer
        else (f"the answer names neither {line} nor the value")
    )


def considered(seen: Seen) -> str:
    """At least two plans that were judged are named."""
    rows = [e.name for e in seen.events if isinstance(e, events.PlanJudged)]
    named = [name for name in rows if name in seen.answer]
    return "" if len(set(named)) >= 2 else f"of {len(rows)} plans the answer names {named}"


def proved(text: str) -> bool:
    """Whether a program of the ranks is proved under the one-device program and contract."""
    from shardproof.synthesis.repair.diagnosis import verify
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.text.contract import compose, load_contract
    from shardproof.verifier.text.parser import parse_text

    one = parse_text(Path("one.txt").read_text(), "one.txt")
    many = parse_text(text, "wrong.txt")
    stated = load_contract(Path("contract.txt"), one, many)
    return isinstance(verify(Problem(one, *compose(many, stated))), Proof)


def repaired(seen: Seen) -> str:
    kept = seen.session.state.programs.repaired
    if not kept:
        return "no repair is kept"
    return "" if proved(seen.session.artifacts.text(kept)) else "the repair is wrong"


def mended(seen: Seen) -> str:
    text = seen.after["wrong.txt"]
    changed = text != seen.before["wrong.txt"]
    return "" if changed and proved(text.decode()) else "the file is not repaired"


def refused(seen: Seen) -> str:
    """The answer is no, and says what the plan, or the leanest that was found, needs."""
    found = seen.session.workspace.made().found
    held = {float(c.memory_bytes) for c in (found.best, *found.others)}
    right = any(abs(f / need - 1) < 0.03 for f in figures(seen.answer) for need in held)
    no = re.search(r"(?i)\b(no|not|cannot)\b|n't\b", seen.answer)
    return "" if right and no else "the answer does not say what is needed"


def both_numbers(seen: Seen) -> str:
    witness = counterexample(seen).witness
    assert isinstance(witness, Witness)
    return f"{witness.got:g} {witness.expected:g}"


def patched(seen: Seen) -> bool:
    return b"def parallelize(" in seen.after["nanogpt.py"]


def programs(verdict: str, many: str) -> Check:
    def held(seen: Seen) -> bool:
        source = seen.session.state.programs.distributed
        return source is not None and source.path == many

    return both(true(f"{many} is loaded", held), judged(verdict))


def target(seen: Seen) -> str:
    model = seen.session.state.model
    if model is None or model.target != "nanogpt.py:GPT":
        return "the class is not loaded"
    rows = {i.shape[0] for i in seen.session.workspace.captured().facts.inputs if i.shape}
    return "" if rows == {4} else f"the batch is {rows}"


def written(seen: Seen) -> str:
    new = sorted(set(seen.after) - set(seen.before))
    wanted = {"out/report.html", "out/patch.diff", "out/plan.json"}
    return "" if wanted <= set(new) else f"written: {', '.join(new[:8])}"


CFC, CPROJ = "h.*.mlp.c_fc", "h.*.mlp.c_proj"


def _tasks() -> Iterable[Task]:
    def task(name: str, base: str, *asked: str, check: Check, writes: bool = False) -> Task:
        return Task(name, base, asked, check, writes)

    yield task("four", "gpt", "plan it for 4 GPUs", check=both(planned(), ranks(4)))
    yield task(
        "pin", "gpt", f"pin {CFC} to column and plan it for 4 GPUs",
        check=both(planned(), ranks(4), constraint("pin", f"{CFC}=column"),
                   style(CFC, lambda s: s == "column")),
    )  # fmt: skip
    yield task(
        "ban", "gpt planned", f"never split {CPROJ} by rows, and plan again",
        check=both(planned(), style(CPROJ, lambda s: s != "row")),
    )  # fmt: skip
    yield task(
        "unpin", "gpt pinned", f"drop the pin on {CFC} and plan again",
        check=both(planned(), true("no pin", lambda s: not s.session.state.constraints)),
    )  # fmt: skip
    yield task(
        "turns", "gpt", f"pin {CFC} to column", "now plan it for 2 GPUs with tensor parallelism",
        "take that pin away again, and plan it once more",
        check=both(planned(tp=2), true("no pin", lambda s: not s.session.state.constraints)),
    )  # fmt: skip
    yield task(
        "fit", "llama", "make it fit in 40 GB on 8 GPUs",
        check=both(planned(), ranks(8), fits(40e9)),
    )  # fmt: skip
    yield task(
        "cards", "llama planned", "the cluster has H200 cards; plan it for these",
        check=both(planned(), setting("hardware", "h200")),
    )  # fmt: skip
    yield task(
        "sequence", "llama planned", "plan it without sequence parallelism",
        check=both(planned(), constraint("constrain", "no_sequence_parallel"),
                   true("the stream is whole", lambda s: s.session.workspace.made().found.best.point
                        .stream == "R")),
    )  # fmt: skip
    yield task(
        "logits", "llama planned", "keep the logits of the loss whole, and plan again",
        check=both(planned(), constraint("constrain", "no_loss_parallel")),
    )  # fmt: skip
    yield task(
        "data", "gpt", "use data parallelism alone on 2 GPUs and plan it", check=planned(dp=2)
    )
    yield task(
        "grid", "gpt", "I have 4 GPUs: two replicas of the data, each split in two by tensor "
        "parallelism. Plan that.", check=planned(dp=2, tp=2),
    )  # fmt: skip
    yield task(
        "table", "gpt", "I want the embedding wte whole on every rank, on 2 GPUs with tensor "
        "parallelism; plan it", check=both(planned(tp=2), style("wte", lambda s: s == "replicate")),
    )  # fmt: skip
    yield task(
        "fastest", "gpt", "compare tp=4, dp=4 and dp=2,tp=2 by price, take the fastest and plan it",
        check=fastest,
    )  # fmt: skip
    yield task(
        "smallest", "llama", "which is the smallest of tp=2, tp=4 and tp=8 that needs at most "
        "60 GB a rank? take it and plan it", check=smallest,
    )  # fmt: skip
    yield task(
        "too small", "llama planned", "would it fit in 1 GB per GPU on this mesh? if not, how much "
        "does it need?", check=refused,
    )  # fmt: skip
    yield task(
        "time", "llama planned", "how long does a step take now?",
        check=says(step_s),
    )  # fmt: skip
    yield task(
        "memory", "llama planned", "how much memory does a rank need, and how much would one "
        "device need alone?", check=says(memory, alone),
    )  # fmt: skip
    yield task(
        "traffic", "gpt planned", "how many bytes does each rank send in a step?",
        check=says(sent),
    )  # fmt: skip
    yield task("faster", "gpt", "which is faster, tp=4 or tp=2 with dp=2?",
               check=both(looked("price", "plan", "mesh"), faster))  # fmt: skip
    yield task(
        "why whole", "llama planned", "why is model.norm not split by columns?",
        check=both(looked("why-not"), tells(reason("model.norm", "column"))),
    )  # fmt: skip
    yield task(
        "why not", "gpt planned", f"why is {CFC} not row?",
        check=both(looked("why-not"), tells(reason(CFC, "row"))),
    )  # fmt: skip
    yield task(
        "how", "llama planned", "how is lm_head placed, and what is sent for it?",
        check=tells(placed("lm_head")),
    )  # fmt: skip
    yield task(
        "others", "gpt planned", "what else was considered, and why was it not taken?",
        check=considered,
    )  # fmt: skip
    yield task("right", "gpt planned", "is the plan right?", check=judged("proved"))
    yield task(
        "big", "llama planned", "is the plan of this model proved? if not yet, prove it",
        check=judged("proved"),
    )  # fmt: skip
    yield task(
        "assumed", "gpt proved", "what was not proved, and what does the proof assume?",
        check=tells(assumed, 5),
    )  # fmt: skip
    yield task("module", "wrong", "is my module right?", check=judged("refuted"))
    yield task("where", "wrong", "where does it go wrong?", check=both(judged("refuted"), place))
    yield task(
        "numbers", "refuted", "what does a rank hold where it is wrong, and what should it be?",
        check=tells(both_numbers, 2),
    )  # fmt: skip
    yield task("repair", "wrong", "repair this and show the diff", check=both(repaired, shown))
    yield task(
        "edits", "refuted", "how many edits does it take to repair it?",
        check=both(repaired, true("one edit", lambda s: bool(re.search(r"\b(1|one)\b", s.answer)))),
    )  # fmt: skip
    yield task("mend", "refuted", "fix it in the file", check=mended, writes=True)
    yield task(
        "undo", "gpt applied", "undo that", writes=True,
        check=true("the file is as before", lambda s: patched(Seen(s.session, s.after, s.before))
                   and s.after["nanogpt.py"] == (BEFORE / "nanogpt.py").read_bytes()),
    )  # fmt: skip
    yield task(
        "redo", "gpt undone", "I changed my mind: put the change back", writes=True,
        check=true("the file is patched", patched),
    )  # fmt: skip
    yield task(
        "apply", "gpt proved", "write it into my file", writes=True,
        check=both(true("the file is patched", patched), planned(tp=2)),
    )  # fmt: skip
    yield task(
        "show", "gpt proved", "show me what you would change, and leave my files alone",
        check=shown,
    )  # fmt: skip
    yield task("report", "gpt proved", "write a report of it into out/", check=written, writes=True)
    yield task("load", "empty", "load the class GPT of nanogpt.py with a batch of 4", check=target)
    yield task(
        "wrong", "empty", "does wrong.txt do the same as one.txt on one device? the contract is "
        "contract.txt", check=programs("refuted", "wrong.txt"),
    )  # fmt: skip
    yield task(
        "same", "empty", "does right.txt do the same as one.txt on one device? the contract is "
        "contract.txt", check=programs("proved", "right.txt"),
    )  # fmt: skip


BEFORE = Path(__file__).resolve().parents[2] / "examples"
TASKS = tuple(_tasks())
