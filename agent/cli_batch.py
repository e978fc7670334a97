"""batch: many models, many meshes, one summary."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.arguments import Ban, Constrain, Memory, Pin
from agent.commands import command

if TYPE_CHECKING:
    from agent.run import Outcome, Run

app = typer.Typer()


@command(app)
def batch(
    run: "Run",
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="A manifest (.toml or .json), path/model.py:Class, hf:Class, or config files that "
            "name their class (a pattern).",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder to write: jobs/NAME for each job, and the summary.")
    ],
    mesh: Annotated[
        list[str], typer.Option(help="Mesh dims, outermost first: dp=2,tp=2. Repeatable.")
    ] = [],
    hardware: Annotated[
        str | None, typer.Option(help="Cluster the cost model assumes: a shipped name or a file.")
    ] = None,
    config: Annotated[
        list[str], typer.Option(metavar="ITEM", help="key=value, or one file; repeatable.")
    ] = [],
    size: Annotated[
        int | None, typer.Option("--batch", min=1, metavar="N", help="Batch extent of inputs.")
    ] = None,
    seq: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sequence extent of inputs.")
    ] = None,
    execute: Annotated[
        bool | None,
        typer.Option("--run/--no-run", help="Run patched models on local processes and compare."),
    ] = None,
    pin: Pin = [],
    ban: Ban = [],
    memory: Memory = None,
    constrain: Constrain = [],
    only: Annotated[
        list[str],
        typer.Option(
            "--only", "--select", metavar="PATTERN", help="Jobs by name: 'llama-*'. Repeatable."
        ),
    ] = [],
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Jobs at once: cores, at most 4."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="S", help="Seconds that one job may take.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Leave jobs alone that are done and of the same inputs."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Run all jobs again, in place of what is in --out.")
    ] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="End with the first job that is not proved.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Print the jobs and whether they are done; run nothing.")
    ] = False,
) -> "Outcome":
    """Parallelize many models in one run.

    Each job runs in a process of its own. Options replace [defaults] of a manifest; what a job
    says comes first.
    A crash, a time-out or a refusal is a row of the summary. Exit code 0: every job is proved.

    \b
    Examples:
      shardproof batch examples/batch.toml --out runs/
      shardproof batch examples/batch.toml --out runs/ --resume --only 'llama*'
      shardproof batch examples/nanogpt.py:GPT --mesh tp=2 --mesh dp=2,tp=2 --out runs/ --no-run
      shardproof batch 'examples/llama*.json' --mesh tp=8 --out runs/ --jobs 4 --timeout 300
    """
    from agent.batch import command
    from agent.batch.manifest import Options

    given = Options(
        mesh=mesh[0] if len(mesh) == 1 else mesh or None,
        hardware=hardware,
        config=config or None,
        batch=size,
        seq=seq,
        run=execute,
        pin=pin or None,
        ban=ban or None,
        memory=memory,
        constrain=constrain or None,
        timeout=timeout,
    )
    asked = command.Asked(
        what=tuple(what),
        given=given,
        out=out,
        only=tuple(only),
        workers=jobs,
        resume=resume,
        force=force,
        fail_fast=fail_fast,
        arguments=tuple(sys.argv[1:]),
    )
    return command.show(run, asked) if listed else command.batch(run, asked)
