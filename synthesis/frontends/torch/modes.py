"""Compares what a model computes in train and in eval mode, and when it is called again.

One of them is traced. That stands for the others where they run the same ops, dropout aside.
"""

# pyright: basic

import itertools
import linecache
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses import FakeTensor

from shardproof.synthesis.frontends.torch.apart import apart
from shardproof.synthesis.frontends.torch.api_calls import ApiCalls, parting
from shardproof.synthesis.frontends.torch.asked.watching import watching
from shardproof.synthesis.frontends.torch.asserts import Asserted, leave_out, left_out
from shardproof.synthesis.frontends.torch.chosen import called, read_whole, reads_whole, unbounded
from shardproof.synthesis.frontends.torch.digest import (
    Digest,
    Log,
    changed,
    difference,
    drawn_apart,
    files_of,
    parted,
    plain_state,
    unsteady,
)
from shardproof.synthesis.frontends.torch.errors import CaptureError, shown
from shardproof.synthesis.frontends.torch.ranks.arguments import nested
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.results import flatten_result
from shardproof.synthesis.frontends.torch.runs import noted_functions
from shardproof.synthesis.frontends.torch.single_draws import (
    LEAST,
    Singles,
    deciding,
    given,
    told,
)
from shardproof.synthesis.frontends.torch.surroundings import Surroundings
from shardproof.synthesis.frontends.torch.switching import in_mode
from shardproof.synthesis.frontends.torch.torch_api import no_gradient_hooks
from shardproof.synthesis.frontends.torch.trace import changes
from shardproof.synthesis.frontends.torch.worker import explain

NOT_LOOKED_AT = (
    "Later calls compute what the first two compute; only these are compared.",
    "torch.inference_mode() is not looked at.",
)
_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")


@dataclass(frozen=True)
class Modes:
    """What is known of a model's modes, in sentences for the report."""

    dropped: tuple[str, ...] = ()
    """Lines at which train mode drops out, which is left out."""
    changing: tuple[str, ...] = ()
    """Plain attributes that a call changes, which no op depends on."""
    trained: bool = True
    """Whether train mode was looked at."""
    state: tuple[str, ...] = ()
    """Buffers that train mode changes: then it is what is captured."""
    apart: str = ""
    """Where eval mode then runs something else."""
    draws: bool = False
    """Whether tensors are drawn: where eval mode draws none, it is train mode that is captured."""
    unread: str = ""
    """Why no mode could be run; then nothing is known."""
    asserts: tuple[Asserted, ...] = ()
    """What was left out to run them."""
    bounded: tuple[str, ...] = ()
    """Parameters that train mode clamps, with the line."""
    whole: bool = False
    """Whether chosen rows were read as all rows to run them."""
    read: tuple[str, ...] = ()
    """What the owner's code reads of its surroundings, in sentences."""
    drawn: tuple[str, ...] = ()
    """What it draws that decides nothing, in a sentence."""
    kept: tuple[str, ...] = ()
    """What it keeps of parameters, in a sentence."""

    @property
    def train(self) -> bool:
        """Whether it is train mode that is captured."""
        return bool(self.state or self.apart)

    def told(self) -> Iterator[str]:
        if not self.trained:
            yield "The model runs in eval mode: nothing is said of training."
        elif self.train:
            yield from self._stateful()
        elif self.dropped:
            yield (
                "Train mode runs the ops of eval mode, with dropout left out at "
                f"{', '.join(self.dropped)}."
            )
        else:
            yield "Train mode runs the ops of eval mode; there is no dropout."
        if self.bounded:
            listed = ", ".join(self.bounded[:4])
            more = f" and {len(self.bounded) - 4} more" if len(self.bounded) > 4 else ""
            yield f"Parameters that train mode clamps are taken to lie in bounds: {listed}{more}."
        yield from self._changes()
        yield from self.drawn
        yield from self.kept
        yield from NOT_LOOKED_AT

    def _stateful(self) -> Iterator[str]:
        left = f", with dropout left out at {', '.join(self.dropped)}" if self.dropped else ""
        yield f"It is train mode that is captured{left}."
        if self.apart:
            yield f"Eval mode runs something else, at {self.apart}: nothing is said of it."
        if not self.state:
            return
        yield (
            "Buffers that forward changes are read and given back, whatever they hold: "
            f"{', '.join(self.state[:4])}"
            + (f" and {len(self.state) - 4} more." if len(self.state) > 4 else ".")
        )

    def _changes(self) -> Iterator[str]:
        if self.changing:
            listed = ", ".join(self.changing[:4])
            yield f"A call changes {listed}; two calls in a row run the same ops."


def compare_modes(
    model: nn.Module, kwargs: dict[str, Any], gradients: bool, module: Any, root: str
) -> Modes:
    """Run `model(**kwargs)`, on fake tensors, in a fork: twice in train mode and once in eval mode;
    without gradients, twice in eval mode. Where eval mode does not run either, that is told as a
    value: what traces the model has more to say of it.

    Args:
        module: the user's Python module; its globals, and those of their others, are looked at.
        root: its folder.

    Raises:
        CaptureError: calls differ, with the line; train mode ends in an error where eval mode does
            not, or changes a parameter; it changes a buffer, and draws a number besides.
    """
    found = apart(lambda: _compared(model, kwargs, gradients, module, root), root)
    if isinstance(found, dict):
        if not gradients or apart(lambda: _runs(model, kwargs), root) is not True:
            return Modes(unread=found["message"])
        raise CaptureError(**{**found, "message": f"in train mode: {found['message']}"})
    if isinstance(found, CaptureError):
        raise found
    return found or Modes(unread="the process ended before it was done")


def _compared(
    model: nn.Module, kwargs: dict[str, Any], gradients: bool, module: Any, root: str
) -> Modes | dict[str, Any]:
    """What is known of the modes, or what the first call ended in."""
    places, name = Places(root), type(model).__name__
    digest = Digest(tracked=True)
    _named(digest, model, kwargs)
    start = _held(model, digest)
    files = files_of(module, root)
    before = plain_state(in_mode(model, gradients), files)
    dropped: dict[str, None] = {}

    drawn = itertools.count(1)
    numbers: list[str] = []

    def call(train: bool, singles: Singles | None = None) -> Log:
        in_mode(model, train)
        digest.age(gradients)
        _named(digest, model, kwargs, start)
        singles = singles or Singles((next(drawn) * LEAST,), places)
        try:
            return _call(model, kwargs, digest, nothing_drawn(dropped, places, singles), places)
        finally:
            numbers.extend(singles.lines)

    read = Surroundings(places)
    try:
        with read.watched():
            first = call(gradients)
    except Exception as problem:  # noqa: BLE001  (the user's code)
        if leave_out(problem) or read_whole(problem):
            return _compared(model, kwargs, gradients, module, root)
        return explain(problem, root)
    for label, t in model.named_parameters():
        if first.left[label] != start[label]:
            at = digest.wrote(t, root)
            raise changes("parameter", label, at.file, at.line, at.text)
    held = [n for n, _ in model.named_buffers()]
    state = tuple(n for n in held if n in start and first.left[n] != start[n])
    made = [n for n in held if n not in start]
    _no_parameter(model, (*state, *made))
    if state and numbers:
        raise CaptureError(
            f"forward changes the buffer {state[0]} and draws a number, at {numbers[0]}",
            hint="let it draw none: set what drops layers to 0",
        )
    lines: list[str] = []

    def steady(train: bool, log: Log) -> Log | None:
        """What a second call does where that is something else."""
        where, apart = deciding(lambda s: call(train, s), log, model, places)
        if apart is not None and where:
            raise drawn_apart(name, where[0], difference(log, apart, root))
        lines.extend(where)
        return apart

    second = steady(gradients, first)
    moved = changed(before, plain_state(model, files))
    if second is not None:
        raise unsteady(name, first, second, moved, root)
    if moved and reads_whole():
        raise unbounded(moved[0])
    with read.watched():
        other = call(False) if gradients else first
    if gradients and (apart := steady(False, other)) is not None:
        raise unsteady(name, other, apart, (), root)
    with read.watched():
        for train in (False, True) if gradients else (False,):
            _same_without_gradients(in_mode(model, train), kwargs, root)
    asserts, whole = left_out(), reads_whole()
    clamped = tuple(
        f"{n} ({at.file}:{at.line})"
        for n, at in first.clamps(root).items()
        if n not in other.bounded or not gradients
    )
    found = Modes(
        tuple(dropped),
        (*moved, *made),
        gradients,
        asserts=asserts,
        bounded=clamped,
        whole=whole,
        read=tuple(read.read),
        drawn=tuple(told(list(dict.fromkeys(lines)))),
        kept=tuple(digest.told(name)),
        draws=bool(first.draws),
    )
    if gradients:
        if not other.alike(first) and (state or first.draws > other.draws):
            at = difference(first, other, root)
            return replace(found, state=state, apart=f"{at.file}:{at.line}")
        if not other.alike(first):
            raise parted(
                f"{name} computes something else in train mode than in eval mode",
                difference(first, other, root),
                "",
                "let both modes compute the same but for dropout: one program is proved, for both",
            )
    return replace(found, state=state)


def _same_without_gradients(model: nn.Module, kwargs: dict[str, Any], root: str) -> None:
    """Raises CaptureError where the model, in its mode, calls something else under
    `torch.no_grad()`."""
    functions: dict[type, tuple[Any, ...]] = {}
    with noted_functions(functions):
        with_them = _api_calls(model, kwargs, True, Places(root))
        without = _api_calls(model, kwargs, False, Places(root))
    at = parting(with_them, without)
    if functions or (at is None and with_them.returned == without.returned):
        return  # what an autograd function calls is seen without gradients alone
    file, line = (at.file, at.line) if at is not None else ("", 0)
    raise CaptureError(
        f"{type(model).__name__} computes something else without gradients than with them"
        + (f": {at.name}" if at is not None else ""),
        file=shown(file, root),
        line=line,
        text=linecache.getline(file, line).strip(),
        hint="let it compute the same under torch.no_grad(): one program is proved, for both",
    )


def _api_calls(
    model: nn.Module, kwargs: dict[str, Any], gradients: bool, places: Places
) -> ApiCalls:
    """What a call calls."""
    leaves = {
        id(t): n for n, t in (*model.named_parameters(), *model.named_buffers(), *kwargs.items())
    }
    made = ApiCalls(leaves)
    mode = next(
        t.fake_mode for t in (*model.parameters(), *kwargs.values()) if isinstance(t, FakeTensor)
    )
    with ExitStack() as stack:
        stack.enter_context(no_gradient_hooks())
        stack.enter_context(watching(places))
        stack.enter_context(_nothing(places))
        stack.enter_context(mode)
        stack.enter_context(torch.set_grad_enabled(gradients))
        stack.enter_context(made)
        result = called(lambda: model(**nested(type(model).forward, kwargs)))
    made.returned = [made.name(t) for _, t in flatten_result(result)]
    return made


def _no_parameter(model: nn.Module, state: tuple[str, ...]) -> None:
    """Raises CaptureError where a call leaves a buffer that shares memory with a parameter."""
    held = {p.untyped_storage()._cdata for p in model.parameters()}
    for name in state:
        if model.get_buffer(name).untyped_storage()._cdata in held:
            raise CaptureError(
                f"forward makes the buffer {name} a view of a parameter",
                hint="give it a copy: clone()",
            )


def _named(
    digest: Digest, model: nn.Module, kwargs: dict[str, Any], start: Collection[str] | None = None
) -> None:
    """Call what a call is given by its names; of parameters and buffers, those that the model had
    at the `start`: what a call made since is what that made it of."""
    for kind, group in (
        ("parameter", model.named_parameters()),
        ("buffer", model.named_buffers()),
        ("argument", kwargs.items()),
    ):
        for label, t in group:
            if kind == "argument" or start is None or label in start:
                digest.leaf(t, f"{kind} {label}")


def _runs(model: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Whether a first call in eval mode comes to its end."""
    in_mode(model, False)
    try:
        _call(model, kwargs, Digest(tracked=True), _nothing(Places("")), Places(""))
    except Exception:  # noqa: BLE001  (the user's code)
        return False
    return True


def _call(
    model: nn.Module, kwargs: dict[str, Any], digest: Digest, drawn: Any, places: Places
) -> Log:
    digest.start()
    tensors = [*model.parameters(), *model.buffers(), *kwargs.values()]
    mode = next(t.fake_mode for t in tensors if isinstance(t, FakeTensor))
    with ExitStack() as stack:
        stack.enter_context(watching(places))
        stack.enter_context(no_gradient_hooks())
        stack.enter_context(drawn)
        stack.enter_context(mode)
        stack.enter_context(digest)
        result = called(lambda: model(**nested(type(model).forward, kwargs)))
        digest.log.returned = [digest.name(t) for _, t in flatten_result(result)]
        digest.log.left = _held(model, digest)
    return digest.log


@contextmanager
def mode_of(model: nn.Module, train: bool, root: str = "") -> Iterator[None]:
    """Train mode, with dropout left out, or eval mode."""
    in_mode(model, train)
    with ExitStack() as stack:
        if train:
            stack.enter_context(_nothing(Places(root)))
        yield


def _held(model: nn.Module, digest: Digest) -> dict[str, str]:
    return {n: digest.name(t) for n, t in (*model.named_parameters(), *model.named_buffers())}


def _nothing(places: Places) -> Any:
    """Nothing is dropped; draws are near 0."""
    return nothing_drawn({}, places, Singles((LEAST,), places))


@contextmanager
def nothing_drawn(dropped: dict[str, None], places: Places, singles: Singles) -> Iterator[None]:
    """Dropout gives what it is given, and its line is noted. Single numbers that are drawn, which
    a branch may depend on, are those of `singles`."""

    def note() -> None:
        dropped[places.line(sys._getframe(1))] = None

    def left_out(original: Any) -> Any:
        def run(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
            if not train or p == 0 or p == 1:
                return original(x, p, train)
            note()
            return x

        return run

    def attention(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = list(args)
        p = given[4] if len(given) > 4 else kwargs.get("dropout_p", 0.0)
        if p > 0:
            note()
            if len(given) > 4:
                given[4] = 0.0
            else:
                kwargs["dropout_p"] = 0.0
        return plain_attention(*given, **kwargs)

    plain_attention = nn.functional.scaled_dot_product_attention
    with ExitStack() as stack:
        for name in (*_DROPOUTS, *(f"{n}_" for n in _DROPOUTS)):
            wrapped = left_out(getattr(torch, name))
            for holder in (torch._VF, torch):
                stack.enter_context(patch.object(holder, name, wrapped, create=True))
        stack.enter_context(patch.object(nn.functional, "scaled_dot_product_attention", attention))
        stack.enter_context(given(singles))
        yield
