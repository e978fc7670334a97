"""The integers that a model's tables admit, by a traced graph: an example shows only some."""

# pyright: basic

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from shardproof.synthesis.frontends.torch.integers import FIRST, JOINED
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.trace import Traced

SAME = frozenset(FIRST.split()) - {"gather", "index", "index_select"}
CLASSES = frozenset(["nll_loss_forward", "nll_loss_nd", "nll_loss", "cross_entropy_loss"])
ALONG = {"index_select": 1, "gather": 1, "scatter": 1, "scatter_add": 1, "index_add": 1}
"""Ops that look up along a dim, with the operand that says which; the index is the next one."""
AGAIN = frozenset(["embedding_dense_backward", "nll_loss_backward", "index_put", "eq", "ne"])
AGAIN |= {"lt", "le", "gt", "ge", "zeros_like", "ones_like", "full_like"}
"""Ops that read an index which was looked up before, or tell integers apart."""


def from_tables(traced: Traced, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """The inputs; integers whose bound is that of an example reach to the end of the smallest table
    that they are looked up in. Those that are computed with stay as the example has them."""
    places = {name: node for node, name in traced.inputs.items()}
    return tuple(
        replace(s, below=min(sizes))
        if s.sampled and s.name in places and (sizes := _sizes(places[s.name]))
        else s
        for s in specs
    )


def _sizes(start: fx.Node) -> set[int]:
    """Extents of the dims that entries of a value are looked up in; none where it has other uses
    too."""
    todo, seen, sizes = [start], {start}, set[int]()
    while todo:
        value = todo.pop()
        for user in value.users:
            name = getattr(user.target, "__name__", str(user.target)).partition(".")[0]
            size = _size(user, name, value)
            if size is not None:
                sizes.add(size)
                continue
            operands: Any = user.args
            kept = [operands[i] for i in JOINED.get(name, ()) if i < len(operands)]
            flat = [x for k in kept for x in (k if isinstance(k, list | tuple) else [k])]
            if (name in SAME and operands[0] is value) or value in flat:
                if not is_integer(user):
                    return set()
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
            elif user.op != "output" and name not in AGAIN:
                return set()
    return sizes


def _size(user: fx.Node, name: str, value: fx.Node) -> int | None:
    args: Any = user.args
    if name == "embedding" and args[1] is value:
        return _shape(args[0])[0]
    if name in CLASSES and args[1] is value:
        shape = _shape(args[0])
        return shape[1 if len(shape) > 1 else 0]
    if name in ALONG and len(args) > 2 and args[2] is value:
        shape = _shape(args[0])
        return shape[args[1]] if shape else None
    if name == "index" and any(found is value for found in args[1]):
        return _shape(args[0])[[found is value for found in args[1]].index(True)]
    return None


def _shape(node: Any) -> Any:
    return node.meta["val"].shape if isinstance(node, fx.Node) else ()


def is_integer(node: fx.Node) -> bool:
    """Whether a node holds integers, or several values."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype is None or not (dtype.is_floating_point or dtype.is_complex)
