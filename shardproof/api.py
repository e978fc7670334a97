"""The functions of the package: plan, verify, check and repair from Python."""

import atexit
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.run.translate import as_ours
from shardproof.agent.verdict import verdicts
from shardproof.planned import Plan
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

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


def parallelize(
    model: Any,
    *,
    mesh: MeshLike = None,
    gpus: int | None = None,
    config: Mapping[str, Any] | None = None,
    inputs: Sequence[str] = (),
    batch: int | None = None,
    seq: int | None = None,
    hardware: str = "h100",
    memory: str | None = None,
    pin: Sequence[str] = (),
    ban: Sequence[str] = (),
    constrain: Sequence[str] = (),
    inline: bool = False,
    guard: bool = False,
    run: bool | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Plan:
    """Plan a model for a mesh or a number of devices, write the patch, read it back and prove it.

    Args:
        model: `"model.py:GPT"`, `"hf:LlamaForCausalLM"`, a class, or a model of transformers.
        mesh: the mesh; or `gpus`, for which mesh and all else is chosen.
        config: arguments of the class, or entries of the config of a transformers model.
        inputs: `"idx=i64[4,32]<256"`, where the file has no `example_inputs()`.
        batch, seq: extents of generated inputs.
        memory: per rank at most, `"40GB"`.
        pin, ban, constrain: as on the command line, `"wte=replicate"`.
        inline: have the patch define what it needs instead of importing `shardproof.runtime`.
        run: whether to run the patch on local processes; None: where the model is small enough.
        out: directory to write, empty or absent; a temporary one where not given.
        progress: show phases on stderr.

    Raises:
        ShardproofError: something given cannot be used, or no plan can be written.
    """
    from shardproof.agent.cli.options import Wanted, mesh_for
    from shardproof.agent.pipeline import pipeline
    from shardproof.agent.pipeline.considering import wished
    from shardproof.agent.training import choosing
    from shardproof.synthesis import hardware as clusters
    from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec

    with _said():
        target, fields = _target(model, config)
        sizes = _mesh(mesh) if mesh is not None else None
        specs = tuple(InputSpec.parse(text) for text in inputs)
        place = _place(out)
        job = pipeline.Job(
            CaptureRequest(target, fields, inputs=specs, batch=batch, seq=seq),
            sizes if sizes is not None else mesh_for(None, gpus),
            clusters.load(hardware),
            place,
            execute=run,
            guard=guard,
            inline=inline,
            arguments=("parallelize", target),
            wishes=wished(list(pin), list(ban), memory, list(constrain)),
            wanted=Wanted(gpus or 1, hardware, None, seq, None, memory),
        )
        conducted = _run(progress)
        work = pipeline.parallelize if sizes is not None else choosing.parallelize
        outcome: Outcome = work(conducted, job)
    (word,) = [e for e in conducted.seen if isinstance(e, events.VerdictReached)][-1:]
    return Plan(
        outcome.verdict,
        word.message,
        tuple(word.scope),
        tuple(word.assumptions),
        place,
        _root(target),
    )


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


def check(
    module: Any, against: Any, mesh: MeshLike, *, progress: bool = False, **options: Any
) -> Verdict:
    """Decide whether parallel code computes what a one-device model computes.

    Every rank is traced by PyTorch, forward and backward, under a group that sends nothing.

    Args:
        module: `"parallel.py:Block"`, or a class or function of a file that builds the module.
        against: `"model.py:Block"`, or its class.
        options: those of `shardproof check`, with `_` for `-`: `layout=["fc.weight=S(0)@tp"]`,
            `inputs=["x=f32[8,16]"]`, `batch=8`, `gradients=False`, `repair_seconds=0` ...

    Raises:
        ShardproofError: code that cannot be traced, an option that cannot be used.
    """
    from shardproof.agent.check.asked import Asked
    from shardproof.agent.check.command import decided

    unknown = sorted(set(options) - set(Asked.__dataclass_fields__))
    with _said():
        if unknown:
            raise InputError(f"check has no option {unknown[0]}", where="shardproof.check")
        config = cast("Mapping[str, Any]", options.get("config") or {})
        words = [f"{key}={value}" for key, value in config.items()]
        given: dict[str, Any] = {**options, "config": words}
        dims = ",".join(f"{name}={size}" for name, size in _mesh(mesh).dims)
        asked = Asked(_named(module), dims, _named(against), **given)
        return decided(_run(progress), asked)[0]


def assert_parallel_equal(module: Any, against: Any, mesh: MeshLike, **options: Any) -> Proof:
    """In a test: `module` on the ranks of `mesh` computes what `against` computes.

    The arguments are those of `check`.

    Raises:
        AssertionError: it does not, with the counterexample and the line; or it is not decided.
        ShardproofError: code that cannot be traced, an option that cannot be used.
    """
    __tracebackhide__ = True
    found = check(module, against, mesh, **options)
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


def repair(problem: Problem, *, seconds: float = 30.0, max_edits: int = 3) -> Repair | Unknown:
    """The fewest edits of the ranks' program after which it is proved; Unknown where none is found.

    Args:
        seconds: of the whole search.
        max_edits: of one repair.
    """
    from shardproof.agent.repair import Mended, Question, Settings, mend
    from shardproof.agent.repair.repairing import diff

    with _said():
        stated = json.dumps(problem.contract.to_json())
        question = Question(
            problem.sequential,
            problem.distributed,
            problem.contract,
            stated,
            problem.consts,
            max_edits,
        )
        ended = mend(question, Settings(seconds=seconds, search=seconds * 0.4))
    if not isinstance(ended, Mended):
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


def _mesh(mesh: MeshLike) -> Mesh:
    """Raises InputError for what is no mesh with names."""
    from shardproof.agent.cli.options import read_mesh

    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, Mapping):
        sizes = cast("Mapping[str, int]", mesh)
        mesh = ",".join(f"{name}={size}" for name, size in sizes.items())
    names: Sequence[str] | None = getattr(mesh, "mesh_dim_names", None)
    if names:
        mesh = ",".join(f"{n}={s}" for n, s in zip(names, mesh.shape, strict=True))
    if not isinstance(mesh, str):
        raise InputError(
            "not a mesh with names",
            where="mesh",
            expected='"dp=2,tp=2", {"dp": 2, "tp": 2} or a DeviceMesh with mesh_dim_names',
            got=repr(mesh),
        )
    return read_mesh(mesh)


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
    file, _, _ = target.rpartition(":")
    here = Path.cwd()
    if file in ("hf", "") or Path(file).resolve().is_relative_to(here):
        return here
    return Path(file).resolve().parent
