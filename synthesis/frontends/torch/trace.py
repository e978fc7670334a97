"""Traces a model to one joint forward and backward graph of aten ops."""

# pyright: basic

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from shardproof.synthesis.frontends.torch import torch_api
from shardproof.synthesis.frontends.torch.chosen import called
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.arguments import nested
from shardproof.synthesis.frontends.torch.results import beside_tensors, named_outputs

if TYPE_CHECKING:
    from shardproof.synthesis.frontends.torch.captured import Draw

ROOT = "root."


@dataclass
class Traced:
    """The joint graph with the meaning of its inputs and outputs."""

    graph: fx.Graph
    module: Any
    """Holds the tensors that `get_attr` nodes name."""
    params: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])
    buffers: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])
    inputs: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])
    tangents: dict[fx.Node, str] = field(default_factory=dict[fx.Node, str])
    """Tangent placeholder -> name of the output it belongs to."""
    state: set[str] = field(default_factory=set[str])
    """Buffers that the forward changes: what they held is an input, what they hold an output."""
    given: set[str] = field(default_factory=set[str])
    """Buffers of any value, whose layout the user states: inputs as parameters are."""

    @property
    def taken(self) -> set[str]:
        """Buffers that are inputs."""
        return self.state | self.given

    outputs: list[tuple[str, str, fx.Node]] = field(default_factory=list[tuple[str, str, fx.Node]])
    """(role, name, node), role in output, loss, grad."""
    notes: list[str] = field(default_factory=list[str])
    """What is taken for granted, in sentences."""
    draws: Mapping[int, "Draw"] = field(default_factory=dict[int, "Draw"])
    """What is drawn, by the number that the op holds which stands for it."""


def ungraded(named: Sequence[tuple[str, torch.Tensor]], loss: str | None) -> list[str]:
    """What is said of outputs beside a loss, whose own gradients nobody looks at."""
    others = [n for n, t in named if t.requires_grad and n != loss and t.is_floating_point()]
    if loss is None or not others:
        return []
    listed = ", ".join(others)
    return [
        f"Gradients are those of {loss}; what else is returned ({listed}) is taken to get none."
    ]


def uncompared(result: Any) -> list[str]:
    """What is said of what a forward returns beside tensors."""
    found = beside_tensors(result)
    listed = ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
    return [f"What forward returns beside tensors is not compared: {listed}."] if found else []


@contextmanager
def assignments_written(model: nn.Module) -> Iterator[None]:
    """What the code inside assigns to a buffer is written into the tensor that it was: a change of
    it in place.

    Raises:
        CaptureError: what is assigned has another shape or dtype, or is no tensor.
    """
    held = [(m, p, n, b) for p, m in model.named_modules() for n, b in m.named_buffers("", False)]
    yield
    for module, path, name, buffer in held:
        now = getattr(module, name, None)
        if now is buffer:
            continue
        kind = (buffer.dtype, buffer.shape)
        if not isinstance(now, torch.Tensor) or (now.dtype, now.shape) != kind:
            raise CaptureError(
                f"forward makes something else of the buffer {path}{'.' * bool(path)}{name}",
                hint=f"give it a tensor of its shape, {list(buffer.shape)}, and dtype",
            )
        buffer.copy_(now.detach())
        module._buffers[name] = buffer


@dataclass
class Record:
    """What a traced forward returned. Export undoes what a forward writes on modules, not this."""

    names: list[str] = field(default_factory=list[str])
    loss: str | None = None
    notes: list[str] = field(default_factory=list[str])


class Run(nn.Module):
    """Calls the model; returns its tensors as a flat tuple and remembers their names.

    With a scalar loss among them, the others are detached: the gradient is that of the loss.
    Without one, several are copies: of two that are views of one tensor, a trace would have the
    gradients of both come in through one.
    """

    def __init__(
        self, model: nn.Module, names: Sequence[str], result_names: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.root, self.names = model, names
        self.result_names = result_names
        self.record = Record()

    def forward(self, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        given = dict(zip(self.names, kwargs.values(), strict=True))
        with assignments_written(self.root):
            result = called(lambda: self.root(**nested(type(self.root).forward, given)))
        named, loss = named_outputs(result, self.result_names)
        self.record.names, self.record.loss = [name for name, _ in named], loss
        self.record.notes = [*ungraded(named, loss), *uncompared(result)]
        if loss is not None:
            return tuple(t if name == loss else t.detach() for name, t in named)
        return tuple(t.clone() if len(named) > 1 else t for _, t in named)


def trace(model: nn.Module, kwargs: dict[str, Any], result_names: tuple[str, ...] = ()) -> Traced:
    """Trace `model(**kwargs)`, fake tensors on a fake CPU, together with its backward.

    Raises:
        CaptureError: the model returns no tensor, changes a parameter, or a gradient got lost.
        Exception: whatever the user's code raises.
    """
    torch_api.check_version()
    names = list(kwargs)
    run = Run(model, names, result_names)
    kwargs = {name.replace(".", "_of_"): value for name, value in kwargs.items()}
    module = torch_api.export(run, kwargs)
    if not run.record.names:
        raise CaptureError(f"{type(model).__name__}.forward returns no tensor")
    joint = torch_api.joint_graph(module, kwargs)
    return _describe(joint, run, names, model)


def _describe(joint: Any, run: Run, arguments: list[str], model: nn.Module) -> Traced:
    traced = Traced(joint.graph, joint, notes=run.record.notes)
    kinds = {
        "param": traced.params,
        "buffer": traced.buffers,
        "input": traced.inputs,
        "tangent": traced.tangents,
    }
    output = None
    for node in joint.graph.nodes:
        if node.op == "placeholder":
            kind, name = torch_api.describe(node.meta["desc"])
            if kind == "input":
                name = arguments[int(name)]
            elif kind == "tangent":
                name = run.record.names[int(name)]
            if kind == "mutation":
                raise changes("parameter", name)
            kinds[kind][node] = name.removeprefix(ROOT)
        elif node.op == "output":
            output = node
    assert output is not None
    grads: set[str] = set()
    for value, desc in zip(output.args[0], output.meta["desc"], strict=True):
        if desc is None or value is None:
            continue
        kind, name = torch_api.describe(desc)
        if kind == "mutation":
            name = name.removeprefix(ROOT)
            if name not in traced.buffers.values():
                raise changes("parameter", name)
            traced.state.add(name)
            traced.outputs.append(("output", name, value))
        if kind == "grad":
            grads.add(name.removeprefix(ROOT))
            traced.outputs.append(("grad", name.removeprefix(ROOT), value))
        elif kind == "output":
            name = run.record.names[int(name)]
            traced.outputs.append(("loss" if name == run.record.loss else "output", name, value))
    _check_gradients(traced, grads, model)
    return traced


def changes(what: str, name: str, file: str = "", line: int = 0, text: str = "") -> CaptureError:
    """The error for a parameter or buffer that does not outlive a call as it was."""
    return CaptureError(
        f"forward changes the {what} {name.removeprefix(ROOT)} in place",
        file=file,
        line=line,
        text=text,
        hint=f"make the {what} an argument, and return its new value",
    )


def _check_gradients(traced: Traced, grads: set[str], model: nn.Module) -> None:
    """A parameter that the forward reads but that got no gradient is an error, not a zero."""
    wanted = {n for n, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    if wanted and not grads:
        raise CaptureError(
            f"no parameter of {type(model).__name__} gets a gradient",
            hint="return a loss or an output that depends on the parameters",
        )
