"""Watches the ops of one rank: collectives that write into tensors become functional ones.

`dist.all_reduce(t)` and its kin reach PyTorch's dispatcher as ops of `c10d` that change their
tensors. Here each is a functional collective, and a write of its result. A handle that is waited
for later is held to that: whatever touches the buffer before is refused, not reordered.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # registers the functional ops
from torch._C._distributed_c10d import Work
from torch._subclasses import FakeTensor
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from shardproof.synthesis.frontends.torch.asked.watching import now
from shardproof.synthesis.frontends.torch.aten.table import TABLE
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.changing import (
    CHANGING,
    COVERED,
    Call,
    without_value,
)
from shardproof.synthesis.frontends.torch.ranks.draws import Draws, Law
from shardproof.synthesis.frontends.torch.ranks.groups import dims_of, slices
from shardproof.synthesis.frontends.torch.ranks.meanings import Meaning
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.preconditions import breach, order
from shardproof.synthesis.frontends.torch.ranks.result import Event
from shardproof.synthesis.frontends.torch.ranks.shadows import Shadows
from shardproof.synthesis.frontends.torch.ranks.sharded import OPS as SHARDED_OPS
from shardproof.synthesis.frontends.torch.ranks.spans import (
    Span,
    same_entries,
    same_storage,
    storage,
)
from shardproof.synthesis.frontends.torch.ranks.states import KeptError
from shardproof.verifier.kernel.program.types import Mesh

_FUNCTIONAL = "_c10d_functional"
_autograd: Any = torch.autograd
_c10d: Any = dist.distributed_c10d
_KNOWN = {
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "broadcast",
}
"""Functional collectives that have a meaning in the language."""
MESSAGES = ("send", "recv")
_REDUCE = {0: "sum", 1: "avg", 2: "product", 3: "min", 4: "max", 5: "band", 6: "bor", 7: "bxor"}
_WAIT = "wait for it (handle.wait()) before"
_library: Any = torch.library
_OWN = ("aten", "prims", "fsdp", "shardproof_frontend", _FUNCTIONAL, "_dtensor")
DEVICE: Any = torch.ops.prim.device.default
"""Every second op is this one, which autograd calls: a fake tensor has the answer."""


class Handle(Work):
    """What a call with `async_op=True` returned."""

    def __init__(
        self,
        waited: Callable[[], None],
        told: Callable[[str], Exception],
        targets: list[torch.Tensor],
    ) -> None:
        super().__init__()
        self._waited, self._told, self._targets = waited, told, targets

    def wait(self, timeout: Any = None) -> bool:
        self._waited()
        return True

    def _other(self, *args: Any, **kwargs: Any) -> Any:
        raise self._told("a handle of a collective is asked for more than wait()")

    def get_future(self) -> Any:
        return Arrival(self._value)

    def _value(self) -> list[torch.Tensor]:
        self._waited()
        return self._targets

    is_completed = is_success = exception = result = synchronize = _other
    block_current_stream = source_rank = _other


class Arrival:
    """What a collective gives, as a future: what is done then is done when it is waited for."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self._value = cache(value)

    def then(self, callback: Callable[[Arrival], Any]) -> Arrival:
        return Arrival(lambda: callback(self))

    def wait(self) -> Any:
        return self._value()

    value = wait


@dataclass
class Flight:
    """A collective that was started and not waited for."""

    what: str
    place: tuple[str, int, str]
    writes: list[Span]
    """What it writes of which storages."""
    reads: list[Span]
    handle: bool = False
    """Only its handle waits for it; `wait_tensor` on what it writes does not."""
    number: int = 0
    """Its place among the events."""
    arrives: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What puts its results into their tensors."""


@dataclass
class Seen:
    """What was noticed while the module ran."""

    groups: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Name of a process group -> the mesh dims it runs along; none for a group of one rank."""
    flights: list[Flight] = field(default_factory=list[Flight])
    written: list[Any] = field(default_factory=list[Any])
    """Storages that some op changed."""
    kept: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    """Of those that the call did not make, by number, a tensor there."""
    handles: list[Any] = field(default_factory=list[Any])
    events: list[Event] = field(default_factory=list[Event])
    """What the rank starts and waits for, in order."""
    opened: dict[str, None] = field(default_factory=dict[str, None])
    """Custom ops whose bodies were run."""
    trusted: dict[str, None] = field(default_factory=dict[str, None])
    """Custom ops that are taken to be what they are said to be."""
    doubts: list[tuple[CaptureError, tuple[str, int, str]]] = field(
        default_factory=list[tuple[CaptureError, tuple[str, int, str]]]
    )
    """Uses of what has not arrived, and where it was started: what is traced is one way in which
    it may run."""
    raw: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Calls that change a tensor with a gradient behind autograd's back: place -> what."""


class Watch(TorchDispatchMode):
    """One rank of a mesh. Raises CaptureError at what it cannot follow, with the user's line."""

    def __init__(
        self,
        rank: int,
        mesh: Mesh,
        places: Places,
        seen: Seen,
        draws: Draws | None = None,
        meanings: Mapping[str, tuple[Meaning, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.meanings = meanings or {}
        self.rank, self.mesh, self.places, self.seen = rank, mesh, places, seen
        self.draws = draws or Draws(())
        self.backward = False
        self.modules: list[tuple[str, str]] = []
        self.stepping = False
        """Whether a training step runs: memory of floats that it writes into is its state."""
        self.attributes: dict[int, str] = {}
        """Tensors that modules hold as plain attributes, by their storage."""
        self.lines: dict[int, str] = {}
        """For each op that autograd noted, by its number: the line that called it."""
        self.owners: dict[int, tuple[str, str]] = {}
        """For each such op, the module that called it."""
        self.undone = -1
        """The op whose backward runs."""
        self.shadows = Shadows()
        self.arriving = False
        """Whether a message is being put into its tensor."""

    def fail(self, message: str, hint: str = "") -> CaptureError:
        file, line, text = self.places.of(self.places.frame(sys._getframe()))
        return CaptureError(message, file=file, line=line, text=text, hint=hint)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(not issubclass(t, FakeTensor) for t in types):
            return NotImplemented  # a DTensor, say: its own ops on local tensors come here again
        if func is DEVICE:
            return args[0].device
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        self._locate()
        if func.namespace != "aten" or func is torch.ops.aten._foreach_copy_.default:
            self.shadows.forget((args, kwargs))
        if func.namespace == "c10d":
            return self._changing(func, _bound(func, args, kwargs))
        if func.namespace == "fsdp" and func._opname in SHARDED_OPS:
            return SHARDED_OPS[func._opname](*args, **kwargs)
        body = _body(func)
        if body is not None:
            self.seen.opened[f"{func.namespace}::{func._opname}"] = None
            with self:
                return func._op_dk(body, *args, **kwargs)
        said, group = self.meanings.get(f"{func.namespace}.{func._opname}", (None, None))
        if said is not None and group is not None:
            self.seen.trusted[said.op] = None
            with self:
                return said.run(args[0], group)
        if func is torch.ops.aten.as_strided.default and not kwargs:
            return as_view(*args)
        if func is torch.ops.aten._foreach_copy_.default:
            for target, value in zip(*args[:2], strict=True):
                target.copy_(value)
            return None
        if func is torch.ops.aten.copy_.default and same_entries(*args[:2]):
            return args[0]  # what `load_state_dict` of a module's own state does
        if _leaves_alone(func, args):
            return args[0]
        if not self.arriving:
            self._races(func, args, kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and func.__name__ not in TABLE:
            drawn = self._drawn(func, _bound(func, args, kwargs))
            if drawn is not None:
                return drawn
        if func.namespace in (_FUNCTIONAL, "_dtensor"):
            return self._functional(func, args, kwargs)
        if func._schema.is_mutable:
            written = _written(func, args, kwargs)
            self._kept(written)
            self.seen.written += [storage(t) for t in written]
        return self.shadows.run(func, args, kwargs)

    def _kept(self, written: list[torch.Tensor]) -> None:
        """Note a write into a tensor that is not made in the call; refuse one into an attribute of
        a module that is no part of the state."""
        for t in (t for t in written if not isinstance(t, FakeTensor)):
            self.seen.kept.setdefault(storage(t)._cdata, t)
            name = self.attributes.get(storage(t)._cdata, "")
            if name and not (self.stepping and t.is_floating_point()):
                file, line, text = self.places.of(self.places.frame(sys._getframe()))
                raise KeptError(name, file=file, line=line, text=text)

    # Where an op comes from.

    def _locate(self) -> None:
        """Note the line of the op at hand: the user's, or in a backward that of its forward."""
        frame = self.places.frame(sys._getframe(1))
        meta = fx_traceback.current_meta
        line = self.lines.get(self.undone, "") if self.backward else ""
        if frame is None and not line:
            frame = self.places.home
        for call in self.places.calls(frame):
            code = call.f_code
            line += f'  File "{code.co_filename}", line {call.f_lineno}, in {code.co_name}\n'
        line = line or " \n"
        fx_traceback.set_stack_trace([line])
        if self.backward:
            meta["autograd_backward"] = True
            owner = self.owners.get(self.undone)
        else:
            number = _autograd._get_sequence_nr() - 1
            owner = self.modules[-1] if self.modules else None
            meta["in_hook"] = self.places.in_hook(sys._getframe(1))
            self.lines.setdefault(number, line)
            if owner is not None:
                self.owners.setdefault(number, owner)
        if owner is not None:
            meta["nn_module_stack"] = {owner[0]: owner}
        else:
            meta.pop("nn_module_stack", None)

    def follow_back(self, roots: list[torch.Tensor]) -> None:
        """From now on, ops of a backward come from where their forward was called."""
        self.backward = True
        for node in backward_nodes(roots):

            def before(grads: Any, number: int = node._sequence_nr()) -> None:
                if number in self.lines:
                    self.undone = number

            node.register_prehook(before)

    @contextmanager
    def within_backwards(self) -> Iterator[None]:
        """A backward within the forward, as a schedule runs it, is followed as one."""
        backward = _autograd.backward

        def follow(roots: Any, *args: Any, **kwargs: Any) -> None:
            before = self.backward, self.undone
            self.follow_back(tensors(roots))
            try:
                backward(roots, *args, **kwargs)
            finally:
                self.backward, self.undone = before

        _autograd.backward = follow
        try:
            yield
        finally:
            _autograd.backward = backward

    # Random numbers.

    def _drawn(self, func: Any, given: dict[str, Any]) -> torch.Tensor | None:
        """What is drawn by a law that is known is an input. Other draws have no value: they are
        refused where an output or a later draw needs them."""
        law = Law.of(func._opname, given)
        target: Any = given.get("self")
        if law is None:
            self.draws.other = self.draws.other or self.fail(
                f"{func._opname} draws random numbers in a way that is not followed",
                "pass what is drawn as an argument",
            )
            return None
        place = self.places.of(self.places.frame(sys._getframe()))
        module = self.modules[-1][0] if self.modules else ""
        number = self.draws.number(law, module, place)
        ops: Any = torch.ops.shardproof_frontend
        with torch.no_grad():
            if not func._schema.is_mutable:
                held = target if target is not None else torch.empty(law.shape, dtype=law.dtype)
                held = torch.empty_like(held, dtype=law.dtype)
                return without_value(ops.draw(held, number))
            self.seen.written.append(storage(target))
            target.copy_(without_value(ops.draw(target, number)))
        return target

    # Functional collectives.

    def _functional(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._opname
        if name == "wait_tensor":
            waited = storage(args[0])
            for flight in list(self.seen.flights):
                if not flight.handle and any(
                    same_storage(w.storage, waited) for w in flight.writes
                ):
                    self._landed(flight)
            return func(*args, **kwargs)
        if name not in _KNOWN and name != "shard_dim_alltoall":
            raise self.fail(f"{name} is a collective that is not covered", COVERED)
        given = _bound(func, args, kwargs)
        self.along(given.get("group_name"))
        if name == "broadcast":
            self.rooted(given["group_name"])
        if name == "all_to_all_single":
            got, sent = given["output_split_sizes"], given["input_split_sizes"]
            if len({*got, *sent}) > 1:
                out = args[0].new_empty(sum(got), *args[0].shape[1:])
                with self:
                    group = _c10d._resolve_process_group(given["group_name"])
                    dist.all_to_all_single(out, args[0], got, sent, group=group)
                return out
        result = without_value(func(*args, **kwargs))
        self._fly(name, self._event(name, given["group_name"]), [result], [args[0]])
        return result

    def along(self, group: Any) -> None:
        """Note the mesh dims of a group. Raises CaptureError where it is no slice of the mesh."""
        if group in self.seen.groups:
            return
        found = _c10d._resolve_process_group(group)
        name = found.group_name
        ranks = dist.get_process_group_ranks(found)
        dims = dims_of(ranks, self.rank, self.mesh)
        if dims is None:
            along = ", ".join(f"{d} {members}" for d, members in slices(self.mesh, self.rank))
            raise self.fail(
                f"rank {self.rank} calls a collective over the ranks {list(ranks)}, which are "
                f"no slice of the mesh {self.mesh}",
                f"its slices are {along}; give a --mesh that has the group as a dim, or as several",
            )
        self.seen.groups[name] = dims

    def rooted(self, group: Any) -> None:
        """Refuse a collective with a root over several mesh dims."""
        dims = self.seen.groups[_c10d._resolve_process_group(group).group_name]
        if len(dims) > 1:
            raise self.fail(f"a broadcast over {' and '.join(dims)} at once is not covered")

    # Collectives that change tensors.

    def _changing(self, func: Any, given: dict[str, Any]) -> Any:
        name = func._opname
        rule = CHANGING.get(name)
        if rule is None:
            what = name.strip("_")
            raise self.fail(f"torch.distributed: {what} is not covered", COVERED)
        group = dist.ProcessGroup.unbox(given["process_group"])
        if name.strip("_") not in MESSAGES:
            self.along(group.group_name)
        reduce = ""
        if "reduce_op" in given:
            reduce = _REDUCE.get(given["reduce_op"].op(), "premul_sum")
            if reduce not in ("sum", "avg", "min", "max"):
                raise self.fail(
                    f"a collective reduces by {reduce}, which has no meaning in the language",
                    "reduce by SUM, AVG, MIN or MAX",
                )
        broken = breach(name, given, group.size(), group.rank())
        if broken is not None:
            raise self.fail(broken.message, broken.hint)
        call = Call(self, given, group, reduce)
        targets, reads, returned = rule(call)
        what = name.strip("_")
        if (watched := now()) and watched.forget and (what != "allreduce" or reduce == "avg"):
            for target in targets:
                watched.forget(target)
        event = self._event(what, group.group_name, given)
        event = replace(event, alike=order(given, name))
        flight = self._fly(what, event, targets, reads, changes=True)
        flight.arrives = call.arrives
        handle = Handle(lambda: self._landed(flight), self.fail, targets)
        self.seen.handles.append(handle)
        boxed = handle.boxed()
        return (returned, boxed) if returned is not None else boxed

    def peer(self, group: Any, index: int) -> tuple[str, int, int]:
        """The mesh dim along which the other rank of a message lies, this rank's coordinate, and
        the other's. Raises CaptureError where it lies along several, or none."""
        other = dist.get_process_group_ranks(group)[index]
        mine, theirs = (self.mesh.coords()[r] for r in (self.rank, other))
        apart = [n for n in self.mesh.names if mine[n] != theirs[n]]
        if len(apart) != 1:
            where = f"along {' and '.join(apart)}" if apart else "nowhere else"
            raise self.fail(
                f"a message between rank {self.rank} and rank {other}, which is {where}",
                "covered are messages along one mesh dim; give a --mesh that has it",
            )
        return apart[0], mine[apart[0]], theirs[apart[0]]

    def note_piece(self, kind: str, group: Any, index: int, like: torch.Tensor) -> None:
        """A message that is a part of an all_to_all: it does not meet others."""
        rank = dist.get_process_group_ranks(group)[index]
        place = self.places.of(self.places.frame(sys._getframe()))
        what = f"{like.dtype}{list(like.shape)} in an all_to_all of the group {group.group_name}"
        self.seen.events.append(Event(kind, (rank,), what, 0, *place))

    def write(self, target: torch.Tensor, value: torch.Tensor, what: str) -> None:
        """The result of a collective comes to be in a tensor; autograd does not see it."""
        if target.requires_grad and not target.is_leaf and torch.is_grad_enabled():
            file, line, _ = self.places.of(self.places.frame(sys._getframe()))
            self.seen.raw[file, line] = what
        if value.shape != target.shape:
            value = value.reshape(target.shape)
        with torch.no_grad(), _autograd._unsafe_preserve_version_counter(target):
            target.copy_(value)

    # Collectives in flight.

    def _event(self, kind: str, group: str, given: Mapping[str, Any] | None = None) -> Event:
        """What the rank starts: a collective with its group, a message with its peer."""
        ranks = dist.get_process_group_ranks(_c10d._resolve_process_group(group))
        place = self.places.of(self.places.frame(sys._getframe()))
        if given is None or kind not in MESSAGES:
            what = kind if kind == "barrier" else "collective"
            found = _c10d._resolve_process_group(group)
            return Event("meet", tuple(ranks), what, 0, *place, found.group_name)
        sent = given["tensors"][0]
        what = f"{sent.dtype}{list(sent.shape)} with tag {given['tag']}, in the group {group}"
        peer = ranks[given["dst" if kind == "send" else "src"]]
        return Event(kind, (peer,), what, 0, *place)

    def _landed(self, flight: Flight) -> None:
        """A flight was waited for, and its result is there; not before. Messages of one sender
        arrive in order."""
        self.seen.events.append(Event("wait", (), "", flight.number, *flight.place))
        start = self.seen.events[flight.number]
        for other in self.seen.flights:
            event = self.seen.events[other.number]
            earlier = event.kind == start.kind == "recv" and event.ranks == start.ranks
            if other is flight or (earlier and other.number < flight.number):
                self.arriving = True
                for arrives in other.arrives:
                    arrives()
                self.arriving, other.arrives = False, []
        self.seen.flights = [f for f in self.seen.flights if f is not flight]

    def _fly(
        self, what: str, event: Event, writes: Any, reads: Any, changes: bool = False
    ) -> Flight:
        place = event.file, event.line, event.text
        targets, sources = [Span.of(t) for t in writes], [Span.of(t) for t in reads]
        if changes:
            self.seen.written += [t.storage for t in targets]
            for flight in self.seen.flights:
                self._clash(flight, targets, sources)
        self.seen.flights.append(
            Flight(what, place, targets, sources, changes, len(self.seen.events))
        )
        self.seen.events.append(event)
        return self.seen.flights[-1]

    def _races(self, func: Any, args: Any, kwargs: Any) -> None:
        if not self.seen.flights or func._opname == "wait_tensor" or func.is_view:
            return
        if func.namespace == "prim":
            return
        touched = [Span.of(t) for t in tensors((args, kwargs))]
        written = [Span.of(t) for t in _written(func, args, kwargs)]
        for flight in self.seen.flights:
            self._clash(flight, written, touched)

    def _clash(self, flight: Flight, writes: list[Span], reads: list[Span]) -> None:
        used = any(a.meets(b) for a in flight.writes for b in (*reads, *writes))
        changed = any(a.meets(b) for a in flight.reads for b in writes)
        if used or changed:
            file, line, _ = flight.place
            how = "its result is used" if used else "what it sends is changed"
            problem = self.fail(
                f"{how} while the {flight.what} of {file}:{line} is still in flight",
                f"{_WAIT} that",
            )
            if not used or flight.what == "recv":
                raise problem
            self.seen.doubts.append((problem, flight.place))

    def landed(self) -> None:
        """Raises CaptureError where a collective was never waited for, nor used before."""
        for flight in self.seen.flights if not self.seen.doubts else ():
            file, line, text = flight.place
            raise CaptureError(
                f"the {flight.what} that is started here is never waited for",
                file=file,
                line=line,
                text=text,
                hint="call wait() on its handle",
            )

    @contextmanager
    def within(self, model: torch.nn.Module) -> Iterator[None]:
        """Note the module in which each op of the forward runs. One that several modules share is
        that of the module that calls it."""
        paths: dict[torch.nn.Module, list[str]] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            paths.setdefault(module, []).append(path)
        hooks: list[Any] = []
        for path, module in model.named_modules():
            held = ((k, v) for k, v in vars(module).items() if isinstance(v, torch.Tensor))
            self.attributes |= {
                storage(v)._cdata: ".".join(filter(None, (path, k))) for k, v in held
            }

            def enter(m: Any, args: Any, known: Sequence[str] = paths[module]) -> None:
                caller = f"{self.modules[-1][0]}." if self.modules else ""
                path = next((p for p in known if p.startswith(caller)), known[0])
                self.modules.append((path, type(m).__name__))

            def leave(m: Any, args: Any, result: Any) -> None:
                if self.modules:
                    self.modules.pop()

            hooks.append(module.register_forward_pre_hook(enter))
            hooks.append(module.register_forward_hook(leave))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self.modules.clear()


def as_view(
    x: torch.Tensor, size: list[int], stride: list[int], offset: int | None = None
) -> torch.Tensor:
    """`as_strided` as a slice and a view, where it is one: equal entries of equal memory."""
    whole = x.is_contiguous() and x.storage_offset() == 0
    if not whole or tuple(stride) != _contiguous(size):
        return torch.ops.aten.as_strided.default(x, size, stride, offset)
    return x.view(-1).narrow(0, offset or 0, math.prod(size)).view(size)


@cache
def _body(func: Any) -> Any:
    """The key under which a custom op has a body in Python, for tensors of any device or the CPU;
    None for ops of PyTorch and of this package."""
    if func.namespace in _OWN:
        return None
    keys = torch._C.DispatchKey
    for key in (keys.CPU, keys.CompositeExplicitAutograd):
        if f"{func.namespace}/{func._opname}/{key.name}" in _library._impls:
            return key
    return None


_NEUTRAL = {"add_": 0, "sub_": 0, "mul_": 1, "div_": 1}


def _leaves_alone(func: Any, args: Any) -> bool:
    """Whether an op writes into a tensor what it holds: adds 0, or multiplies by 1."""
    neutral = _NEUTRAL.get(func._opname)
    number = args[1] if len(args) == 2 else None
    if neutral is None or type(number) not in (int, float) or number != neutral:
        return False
    return args[0].is_floating_point()


def _contiguous(size: list[int]) -> tuple[int, ...]:
    found, step = [], 1
    for extent in reversed(size):
        found.append(step)
        step *= max(extent, 1)
    return tuple(reversed(found))


def _bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name."""
    out = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    out |= {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)}
    return out | kwargs


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors in a tree of arguments."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    if not func._schema.is_mutable:
        return []
    given = _bound(func, args, kwargs)
    out: list[torch.Tensor] = []
    for argument in func._schema.arguments:
        info = argument.alias_info
        if info is not None and info.is_write and argument.name in given:
            out += tensors(given[argument.name])
    return out


def backward_nodes(roots: Sequence[torch.Tensor]) -> Iterator[Any]:
    """What autograd runs for these, each node once."""
    nodes: list[Any] = [r.grad_fn for r in roots]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [n for n, _ in node.next_functions]
        yield node
