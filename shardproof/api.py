"""The functions of the package: plan, verify, check and repair from Python."""

import atexit
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from shardproof.agent.actions.action import Action
from shardproof.agent.actions.models import Parallelize
from shardproof.agent.actions.programs import Check, Repairing
from shardproof.agent.actions.words import read_mesh
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.run.translate import as_ours
from shardproof.agent.verdict import verdicts
from shardproof.planned import Plan
from shardproof.synthesis.frontends.torch.homes import patched_from
from shardproof.synthesis.frontends.torch.request import resolved
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

F = TypeVar("F", bound=Callable[..., Any])
MeshLike = Any
"""`"dp=2,tp=2"`, `{"dp": 2, "tp": 2}`, or a `DeviceMesh` with names."""


@dataclass(frozen=True)
class Repair:
    """The fewest edits after which a program is proved."""

    edits: tuple[str, ...]
    """In order; empty where the program was right."""
    diff: str
    """Of the ranks' program as it is printed."""
    problem: Problem
    """The same question about the repaired program: `verify` proves it."""


@dataclass(frozen=True)
class Ended:
    """What a command ended with."""

    exit: int
    """Its exit code."""
    verdict: str
    answer: str
    """What it prints."""
    events: tuple[events.Event, ...]
    """What `--json` prints, in order."""


def _takes(action: type[Action]) -> Callable[[F], F]:
    """The signature and the description of a function's `**options` are those of an action."""

    def render(work: F) -> F:
        own = [p for p in inspect.signature(work).parameters.values() if p.kind != p.VAR_KEYWORD]
        named = {"target", *(p.name for p in own)}
        left = {n: found for n, found in action.parameters().items() if n not in named}
        kind = inspect.Parameter.KEYWORD_ONLY
        own += [
            inspect.Parameter(n, kind, default=field.default, annotation=field.annotation)
            for n, (field, _) in left.items()
        ]
        returned = inspect.signature(work).return_annotation
        work.__dict__["__signature__"] = inspect.Signature(own, return_annotation=returned)
        listed = "\n".join(f"    {n}: {option.help}" for n, (_, option) in left.items())
        work.__doc__ = f"{inspect.cleandoc(work.__doc__ or '')}\n\nOptions:\n{listed}"
        return work

    return render


@_takes(Parallelize)
def parallelize(model: Any, *, progress: bool = False, **options: Any) -> Plan:
    """Plan a model for a mesh or a number of devices, write the patch, read it back and prove it.

    Args:
        model: `"model.py:GPT"`, `"hf:LlamaForCausalLM"`, a class, or a model of transformers.
        progress: show phases on stderr.

    Raises:
        ShardproofError: something given cannot be used, or no plan can be written.
    """
    from shardproof.agent.pipeline import starting

    with _said():
        target, fields = _target(model, options.pop("config", None))
        place = _place(options.pop("out", None))
        given = {**options, "target": target, "config": fields, "out": place}
        conducted = _run(progress)
        asked = Parallelize.of("shardproof.parallelize", given)
        outcome: Outcome = starting.parallelize(conducted, asked)
    (word,) = [e for e in conducted.seen if isinstance(e, events.VerdictReached)][-1:]
    return Plan(
        outcome.verdict,
        word.message,
        tuple(word.scope),
        tuple(word.assumptions),
        place,
        _root(target),
    )


def command(name: str, *, progress: bool = False, **options: Any) -> Ended:
    """Any other command, with its options by their names: `command("plan", target=..., gpus=64)`.

    Raises:
        ShardproofError: there is no such command, or something given cannot be used.
    """
    from shardproof.agent.actions.catalogue import ACTIONS
    from shardproof.agent.cli.command import perform

    with _said():
        found = {action.command.name: action for action in ACTIONS}
        if name not in found:
            raise InputError(f"no command {name}", where="command", expected=", ".join(found))
        conducted = _run(progress)
        outcome = perform(conducted, found[name].of(f"shardproof.command {name}", options))
    return Ended(int(outcome.exit), outcome.verdict, outcome.answer, tuple(conducted.seen))


def verify(problem: Problem) -> Verdict:
    """Decide whether the program of the ranks computes that of one device under the contract.

    A counterexample was replayed on numbers; a proof has a certificate for `check-certificate`.

    Raises:
        ShardproofError: programs that do not fit the contract.
    """
    from shardproof.synthesis.repair.diagnosis import verify as decide

    with _said():
        return decide(problem, fixes=True)


def load_problem(
    sequential: str | os.PathLike[str],
    distributed: str | os.PathLike[str],
    contract: str | os.PathLike[str],
) -> Problem:
    """The question that three files ask: both programs as text or JSON, and the contract.

    Raises:
        ShardproofError: a file that cannot be read, or that does not fit.
    """
    from shardproof.verifier.text.contract import compose, load_contract
    from shardproof.verifier.text.files import load

    with _said():
        one, many = load(Path(sequential)), load(Path(distributed))
        many, stated = compose(many, load_contract(Path(contract), one, many))
        return Problem(one, many, stated)


@_takes(Check)
def check(
    module: Any, against: Any, mesh: MeshLike, *, progress: bool = False, **options: Any
) -> Verdict:
    """Decide whether parallel code computes what a one-device model computes.

    Every rank is traced by PyTorch, forward and backward, under a group that sends nothing.

    Args:
        module: `"parallel.py:Block"`, or a class or function of a file that builds the module.
        against: `"model.py:Block"`, or its class.
        mesh: `"dp=2,tp=2"`, `{"dp": 2, "tp": 2}`, or a `DeviceMesh` with names.
        progress: show phases on stderr.

    Raises:
        ShardproofError: code that cannot be traced, an option that cannot be used.
    """
    from shardproof.agent.check.command import decided

    with _said():
        named = {"target": _named(module), "against": _named(against), "mesh": mesh}
        asked = Check.of("shardproof.check", {**options, **named})
        read_mesh(asked.mesh)
        return decided(_run(progress), asked)[0]


@_takes(Check)
def assert_parallel_equal(
    module: Any, against: Any, mesh: MeshLike, *, progress: bool = False, **options: Any
) -> Proof:
    """In a test: `module` on the ranks of `mesh` computes what `against` computes.

    The arguments are those of `check`.

    Raises:
        AssertionError: it does not, with the counterexample and the line; or it is not decided.
        ShardproofError: code that cannot be traced, an option that cannot be used.
    """
    __tracebackhide__ = True
    found = check(module, against, mesh, progress=progress, **options)
    match found:
        case Proof():
            return found
        case Counterexample():
            head = f"{_named(module)} does not compute {_named(against)}"
        case Unknown():
            head = f"not decided whether {_named(module)} computes {_named(against)}"
    place = verdicts.place(found)
    lines = [head, *([f"at {place}"] if place else []), verdicts.message(found)]
    raise AssertionError("\n".join(lines))


@_takes(Repairing)
def repair(problem: Problem, *, progress: bool = False, **options: Any) -> Repair | Unknown:
    """The fewest edits of the ranks' program after which it is proved; Unknown where none is found.

    Args:
        problem: what is not proved.
        progress: show phases on stderr.

    Raises:
        ShardproofError: an option that cannot be used.
    """
    from shardproof.agent.repair import Fixed, Question
    from shardproof.agent.repair.repairing import diff, searched

    with _said():
        asked = Repairing.of("shardproof.repair", options)
        stated = json.dumps(problem.contract.to_json())
        question = Question(
            problem.sequential,
            problem.distributed,
            problem.contract,
            stated,
            problem.consts,
            asked.max_edits,
        )
        ended = searched(_run(progress), question, asked)
    if not isinstance(ended, Fixed):
        return Unknown(f"not repaired: {ended.reason}")
    found = ended.found.program
    after = Problem(problem.sequential, found, problem.contract, problem.consts)
    edits = tuple(map(str, ended.found.edits))
    return Repair(edits, diff(problem.distributed, found, "ranks"), after)


def _run(progress: bool) -> Run:
    from shardproof.agent.run.console import Console

    return Run([Console(sys.stderr)] if progress else [])


@contextmanager
def _said() -> Generator[None]:
    """Errors of lower packages as ours, with what to try among their notes."""
    try:
        yield
    except Exception as error:
        ours = as_ours(error)
        if ours is None:
            raise
        for name in ("where", "expected", "got", "hint"):
            if text := getattr(ours, name):
                ours.add_note(f"{name}: {text}")
        raise ours from (None if ours is error else error)


def _target(model: Any, config: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """What to capture, and the arguments of its class.

    Raises:
        InputError: an instance, whose arguments are not known.
    """
    fields = dict(config or {})
    if isinstance(model, str) or (callable(model) and not hasattr(model, "named_parameters")):
        return _named(model), fields
    if isinstance(model, type):
        return _named(cast("type[Any]", model)), fields
    own = getattr(model, "config", None)
    if type(model).__module__.startswith("transformers.") and own is not None:
        return f"hf:{type(model).__name__}", {**own.to_diff_dict(), **fields}
    raise InputError(
        "a model that is built does not say with which arguments",
        where="shardproof.parallelize",
        expected=f"its class {type(model).__name__}, and config={{...}} with the arguments",
    )


def _named(code: Any) -> str:
    """`path.py:Name` of a class or function of a file; of transformers, `hf:Name`.

    Raises:
        InputError: it has no file, or does not stand at its top level.
    """
    if isinstance(code, str):
        return code
    name = str(getattr(code, "__qualname__", type(code).__name__))
    if str(getattr(code, "__module__", "")).startswith("transformers."):
        return f"hf:{name}"
    try:
        file = inspect.getsourcefile(cast("Callable[..., Any]", code))
    except TypeError:
        file = None
    if file is None or "." in name or not Path(file).is_file():
        raise InputError(
            "not a class or function at the top level of a file",
            where=name,
            expected='such a one, or "path/model.py:Name"',
        )
    return f"{file}:{name}"


def _place(out: str | os.PathLike[str] | None) -> Path:
    """The directory of a run; a temporary one lives as long as the process."""
    if out is not None:
        return Path(out)
    scratch = tempfile.mkdtemp(prefix="shardproof-plan-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return Path(scratch) / "out"


def _root(target: str) -> Path:
    """The folder that the paths of a patch of the target are relative to."""
    file, _, _ = resolved(target).rpartition(":")
    return patched_from(file) if file.endswith(".py") else Path.cwd()
