"""The calls of PyTorch's Python API that a run makes, so that runs with and without gradients can
be compared: which ATen ops a call comes to may depend on that, what the code calls may not.
"""

# pyright: basic

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree

_TORCH = str(Path(str(torch.__file__)).parent)
_OURS = str(Path(__file__).parent)
_SILENT = ("requires_grad", "detach", "is_leaf", "grad_fn", "set_grad")
"""Parts of the names of calls that gradients alone ask for."""

_PLAIN = (bool, int, float, complex, str, type(None), type(...), slice, range, torch.dtype,
          torch.device, torch.layout, torch.memory_format, torch.Size)  # fmt: skip


@dataclass(frozen=True)
class ApiCall:
    """One call, with the names of what it reads."""

    name: str
    read: tuple[str, ...]
    file: str
    line: int


class ApiCalls(TorchFunctionMode):
    """Notes the calls that give tensors, each with the user's line."""

    def __init__(self, leaves: dict[int, str]) -> None:
        super().__init__()
        self.made: list[ApiCall] = []
        self.returned: list[str] = []
        self._names = dict(leaves)
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = pytree.tree_leaves((args, sorted(kwargs.items())))
        read = tuple(self.name(v) for v in given)
        result = func(*args, **kwargs)
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        name = resolve_name(func) or getattr(func, "__name__", "")
        if name.endswith("__get__") or any(part in name for part in _SILENT):
            for t in tensors:
                self._name(
                    t, next((self.name(a) for a in given if isinstance(a, torch.Tensor)), "")
                )
            return result
        if tensors:
            file, line = _user_line()
            self.made.append(ApiCall(name, read, file, line))
            for number, t in enumerate(tensors):
                self._name(t, f"{len(self.made)}.{number}")
        return result

    def _name(self, t: torch.Tensor, name: str) -> None:
        if id(t) not in self._names:
            self._names[id(t)] = name
            self._kept.append(t)

    def name(self, value: Any) -> str:
        """A tensor by the call that made it, anything else by what it is."""
        if isinstance(value, torch.Tensor):
            return self._names.get(id(value), f"other {tuple(value.shape)}")
        return repr(value) if isinstance(value, _PLAIN) else type(value).__name__


def _user_line() -> tuple[str, int]:
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, _OURS, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def parting(first: ApiCalls, second: ApiCalls) -> ApiCall | None:
    """The first call that only one of two runs makes."""
    a, b = first.made, second.made
    for x, y in zip(a, b, strict=False):
        if x != y:
            return y
    longer = a if len(a) > len(b) else b
    return longer[min(len(a), len(b))] if len(a) != len(b) else None
