"""The table `[plan]` of a project's `shardproof.toml`: defaults of the commands that plan.

```toml
[plan]
mesh = "dp=2,tp=2"
hardware = "a100"
memory = "40GB"
pin = ["wte=replicate"]
```

An option on the command line wins over it. The table `[model]` is read by `agent.llm.endpoint`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agent.errors import InputError
from agent.llm.endpoint import read_table

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


def defaults(path: Path, arguments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Defaults by command and option; `--mesh` or `--gpus` in `arguments` replaces both.

    Raises:
        InputError: a file that cannot be read, another key, or a value of another type, located.
    """
    found = read_table(path, Planning, "plan")
    if "mesh" in found and "gpus" in found:
        raise InputError("mesh and gpus are both given", where=str(path), expected="one of the two")
    if any(a.partition("=")[0] in ("--mesh", "--gpus") for a in arguments):
        found = {k: v for k, v in found.items() if k not in ("mesh", "gpus")}
    mesh = {k: v for k, v in found.items() if k == "mesh"}
    return {**dict.fromkeys(PLANNING, found), "check": mesh}
