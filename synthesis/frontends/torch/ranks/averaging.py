"""DistributedDataParallel as it is traced: PyTorch's own class, over a reducer in Python.

What PyTorch's class does is run as it stands: which parameters it takes, when it prepares the
reducer, `no_sync`, subclasses. Its reducer is C++ that reads the memory of parameters, which a
traced rank has none of. The one here averages the same parameters under the same conditions,
parameter by parameter, whatever the buckets.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks import sharded
from shardproof.synthesis.frontends.torch.ranks.collectives import backward_nodes
from shardproof.synthesis.frontends.torch.ranks.groups import dims_of
from shardproof.synthesis.frontends.torch.ranks.result import BUFFERS, USED, Event
from shardproof.synthesis.frontends.torch.ranks.spans import same_storage, storage
from shardproof.verifier.kernel.program.types import Mesh

_CHANGING = (
    "mixed_precision",
    "delay_all_reduce_named_params",
    "param_to_hook_all_reduce",
)
"""Options that change what is exchanged."""
_LENGTHS = ("shape", "size", "numel", "nelement", "nbytes", "len", "__len__", "stride", "__iter__")
_NO_HOOKS = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[4]}/")
"""Folders of code that asks for lengths on its own, as collectives do."""
_METHODS = ("/torch/_tensor.py", "/torch/overrides.py")
"""Where methods of tensors that are written in Python come from."""
_ALONE = ("allreduce_", "_to_copy", "copy_", "clone", "device", "detach", "empty_like")
"""Ops beside the pointwise ones that do something to each number of a bucket alone."""
_ALIKE = ("device_ids", "output_device", "static_graph")
"""Options that leave what is computed as it is, and that are not passed on: ranks are traced on
one device, and a static graph is reduced otherwise in its first call alone."""
_THEN: "WeakKeyDictionary[nn.Module, dict[str, str]]" = WeakKeyDictionary()
"""For each module that was wrapped: its buffers as its ranks were brought to those of the first."""


class Reducer:
    """What PyTorch's reducer does to gradients: once prepared for a backward, it waits until all
    of its parameters have their gradients, and averages them over the group."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        buckets: Any,
        limits: Any,
        group: Any,
        sparse: Any,
        cap: Any,
        find_unused: bool,
        views: Any,
        names: Mapping[int, str],
        *more: Any,
    ) -> None:
        self.parameters, self.group = parameters, group
        self.find_unused, self.names = find_unused, names
        self.spare = set[int]()
        """Those that a forward does not use, by number, where it is looked for them."""
        self.expected = False
        self.ready: dict[int, nn.Parameter] = {}
        self.hooks: list[Any] = []
        self.hook: Any = None
        """What gets a bucket instead of its average, where the owner registered it."""
        self.ran: list[Any] | None = None
        for index, p in enumerate(parameters):
            hook = functools.partial(self._accumulated, index)
            p.register_post_accumulate_grad_hook(hook)
            self.hooks.append(hook)

    def prepare_for_forward(self) -> None:
        pass

    def prepare_for_backward(self, outputs: list[torch.Tensor]) -> None:
        self._finished()
        self.expected, self.ready = True, {}
        if self.find_unused:
            self._leave_unused(outputs)

    def _rebuild_buckets(self) -> bool:
        self._finished()
        return False

    def _accumulated(self, index: int, p: nn.Parameter) -> None:
        if not self.expected:
            return
        if index in self.ready or index in self.spare:
            raise CaptureError(
                f"DistributedDataParallel: {self._named(index)} gets its gradient twice in one "
                "backward, which PyTorch's reducer raises at",
                hint="use the wrapped module once in each forward",
            )
        self.ready[index] = p
        if len(self.ready) + len(self.spare) == len(self.hooks):
            self.expected = False
            for number in sorted(self.ready):
                self._averaged(self.ready[number])
            self.ready = {}

    def _averaged(self, p: nn.Parameter) -> None:
        """A hook gets one parameter a bucket: what it does with each number alone it does in any
        bucket."""
        assert p.grad is not None
        if self.hook is None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=self.group)
            return
        with torch.no_grad():
            bucket = Bucket(p.grad.view(-1))
            with Sizeless(), NumberByNumber() as ran:
                made = self.hook(bucket).wait()
                (made,) = made if isinstance(made, (list, tuple)) else (made,)
            p.grad.copy_(made.view_as(p.grad))
        self.ran = ran.ops if self.ran is None else self.ran
        if self.ran != ran.ops:
            raise _refused("a communication hook runs other ops for another bucket")

    def _named(self, index: int) -> str:
        return self.names[index].lstrip(".")

    def _finished(self) -> None:
        """Raises CaptureError where a backward gave some parameters no gradient: PyTorch averages
        none of them then, and raises at the next forward."""
        if self.ready:
            waited = set(range(len(self.hooks))) - self.spare
            lost = [self._named(n) for n in sorted(waited - self.ready.keys())]
            raise CaptureError(
                f"DistributedDataParallel: the backward gives {lost[0]} no gradient, so that the "
                "reducer waits for it and averages none",
                hint="use every parameter in forward, or freeze those that are not used before "
                "the module is wrapped",
            )

    def _leave_unused(self, outputs: list[torch.Tensor]) -> None:
        """Gradients of parameters that no rank uses stay as they are. Which these are is to be
        alike: one that another rank uses is averaged with zeros."""
        reached = {id(p) for p in _leaves(outputs)}
        self.spare = {n for n, p in enumerate(self.parameters) if id(p) not in reached}
        ranks = tuple(dist.get_process_group_ranks(self.group))
        said = ", ".join(map(self._named, sorted(self.spare)))
        event = Event("alike", ranks, USED, 0, "", 0, "", self.group.group_name, said)
        for seen in _watching():
            seen.events.append(event)

    def _ignored(self, *args: Any) -> None:
        pass

    set_logger = _remove_autograd_hooks = _ignored

    def __getattr__(self, name: str) -> Any:
        raise _refused(f"the reducer of DistributedDataParallel is asked for {name}")


@dataclass(frozen=True)
class Bucket:
    """The gradient of one parameter as PyTorch gives it to a communication hook."""

    numbers: torch.Tensor

    def buffer(self) -> torch.Tensor:
        return self.numbers

    def __getattr__(self, name: str) -> Any:
        raise _refused(f"a communication hook asks for the {name} of a bucket")


class Sizeless(TorchFunctionMode):
    """Raises CaptureError where a communication hook asks how long a bucket is: PyTorch packs
    gradients into buckets of other lengths."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.endswith(_METHODS):
            frame = frame.f_back
        file = frame.f_code.co_filename
        if name in _LENGTHS and (not file.startswith(_NO_HOOKS) or "comm_hooks" in file):
            raise _refused(f"a communication hook asks for the {name.strip('_')} of a bucket")
        return func(*args, **(kwargs or {}))


class NumberByNumber(TorchDispatchMode):
    """Notes the ops of a communication hook. Raises CaptureError at one whose numbers are made of
    several of a bucket's: which these are hangs on the buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        same = func.is_view and made.shape == args[0].shape
        if not same and torch.Tag.pointwise not in func.tags and func._opname not in _ALONE:
            raise _refused(f"a communication hook runs {func}, whose result hangs on the buckets")
        self.ops.append((str(func), [a for a in args if type(a) in (int, float)]))
        return made


class Logger:
    """Takes what PyTorch's logger takes, and tells nobody."""

    def __init__(self, reducer: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _leaves(outputs: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Parameters that a backward of these reaches."""
    for node in backward_nodes(outputs):
        if isinstance(getattr(node, "variable", None), nn.Parameter):
            yield node.variable


def _refused(what: str) -> CaptureError:
    return CaptureError(
        f"{what}; it is traced with its own averaging in every backward",
        hint="check the module without communication hooks, join and mixed precision of DDP",
    )


def _no_hooks(*args: Any, **kwargs: Any) -> Any:
    raise _refused("DistributedDataParallel with a communication hook, join or a fused optimizer")


def _hooked(ddp: Any, state: Any, hook: Any) -> None:
    ddp.reducer.hook = functools.partial(hook, state)


def _buffers(module: nn.Module, ignored: Any) -> dict[str, torch.Tensor]:
    return {n: b for n, b in module.named_buffers() if n not in ignored}


def written(buffers: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """What each buffer holds, in short."""
    out: dict[str, str] = {}
    for name, b in buffers.items():
        held = b.detach().cpu().contiguous()
        data = b"" if is_fake(b) else held.reshape(-1).view(torch.uint8).numpy().tobytes()
        out[name] = f"{b.dtype}{list(b.shape)} {hashlib.sha256(data).hexdigest()[:12]}"
    return out


def _same_states(
    module: nn.Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Any,
    broadcast_buffers: bool = True,
) -> None:
    """Stands for the broadcast of parameters, which hold no numbers yet, and of buffers."""
    if broadcast_buffers:
        _THEN[module] = written(_buffers(module, params_and_buffers_to_ignore))


def _same_buffers(ddp: Any, buffers: Sequence[torch.Tensor], size: int, rank: int = 0) -> None:
    """Stands for the broadcast before a forward: buffers are alike when it is called, which
    `meets` holds them to, and here, that forward has not changed them since."""
    for seen in _watching():
        for changed in seen.written:
            if any(same_storage(changed, storage(b)) for b in buffers):
                raise CaptureError(
                    "forward changes a buffer of a DistributedDataParallel before this one "
                    "broadcasts that of its first rank",
                    hint="give it forward_sync_buffers=False, or call it once",
                )


def _watching() -> Iterator[Any]:
    """What watches the rank that is traced just now has seen."""
    found = (getattr(mode, "seen", None) for mode in _get_current_dispatch_mode_stack())
    return (seen for seen in found if seen is not None)


def meets(model: nn.Module, buffers: Mapping[str, torch.Tensor], file: str) -> list[Event]:
    """What ranks must have alike, as one of them has it: the buffers that a
    DistributedDataParallel in the model broadcasts, when it was made and now."""
    out: list[Event] = []
    for path, ddp in _wrappers(model):
        inside = f"{path}.module." if path else "module."
        own = {
            n.removeprefix(inside): b
            for n, b in buffers.items()
            if n.startswith(inside) and n.removeprefix(inside) not in ddp.parameters_to_ignore
        }
        now = written(own) if ddp.forward_sync_buffers else {}
        for held in (_THEN.get(ddp.module, {}), now):
            ranks = tuple(dist.get_process_group_ranks(ddp.process_group))
            group = ddp.process_group.group_name
            out += [
                Event("alike", ranks, f"{BUFFERS} {inside}{name}", 0, file, 0, "", group, said)
                for name, said in held.items()
            ]
    return out


def mesh_dims(model: nn.Module, rank: int, mesh: Mesh) -> tuple[str, ...]:
    """The mesh dims along which DistributedDataParallel or fully_shard averages gradients."""
    groups = [ddp.process_group for _, ddp in _wrappers(model)] + [*sharded.averaging(model)]
    found = [dims_of(dist.get_process_group_ranks(g), rank, mesh) or () for g in groups]
    return tuple(dict.fromkeys(d for dims in found for d in dims))


def _wrappers(model: nn.Module) -> list[tuple[str, Any]]:
    found = model.named_modules()
    return [(path, m) for path, m in found if isinstance(m, DistributedDataParallel)]


def refuse_other_hooks(model: nn.Module, file: str) -> None:
    """Raises CaptureError where a gradient is changed beside its averaging: which comes first is
    the reducer's to say."""
    for path, module in _wrappers(model):
        for name, p in module.module.named_parameters():
            hooks = (getattr(p, "_post_accumulate_grad_hooks", None) or {}).values()
            if any(hook not in module.reducer.hooks for hook in hooks):
                raise CaptureError(
                    f"{name} has a hook on its accumulated gradient, and "
                    f"{path or 'the module'} is a DistributedDataParallel that averages it",
                    file=file,
                    hint="which of them comes first is not known: register the hook with "
                    "Tensor.register_hook, or average by hand",
                )


def refuse_unfinished(model: nn.Module) -> None:
    """Raises CaptureError where a backward was over before a reducer was."""
    for _, module in _wrappers(model):
        module.reducer._finished()


def _made(original: Any) -> Any:
    """The constructor, held to options that are covered."""

    @functools.wraps(original)
    def make(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        names = ("device_ids", "output_device", "dim", "broadcast_buffers", "init_sync")
        kwargs |= dict(zip((*names, "process_group"), args, strict=False))
        for name in _CHANGING:
            if kwargs.get(name) is not None:
                raise CaptureError(
                    f"DistributedDataParallel with {name} is not covered",
                    hint="leave it out: it changes what is exchanged",
                )
        original(self, module, **{k: v for k, v in kwargs.items() if k not in _ALIKE})

    return make


def stand_in() -> None:
    """From now on, in this process, DistributedDataParallel has the reducer of this file."""
    parallel: Any = sys.modules[DistributedDataParallel.__module__]
    kind: Any = DistributedDataParallel
    torch_dist: Any = dist
    torch_dist.Reducer, torch_dist.Logger = Reducer, Logger
    parallel._verify_param_shape_across_processes = lambda *args: None
    parallel._sync_module_states = _same_states
    kind.__init__ = _made(kind.__init__)
    kind._distributed_broadcast_coalesced = _same_buffers
    kind.register_comm_hook = _hooked
    kind._register_builtin_comm_hook = _no_hooks
    kind._register_buffer_comm_hook = kind._register_fused_optim = kind.join = _no_hooks
