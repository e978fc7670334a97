"""Ops of PyTorch without a rule of ours are opened by PyTorch's own decompositions."""

# pyright: basic

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch

from shardproof.synthesis.frontends.torch.aten.complex_pairs import COMPLEX
from shardproof.synthesis.frontends.torch.aten.table import TABLE

_MORE = (
    *("addmv", "tan", "hardtanh", "leaky_relu", "elu", "isinf", "dist", "any"),
    *("grid_sampler_2d", "upsample_bicubic2d", "linalg_vector_norm"),
    "native_layer_norm",
)
"""Opened besides those that PyTorch lists for its core."""


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Aten op -> what computes it by others, for those that no rule reads. None that is random, and
    none that makes or views a tensor without reading an entry."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    more = {op: f for op, f in decomposition_table.items() if _name(op) in _MORE}
    table = {**more, **dict(core_aten_decompositions().items())}
    norm = torch.ops.aten.linalg_vector_norm.default
    table[norm] = partial(_norm, table[norm])
    return {op: f for op, f in table.items() if _is_open(op)} | dict(_each()) | _WRITTEN


def _unscale(grads: Sequence[Any], found: Any, factor: Any) -> None:
    """Of finite gradients, whose scale a GradScaler takes off."""
    for grad in grads:
        grad.mul_(factor)


def _grow(scale: Any, steps: Any, found: Any, growth: float, backoff: float, every: int) -> Any:
    """The scale of a GradScaler after a step with finite gradients."""
    full = steps + 1 == every
    scale.mul_(torch.where(full, growth, 1.0))
    steps.copy_(torch.where(full, 0, steps + 1))
    return scale


def _lerp(start: Any, end: Any, weight: float) -> Any:
    """PyTorch's own rounds the weight to the type of the tensors; two of a weight and what is left
    of one would then not be one."""
    return start + weight * (end - start)


def _margins(
    grad: Any, x: Any, target: Any, p: int, margin: float, weight: Any = None, reduction: int = 1
) -> Any:
    """The backward of multi_margin_loss: of what is above the margin, in each row."""
    rows, target = torch.atleast_2d(x), torch.atleast_1d(target).unsqueeze(1)
    apart = margin - rows.gather(1, target) + rows
    others = torch.arange(rows.shape[1], device=x.device) != target
    slope = torch.where((apart > 0) & others, 1.0 if p == 1 else 2 * apart, 0.0)
    slope = slope if weight is None else slope * weight[target]
    slope = torch.where(others, slope, -slope.sum(1, keepdim=True)) / rows.shape[1]
    slope = slope / rows.shape[0] if reduction == 1 else slope
    return (slope * (grad if reduction else torch.atleast_1d(grad).unsqueeze(1))).view_as(x)


_WRITTEN = {
    torch.ops.aten.multi_margin_loss_backward.default: _margins,
    torch.ops.aten.lerp.Scalar: _lerp,
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
    torch.ops.aten._amp_update_scale_.default: _grow,
}


def _norm(
    general: Callable[..., Any], x: Any, ord: float = 2, dim: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """PyTorch's own takes the absolute value of a single number, which may be all that a rank has
    of many: the root of a sum of squares says that the ranks' parts add up."""
    alone = all(x.shape[d] == 1 for d in (range(x.dim()) if dim is None else dim))
    if ord != 2 or not alone or x.dtype not in (torch.float32, torch.float64):
        return general(x, ord, dim, *args, **kwargs)
    keepdim = kwargs.get("keepdim", bool(args) and args[0])
    squares = torch.sum((x * x), dim=dim, keepdim=keepdim, dtype=kwargs.get("dtype"))
    return torch.sqrt(squares)


def _each() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Ops on lists of tensors, as optimizers run them, with what runs an op on each."""
    every = (n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names())
    for full in (n for n in every if n.startswith(_LISTS)):
        name, _, overload = full.partition(".")
        op = getattr(getattr(torch.ops.aten, name), overload or "default")
        own = _OF_EACH.get(short := name.removeprefix(_LISTS), short)
        if hasattr(torch.ops.aten, own) and not any(a.is_out for a in op._schema.arguments):
            yield op, partial(_one_by_one, getattr(torch.ops.aten, own), bool(op._schema.returns))


def _one_by_one(op: Any, gives: bool, *args: Any, **kwargs: Any) -> list[Any] | None:
    if _name_of(op) in _VALUED and len(args) == 4:
        args, kwargs = args[:3], {"value": args[3], **kwargs}
    out: list[Any] = []
    for i in range(len(args[0])):
        named = {k: v for k, v in kwargs.items() if v is not None}
        out.append(op(*(_at(a, i) for a in args), **{k: _at(v, i) for k, v in named.items()}))
    return out if gives else None


def _at(value: Any, number: int) -> Any:
    return value[number] if isinstance(value, (list, tuple)) else value


def _name_of(packet: Any) -> str:
    return packet._qualified_op_name.removeprefix("aten::")


_LISTS = "_foreach_"
_OF_EACH = {"norm": "linalg_vector_norm"}
_VALUED = ("addcdiv", "addcdiv_", "addcmul", "addcmul_")
"""Ops that take their factor by name."""


def _name(op: Any) -> str:
    return op.__name__.partition(".")[0] if isinstance(op, torch._ops.OpOverload) else ""


def _is_open(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return False
    if op.__name__ in TABLE or op.__name__ in COMPLEX:
        return False
    schema = op._schema
    if torch.Tag.nondeterministic_seeded in op.tags or op.is_view:
        return False
    if schema.is_mutable:
        return False
    reads = any("Tensor" in str(a.type) for a in schema.arguments)
    return reads and not _name(op).startswith(("empty", "new_", "zeros", "ones", "full"))
