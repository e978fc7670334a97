"""Sparse buffers. The language has no sparse tensors: a model is built without these buffers, and
its forward must do without."""

# pyright: basic

from typing import Any

import torch
from torch import nn

from shardproof.synthesis.frontends.torch.errors import CaptureError


class LeftOut:
    """What a module holds in place of a sparse buffer; raises CaptureError where it is read."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _refuse(self) -> None:
        raise CaptureError(
            f"forward reads the buffer {self._path}, which is sparse: sparse tensors are not "
            "covered",
            hint="register it dense: `.to_dense()`",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (*args, *(kwargs or {}).values())
        next(a for a in given if isinstance(a, cls))._refuse()


def without_sparse(model: Any) -> Any:
    """The model, its sparse buffers exchanged for what refuses to be read."""
    for path, module in model.named_modules() if isinstance(model, nn.Module) else ():
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and buffer.layout is not torch.strided:
                del module._buffers[name]
                vars(module)[name] = LeftOut(f"{path}.{name}".lstrip("."))
    return model


def told(model: nn.Module) -> list[str]:
    """The sentence about the buffers that a model was built without, if there are any."""
    held = (v for m in model.modules() for v in vars(m).values())
    names = sorted(v._path for v in held if isinstance(v, LeftOut))
    if not names:
        return []
    return [f"Sparse buffers are left out, and forward does not read them: {', '.join(names)}."]
