"""The class interface: named tensors, placements, ops as classes, over the core.

There is one rule book, that of the core. Every op class says what it means on one device and what
ranks run, as ops of the core (`program.py`); a program is lowered to a one-device program, a
program of the ranks and a contract (`lowering.py`), and every answer is a verdict on those.
`names.py` lists the names; each is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardproof.compat.names import HOME

if TYPE_CHECKING:
    from shardproof.compat.attention import *  # noqa: F403
    from shardproof.compat.checks import *  # noqa: F403
    from shardproof.compat.comm import *  # noqa: F403
    from shardproof.compat.compute import *  # noqa: F403
    from shardproof.compat.deadlock import *  # noqa: F403
    from shardproof.compat.errors import *  # noqa: F403
    from shardproof.compat.executor import *  # noqa: F403
    from shardproof.compat.gradients import *  # noqa: F403
    from shardproof.compat.mesh import *  # noqa: F403
    from shardproof.compat.order import *  # noqa: F403
    from shardproof.compat.parallel import *  # noqa: F403
    from shardproof.compat.pipeline import *  # noqa: F403
    from shardproof.compat.precision import *  # noqa: F403
    from shardproof.compat.program import *  # noqa: F403
    from shardproof.compat.repairs import *  # noqa: F403
    from shardproof.compat.sharding import *  # noqa: F403
    from shardproof.compat.spmd import *  # noqa: F403
    from shardproof.compat.synthesize import *  # noqa: F403
    from shardproof.compat.tensor import *  # noqa: F403
    from shardproof.compat.verdicts import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(HOME)
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)
