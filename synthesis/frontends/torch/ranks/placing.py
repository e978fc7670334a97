"""Watches a model being parallelized: its parameters and buffers may be placed, never changed.

A program says of a parameter where it is, not what it holds: that a rank holds its piece of the
owner's weights follows from how it came to be there.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.collectives import DEVICE
from shardproof.synthesis.frontends.torch.ranks.dtensors import local
from shardproof.synthesis.frontends.torch.ranks.places import Places

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_PLACING = tuple(
    str(Path(torch.distributed.__file__).parent / name)
    for name in ("tensor/", "fsdp/", "_composable/", "device_mesh.py", "_mesh_layout.py")
)
"""Where PyTorch splits tensors over ranks and leaves their values."""
_ENTRIES = ("distribute_tensor", "distribute_module", "parallelize_module", "fully_shard", "_apply")
"""PyTorch's functions that give each rank the piece that the placements say."""
_FSDP: Any = _fsdp_param
_CHUNKS = _FSDP._chunk_with_empty
"""As PyTorch has it, before other code is imported."""
_ITSELF = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


class Placing(TorchDispatchMode):
    """Records whose values each tensor has, while parameters and buffers are placed.

    Tensors may be made and written by PyTorch's own placement code alone (DTensor, FSDP2): every
    other op that gives or writes a tensor, be it of the patched code or of a function it calls,
    is refused, with its line.
    """

    def __init__(self, model: nn.Module, places: Places) -> None:
        super().__init__()
        self.places = places
        self.kept: list[Any] = []
        self.origin: dict[int, frozenset[str]] = {}
        self.names: dict[str, str] = {}
        for name, value in _held(model):
            here = self.origin.setdefault(self._storage(value), frozenset((name,)))
            self.names[name] = next(iter(here))
        self.whole = frozenset(self.origin)
        self.shapes = {name: tuple(value.shape) for name, value in _held(model)}

    def _storage(self, value: Any) -> int:
        """The storage of a tensor, which is kept: another may not get its number."""
        self.kept.append(storage := local(value).untyped_storage())
        return storage._cdata

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is DEVICE and isinstance(args[0], FakeTensor):
            return args[0].device
        result = func(*args, **(kwargs or {}))
        made = _tensors(result)
        schema = func._schema
        if not made and not schema.is_mutable:
            return result
        if not placed_by_torch():
            self._refuse_unless_itself(func)
        read = _tensors((args, kwargs))
        found = [self.origin.get(self._storage(t), frozenset[str]()) for t in read]
        names = frozenset[str]().union(*found)
        written = [t for t in read if schema.is_mutable] + made
        for value in written:
            key = self._storage(value)
            self.origin[key] = self.origin.get(key, frozenset()) | names
        return result

    def __enter__(self) -> Any:
        """What a piece is, only PyTorch's own placement functions say, for as long as this runs."""
        tensor: Any = DTensor
        self.ways = [
            (tensor, "__new__", self._making(tensor.__new__)),
            (tensor, "from_local", self._from_local(tensor.from_local)),
            (tensor, "redistribute", self._by_torch(tensor.redistribute, "DTensor.redistribute")),
            (DTensorSpec, "__setattr__", self._by_torch(DTensorSpec.__setattr__, "a DTensorSpec")),
        ]
        for name in ("_spec", "_local_tensor"):
            slot = vars(tensor)[name]
            way = property(slot.__get__, self._by_torch(slot.__set__, f"DTensor.{name}"))
            self.ways.append((tensor, name, way))
        self.before = [(owner, name, vars(owner)[name]) for owner, name, _ in self.ways]
        for owner, name, way in self.ways:
            setattr(owner, name, way)
        self.cutting = cut_when_asked()
        self.cutting.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.cutting.__exit__(*error)
        for owner, name, way in self.before:
            setattr(owner, name, way)
        super().__exit__(*error)

    def _by_torch(self, function: Any, what: str) -> Any:
        """The function, for PyTorch's placement code alone."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not _asked():
                self._refuse_saying(what)
            return function(*args, **kwargs)

        return call

    def _making(self, function: Any) -> Any:
        def make(kind: Any, local_tensor: Any, spec: Any, **kwargs: Any) -> Any:
            if not _asked() or any(p.is_partial() for p in spec.placements):
                self._refuse_saying("DTensor")
            return function(kind, local_tensor, spec, **kwargs)

        return staticmethod(make)

    def _from_local(self, function: Any) -> Any:
        """A whole parameter is a replicated DTensor, as the styles of PyTorch say of those that
        they do not split."""

        def make(tensor: Any, mesh: Any = None, placements: Any = None, **kwargs: Any) -> Any:
            same = all(p.is_replicate() for p in placements or (Replicate(),))
            if not (same and _asked() and self._whole(tensor)):
                self._refuse_saying("DTensor.from_local")
            return function(tensor, mesh, placements, **kwargs)

        return staticmethod(make)

    def _refuse_saying(self, what: str) -> None:
        raise CaptureError(
            f"`parallelize` makes or changes {what} by itself: what the pieces hold is not known",
            **self._line(),
            hint="place parameters with distribute_tensor, parallelize_module or fully_shard",
        )

    def _whole(self, value: Any) -> bool:
        """Whether a plain tensor is one of the model's, as the owner made it."""
        return not isinstance(value, DTensor) and self._storage(value) in self.whole

    def _refuse_unless_itself(self, func: Any) -> None:
        if func in _ITSELF:
            return
        raise CaptureError(
            f"`parallelize` calls {func}: it may place parameters, not compute with tensors",
            **self._line(),
            hint="compute in the model, and place parameters with DTensor or fully_shard",
        )

    def _line(self) -> dict[str, Any]:
        file, line, text = self.places.of(self.places.frame(sys._getframe(2)))
        return {"file": file, "line": line, "text": text}

    def refuse_changed(self, model: nn.Module, file: str) -> None:
        """Raises CaptureError where a parameter or buffer is not the owner's, placed."""
        now = dict(_held(model))
        for name in self.names.keys() | now.keys():
            if name not in now:
                raise CaptureError(f"parallelize takes {name} away", file=file)
            known = self.names.get(name)
            if known is None:
                raise CaptureError(f"parallelize adds {name}, which the model has not", file=file)
            if self.origin.get(self._storage(now[name])) != {known}:
                raise CaptureError(f"parallelize changes the values of {name}", file=file)
            placed = isinstance(now[name], DTensor) or self._whole(now[name])
            if not placed or tuple(now[name].shape) != self.shapes[name]:
                raise CaptureError(f"parallelize puts a piece in place of {name}", file=file)
        for name, buffer in model.named_buffers(remove_duplicate=False):
            if isinstance(buffer, DTensor) and not all(p.is_replicate() for p in buffer.placements):
                raise CaptureError(f"parallelize splits the buffer {name}", file=file)


class Chunks(Sequence[Any]):
    """The chunks of a tensor, of which FSDP2 takes its own and the first: each made when asked
    for. Those past the end are empty."""

    def __init__(self, tensor: Any, num_chunks: int, dim: int) -> None:
        self.tensor, self.number, self.dim = tensor, num_chunks, dim
        self.size = -(-tensor.size(dim) // num_chunks)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        start = range(self.number)[index] * self.size
        left = self.tensor.size(self.dim) - start
        if self.size and left <= 0:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, start, min(self.size, left))


@contextmanager
def cut_when_asked() -> Iterator[None]:
    """FSDP2 makes of each parameter the chunks that it takes, not one for each rank. A function
    that other code has put in place of PyTorch's stays."""
    ours = _FSDP._chunk_with_empty is _CHUNKS
    if ours:
        _FSDP._chunk_with_empty = Chunks
    try:
        yield
    finally:
        if ours and _FSDP._chunk_with_empty is Chunks:
            _FSDP._chunk_with_empty = _CHUNKS


def _held(model: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _tensors(values: Any) -> list[Any]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor)]


def placed_by_torch() -> bool:
    """Whether PyTorch's placement code runs the op that is dispatched here, called by no other code
    that it called."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _OURS)):
        if frame.f_code.co_filename.startswith(_PLACING):
            return True
        frame = frame.f_back
    return False


def _asked() -> bool:
    """Whether one of the functions that place tensors is at work, and none but PyTorch's code.

    What an op does within itself is asked for as well: the op is looked at by itself.
    """
    frame = sys._getframe(2)
    while frame is not None and (_torch_frame(frame) or frame.f_code.co_filename == __file__):
        code = frame.f_code
        if code is Placing.__torch_dispatch__.__code__:
            return True
        if code.co_name in _ENTRIES and code.co_filename.startswith(_PLACING):
            return True
        frame = frame.f_back
    return False


def _torch_frame(frame: FrameType) -> bool:
    """Whether a frame is of PyTorch, as the methods are that it writes for its dataclasses."""
    file = frame.f_code.co_filename
    module = str(frame.f_globals.get("__name__"))
    return file.startswith(_TORCH) or (file == "<string>" and module.startswith("torch."))
