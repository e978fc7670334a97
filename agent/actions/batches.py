"""Batches: many models on many meshes, and two batches side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import create_model

from shardproof.agent.actions.action import Action, Argument, Option, flags, option
from shardproof.agent.actions.models import Parallelize, Words

if TYPE_CHECKING:
    from shardproof.agent.batch.manifest import Options


APART = ("target", "out", "gpus", "fix", "force", "llm", "answer_cache", "translation")
"""Of `parallelize`, what is not said for all jobs: a batch has a mesh for each job and a folder for
all, and asks no model."""


def entry(name: str, option: Option) -> str:
    """What a parameter is called in a manifest: as it is spelled, with `_` for `-`."""
    return flags(name, option)[0].removeprefix("--").replace("-", "_")


ForJobs = create_model("ForJobs", __base__=Action, **Parallelize.unsaid((*APART, "mesh")))


class Batch(ForJobs, work="batch.command:begun", formats=True):
    """Parallelize many models in one run.

    Each job runs in its own process. Options replace [defaults] of a manifest; entries of a job
    override both.
    A crash, a time-out or a refusal is a row of the summary. Exit code 0: every job is proved.

    \b
    Examples:
      shardproof batch examples/batch.toml --out runs/
      shardproof batch examples/batch.toml --out runs/ --resume --only 'llama*'
      shardproof batch examples/nanogpt.py:GPT --mesh tp=2 --mesh dp=2,tp=2 --out runs/ --no-run
      shardproof batch 'examples/llama*.json' --mesh tp=8 --out runs/ --jobs 4 --timeout 300
    """

    what: Annotated[
        Words,
        Argument(
            "A manifest (.toml or .json), path/model.py:Class, hf:Class, or config files that "
            "name their class (a pattern).",
            "WHAT...",
        ),
    ]
    out: Annotated[Path, Option("Folder to write: jobs/NAME for each job, and the summary.")]
    mesh: Words = option((), "Mesh dims, outermost first: dp=2,tp=2. Repeatable.")
    only: Words = option(
        (), "Jobs by name: 'llama-*'. Repeatable.", "PATTERN", flags=("--only", "--select")
    )
    workers: int | None = option(
        None, "Jobs at once: cores, at most 4.", "N", min=1, flags=("--jobs", "-j")
    )
    executor: Literal["local", "ray"] = option(
        "local", "Processes of this machine, or tasks of a Ray cluster."
    )
    address: str | None = option(
        None, "Address of a Ray cluster, or auto; default: start one here."
    )
    cpus: float = option(1.0, "CPUs of a Ray node per job.", "N", min=0.1)
    ram: str | None = option(None, "Memory of a Ray node per job: 4GB.", "SIZE")
    timeout: float | None = option(None, "Seconds that one job may take.", "S", min=0.1)
    resume: bool = option(False, "Skip jobs that are done with the same inputs.")
    force: bool = option(False, "Run all jobs again, and replace what is in --out.")
    fail_fast: bool = option(False, "End with the first job that is not proved.")
    listed: bool = option(
        False, "Print the jobs and whether they are done; run nothing.", flags=("--list",)
    )

    @property
    def given(self) -> "Options":
        """What takes the place of `[defaults]`."""
        from shardproof.agent.batch.manifest import Options

        said: dict[str, Any] = {}
        for name, (_, written) in self.parameters().items():
            key, value = entry(name, written), getattr(self, name)
            if key in Options.model_fields and value not in (None, ()):
                said[key] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
        if len(self.mesh) == 1:
            said["mesh"] = self.mesh[0]
        return Options.model_validate(said)
