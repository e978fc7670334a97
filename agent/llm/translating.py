"""The role of a translator: source that cannot be captured, to a one-device program.

What comes back is a guess about code. It is compared with the code, values and gradients on random
inputs, before anything is proved from it; that is not done here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardproof.agent.llm import vocabulary
from shardproof.agent.llm.answers import Usage
from shardproof.agent.llm.client import Form, Model
from shardproof.agent.llm.dialogue import Malformed, Result, put
from shardproof.agent.llm.hygiene import clean, one_line
from shardproof.agent.llm.replies import ReplyError, Translation, Unsupported, read, schema
from shardproof.agent.llm.source import boundary, prepared
from shardproof.agent.run.errors import InputError
from shardproof.prompts import Rendered, render
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Input, Node, Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.kernel.program.where import EVERYWHERE
from shardproof.verifier.text.parser import parse_text, to_text

FORM = Form("translation", schema(Translation))
MOST_NODES = 20_000


@dataclass(frozen=True)
class Task:
    """What is to be translated. The inputs and outputs are fixed by the caller."""

    name: str
    source: str
    file: str
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, str], ...]
    """Role and path of each, in order."""
    problem: str = ""
    """Why capture did not work."""
    budget: int = 60_000
    """Characters of source in the prompt."""
    free: bool = False
    """The class could not be built: parameters and outputs are for the translation to declare."""
    refuted: tuple[str, ...] = ()
    """What was tried before in vain, a fact each."""


@dataclass(frozen=True)
class Turn:
    """A translation that was given, and what is wrong with it."""

    program: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Translated:
    """A program that is well formed and has the inputs and outputs asked for, and no more."""

    program: Program | None
    """None where the model said what it could not express."""
    unsupported: tuple[Unsupported, ...] = ()
    text: str = ""
    """The program as the model wrote it."""


def translate(
    model: Model, task: Task, turns: Sequence[Turn] = (), prompt: Rendered | None = None
) -> Result[Translated]:
    """Ask for a program. It runs on one device, communicates nothing, and names no file.

    `turns` are what was answered to the same `prompt` before, and what is wrong with each.
    """
    if prompt is None:
        try:
            prompt = prompted(task)
        except InputError as error:
            return Malformed((f"{error.where}: {error.what}",), Usage())
    said = [message for turn in turns for message in _answered(turn)]
    return put(model, prompt, FORM, lambda reply: read_reply(task, reply.text), said)


def _answered(turn: Turn) -> list[dict[str, str]]:
    word = boundary()
    told = "\n".join(f"- {one_line(problem, 400)}" for problem in turn.problems[:12])
    asked = (
        "That program was run beside the source on the same numbers. What was found, as data:\n"
        f"<<< {word}\n{told}\n{word} >>>\n"
        "First work out which line of the source the program departs from. Then send the whole "
        "program again, corrected, in the same form."
    )
    reply = json.dumps({"program": turn.program, "unsupported": []})
    return [{"role": "assistant", "content": reply}, {"role": "user", "content": asked}]


def prompted(task: Task) -> Rendered:
    """What would be sent.

    Raises:
        InputError: source that is not Python.
    """
    source = prepared(task.source, task.file, task.budget)
    return render(
        "translate",
        boundary=boundary(),
        name=task.name,
        inputs=_declared(task),
        outputs=[f'{role} %VALUE "{clean(path)}"' for role, path in task.outputs],
        ops=vocabulary.one_device_ops(),
        source=source.text,
        cut=source.cut,
        problem=one_line(task.problem),
        free=task.free,
        refuted=[one_line(fact, 400) for fact in task.refuted],
    )


def _declared(task: Task) -> list[str]:
    """The input lines as the text form has them."""
    empty = Program(task.name, task.inputs, (), (), {i.name: i.type for i in task.inputs})
    return [clean(line).strip() for line in to_text(empty).split("\n")[1 : 1 + len(task.inputs)]]


def read_reply(task: Task, text: str) -> Translated:
    """The translation in a reply.

    Raises:
        ReplyError: no program, or none that has the inputs and outputs of the task.
    """
    reply = read(Translation, text)
    if not reply.program.strip():
        if not reply.unsupported:
            raise ReplyError(["program: empty, and nothing in unsupported says why"])
        return Translated(None, tuple(reply.unsupported))
    try:
        program = parse_text(reply.program, "program")
    except (IRError, RecursionError) as error:
        raise ReplyError([one_line(str(error) or type(error).__name__)]) from None
    problems = [*_interface(task, program), *beyond_one_device(program)]
    if problems:
        raise ReplyError(problems)
    return Translated(_placed(task, program), tuple(reply.unsupported), reply.program)


def _interface(task: Task, program: Program) -> list[str]:
    """The program must have the inputs and outputs of the task, no fewer and no others."""
    problems: list[str] = []
    if program.name != task.name:
        problems.append(f"program: its name is {task.name}, got {one_line(program.name, 60)}")
    found = {i.name: i for i in program.inputs}
    for item in task.inputs:
        got = found.pop(item.name, None)
        if got != item:
            problems.append(f"program: the input %{one_line(item.name, 60)} is not as given")
    odd = [name for name, item in found.items() if not (task.free and item.role == "param")]
    problems += [f"program: no input %{one_line(name, 60)} is given" for name in odd]
    if task.free:
        if not program.outputs or any(o.role not in ("output", "loss") for o in program.outputs):
            problems.append("program: it needs outputs, of role output or loss")
    elif [(o.role, o.path) for o in program.outputs] != list(task.outputs):
        problems.append("program: its outputs are not those given, by role, path and order")
    return problems


def beyond_one_device(program: Program) -> list[str]:
    """What stands in a program that has no place in one of one device, a few of it."""
    problems: list[str] = []
    if program.mesh.dims:
        problems.append("program: a one-device program has no mesh")
    if len(program.nodes) > MOST_NODES:
        problems.append(f"program: {len(program.nodes)} ops; at most {MOST_NODES}")
    for node in program.nodes:
        name = f"%{one_line(node.outputs[0], 60)}" if node.outputs else node.op
        if lookup(node.op).kind not in vocabulary.ONE_DEVICE:
            problems.append(f"{name}: {node.op} is not an op of one-device programs")
        elif node.where != EVERYWHERE or node.timing != IN_ORDER:
            problems.append(f"{name}: on(...), async, stream and into mean nothing on one device")
    return problems[:8]


def _placed(task: Task, program: Program) -> Program:
    """Sources say the line of the task's file and nothing else that the model wrote."""
    text = task.source.split("\n")

    def place(node: Node) -> Node:
        line = node.source.line
        if not 1 <= line <= len(text):
            return replace(node, source=NOWHERE)
        return replace(node, source=Source(task.file, line, "", text[line - 1].strip()))

    return replace(program, nodes=tuple(place(n) for n in program.nodes))
