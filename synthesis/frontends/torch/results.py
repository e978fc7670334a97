"""What a `forward` returns, as named tensors.

The processes of a run read this file too: it imports nothing of shardproof.
"""

# pyright: basic

import ast
import inspect
import textwrap
from typing import Any

import torch


def flatten_result(result: Any, names: tuple[str, ...] = ()) -> list[tuple[str, torch.Tensor]]:
    """Named tensors of what a `forward` returned: a tensor, a tuple, a dict or a dataclass."""
    if isinstance(result, torch.Tensor):
        return [(names[0] if len(names) == 1 else "output", result)]
    if isinstance(result, dict):
        out: list[tuple[str, torch.Tensor]] = []
        for key, value in result.items():
            out += [(f"{key}{n.removeprefix('output')}", t) for n, t in flatten_result(value)]
        return out
    if isinstance(result, (tuple, list)):
        out = []
        for i, value in enumerate(result):
            label = names[i] if len(names) == len(result) else f"output.{i}"
            out += [(f"{label}{n.removeprefix('output')}", t) for n, t in flatten_result(value)]
        return out
    if hasattr(result, "__dataclass_fields__"):
        return flatten_result({k: getattr(result, k) for k in result.__dataclass_fields__})
    return []


def beside_tensors(result: Any, name: str = "output") -> list[str]:
    """What a `forward` returned that is no tensor, and in which none is looked for, with its
    class."""
    if result is None or isinstance(result, torch.Tensor):
        return []
    if hasattr(result, "__dataclass_fields__"):
        result = {k: getattr(result, k) for k in result.__dataclass_fields__}
    if isinstance(result, dict):
        return [n for k, v in result.items() for n in beside_tensors(v, f"{name}.{k}")]
    if isinstance(result, (tuple, list)):
        return [n for k, v in enumerate(result) for n in beside_tensors(v, f"{name}.{k}")]
    return [f"{name} ({type(result).__name__})"]


def named_outputs(
    result: Any, names: tuple[str, ...] = ()
) -> tuple[list[tuple[str, torch.Tensor]], str | None]:
    """Named tensors that a `forward` returned, and the name of the loss among them.

    The loss is a scalar float that needs a gradient: the one called `loss`, else the first, which
    is called `loss` if the code gives it no name.
    """
    named = flatten_result(result, names)
    scalars = [n for n, t in named if t.ndim == 0 and t.is_floating_point() and t.requires_grad]
    if not scalars:
        return named, None
    loss = "loss" if "loss" in scalars else scalars[0]
    if loss.startswith("output"):
        named = [("loss" if n == loss else n, t) for n, t in named]
        loss = "loss"
    return named, loss


def returned_names(forward: Any) -> tuple[str, ...]:
    """Variable names in the `return` statements of a function, where they all agree."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return ()
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            found.add(tuple(i.id if isinstance(i, ast.Name) else "" for i in items))
    if len(found) != 1:
        return ()
    names = found.pop()
    return names if all(names) and len(set(names)) == len(names) else ()


def returned_losses(step: Any) -> tuple[str, ...]:
    """The names of what a step returns of variables from which it runs a backward, as
    `flatten_result` has them."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(step)))
    except (OSError, TypeError, SyntaxError):
        return ()
    run = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    run = [n for n in run if getattr(n.func, "attr", "") == "backward"]
    inner = [part for n in run for part in ast.walk(n)]
    started = {n.id for n in inner if isinstance(n, ast.Name)}
    names, found = returned_names(step), set[str]()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Return) else None
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        for i, item in enumerate(items):
            while isinstance(item, (ast.Call, ast.Attribute)):
                item = item.func if isinstance(item, ast.Call) else item.value
            if isinstance(item, ast.Name) and item.id in started:
                label = names[i] if names else "output"
                found.add(f"{label}.{i}" if len(items) > 1 and not names else label)
    return tuple(sorted(found))
