"""The table `[plan]` of a project's `shardproof.toml`: defaults of the commands that plan.

```toml
[plan]
mesh = "dp=2,tp=2"
hardware = "a100"
memory = "40GB"
pin = ["wte=replicate"]
```

An option on the command line wins over it, and so does a command that comes before `/load` in a
session. The table `[model]` is read by `shardproof.agent.llm.endpoint`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shardproof.agent.llm.endpoint import read_table
from shardproof.agent.run.errors import InputError

Kind = Literal["pin", "ban", "constrain"]
PLANNING = frozenset({"parallelize", "candidates", "why-not", "plan", "step"})
"""Commands that these defaults are of; `check` takes the mesh alone."""


class Planning(BaseModel):
    """What the table may hold, by the names of the options."""

    model_config = ConfigDict(extra="forbid", strict=True)

    mesh: str = ""
    gpus: int | None = Field(None, ge=1)
    hardware: str = ""
    memory: str = ""
    pin: list[str] = []
    ban: list[str] = []
    constrain: list[str] = []


def planning(path: Path) -> dict[str, Any]:
    """What the table says, by the names of the options; empty where there is no file.

    Raises:
        InputError: a file that cannot be read, another key, or a value of another type, located.
    """
    found = read_table(path, Planning, "plan")
    if "mesh" in found and "gpus" in found:
        raise InputError("mesh and gpus are both given", where=str(path), expected="one of the two")
    return found


def constrained(table: Mapping[str, Any]) -> list[tuple[Kind, str]]:
    """The constraints of the table: of which kind, and its words."""
    limits = [f"memory={table['memory']}"] if "memory" in table else []
    lists = {**table, "constrain": [*limits, *table.get("constrain", [])]}
    kinds: tuple[Kind, ...] = ("pin", "ban", "constrain")
    return [(kind, words) for kind in kinds for words in lists.get(kind, [])]


def defaults(path: Path, arguments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Defaults by command and option; `--mesh` or `--gpus` in `arguments` replaces both.

    Raises:
        InputError: a file that cannot be read, another key, or a value of another type, located.
    """
    found = planning(path)
    if any(a.partition("=")[0] in ("--mesh", "--gpus") for a in arguments):
        found = {k: v for k, v in found.items() if k not in ("mesh", "gpus")}
    mesh = {k: v for k, v in found.items() if k == "mesh"}
    return {**dict.fromkeys(PLANNING, found), "check": mesh}
