"""The role of a repairer: structured edits of a refuted program of the ranks.

The one-device program and the contract are shown and stay as they are: a reply can name a value of
the distributed program and an edit of the vocabulary, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardproof.agent.llm import replies, vocabulary
from shardproof.agent.llm.client import Form, Model
from shardproof.agent.llm.dialogue import SHOWN, Result, put
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.replies import Repair, ReplyError, read, schema
from shardproof.agent.llm.source import bare, boundary, excerpt
from shardproof.prompts import render
from shardproof.synthesis.repair.edits import KINDS, Edit, apply
from shardproof.synthesis.repair.prefix import Beside
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import KINDS as ATTRS
from shardproof.verifier.kernel.program.where import Where, ranks_where
from shardproof.verifier.text.parser import parse_attrs, to_text

FINDING = 6000
"""Characters of a finding that are told."""

BESIDE = 8000
"""Characters of values that are told beside each other."""

Accepts = Callable[[Sequence[Edit]], Program]
"""The program with some edits; `IRError` says why they are not taken."""


@dataclass(frozen=True)
class Earlier:
    """A reply of the same context, and what was found when it was judged."""

    reply: str
    finding: str


@dataclass(frozen=True)
class Task:
    """A program that is not proved, and what is known about why."""

    sequential: Program
    """The one-device program, for reading only."""
    distributed: Program
    finding: str
    """As much of the verdict as is told."""
    contract: str
    """As text, for reading only."""
    accepts: Accepts
    """Applies edits and holds them to what is fixed."""
    refuted: tuple[tuple[str, str], ...] = ()
    """`str` of a `Repaired` that was tried, and what is right and wrong after it."""
    banned: tuple[str, ...] = ()
    """Tactics that ended in the same finding too often (`Edit.tactic`)."""
    earlier: tuple[Earlier, ...] = ()
    beside: Beside = field(default_factory=Beside)
    """What is told of which value is which piece; both programs are cut around where it ends."""
    most: int = 4
    budget: int = 40_000
    """Characters of program in the prompt; half as many of the one-device program."""


@dataclass(frozen=True)
class Repaired:
    """An edited program, not yet judged."""

    program: Program
    edits: tuple[Edit, ...]
    diagnosis: str
    text: str = ""
    """The reply as it came."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.edits))


def repair(model: Model, task: Task) -> Result[Repaired]:
    """Ask for edits. The edited program has the inputs and outputs that it had."""
    form = Form("repair", schema(Repair, {"Edit.edit": list(KINDS)}))
    word = boundary()
    prompt = render(
        "repair",
        boundary=word,
        mesh=", ".join(f"{name}={size}" for name, size in task.distributed.mesh.dims),
        edits=vocabulary.edits(),
        ops=vocabulary.insertable_ops(),
        contract=clean(task.contract).strip(),
        sequential=_cut(task.sequential, task.budget // 2, task.beside.theirs),
        program=_cut(task.distributed, task.budget, task.beside.broken),
        beside=excerpt(clean("\n".join(task.beside.values)), BESIDE, f"%{task.beside.broken}"),
        finding=excerpt(clean(task.finding), FINDING),
        refuted=[{"edits": one_line(e), "why": one_line(w)} for e, w in task.refuted],
        banned=[one_line(tactic) for tactic in task.banned],
        most=task.most,
    )
    earlier = [message for said in task.earlier for message in _again(said, word)]
    return put(model, prompt, form, lambda reply: _read(task, reply.text), earlier)


def _cut(program: Program, budget: int, value: str) -> str:
    """A program as text: its inputs, and what surrounds a value."""
    return excerpt(clean(to_text(bare(program))).strip(), budget, f"%{value} =" if value else "")


def _again(said: Earlier, word: str) -> list[dict[str, str]]:
    """What the model said, and what was found."""
    found = excerpt(clean(said.finding), FINDING)
    asked = (
        "Those edits were applied to the program as first shown, and it is still wrong:\n"
        f"<<< {word}\n{found}\n{word} >>>\n"
        "Answer with other edits of the program as first shown. Edits that were right so far may "
        "stay among them."
    )
    reply = {"role": "assistant", "content": said.reply[:SHOWN]}
    return [reply, {"role": "user", "content": asked}]


def _read(task: Task, text: str) -> Repaired:
    reply = read(Repair, text)
    if not reply.edits:
        raise ReplyError(["edits: empty"])
    if len(reply.edits) > task.most:
        raise ReplyError([f"edits: {len(reply.edits)}; at most {task.most}"])
    program = task.distributed
    edits: list[Edit] = []
    for index, wire in enumerate(reply.edits):
        try:
            edit = _edit(program, wire)
            if edit.tactic in task.banned:
                raise IRError(f"{edit.tactic} was tried too often; take another kind of edit")
            program = apply(program, edit)
        except (IRError, RecursionError) as error:
            raise ReplyError([f"edits[{index}]: {one_line(str(error))}"]) from None
        edits.append(edit)
    try:
        program = task.accepts(edits)
    except (IRError, RecursionError) as error:
        raise ReplyError([f"edits: {one_line(str(error))}"]) from None
    found = Repaired(program, tuple(edits), reply.diagnosis, text)
    tried = dict(task.refuted).get(str(found))
    if tried is not None:
        raise ReplyError([f"edits: these alone were tried before; {tried}"])
    return found


_NEEDED = {
    "after": ("op",),
    "replace": ("op",),
    "set": ("attrs",),
    "set_alike": ("attrs",),
    "rewire": ("operands",),
    "swap": ("operands",),
    "output": ("operands",),
}
"""Fields that an edit cannot do without."""
_ONE_OPERAND = frozenset({"rewire", "output"})


def _edit(program: Program, wire: replies.Edit) -> Edit:
    """An edit whose fields are those of its kind and name what there is.

    Raises:
        IRError: which field, and why not.
    """
    if wire.edit not in KINDS:
        raise IRError(f"unknown edit {wire.edit!r}; expected one of {', '.join(KINDS)}")
    scope, value, around = _scope(program, _name(wire.value), wire.edit == "output")
    operands = tuple(map(_name, wire.operands))
    attrs = parse_attrs(wire.attrs, wire.op or wire.edit, "attrs")
    edit = Edit(
        wire.edit,
        value,
        wire.op.strip(),
        tuple(attrs.items()),
        operands,
        wire.index,
        tuple(map(_name, wire.uses)),
        _where(program, wire.where),
        scope,
    )
    taken = KINDS[wire.edit].fields
    for part in ("op", "attrs", "operands", "index", "uses", "where"):
        if getattr(edit, part) and part not in taken:
            raise IRError(f"{wire.edit} takes no {part}")
    for part in _NEEDED.get(wire.edit, ()):
        if not getattr(edit, part):
            raise IRError(f"{wire.edit} needs {part}")
    if wire.edit in _ONE_OPERAND and len(operands) != 1:
        raise IRError(f"{wire.edit} takes one operand, got {len(operands)}")
    if not 0 <= wire.index < 1000:
        raise IRError(f"index {wire.index}: expected the number of an operand, from 0")
    for name in operands:
        if name not in around.types:
            raise IRError(f"no value %{name} there")
    if edit.op and lookup(edit.op).kind == "control":
        raise IRError(f"{edit.op} has a body, which an edit cannot give")
    for name, attr in attrs.items():
        if name not in ATTRS:
            raise IRError(f"no op has an attribute {name!r}")
        if not ATTRS[name].holds(attr):
            raise IRError(f"{name} is {ATTRS[name].says}")
    return edit


def _name(text: str) -> str:
    return text.strip().removeprefix("%")


def _scope(program: Program, value: str, is_output: bool) -> tuple[tuple[str, ...], str, Program]:
    """The blocks that hold a value, its name there, and the innermost block."""
    if is_output:
        if value not in {output_key(o) for o in program.outputs}:
            raise IRError(f"no output {value!r}; an output is named role:path")
        return (), value, program
    path: list[str] = []
    while value not in program.types:
        holders = ((n, out) for n in program.nodes if n.body is not None for out in n.outputs)
        found = next(((n, out) for n, out in holders if value.startswith(f"{out}/")), None)
        if found is None or found[0].body is None:
            raise IRError(f"the program has no value %{value}")
        path.append(found[1])
        program, value = found[0].body, value.removeprefix(f"{found[1]}/")
    return tuple(path), value, program


def _where(program: Program, text: str) -> Where:
    """The ranks that `pp=0` or `pp=[0, 1], tp=0` names."""
    chosen: dict[str, tuple[int, ...]] = {}
    for name, at in parse_attrs(text, "on", "where").items():
        whole = at if isinstance(at, tuple) else (at,)
        size = dict(program.mesh.dims).get(name, 0)
        good = [i for i in whole if isinstance(i, int) and 0 <= i < size]
        if not good or len(good) != len(whole):
            raise IRError(f"where: {name} is not a mesh dim, or it has no such coordinate")
        chosen[name] = tuple(good)
    return ranks_where(program.mesh, chosen)
