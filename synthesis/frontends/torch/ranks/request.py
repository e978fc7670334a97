"""What to capture: a parallel module on every rank of a mesh, and the model it must equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from shardproof.synthesis.frontends.torch.ranks.stated import LayoutLine
from shardproof.synthesis.frontends.torch.request import InputSpec, Limits
from shardproof.verifier.kernel.program.types import Mesh

MOST_RANKS = 256
"""Ranks that are traced, each with its own run of the code."""
TRAIN, EVAL, INFERENCE, FORWARD = "train", "eval", "inference", "forward"
"""Modes of a module: training, eval mode with gradients, and without, as inference runs it; train
mode without, as a forward that is run again for its backward."""
UNRECORDED = (INFERENCE, FORWARD)
"""Those without gradients."""
UNSTEPPED = "a pipeline steps on gradients, and there are none"
"""What is said of a pipeline that raises where no gradients are recorded."""
SAID = {
    TRAIN: "train mode",
    EVAL: "eval mode",
    INFERENCE: "eval mode under torch.no_grad()",
    FORWARD: "train mode under torch.no_grad()",
}
MODES = (TRAIN, EVAL)
"""Modes that may be asked for."""
MADE_UP = "made-up"
"""The checkpoint that is saved of the model itself."""


@dataclass(frozen=True)
class RanksRequest:
    """`target` and `against` are `path/file.py:Name`: a class, or a function that builds a module.

    `target` is built once for every rank, with those of `rank`, `world_size`, `mesh` and the like
    that it has arguments for; `against` on one device.
    """

    target: str
    against: str
    mesh: Mesh
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: tuple[InputSpec, ...] = ()
    batch: int | None = None
    seq: int | None = None
    gradients: bool = True
    names: tuple[tuple[str, str], ...] = ()
    """(name in the parallel module, name in the model), for parameters called differently."""
    input_layouts: tuple[LayoutLine, ...] = ()
    no_grad: tuple[str, ...] = ()
    """Float inputs of which no gradient is asked: a mask, say."""
    after_backward: str = ""
    """A function of the target's file that is called with the module after the backward."""
    tp_plan: str | Mapping[str, str] = ""
    """Of a class of transformers: `auto` for the plan that it is published with, or rules that
    override it, module or parameter pattern -> style."""
    load: str = ""
    """What is loaded: `made-up`, or a checkpoint in safetensors, of which names and shapes are
    read; nothing where it is empty."""
    load_with: str = ""
    """A function of the target's file that loads a module from the model's state dict."""
    modes: tuple[str, ...] = MODES
    """Those of `MODES` in which both must compute the same."""
    alone: bool = False
    """Whether the model is the target itself, on one rank."""
    device_free: bool = False
    """Whether calls that ask for a CUDA device are answered by the CPU."""
    full_depth: bool = True
    """Whether all layers are traced, where few of a kind tell what all do."""
    meanings: tuple[str, ...] = ()
    """Custom ops that are collectives: `vllm.all_reduce=all_reduce@tp`."""
    filled: tuple[str, ...] = ()
    """Names of the model, or patterns of these, whose layouts are stated: a buffer of floats among
    them is filled by something else than its constructor."""
    env: tuple[str, ...] = ()
    """Variables of the environment that the owner's code is given, each `NAME` or `NAME=VALUE`."""
    step: str = ""
    """A function of the ranks' file that is a training step: it is called with what TARGET returns
    and with the inputs, and what it leaves in parameters and optimizers is compared."""
    step_of_one: str = ""
    """That of the model's file, which it is compared with; empty: of the same name."""
    limits: Limits = field(default_factory=Limits)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RanksRequest:
        """What `to_json` made of one."""
        return TypeAdapter(cls).validate_python(data)
