"""Dialects: in whose words a plan is written, and which styles those words have."""

from collections.abc import Callable
from dataclasses import dataclass

from shardproof.synthesis.planner.roles import LINEAR, Module
from shardproof.synthesis.planner.uses import whole_path


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words of a library for what a module does on `tp`."""

    name: str
    says: Callable[[Module, str, int], bool]
    """Whether it has words for a style of a module on so many ranks."""
    one_dim: bool = False
    """Whether it splits over one mesh dim, and neither the loss nor the sequence."""


def _of_transformers(module: Module, style: str, size: int) -> bool:
    """A tensor-parallel plan of transformers names layers by what they are, changes no code, and
    fuses two weights at most, without a bias, of one width."""
    if whole_path(module.path) != module.path:
        return False
    match module.use, style:
        case "linear", "column" | "gathered" | "row" | "vocab":
            few = style == "column" and 0 < module.heads < size
            return module.kind in LINEAR and module.out_dim == 0 and not few
        case "linear", "fused_column":
            return module.parts == 2 and module.out_dim == 0 and len(module.params) == 1
        case "embedding", "column" | "gathered" | "vocab":
            return module.kind == "Embedding"
        case "experts", "experts":
            return not module.raw
        case _:
            return False


PYTORCH = Dialect("pytorch", lambda module, style, size: True)
TRANSFORMERS = Dialect("transformers", _of_transformers, one_dim=True)
DIALECTS = {d.name: d for d in (PYTORCH, TRANSFORMERS)}
