"""batch: many models, many meshes, one summary."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.batch.asked import Asked
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()


@command(app, formats=True)
def batch(run: "Run", asked: Asked) -> "Outcome":
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
    from shardproof.agent.batch import command

    return command.show(run, asked) if asked.listed else command.batch(run, asked)


@command(app, "batch-compare", json=False)
def compare(
    run: "Run",
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Folder of the earlier batch.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Folder of the later one.")],
) -> "Outcome":
    """Compare two batches: improvements and regressions.

    Also: `shardproof batch compare OLD NEW`.

    Exit code 1: a job got worse, or its plan is no longer useful.
    """
    from shardproof.agent.batch.comparing import compare

    return compare(old, new)
