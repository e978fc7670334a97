"""DistributedDataParallel as it is traced: gradients are averaged as soon as they are there.

PyTorch's reducer is C++ that no op is seen of. What stands in for it does what its documentation
says, parameter by parameter, whatever the buckets.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from synthesis.frontends.torch.errors import CaptureError

_PLAIN = {
    "device_ids",
    "output_device",
    "dim",
    "broadcast_buffers",
    "init_sync",
    "bucket_cap_mb",
    "find_unused_parameters",
    "check_reduction",
    "gradient_as_bucket_view",
    "static_graph",
    "skip_all_reduce_unused_params",
}
"""Options that leave what is computed as it is."""


class DistributedDataParallel(nn.Module):
    """The module, with its gradients averaged over the group.

    Raises:
        CaptureError: an option, or a call, that changes what is exchanged.
    """

    def __init__(
        self, module: nn.Module, *, process_group: Any = None, device_mesh: Any = None, **more: Any
    ) -> None:
        super().__init__()
        for name, value in more.items():
            if name not in _PLAIN and value is not None:
                raise CaptureError(
                    f"DistributedDataParallel with {name} is not covered",
                    hint="leave it out: it changes what is exchanged",
                )
        self.module = module
        group = process_group if device_mesh is None else device_mesh.get_group()

        def average(p: torch.Tensor) -> None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=group)

        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(average)
        self.averages = average

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise CaptureError(
            "DistributedDataParallel is traced with its own averaging in every backward",
            hint="check the module without no_sync, join and communication hooks",
        )

    no_sync = join = register_comm_hook = _refused


def refuse_other_hooks(model: nn.Module, file: str) -> None:
    """Raises CaptureError where a gradient is changed beside its averaging: which comes first is
    the reducer's to say."""
    for path, module in model.named_modules():
        if not isinstance(module, DistributedDataParallel):
            continue
        for name, p in module.module.named_parameters():
            hooks = (getattr(p, "_post_accumulate_grad_hooks", None) or {}).values()
            if any(hook is not module.averages for hook in hooks):
                raise CaptureError(
                    f"{name} has a hook on its accumulated gradient, and "
                    f"{path or 'the module'} is a DistributedDataParallel that averages it",
                    file=file,
                    hint="which of them comes first is not known: register the hook with "
                    "Tensor.register_hook, or average by hand",
                )


def stand_in() -> None:
    """From now on, in this process, code that asks PyTorch for the wrapper gets this one."""
    parallel: Any = nn.parallel
    parallel.DistributedDataParallel = DistributedDataParallel
    parallel.distributed.DistributedDataParallel = DistributedDataParallel
