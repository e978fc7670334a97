"""Puts a model into train or eval mode, of which nothing but flags may follow.

A class may write `train` anew: to merge weights, or to fill a cache. What that does is no part of
a call, so no trace would have it.
"""

# pyright: basic

from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shardproof.synthesis.frontends.torch.digest import written_by
from shardproof.synthesis.frontends.torch.errors import CaptureError

M = TypeVar("M", bound=nn.Module)


def in_mode(model: M, train: bool) -> M:
    """The model in a mode.

    Raises:
        CaptureError: to put it there changes what a parameter or a buffer holds.
    """
    if not _is_written_anew(model):
        return model.train(train)
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {name: _place(t) for name, t in held.items()}
    with _Writes() as writes:
        model.train(train)
    now = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, t in now.items():
        if name not in before or before[name] != _place(t) or _place(t) in writes.places:
            mode = "train" if train else "eval"
            raise CaptureError(
                f"to put {type(model).__name__} into {mode} mode changes {name}",
                hint="change weights before the model is given, or compute what is needed in "
                "forward",
            )
    return model


def _is_written_anew(model: nn.Module) -> bool:
    own = (nn.Module.train, nn.Module.eval)
    return any(
        (getattr(type(m), "train", None), getattr(type(m), "eval", None)) != own
        or "train" in vars(m)
        or "eval" in vars(m)
        for m in model.modules()
    )


def _place(t: torch.Tensor) -> int:
    return getattr(t, "_local_tensor", t).untyped_storage()._cdata


class _Writes(TorchDispatchMode):
    """Where ops write."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.places |= {_place(t) for t in written_by(func, args, kwargs)}
        return func(*args, **kwargs)
