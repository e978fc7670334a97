"""A message to another rank, and one from it, as ops of a traced rank."""

# pyright: basic
# (PyTorch has no types for what is used here.)

import torch

from shardproof.synthesis.frontends.torch.aten.table import Emit, aten
from shardproof.synthesis.frontends.torch.errors import CaptureError

SENT = "shardproof_frontend::message_sent"
RECEIVED = "shardproof_frontend::message_received"


@torch.library.custom_op(SENT, mutates_args=())
def _sent(value: torch.Tensor, mesh_dim: str, mine: int, theirs: int) -> torch.Tensor:
    raise CaptureError("a message holds no value")


@torch.library.custom_op(RECEIVED, mutates_args=())
def _received(like: torch.Tensor, mesh_dim: str, mine: int, theirs: int) -> torch.Tensor:
    raise CaptureError("a message holds no value")


@_sent.register_fake
@_received.register_fake
def _(like: torch.Tensor, mesh_dim: str, mine: int, theirs: int) -> torch.Tensor:
    return torch.empty_like(like)


@aten(f"{SENT}.default")
def message_sent(e: Emit, value: str, mesh_dim: str, mine: int, theirs: int) -> str:
    return e.add("send", value, mesh_dim=mesh_dim, src=mine, dst=theirs)


@aten(f"{RECEIVED}.default")
def message_received(e: Emit, like: str, mesh_dim: str, mine: int, theirs: int) -> str:
    """The operand is an input: what comes is not known on this rank."""
    name = e.b.fresh("message")
    e.b.input(name, e.type(like), "input", name)
    return e.add("recv", name, mesh_dim=mesh_dim, src=theirs, dst=mine)
