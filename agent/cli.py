"""The command line: what the commands are called, what they take, and what they exit with."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def shardproof() -> None:
    """Turn a PyTorch model into a parallel one that is proved equal to it."""


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    app()
