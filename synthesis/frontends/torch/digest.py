"""Names every tensor of a run by the ops that made it, so that two runs can be compared.

A name is a hash of the op, of its constants and of the names of what it reads. What a storage holds
has a name, and a write gives it a new one; a view is its storage and its strides. So two runs that
return tensors of the same names have computed the same, in whatever order, also where one of them
found in a cache what the other made: unless that was made of what may be another in the next call.
"""

# pyright: basic

from __future__ import annotations

import difflib
import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import loaded, own
from shardproof.synthesis.frontends.torch.provenance import Provenance

Stack = tuple[tuple[str, int], ...]
"""Files and lines of the user's code, outermost first."""
_OURS = str(Path(__file__).parent)
_TORCH = str(Path(str(torch.__file__)).parent)
_FILLED = {"copy_", "fill_", "zero_"}
"""Ops of which nothing that their target held is left."""
_OF_NUMBERS = frozenset({"Tensor", "number", "Optional[number]"})
"""Types of operands that are computed with; sizes and dims are none."""
_NEAR = 64
"""Ops behind the first that differs that are aligned."""


@dataclass(frozen=True)
class Step:
    """One op of a run."""

    op: str
    key: str
    """Hash of the op with all that went into it."""
    stack: Stack


@dataclass
class Log:
    """What one call did."""

    steps: list[Step] = field(default_factory=list[Step])
    talks: list[str] = field(default_factory=list[str])
    """Keys of its collectives, in order."""
    forward_talks: int = 0
    """How many of these are the forward's."""
    returned: list[str] = field(default_factory=list[str])
    """Names of what the forward returned."""
    left: dict[str, str] = field(default_factory=dict[str, str])
    """Names of gradients, and of what parameters, buffers and arguments hold at the end."""
    draws: int = 0
    """How many tensors it drew."""
    bounded: dict[str, Step] = field(default_factory=dict[str, Step])
    """Parameters that are taken to lie where they are clamped to, with the op."""

    def clamps(self, root: str) -> dict[str, Place]:
        """Where parameters are clamped."""
        return {name: _placed(step, (), root) for name, step in self.bounded.items()}

    def alike(self, other: Log, forward: bool = False) -> bool:
        """Whether both calls computed and exchanged the same; `forward`: as far as that goes, and
        to what buffers hold in the end."""
        if forward:
            kept, theirs = (
                {k: v for k, v in log.left.items() if k.startswith("buffer ")}
                for log in (self, other)
            )
            return (
                self.returned == other.returned
                and kept == theirs
                and self.talks[: self.forward_talks] == other.talks[: other.forward_talks]
            )
        return (self.returned, self.talks, self.left) == (other.returned, other.talks, other.left)


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str = ""
    line: int = 0
    text: str = ""
    op: str = ""
    """The op."""
    caller: str = ""
    """Where two calls part, if that is further out: `file:line`."""


def _hash(*parts: Any) -> str:
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


_CLAMPS = frozenset({"clamp", "clamp_min", "clamp_max"})


class Digest(TorchDispatchMode):
    """Writes the `log` of what runs under it; `start` begins another call.

    `groups` says along which mesh dims a process group runs. With `tracked`, it is part of an op
    which of its operands need a gradient that comes to a leaf of a name: then alike forwards have
    alike backwards, and a parameter that is clamped to numbers is taken to lie there, so that the
    op does nothing. Without `numbers`, all floats in Python are one, and integers that ops compute
    with.
    """

    def __init__(
        self,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        tracked: bool = False,
        numbers: bool = True,
    ) -> None:
        super().__init__()
        self.numbers = numbers
        self.groups = {} if groups is None else groups
        self.tracked = tracked
        self.log = Log()
        self._held: dict[int, tuple[Any, str]] = {}
        self._draws = 0
        self._wrote: dict[int, Step] = {}
        self._codes: dict[Any, str] = {}
        self._leaves: dict[int, torch.Tensor] = {}
        self._parameters: dict[int, tuple[Any, str]] = {}
        self._named: dict[str, torch.Tensor] = {}
        self._bits: dict[str, int] = {}
        self._made_of: dict[str, int] = {}
        self._kept: dict[int, Any] = {}
        self.reused = False
        """Whether a call read what an earlier one made of parameters."""
        self._led: dict[Any, bool] = {}

    def start(self) -> None:
        """Another call: tensors keep their names."""
        self.log = Log()
        self._draws = 0
        self._led = {}

    def age(self, trained: bool) -> None:
        """Before another call, whose arguments are others, and with `trained` its parameters that
        take a gradient: what was made of these, and of buffers that a call changed, is no more what
        it would make."""
        moving, kept = 0, 0
        for name, bit in self._bits.items():
            is_parameter = name.startswith("parameter ")
            if is_parameter and not (trained and self._named[name].requires_grad):
                kept |= bit
            elif is_parameter or name.startswith("argument ") or self._is_changed(name):
                moving |= bit
        leaves = {_hash("leaf", name) for name in self._bits}
        own = {t.untyped_storage()._cdata for t in self._named.values()}
        for at, (held, content) in list(self._held.items()):
            made_of = self._made_of.get(content, 0)
            if at in own and content in leaves:
                continue
            if made_of & moving:
                self._held[at] = (held, _hash("earlier", content))
            elif made_of & kept:
                self._kept[at] = held

    def told(self, model: str) -> list[str]:
        """What is taken for granted, in sentences."""
        if not self.reused:
            return []
        return [
            f"{model} keeps what it makes of parameters: later calls are taken to have the same."
        ]

    def _is_changed(self, name: str) -> bool:
        t = self._named.get(name)
        return t is not None and self._content(t) != _hash("leaf", name)

    def leaf(self, t: torch.Tensor, name: str) -> None:
        """Call what a tensor holds by a name: `parameter ...`, `buffer ...`, `argument ...`."""
        held = t.untyped_storage()
        self._held[held._cdata] = (held, _hash("leaf", name))
        self._named[name] = t
        bit = self._bits.setdefault(name, 1 << len(self._bits))
        self._made_of[_hash("leaf", name)] = bit
        self._leaves[id(t)] = t
        if isinstance(t, torch.nn.Parameter):
            self._parameters[held._cdata] = (held, name)

    def name(self, t: torch.Tensor) -> str:
        """The name of what a tensor holds."""
        more = (self._needs_gradient(t),) if self.tracked else ()
        return _hash(self._content(t), _shape(t), *more)

    def _needs_gradient(self, t: torch.Tensor) -> bool:
        """Whether a gradient of `t` comes to a leaf of a name. Where none is recorded, as in the
        forward of an `autograd.Function`, which may ask, what the flag says."""
        if not t.requires_grad or not torch.is_grad_enabled():
            return t.requires_grad
        return id(t) in self._leaves if t.grad_fn is None else self._leads(t.grad_fn)

    def _leads(self, start: Any) -> bool:
        """Whether the backward from a node comes to a leaf of a name."""
        seen, waiting = {start}, [start]
        while waiting and not self._led.get(start):
            node = waiting.pop()
            is_leaf = type(node).__name__ == "AccumulateGrad"
            if self._led.get(node, is_leaf and id(node.variable) in self._leaves):
                self._led[start] = True
            elif node not in self._led:
                fresh = {n for n, _ in node.next_functions if n is not None} - seen
                seen |= fresh
                waiting += fresh
        if not self._led.get(start):
            self._led |= dict.fromkeys(seen, False)
        return self._led[start]

    def wrote(self, t: torch.Tensor, root: str) -> Place:
        """The op that wrote last into a tensor."""
        step = self._wrote.get(t.untyped_storage()._cdata)
        return _placed(step, (), root) if step is not None else Place()

    def _content(self, t: torch.Tensor) -> str:
        if not isinstance(t, FakeTensor) and t.device.type != "meta":
            with _disable_current_modes():
                data = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                return _hash("table", str(t.dtype), data.clone().numpy().tobytes())
        held = t.untyped_storage()
        if held._cdata not in self._held:
            self._held[held._cdata] = (held, _hash("unknown", len(self._held)))
        self.reused |= held._cdata in self._kept
        return self._held[held._cdata][1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(not issubclass(t, FakeTensor) for t in types):
            return NotImplemented
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        is_view = func.is_view and isinstance(args[0], FakeTensor)
        viewed: Any = func(*args, **kwargs) if is_view else None
        if is_view and _shares(viewed, args[0]):
            return viewed
        clamps = self.tracked and func._opname.removesuffix("_") in _CLAMPS
        if clamps and self._is_bounded(func, args, kwargs):
            if func._schema.is_mutable:
                return args[0]
            result = func(*args, **kwargs)
            held = result.untyped_storage()
            self._held[held._cdata] = (held, self._content(args[0]))
            return result
        written = written_by(func, args, kwargs)
        key = self._key(func, args, kwargs, written)
        before = {
            t.untyped_storage()._cdata
            for t in pytree.tree_leaves((args, kwargs))
            if isinstance(t, FakeTensor)
        }
        made_of = 0
        for t in pytree.tree_leaves((args, kwargs)):
            if isinstance(t, FakeTensor):
                made_of |= self._made_of.get(self._content(t), 0)
        result = viewed if is_view else func(*args, **kwargs)
        if _is_copy(func, args, result):
            self._hold(result.untyped_storage(), self._content(args[0]), made_of)
            return result
        self.log.steps.append(Step(str(func), key, self._stack()))
        talks = func.namespace == "_c10d_functional" and func._opname != "wait_tensor"
        if talks or func._opname in ("message_sent", "message_received"):
            self.log.talks.append(key)
        for number, t in enumerate(written):
            held = t.untyped_storage()
            self._hold(held, _hash(key, "write", number), made_of)
            self._wrote[held._cdata] = self.log.steps[-1]
        for number, t in enumerate(pytree.tree_leaves(result)):
            if isinstance(t, FakeTensor):
                held = t.untyped_storage()
                if held._cdata not in before:
                    self._hold(held, _hash(key, number), made_of)
        return result

    def _hold(self, held: Any, content: str, made_of: int) -> None:
        self._held[held._cdata] = (held, content)
        self._kept.pop(held._cdata, None)
        if made_of:
            self._made_of[content] = made_of

    def _is_bounded(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Note a parameter, whole, that is clamped to numbers between which others lie."""
        given = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
        low, high = given.get("min"), given.get("max")
        if func._overloadname != "default" or (None not in (low, high) and not low < high):
            return False
        t, held = args[0], args[0].untyped_storage()
        _, name = self._parameters.get(held._cdata, (None, ""))
        whole = t.is_contiguous() and t.numel() * t.itemsize == held.nbytes()
        if not name or not whole:
            return False
        ends = "at least " * (high is None) + "at most " * (low is None)
        ends += " to ".join(f"{n:g}" for n in (low, high) if n is not None)
        name = f"{name.removeprefix('parameter ')}, {ends}"
        self.log.bounded.setdefault(name, Step(str(func), "", self._stack()))
        return True

    def _key(self, func: Any, args: Any, kwargs: Any, written: list[torch.Tensor]) -> str:
        filled = {
            id(t)
            for t in written
            if func._opname in _FILLED or func._overloadname == "out"
            if t.numel() * t.itemsize == t.untyped_storage().nbytes()
        }

        def told(value: Any, kind: str = "") -> Any:
            if isinstance(value, torch.Tensor):
                return _shape(value) if id(value) in filled else self.name(value)
            if kind in _OF_NUMBERS and type(value) is int and not self.numbers:
                return "a number"
            if isinstance(value, (list, tuple)):
                return [told(v) for v in value]
            if isinstance(value, str) and value in self.groups:
                return ["group", *self.groups[value]]
            if isinstance(value, float) and not self.numbers:
                return "a number"
            if value is None or isinstance(value, (bool, int, float, complex, str)):
                return value
            return str(value) if type(value).__module__ == "torch" else type(value).__name__

        kinds = {a.name: str(a.type) for a in func._schema.arguments}
        parts: list[Any] = [told(a, k) for a, k in zip(args, kinds.values(), strict=False)]
        parts += [(k, told(v, kinds.get(k, ""))) for k, v in sorted(kwargs.items())]
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._draws += 1
            self.log.draws += 1
            parts.append(("draw", self._draws))
        return _hash(str(func), parts)

    def _stack(self) -> Stack:
        out: list[tuple[str, int]] = []
        frame: Any = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            file = self._codes.get(code)
            if file is None:
                file = code.co_filename
                if file.startswith((_OURS, _TORCH, "<")):
                    file = ""
                self._codes[code] = file
            if file:
                out.append((file, frame.f_lineno))
            frame = frame.f_back
        return tuple(reversed(out))


_CLONE = torch.ops.aten.clone.default


_NEUTRAL = {
    torch.ops.aten.mul.Tensor: 1,
    torch.ops.aten.div.Tensor: 1,
    torch.ops.aten.add.Tensor: 0,
    torch.ops.aten.sub.Tensor: 0,
}


def _is_copy(func: Any, args: Any, result: Any) -> bool:
    """Whether a result holds what the first operand does, entry by entry in memory."""
    number = args[1] if len(args) == 2 else None
    neutral = type(number) in (int, float) and number == _NEUTRAL.get(func)
    if func is not _CLONE and not neutral:
        return False
    return _whole(args[0]) and _shape(args[0]) == _shape(result)


def _shares(result: Any, t: torch.Tensor) -> bool:
    """Whether a result lies in the memory of `t`: ops such as `to` and `reshape` may copy."""
    held = t.untyped_storage()._cdata
    return all(r.untyped_storage()._cdata == held for r in pytree.tree_leaves(result))


def _whole(t: torch.Tensor) -> bool:
    return t.is_contiguous() and t.numel() * t.itemsize == t.untyped_storage().nbytes()


def _shape(t: torch.Tensor) -> Any:
    return (tuple(t.shape), t.stride(), t.storage_offset(), str(t.dtype))


def parted(message: str, at: Place, more: str, hint: str) -> CaptureError:
    """The error for two calls that differ."""
    what = f": {at.op}" if at.op else ""
    called = f", called at {at.caller}" if at.caller else ""
    return CaptureError(
        f"{message}{what}{called}{more}", file=at.file, line=at.line, text=at.text, hint=hint
    )


def written_by(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    if not func._schema.is_mutable:
        return []
    out: list[torch.Tensor] = []
    for number, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            out += [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
    return out


def difference(first: Log, second: Log, root: str) -> Place:
    """The first op that only one of two calls has; empty where they run the same ops, and return
    others of them."""
    a, b = first.steps, second.steps
    at = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x.key != y.key),
        min(len(a), len(b)),
    )
    step, other = _aligned(a[at : at + _NEAR], b[at : at + _NEAR])
    if step is None:
        return Place()
    return _placed(step, other.stack if other is not None else (), root)


def _placed(step: Step, other: Stack, root: str) -> Place:
    """Where an op is: the innermost line of the user's."""
    mine = [frame for frame in step.stack if not root or own(root, frame[0])] or step.stack
    if not mine:
        return Place(op=step.op)
    parted = next((frame for frame in mine if frame not in other), mine[-1])
    file, line = mine[-1]
    text = linecache.getline(file, line).strip()
    shown = Provenance(root).shown
    caller = "" if parted == mine[-1] else f"{shown(parted[0])}:{parted[1]}"
    return Place(shown(file), line, text, step.op, caller if other else "")


def _aligned(a: Sequence[Step], b: Sequence[Step]) -> tuple[Step | None, Step | None]:
    """The first op that only one of two calls has, and the one in its place in the other."""
    names = [[(s.op, s.stack) for s in steps] for steps in (a, b)]
    for kind, i, _, j, _ in difflib.SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        ours = a[i] if i < len(a) else None
        theirs = b[j] if j < len(b) else None
        if kind == "equal" and a[i].key == b[j].key:
            continue
        if kind == "insert":
            return theirs, ours
        return ours, theirs
    return (a[0] if a else None), (b[0] if b else None)


def unsteady(name: str, first: Log, second: Log, moved: Sequence[str], root: str) -> CaptureError:
    """The error for a module whose second call differs; `moved` is what the calls changed."""
    return parted(
        f"the second call of {name} does something else than the first",
        difference(first, second, root),
        f" ({', '.join(moved[:3])} changed)" if moved else "",
        "what a call computes may depend on its arguments, parameters and buffers alone, not on "
        "what earlier calls left behind",
    )


def drawn_apart(name: str, line: str, at: Place) -> CaptureError:
    """The error for a module that a drawn number decides."""
    return parted(
        f"a number that {name} draws, at {line}, decides what it computes",
        at,
        "",
        "let draws decide nothing but dropout: set what drops layers to 0, or pass what is drawn "
        "as an argument",
    )


_PLAIN = (bool, int, float, str, type(None))


def plain_state(model: torch.nn.Module, files: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, strings and flags that a model's modules, and its files, hold; the name of the
    target's own file is empty."""
    out: dict[str, Any] = {}
    for path, part in model.named_modules():
        for key, value in vars(part).items():
            if isinstance(value, _PLAIN):
                out[f"{path}.{key}" if path else key] = value
    for name, module in files.items():
        for key, value in vars(module).items():
            if isinstance(value, _PLAIN) and not key.startswith("__"):
                out[f"the global {name}.{key}" if name else f"the global {key}"] = value
    return out


def files_of(module: Any, root: str) -> dict[str, Any]:
    """The owner's Python modules that are imported by now; `module` is the target's own."""
    known = {id(module)}
    out = {} if module is None else {"": module}
    for name, other, file in loaded():
        if id(other) not in known and file and own(root, file):
            known.add(id(other))
            out[name] = other
    return out


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What has another value, or is new."""
    return [k for k, v in after.items() if k not in before or before[k] != v]
