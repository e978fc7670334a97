"""Buffers that a call changes: what they hold before is given, what they hold after is an output.

So is a tensor that a module keeps as a plain attribute, such as a cache of keys and values. One
that the model does not have, as room to work in, must be written before it is read.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.pairing import STATE
from shardproof.synthesis.frontends.torch.ranks.spans import held_beside
from shardproof.synthesis.frontends.torch.ranks.writes import is_view
from shardproof.synthesis.frontends.torch.trace import Traced


class KeptError(CaptureError):
    """A call writes into a tensor that a module keeps as a plain attribute: `name`."""

    def __init__(self, name: str, **place: Any) -> None:
        super().__init__(
            f"{name} is written and is neither parameter nor buffer: a second call would read "
            "what the first wrote",
            hint=f"register it: register_buffer({name.rpartition('.')[2]!r}, ...)",
            **place,
        )
        self.name = name


def writes(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Ops that write into tensors which the graph is given or holds, each with the node of that."""
    bases: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "placeholder"):
            bases[node] = node
        if node.op != "call_function":
            continue
        written = _written(node)
        yield from ((node, bases[n]) for n in written if n in bases)
        source = next(iter(written or node.all_input_nodes), None)
        if source in bases and (written or is_view(node)):
            bases[node] = bases[source]


def _written(node: fx.Node) -> list[fx.Node]:
    """The operands that an op writes into."""
    schema = getattr(node.target, "_schema", None)
    out: list[fx.Node] = []
    for number, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
            out += [n for n in tree_leaves(given) if isinstance(n, fx.Node)]
    return out


def as_buffer(model: nn.Module, name: str) -> torch.Tensor:
    """A tensor that a module keeps as a plain attribute becomes a buffer of it."""
    path, _, own = name.rpartition(".")
    module = model.get_submodule(path)
    value = vars(module).pop(own).detach()
    module.register_buffer(own, value, persistent=False)
    return value


def refuse_shared(
    buffers: Mapping[str, torch.Tensor], attributes: Mapping[int, str], states: set[str]
) -> None:
    """Raises CaptureError for a buffer that a call changes, and with it what else lies there.

    Args:
        buffers: their values, as the module was built.
        attributes: tensors that modules keep as plain attributes, by their storage.
    """
    places = {n: t.untyped_storage()._cdata for n, t in buffers.items()}
    for name in states & places.keys():
        others = [n for n, place in places.items() if place == places[name] and n != name]
        others += [attributes[places[name]]] if places[name] in attributes else []
        others += ["a tensor that something else keeps"] if held_beside(buffers[name]) else []
        if others:
            raise CaptureError(f"the buffer {name} is changed, and shares memory with {others[0]}")


def name_states(traced: Traced, names: Mapping[str, str]) -> None:
    """Outputs that are buffers after the call, by the model's names; those without one are memory
    that nothing was written to, and no outputs."""
    last = len(traced.outputs) - len(traced.state)
    found, traced.outputs = traced.outputs[last:], traced.outputs[:last]
    traced.outputs += [("output", STATE + names[n], v) for _, n, v in found if n in names]
    for node, name in list(traced.buffers.items()):
        if name in traced.state and name not in names:
            _as_empty(traced.graph, node, {v for _, _, v in traced.outputs})
            del traced.buffers[node]
            traced.state.discard(name)


def as_weights(traced: Traced, names: Mapping[str, str]) -> list[str]:
    """Gradients that a step reads before it clears them, and of which it leaves more than zeros,
    are read as those weights that `names` gives them: values like any other. Gives which."""
    left = {n: v for _, n, v in traced.outputs if n in names}
    weights = {n: node for node, n in traced.params.items()}
    found: list[str] = []
    for node, name in list(traced.buffers.items()):
        if name in left and names[name] in weights and not _is_zeros(left[name]):
            node.replace_all_uses_with(weights[names[name]])
            traced.graph.erase_node(node)
            del traced.buffers[node]
            traced.state.discard(name)
            found.append(name)
    traced.outputs = [o for o in traced.outputs if o[1] not in found]
    return found


def zeroed(traced: Traced, names: Collection[str]) -> set[str]:
    """Those gradients of which a step makes zeros before it adds to them: it reads none of what the
    step before left."""
    found = set[str]()
    for node, name in list(traced.buffers.items()):
        if name in names and all(map(_is_zeros, node.users)):
            found.add(name)
            traced.outputs = [o for o in traced.outputs if o[1] != name]
            _as_empty(traced.graph, node, {v for _, _, v in traced.outputs})
            del traced.buffers[node]
            traced.state.discard(name)
    return found


def _is_zeros(node: fx.Node) -> bool:
    """Whether a tensor is made of zeros, as cleared gradients are."""
    name = getattr(node.target, "_opname", "")
    if name == "mul" and 0 in [a for a in node.args if isinstance(a, int | float)]:
        return True
    return name in ("zeros", "zeros_like", "zero") or (
        name in ("full", "full_like", "fill") and node.args[1:2] == (0,)
    )


def left_as_zeros(traced: Traced, names: Collection[str]) -> None:
    """Those states that every step leaves as zeros are zeros when it begins."""
    left = {n: v for _, n, v in traced.outputs if n in names}
    for node, name in list(traced.buffers.items()):
        if name in left and _is_zeros(left[name]):
            with traced.graph.inserting_before(node):
                val = node.meta["val"]
                zeros = traced.graph.call_function(
                    torch.ops.aten.full.default, (list(val.shape), 0), {"dtype": val.dtype}
                )
            zeros.meta = dict(node.meta)
            node.replace_all_uses_with(zeros)
            traced.graph.erase_node(node)
            del traced.buffers[node]
            traced.state.discard(name)
            traced.outputs = [o for o in traced.outputs if o[1] != name]


def _as_empty(graph: fx.Graph, node: fx.Node, outputs: set[fx.Node]) -> None:
    """Memory in place of what a graph is given; what is computed of it for no output is gone."""
    val = node.meta["val"]
    empty: Any = torch.ops.aten.empty.memory_format
    with graph.inserting_before(node):
        made = graph.call_function(empty, (list(val.shape),), {"dtype": val.dtype})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    reading = {made: None}
    for other in graph.nodes:
        if any(n in reading for n in other.all_input_nodes):
            reading[other] = None
    for other in reversed(reading):
        plain = getattr(other.target, "namespace", "") in ("aten", "prims")
        if plain and not other.users and other not in outputs:
            graph.erase_node(other)
