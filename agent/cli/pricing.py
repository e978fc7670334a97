"""`shardproof price`: rows of configurations in, one JSON line each out."""

import json
import sys
from pathlib import Path
from typing import Any, cast

from shardproof.agent.run.console import Pipe
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import read_text
from shardproof.agent.run.run import Outcome, Run
from shardproof.synthesis.strategy.answers import answers


def show(run: Run, rows: Path, groups: Path | None) -> Outcome:
    """Print the price of every row.

    Raises:
        InputError: a file cannot be read, or names of models and hardware are not an object.
    """
    del run
    tables = _tables(groups) if groups else {}
    out = Pipe(sys.stdout)
    for line in answers(read_text(rows, "a file of rows").splitlines(), tables):
        out.line(json.dumps(line))
    return Outcome(Exit.PROVED)


def _tables(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path, "a file of groups"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}", where="--groups") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} is not an object", where="--groups", expected="models, hardware")
    return cast(dict[str, Any], found)
