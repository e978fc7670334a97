"""`torchtitan:MODEL`: the training step that a framework makes of a job config, as a target."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardproof import frameworks
from shardproof.agent.actions.words import installed, read_mesh
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.request import read_config, read_config_file

if TYPE_CHECKING:
    from shardproof.agent.actions.programs import Check


@dataclass(frozen=True)
class Framework:
    """A framework whose steps can be checked."""

    package: str
    mesh_dims: tuple[str, ...]
    """In the order in which it numbers the ranks of a mesh."""
    rows: tuple[str, ...]
    """Those over which it splits the rows of a batch."""
    training: tuple[str, str, str]
    """Of its job config: a table, and its keys for the rows of a rank and the tokens of each."""
    usual: tuple[int, int]
    """The two, where a job config does not say them."""
    inputs: tuple[str, ...]
    """Of the step: integers."""

    @property
    def file(self) -> Path:
        return Path(frameworks.__file__).parent / f"{self.package}_step.py"


FRAMEWORKS = {
    "torchtitan": Framework(
        "torchtitan",
        ("pp", "rep", "dp", "cp", "tp", "ep"),
        ("rep", "dp"),
        ("training", "local_batch_size", "seq_len"),
        (8, 2048),
        ("tokens", "labels"),
    ),
}


@contextmanager
def opened(asked: Check) -> Generator[Check]:
    """The action with the step of a framework written out, where a target names one; the file
    lasts as long as the context.

    Raises:
        InputError: the framework is not installed, its mesh or its job config does not fit.
    """
    kind, _, model = asked.target.partition(":")
    framework = FRAMEWORKS.get(kind)
    if framework is None:
        if asked.job_config is not None:
            expected = " or ".join(f"{name}:MODEL" for name in FRAMEWORKS)
            raise InputError(
                "a job config is for a framework by name",
                where=f"--job-config {asked.job_config}",
                expected=expected,
            )
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="shardproof-") as folder:
        file = Path(shutil.copy(framework.file, folder))
        yield asked.model_copy(update=_stated(framework, model, asked, file))


def _stated(framework: Framework, model: str, asked: Check, file: Path) -> dict[str, Any]:
    installed(framework.package, asked.target)
    mesh = dict(read_mesh(asked.mesh).dims)
    if list(mesh) != [n for n in framework.mesh_dims if n in mesh]:
        raise InputError(
            f"a mesh of {framework.package} has other dims, or in another order",
            where=f"--mesh {asked.mesh}",
            expected=f"some of {', '.join(framework.mesh_dims)}, in this order",
        )
    path = "" if asked.job_config is None else str(asked.job_config.resolve())
    name, changes = read_config(asked.config)
    if name:
        changes = {**read_config_file(name), **changes}
    arguments = file.with_suffix(".json")
    arguments.write_text(json.dumps({"model": model, "job_config": path, "changes": changes}))
    rows = [n for n in framework.rows if n in mesh]
    shape = _shape(framework, asked.job_config)
    for name in rows:
        shape = shape[0] * mesh[name], shape[1]
    inputs = [f"{n}=i64[{shape[0]},{shape[1]}]" for n in framework.inputs]
    layouts = [f"{n}={','.join(f'S(0)@{d}' for d in rows)}" for n in framework.inputs if rows]
    return {
        "target": f"{file}:ranks",
        "against": f"{file}:one",
        "step": "train_step",
        "config": (str(arguments),),
        "inputs": tuple(asked.inputs or inputs),
        "input_layout": tuple(asked.input_layout or layouts),
    }


def _shape(framework: Framework, job_config: Path | None) -> tuple[int, int]:
    """The rows of a rank, and the tokens of each."""
    if job_config is None:
        return framework.usual
    table, *keys = framework.training
    try:
        given = tomllib.loads(job_config.read_text(encoding="utf-8")).get(table, {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read the job config: {error}", where=str(job_config)) from None
    first, second = (
        given.get(key, usual) for key, usual in zip(keys, framework.usual, strict=True)
    )
    return first, second
