"""The words of actions as what they ask for: meshes, what is fixed, what to capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    is_library,
    read_config,
    resolved,
)
from shardproof.synthesis.strategy.space import FIXED
from shardproof.verifier.kernel.program.types import Mesh

if TYPE_CHECKING:
    from shardproof.agent.actions.models import Captured, Parallelize


ENTRIES = ", ".join(
    f"{key}={'|'.join(words)}" if words else f"{key}=N" for key, words in FIXED.items()
)
FORM = "NAME=SIZE[,NAME=SIZE...], for example dp=2,tp=2"


def read_mesh(text: str) -> Mesh:
    """Read `dp=2,tp=4`.

    Raises:
        InputError: not of that form, a dim named twice, a size below 1.
    """
    where = f"--mesh {text}"
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier() or not size.isdecimal():
            raise InputError(f"cannot read the mesh dim {part!r}", where=where, expected=FORM)
        if name in sizes:
            raise InputError(f"mesh dim {name!r} is named twice", where=where, expected=FORM)
        if int(size) < 1:
            raise InputError(
                f"mesh dim {name!r} has size {size}", where=where, expected="1 or more"
            )
        sizes[name] = int(size)
    return Mesh(tuple(sizes.items()))


def read_fixed(items: Sequence[str]) -> tuple[tuple[str, int | str], ...]:
    """Read `tp=8,pp=4` and `recompute=full`, all of one configuration.

    Raises:
        InputError: an entry or a value that no configuration has, or two values of one entry.
    """
    out: dict[str, int | str] = {}
    for part in ",".join(items).split(",") if items else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        where, allowed = f"--fix {part}", FIXED.get(key)
        number = value.isdecimal() and int(value) >= (key != "zero")
        if allowed is None or not (value in allowed if allowed else number):
            raise InputError("cannot be fixed", where=where, expected=ENTRIES)
        read = value if allowed else int(value)
        if out.setdefault(key, read) != read:
            raise InputError(f"{key} is {out[key]} already", where=where)
    return tuple(out.items())


def of_launcher(asked: Parallelize) -> None:
    """Refuse words about a launcher that make none.

    Raises:
        InputError: an unknown optimizer, options of a launcher that is not asked for, a launcher
            of a translation.
    """
    from shardproof.synthesis.emit.launcher import OPTIMIZERS

    if asked.optimizer not in OPTIMIZERS:
        raise InputError(
            "no such optimizer",
            where=f"--optimizer {asked.optimizer}",
            expected=", ".join(OPTIMIZERS),
        )
    given = {"optimizer": "adamw", "micro_batches": 1, "run_steps": None}
    for name, value in given.items():
        if not asked.launcher and getattr(asked, name) != value:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} is about a launcher", where=flag, hint="add --launcher")
    if asked.mesh is None and asked.micro_batches > 1:
        hint = "--fix micro_batch=N fixes their size"
        raise InputError("--gpus chooses micro-batches", where="--micro-batches", hint=hint)
    if asked.launcher and asked.translation is not None:
        raise InputError("a translation has no launcher", where="--launcher")


def of_dialect(asked: Parallelize) -> None:
    """Refuse words that a plan in this dialect cannot keep.

    Raises:
        InputError: an unknown dialect, a target or a mesh that it has no words for, what is not
            written beside it.
        ConstraintError: a constraint that it has no words for.
    """
    from shardproof.synthesis.planner.dialects import DIALECTS, PYTORCH

    where, hint = f"--dialect {asked.dialect}", f"--dialect {PYTORCH.name} has words for it"
    if asked.dialect not in DIALECTS:
        raise InputError("no such dialect", where=where, expected=", ".join(DIALECTS))
    dialect = DIALECTS[asked.dialect]
    if dialect.plain:
        return
    asked.constraints().in_dialect(asked.dialect)
    names = read_mesh(asked.mesh).names if asked.mesh is not None else ()
    kept = ("launcher", "guard", "translation")
    beside = next((f"--{name}" for name in kept if getattr(asked, name)), "")
    (target, known), (mesh, example) = dialect.target, dialect.mesh
    if _library(asked.target) != _library(known):
        what = f"it has words for {target} alone"
        raise InputError(what, where=where, expected=known, got=asked.target, hint=hint)
    if not dialect.fits(names):
        got = f"--mesh {asked.mesh}" if names else "--gpus"
        raise InputError(f"it splits {mesh}", where=where, expected=example, got=got, hint=hint)
    if beside:
        raise InputError(f"{beside} is not written beside it", where=where, hint=hint)
    if dialect.package:
        installed(dialect.package, where)


def _library(target: str) -> str:
    """The library whose model it names; empty for one of a file."""
    return target.partition(":")[0] if is_library(target) else ""


def installed(package: str, where: str) -> None:
    """Raise InputError where a package is not installed."""
    if find_spec(package) is None:
        hint = f"pip install {package}"
        raise InputError(f"{package} is not installed", where=where, hint=hint)


def placed(target: str) -> Path:
    """Where `parallelize` writes by default: `shardproof-out/GPT` for `model.py:GPT`."""
    return Path("shardproof-out") / target.rpartition(":")[2]


def mesh_for(text: str | None, gpus: int | None) -> Mesh:
    """The mesh of `--mesh`; that of `--gpus` is chosen later, and is one line until then.

    Raises:
        InputError: neither is given, or both, and they contradict each other.
    """
    if text is None and gpus is None:
        raise InputError("neither --gpus nor --mesh is given", expected="--gpus 64, or --mesh tp=2")
    if text is None:
        return Mesh((("dp", gpus or 1),))
    mesh = read_mesh(text)
    if gpus is not None and prod(size for _, size in mesh.dims) != gpus:
        raise InputError(
            f"the mesh has {prod(size for _, size in mesh.dims)} devices",
            where=f"--mesh {text}",
            expected=f"{gpus}, as --gpus says",
            hint="give one of the two",
        )
    return mesh


def mesh_words(mesh: Any) -> str:
    """A mesh as it is written: of a mapping, of a `DeviceMesh` with names, or of our own.

    Raises:
        InputError: none of these.
    """
    if isinstance(mesh, Mesh):
        mesh = dict(mesh.dims)
    names: Sequence[str] | None = getattr(mesh, "mesh_dim_names", None)
    if names:
        mesh = dict(zip(names, mesh.shape, strict=True))
    if not isinstance(mesh, Mapping):
        raise InputError(
            "not a mesh with names",
            where="mesh",
            expected='"dp=2,tp=2", {"dp": 2, "tp": 2} or a DeviceMesh with mesh_dim_names',
            got=repr(mesh),
        )
    return ",".join(f"{n}={size}" for n, size in cast("Mapping[str, int]", mesh).items())


def request(asked: Captured, gradients: bool = True) -> CaptureRequest:
    """What to capture.

    Raises:
        CaptureError, InputError: a word that cannot be read.
    """
    file, fields = read_config(asked.config)
    specs = tuple(InputSpec.parse(text) for text in asked.inputs)
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise InputError(f"input {name!r} is given {count} times", where="--input")
    return CaptureRequest(
        target=resolved(asked.target),
        config=fields,
        config_file=file,
        inputs=specs,
        batch=asked.batch,
        seq=asked.seq,
        gradients=gradients,
        full_depth=asked.full_depth,
        env=asked.env,
    )
