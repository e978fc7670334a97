"""A training step: a function of the owner's, called with what TARGET returns and with a batch.

What lives from step to step beside parameters and buffers is its state: what optimizers keep,
gradients that nobody cleared, and tensors of whatever else TARGET returns.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import is_fake, unset_fake_temporarily
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.materialize import to_fake
from shardproof.synthesis.frontends.torch.ranks.dtensors import local
from shardproof.synthesis.frontends.torch.ranks.known import Known
from shardproof.synthesis.frontends.torch.ranks.logged import Logging
from shardproof.synthesis.frontends.torch.ranks.reached import attributes, named, reached
from shardproof.synthesis.frontends.torch.ranks.several_models import Together, first_of
from shardproof.synthesis.frontends.torch.ranks.spans import storage
from shardproof.synthesis.frontends.torch.ranks.stages import Stages
from shardproof.synthesis.frontends.torch.trace import Traced

COUNTED = (
    "The second step is compared, for any state of optimizers; a third runs the same ops, apart "
    "from numbers that are counted. Later steps are taken to do so too.",
    "The first step, from optimizers without state, is not compared.",
    "A factor of a norm that is the root of a small fraction, but for rounding, is that root.",
)
"""What is taken for granted of every step, in sentences."""
TAKEN = "SHARDPROOF_TAKEN_FOR_GRANTED"
"""A name in the file of a step: further sentences of what is taken for granted of it."""
GRADIENT = ".grad"
"""After the name of a parameter."""
FUSED = "Fused optimizers compute what PyTorch's others compute."
FINITE = "GradScaler finds all gradients finite: a step that it leaves out is not compared."


ADDED = "What a step adds to {name}, as to a log, is not compared."
LOGS = "Numbers that a step keeps and computes nothing else from are not compared: {names}."


KEPT = (
    "Memory that a step writes into, and that is no state of a module or an optimizer, is read by "
    "ops alone."
)


class NewStateError(CaptureError):
    """A step keeps what no step before it kept: an optimizer does once there are gradients."""


def together_names(model: nn.Module) -> list[tuple[str, str]]:
    """As `--param` says it: names of parameters of such models that are each wrapped to average."""
    found = model.named_children() if isinstance(model, Together) else ()
    return [(f"{n}.module.*", f"{n}.*") for n, m in found if isinstance(m, DistributedDataParallel)]


@dataclass
class Step:
    """A step, with what it works on."""

    function: Any
    held: tuple[Any, ...]
    """What TARGET returns: first the model, or those that it trains, together."""
    names: dict[int, str] = field(default_factory=dict[int, str])
    """Names of the model's parameters, by the number of the object."""
    before: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """What was kept when a call began."""
    carried: frozenset[str] | None = None
    """What was kept when the step that is traced began."""
    begun: bool = False
    """Whether steps were made, after which optimizers have their state."""
    notes: dict[str, None] = field(default_factory=dict[str, None])
    """What is taken for granted of it, in sentences."""
    plain: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Of what was kept, the tensors that no module and no optimizer holds."""
    known: Known = field(default_factory=Known)
    """What they hold, and buffers of modules beside the model, where a step does not change it."""
    buffers: dict[str, torch.Tensor | None] = field(default_factory=dict[str, torch.Tensor | None])
    """By the name of such a buffer, its value."""
    fixed: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """The values of what the traced step reads and leaves as it is."""

    first: dict[str, float] = field(default_factory=dict[str, float])
    """Numbers of optimizers, by parameter, with which the first step calls them."""
    rates: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """These, and those of the step that is traced."""
    begins: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Of what was kept before any step, the number that all entries are, where one is known."""
    rooms: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Memory that something else keeps and the step writes into, as rows of numbers."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        used, calls = dict[str, float](), Counter[int]()

        def note(optimizer: Optimizer, *_: Any) -> None:
            calls[id(optimizer)] += 1
            used.update(self._numbers(optimizer, calls[id(optimizer)]))

        if not self.begun:
            self.begins = {n: self._fill(t) for n, t in self.state().items()}
        hook = register_optimizer_step_pre_hook(note)
        try:
            with Logging() as logging:
                model, *others = self.held
                given = model.schedule if isinstance(model, Stages) else model
                given = first_of(given)
                result = self.function(given, *others, *args, **kwargs)
        finally:
            hook.remove()
        if not self.begun:
            self.first = used
        elif not self.rates:
            both = self.first.keys() & used.keys()
            self.rates = {n: (self.first[n], used[n]) for n in used if n in both}
        self.notes |= dict.fromkeys(logging.told())
        return result

    @property
    def cls(self) -> type:
        """A class whose `forward` has the arguments of the step after `held`."""
        signature = inspect.signature(self.function)
        first, *_ = parameters = list(signature.parameters.values())
        rest = [first, *parameters[len(self.held) :]]

        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)

        forward.__qualname__ = self.function.__name__
        forward.__signature__ = signature.replace(parameters=rest)
        return type(self.function.__name__, (), {"forward": forward})

    def named(self, model: nn.Module, names: Mapping[str, str]) -> None:
        """Parameters are called so from now on.

        Raises:
            CaptureError: an optimizer has a parameter that the model does not have.
        """
        self.names = {id(p): names.get(n, n) for n, p in model.named_parameters()}
        for _, optimizer in self._optimizers():
            for group in optimizer.param_groups:
                if any(id(p) not in self.names for p in group["params"]):
                    raise CaptureError(
                        f"{type(optimizer).__name__} has a parameter that the model does not have",
                        hint="make the optimizer of the model that TARGET returns, after it is "
                        "sharded",
                    )

    def exchange(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Optimizers get what stands for a parameter now, and step in the form that is not fused;
        other modules hold no values, but for single integers, which they count by. Call inside the
        fake mode."""
        new = {id(old): p for old, p in pairs}
        for _, optimizer in self._optimizers():
            for group in optimizer.param_groups:
                if group.get("fused"):
                    owner: Any = optimizer
                    group["fused"] = owner._step_supports_amp_scaling = False
                    self.notes[FUSED] = None
                group["params"] = [new.get(id(p), p) for p in group["params"]]
            for kept in optimizer.state.values():
                kept.update({k: _known(t) for k, t in kept.items() if _is_real(t)})
        for name, part in self._parts():
            if isinstance(part, nn.Module):
                real = ((n, b) for n, b in part.named_buffers() if not is_fake(b))
                self.buffers |= {f"{name}.{n}": self.known.value(local(b)) for n, b in real}
                _keep_numbers(part)
                to_fake(part)
            elif isinstance(part, GradScaler) and part.is_enabled():
                scaler: Any = part
                scaler._maybe_opt_step = _finite_step
                self.notes[FINITE] = None

    def state(self) -> dict[str, Any]:
        """What lives from step to step, by name: `fc.weight.exp_avg`, `fc.weight.grad`."""
        out: dict[str, Any] = {}
        model = self.held[0]
        rooms = {storage(row)._cdata for row in self.rooms.values()}
        inside = dict[int, int]()
        for p in model.parameters():
            if p.grad is not None:
                inside[storage(local(p.grad))._cdata] = p.numel()
            if p.grad is not None and storage(local(p.grad))._cdata not in rooms:
                out[f"{self._name(p)}{GRADIENT}"] = p.grad
        for _, optimizer in self._optimizers():
            for p, kept in optimizer.state.items():
                tensors = {k: t for k, t in kept.items() if isinstance(t, torch.Tensor)}
                out |= {f"{self._name(p)}.{k}": t for k, t in tensors.items()}
        held = dict[str, torch.Tensor]()
        for name, part in self._parts():
            if isinstance(part, nn.Module):
                out |= {f"{name}.{n}": t for n, t in part.named_parameters()}
                out |= {f"{name}.{n}": t for n, t in part.named_buffers()}
            elif isinstance(part, torch.Tensor) and id(part) not in self.names:
                parts = inside.get(storage(local(part))._cdata, part.numel())
                if part.numel() <= parts:  # else a row of gradients, which `keep` knows
                    held[name] = part
        if self.carried is not None:
            added = held.keys() - self.carried
            self.notes |= {ADDED.format(name=re.split(r"[.[]", n)[0]): None for n in sorted(added)}
            held = {n: t for n, t in held.items() if n in self.carried}
        self.plain = held
        return out | held | self.rooms

    def _fill(self, t: torch.Tensor) -> float | None:
        value = self.known.value(local(t))
        with _disable_current_modes():
            alike = (
                value is not None and value.numel() and bool((value == value.flatten()[0]).all())
            )
            return float(value.flatten()[0]) if alike and value is not None else None

    def _name(self, parameter: Any) -> str:
        """Raises CaptureError for one that a step makes."""
        if id(parameter) not in self.names:
            raise CaptureError(
                f"a step makes a parameter of shape {tuple(parameter.shape)}, with a gradient or "
                "state of its own",
                hint="let steps write into the parameters that TARGET returns: copy_, or .data",
            )
        return self.names[id(parameter)]

    def fix(self, traced: Traced) -> None:
        """Take tensors that no step changes, and that no checkpoint has, for what they hold.

        Raises:
            CaptureError: what one holds is not known: an earlier step made it of its data.
        """
        read = {name for node, name in traced.buffers.items() if node.users}
        kept = self.plain.keys() | self.buffers.keys() | self.rooms.keys()
        for name in sorted(read & kept - traced.state):
            plain = self.plain.get(name)
            value = self.buffers.get(name) if plain is None else self.known.value(local(plain))
            if value is None:
                raise CaptureError(
                    f"a step reads {name}, which a step before it made: what it holds is not known",
                    hint="make it anew in each step, or where TARGET builds what the step takes",
                )
            self.fixed[name] = value
        traced.given -= self.fixed.keys()
        for node in traced.graph.find_nodes(op="get_attr"):
            held = getattr(traced.module, node.target)
            if is_fake(held) and (value := self.known.value(held)) is not None:
                setattr(traced.module, node.target, value)

    def without_logs(self, traced: Traced) -> None:
        """Leave out single numbers of plain objects, such as a running loss, that nothing else that
        the step leaves is made of."""
        logs = {n for n, t in self.plain.items() if t.numel() == 1} & traced.state
        places = {name: node for node, name in traced.buffers.items()}
        made_of = [(name, _before(value)) for _, name, value in traced.outputs]
        while needed := {
            n for n in logs if any(places[n] in b for name, b in made_of if name not in logs)
        }:
            logs -= needed
        traced.state -= logs
        traced.outputs = [out for out in traced.outputs if out[1] not in logs]
        if logs:
            self.notes[LOGS.format(names=", ".join(sorted(logs)))] = None
            _erase_after({places[n] for n in logs}, traced.graph)

    def keep(self, written: Mapping[int, torch.Tensor]) -> None:
        """Memory of floats that something keeps, given with a tensor there that was written into,
        is state from now on, unless it is that of state with a name. Gradients may lie there.

        Raises:
            CaptureError: numpy has the memory too, which what is written there changes unseen.
        """
        state = (t for name, t in self.state().items() if not self.is_gradient(name))
        held = (*state, *self.held[0].parameters(), *self.held[0].buffers())
        known = {storage(local(t))._cdata for t in held}
        kept = {at: t for at, t in written.items() if t.is_floating_point() and at not in known}
        if not all(storage(t).resizable() for t in kept.values()):
            raise CaptureError("a step changes a tensor whose memory numpy has too")
        for number, t in enumerate(kept.values()):
            count = storage(t).nbytes() // t.element_size()
            with unset_fake_temporarily():
                self.rooms[f"memory {number}"] = t.detach().as_strided((count,), (1,), 0)
            self.notes[KEPT] = None

    def is_gradient(self, name: str) -> bool:
        """Whether `state` calls a gradient so."""
        return name.endswith(GRADIENT) and name.removesuffix(GRADIENT) in self.names.values()

    def gradients(self, own: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
        """The names of parameters by what `state` calls their gradients."""
        return {f"{names[n]}{GRADIENT}": n for n in own}

    def refuse_scale(self, alone: Iterable[str]) -> None:
        """Raises CaptureError where the state that ranks alone have is that of a GradScaler."""
        for name, part in self._parts():
            if isinstance(part, GradScaler) and any(n.startswith(f"{name}.") for n in alone):
                raise CaptureError(
                    "a step of the ranks scales its loss, a step of the model does not",
                    hint="return a GradScaler from both targets, and let both steps use it",
                )

    def kept(self) -> dict[str, torch.Tensor]:
        """The piece of this rank of each."""
        with _disable_current_modes():
            for row in self.rooms.values():
                row.fill_(torch.nan)  # what reads it other than by ops gets no number
        self.before = {name: local(t) for name, t in self.state().items()}
        if self.begun and self.carried is None:
            self.carried = frozenset(self.before)
        return dict(self.before)

    def counters(self) -> dict[str, torch.Tensor]:
        """For each integer tensor that is kept, one of zeros: what programs are run on."""
        kept = {n: local(t) for n, t in self.state().items() if not t.is_floating_point()}
        with unset_fake_temporarily():
            return {n: torch.zeros(tuple(t.shape), dtype=t.dtype) for n, t in kept.items()}

    def replaced(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What stands, after a call, where `kept` found another tensor.

        Raises:
            CaptureError: something new is kept.
        """
        for name, t in self.state().items() if self.begun else ():
            value = local(t)
            if name not in self.before:
                raise NewStateError(f"each step keeps more, such as {name}, than the one before")
            if value is not self.before[name]:
                yield name, value

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """The tensors, optimizers, scalers and modules that the step takes beside the model, that
        the model has as plain attributes, or that functions call by name; each with where."""
        names = list(inspect.signature(self.function).parameters)
        seen = {id(part) for part in self.held[0].modules()}
        given = dict(zip(names[1:], self.held[1:], strict=False))
        around = attributes(self.held[0]) | named(self.function) | given
        for name, other in around.items():
            for where, part in reached(other, name, seen):
                if not isinstance(part, nn.Module) or not self._wraps(part):
                    yield where, part

    def _numbers(self, optimizer: Optimizer, call: int) -> Iterator[tuple[str, float]]:
        """The numbers of an optimizer, by parameter, as a call of it in a step finds them."""
        often = f", call {call}" if call > 1 else ""
        for group in optimizer.param_groups:
            for key, value in group.items():
                numbers = value if isinstance(value, (tuple, list)) else [value]
                for i, number in enumerate(numbers):
                    if type(number) in (int, float):
                        kind = f"{key}[{i}]" if len(numbers) > 1 else key
                        mine = (p for p in group["params"] if id(p) in self.names)
                        yield from (
                            (f"{self.names[id(p)]}{often} {kind}", float(number)) for p in mine
                        )

    def _wraps(self, module: nn.Module) -> bool:
        """Whether a module is one around modules of the model, with no tensors of its own."""
        inner = {id(part) for part in self.held[0].modules()}
        outer = [part for part in module.modules() if id(part) not in inner]
        around = len(outer) < len(list(module.modules()))
        return around and not any(part._parameters or part._buffers for part in outer)

    def _optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        """Those that others run on some parameters too, as that of ZeRO stage 1 does."""
        return ((name, part) for name, part in self._parts() if isinstance(part, Optimizer))


def _before(value: Any) -> set[fx.Node]:
    """What a value of a graph is made of, and the value."""
    todo, found = [value], set[fx.Node]()
    while todo:
        node = todo.pop()
        if isinstance(node, fx.Node) and node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _erase_after(starts: set[fx.Node], graph: fx.Graph) -> None:
    """Erase what is made of some inputs, of which no output is, unless ranks exchange it."""
    after = set(starts)
    for node in graph.nodes:
        if after.intersection(node.all_input_nodes):
            after.add(node)
    last = next(n for n in reversed(graph.nodes) if n.op == "output")
    last.args = ([v for v in last.args[0] if v not in after],)
    for node in reversed(graph.nodes):
        sent = getattr(node.target, "namespace", "").startswith(("_c10d", "shardproof"))
        if node in after and node.op == "call_function" and not node.users and not sent:
            graph.erase_node(node)


def _finite_step(optimizer: Optimizer, state: Any, *args: Any, **kwargs: Any) -> Any:
    """What GradScaler does where it has found no gradient that is infinite."""
    return optimizer.step(*args, **kwargs)


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not is_fake(value)


def _known(t: torch.Tensor) -> torch.Tensor:
    """What stands for a tensor: a number is known, what counts steps, say."""
    if t.numel() != 1:
        return torch.empty_like(t)
    with unset_fake_temporarily():
        value = t.tolist()
    return torch.tensor(value, dtype=t.dtype)


def _keep_numbers(module: nn.Module) -> None:
    """Buffers of one integer become tensors that know it."""
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is None or is_fake(buffer) or buffer.is_floating_point():
                continue
            if buffer.numel() == 1:
                part._buffers[name] = _known(buffer)


def step_of(module: Any, name: str, held: tuple[Any, ...], file: str, known: Known) -> Step:
    """The step `name` of a file, on what TARGET returned, with what is `known` of its values.

    Raises:
        CaptureError: no such function, or one that cannot be called so.
    """
    function = getattr(module, name, None)
    if not inspect.isfunction(function):
        raise CaptureError(
            f"{file} has no function {name}",
            file=file,
            hint="--step names a function of both files, which is called with what TARGET returns "
            "and with the inputs: train_step(model, optimizer, x, y)",
        )
    taken = list(inspect.signature(function).parameters)
    if len(taken) < len(held):
        raise CaptureError(
            f"{name} takes {', '.join(taken) or 'nothing'}, and TARGET returns {len(held)} objects",
            file=file,
            hint="let the step take each of them first, then the batch",
        )
    return Step(function, held, notes=dict.fromkeys(getattr(module, TAKEN, ())), known=known)
