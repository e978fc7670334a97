"""Dialects: in whose words a plan is written, and which styles and meshes those words have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardproof.synthesis.planner.roles import Module


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words of a library for what ranks do."""

    name: str
    writes: str
    """What is written in it, in a sentence."""
    says: Callable[[Module, str, int], bool]
    """Whether it has words for a style of a module on so many ranks of `tp`."""
    target: tuple[str, str] = ("", "")
    """What of it can be written, and an example; empty: any model."""
    mesh: tuple[str, str] = ("", "")
    """The meshes that it has words for, and an example; empty: any."""
    fits: Callable[[tuple[str, ...]], bool] = bool
    """Whether it has words for a mesh of dims of these names."""
    sequence: bool = True
    """Whether it splits the sequence between blocks."""
    loss: bool = True
    """Whether it splits the loss."""
    added_up: bool = False
    """Whether its trainer adds up what ranks make of their parts of a batch, instead of taking the
    mean."""
    package: str = ""
    """What must be installed to read what is written, beside PyTorch."""

    @property
    def plain(self) -> bool:
        """Whether it has words for whatever a plan says."""
        return not self.mesh[0]


def _of_transformers(module: Module, style: str, size: int) -> bool:
    """A tensor-parallel plan of transformers names layers by what they are, changes no code, and
    fuses two weights at most, without a bias, of one width."""
    from shardproof.synthesis.planner.roles import LINEAR
    from shardproof.synthesis.planner.uses import whole_path

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


def _of_torchtitan(module: Module, style: str, size: int) -> bool:
    """A `parallelize_fn` has the styles of PyTorch, which split weights in one part each."""
    whole = style in ("column", "gathered", "row", "vocab") and module.use in (
        "linear",
        "embedding",
    )
    return whole and _of_transformers(module, style, size)


TITAN_DIMS = (("dp_replicate",), ("dp", "dp_shard"), ("tp",))
"""Names of the mesh dims that torchtitan numbers ranks by, outermost first."""


def _titan_mesh(names: tuple[str, ...]) -> bool:
    at = [next((i for i, known in enumerate(TITAN_DIMS) if n in known), -1) for n in names]
    return bool(at) and -1 not in at and at == sorted(set(at))


PYTORCH = Dialect("pytorch", "Calls of parallelize_module.", lambda module, style, size: True)
TRANSFORMERS = Dialect(
    "transformers",
    "A plan for from_pretrained, of hf:Class.",
    _of_transformers,
    target=("classes of transformers", "hf:LlamaForCausalLM"),
    mesh=("over one mesh dim", "--mesh tp=2"),
    fits=lambda names: len(names) == 1,
    sequence=False,
    loss=False,
)
TORCHTITAN = Dialect(
    "torchtitan",
    "A parallelize_fn, its TrainSpec and a job config.",
    _of_torchtitan,
    target=("models of your files", "model.py:Class"),
    mesh=("over dp_replicate, dp and tp, in this order", "--mesh dp=2,tp=2"),
    fits=_titan_mesh,
    loss=False,
    added_up=True,
    package="torchtitan",
)
DIALECTS = {d.name: d for d in (PYTORCH, TRANSFORMERS, TORCHTITAN)}
