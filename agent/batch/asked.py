"""What `batch` is asked: its options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shardproof.agent.cli.arguments import Ban, Constrain, Memory, Pin

if TYPE_CHECKING:
    from shardproof.agent.batch.manifest import Options


@dataclass(frozen=True)
class Asked:
    """Jobs, what holds for all of them, and how they are run."""

    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="A manifest (.toml or .json), path/model.py:Class, hf:Class, or config files that "
            "name their class (a pattern).",
        ),
    ]
    out: Annotated[
        Path, typer.Option(help="Folder to write: jobs/NAME for each job, and the summary.")
    ]
    mesh: Annotated[
        list[str], typer.Option(help="Mesh dims, outermost first: dp=2,tp=2. Repeatable.")
    ] = field(default_factory=list[str])
    hardware: Annotated[
        str | None, typer.Option(help="Cluster for the cost model: a shipped name or a file.")
    ] = None
    config: Annotated[
        list[str], typer.Option(metavar="ITEM", help="key=value, or one file; repeatable.")
    ] = field(default_factory=list[str])
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, metavar="N", help="Batch size of inputs.")
    ] = None
    seq: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sequence length of inputs.")
    ] = None
    run: Annotated[
        bool | None,
        typer.Option("--run/--no-run", help="Run patched models on local processes and compare."),
    ] = None
    pin: Pin = field(default_factory=list[str])
    ban: Ban = field(default_factory=list[str])
    memory: Memory = None
    constrain: Constrain = field(default_factory=list[str])
    only: Annotated[
        list[str],
        typer.Option(
            "--only", "--select", metavar="PATTERN", help="Jobs by name: 'llama-*'. Repeatable."
        ),
    ] = field(default_factory=list[str])
    workers: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Jobs at once: cores, at most 4."),
    ] = None
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Processes of this machine, or tasks of a Ray cluster."),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster, or auto; default: start one here."),
    ] = None
    cpus: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="CPUs of a Ray node per job.")
    ] = 1.0
    ram: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of a Ray node per job: 4GB.")
    ] = None
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="S", help="Seconds that one job may take.")
    ] = None
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Skip jobs that are done with the same inputs."),
    ] = False
    force: Annotated[
        bool, typer.Option("--force", help="Run all jobs again, and replace what is in --out.")
    ] = False
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End with the first job that is not proved.")
    ] = False
    listed: Annotated[
        bool, typer.Option("--list", help="Print the jobs and whether they are done; run nothing.")
    ] = False

    @property
    def given(self) -> "Options":
        """What takes the place of `[defaults]`."""
        from shardproof.agent.batch.manifest import Options

        said = {n: v for n, v in vars(self).items() if n in Options.model_fields and v != []}
        if len(self.mesh) == 1:
            said["mesh"] = self.mesh[0]
        return Options.model_validate(said)
