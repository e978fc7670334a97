"""Which modes a module is judged in: what it does in train and in eval mode, and what it does when
it is called again, is compared.

Each mode starts from the module as it was built. Modes in which every rank, and the model, compute
and exchange the same are judged once.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

from torch.fx.traceback import preserve_node_meta

from shardproof.synthesis.frontends.torch.apart import apart
from shardproof.synthesis.frontends.torch.asserts import decided, taken_for_granted
from shardproof.synthesis.frontends.torch.chosen import reads_whole, unbounded
from shardproof.synthesis.frontends.torch.digest import (
    Digest,
    Log,
    changed,
    difference,
    drawn_apart,
    files_of,
    plain_state,
    unsteady,
)
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.dtensors import local
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.request import (
    EVAL,
    FORWARD,
    INFERENCE,
    SAID,
    TRAIN,
    UNRECORDED,
    UNSTEPPED,
)
from shardproof.synthesis.frontends.torch.ranks.steps import COUNTED, NewStateError
from shardproof.synthesis.frontends.torch.ranks.tracing import (
    Followed,
    Order,
    follow,
    follow_one,
    run,
)
from shardproof.synthesis.frontends.torch.single_draws import (
    LEAST,
    Singles,
    deciding,
    given,
    told,
)
from shardproof.synthesis.frontends.torch.surroundings import LAUNCHED, Surroundings
from shardproof.synthesis.frontends.torch.trace import Traced

STATE_OF_STEP = "buffer of the step"
MOST_FIRST = 3
"""Steps that are made at most before one is traced that keeps what the step before it kept."""
Make = Callable[[str], Order]
"""The order for a mode, on the module as it was built."""


def wanted(modes: Sequence[str], gradients: bool) -> list[str]:
    """What is traced for the modes asked for: each as it runs under `torch.no_grad()` too."""
    out: list[str] = []
    if EVAL in modes:
        out += [EVAL, INFERENCE] if gradients else [INFERENCE]
    if TRAIN in modes:
        out += [TRAIN, FORWARD] if gradients else [TRAIN]
    return out


def rounds(
    modes: Sequence[str], trace: Callable[[str, Sequence[str]], Sequence[str]]
) -> list[list[str]]:
    """The modes, those together that are judged as one. `trace` traces a mode and says which of
    others are like it.

    Raises:
        CaptureError: as `trace`; where other modes can be traced, it says in which this was.
    """
    left, out = list(modes), []
    while left:
        first, *rest = left
        try:
            alike = trace(first, rest)
        except CaptureError as problem:
            if not out:
                raise
            if first in UNRECORDED and problem.message == UNSTEPPED:
                left = rest
                continue
            done = "eval" if first in (TRAIN, FORWARD) else "train"
            more = f"; or ask for another mode alone: --mode {done}" if first != INFERENCE else ""
            raise CaptureError(
                f"in {SAID[first]}: {problem.message}",
                file=problem.file,
                line=problem.line,
                text=problem.text,
                hint=(problem.hint + more).removeprefix("; "),
            ) from problem
        out.append([first, *alike])
        left = [mode for mode in rest if mode not in alike]
    return out


@dataclass
class Twice:
    """A module that was traced, and called again."""

    followed: Followed
    order: Order
    alike: list[str]
    """The other modes in which it computes and exchanges the same."""
    notes: list[str]


def follow_twice(make: Make, mode: str, others: Sequence[str], module: Any) -> Twice:
    """Trace a module in a mode, call it again, and compare it with other modes.

    Args:
        make: the order for a mode; called inside the fake mode.
        mode: what is traced.
        others: modes that this may be like.
        module: the user's Python module, whose globals are looked at.

    Raises:
        CaptureError: as `follow`; the second call does something else than the first.
        Exception: whatever the user's code raises.
    """
    quick = {o: apart(lambda o=o: decided(lambda: _quick(make, o)), "") for o in others}
    for _ in range(MOST_FIRST - 1):
        with suppress(NewStateError):
            return decided(lambda: _traced_twice(make, mode, quick, module))
    return decided(lambda: _traced_twice(make, mode, quick, module))


def one_twice(make: Callable[[], Order], other: AbstractContextManager[None] | None) -> Traced:
    """A model on one device, traced, and called again, in its `other` mode too where one is given.
    Call inside the fake mode.

    Raises:
        CaptureError: as `follow`; the second backward does something else than the first, or that
            of the other mode does.
        Exception: whatever the user's code raises.
    """
    order = make()
    digest, held = _digest(order), _changing(order)
    traced = follow_one(order)
    first = digest.log
    second = _again(lambda _: make(), "", digest, held)
    if first.draws != second.draws or not first.alike(second):
        raise CaptureError(
            f"the second backward of {type(order.model).__name__} does something else than the "
            "first",
            hint="let no backward count its calls, or keep what it made",
        )
    if other is not None:
        with other:
            third = _again(lambda _: make(), "", digest, held)
        if first.draws != third.draws or not first.alike(third):
            raise CaptureError(
                f"the backward of {type(order.model).__name__} does something else in train mode "
                "than in eval mode",
                hint="let both modes compute the same but for dropout: one program is proved, for "
                "both",
            )
    return traced


def _traced_twice(make: Make, mode: str, quick: Mapping[str, Any], module: Any) -> Twice:
    order = make(mode)
    begun = order.step is not None and order.step.begun
    for p in () if begun else order.model.parameters():
        p.grad = None
    if order.step is not None and not begun:
        _digest(order)
        with given(Singles((LEAST,), order.watch.places)), order.step.known:
            _call(order)
        order.step.keep(order.watch.seen.kept)
        order.step.begun = True
        order = make(mode)
    files = files_of(module, order.watch.places.root)
    before = plain_state(order.model, files)
    digest = _digest(order)
    held = _changing(order)
    read = surroundings(order.watch.places)
    with read.watched(), given(Singles((LEAST,), order.watch.places)):
        followed = follow(order)
    first = digest.log
    lines, second = _second(order, lambda: _again(make, mode, digest, held), first)
    moved = changed(before, plain_state(order.model, files))
    root = order.watch.places.root
    if second is not None:
        raise unsteady(type(order.model).__name__, first, second, moved, root)
    if moved and reads_whole():
        raise unbounded(moved[0])
    alike: list[str] = []
    told_of: list[str] = []
    for other, found in quick.items():
        if found is None or isinstance(found, CaptureError):
            continue
        once, steady, drawn, said = found
        forward = other in UNRECORDED and order.recorded
        steady = steady and drawn == len(order.watch.draws.made)
        if steady and once.alike(first, forward=forward):
            alike.append(other)
            told_of += said
    name = type(order.model).__name__
    notes = [f"{name}: {m} changes from call to call; two calls run the same." for m in moved]
    notes += [*digest.told(name), *told(lines), *(COUNTED if order.step is not None else ())]
    notes += [*read.read, *told_of, *taken_for_granted()]
    return Twice(followed, order, alike, list(dict.fromkeys(notes)))


def surroundings(places: Places) -> Surroundings:
    """What the code of a rank reads of the environment, what says which rank it is aside."""
    return Surroundings(places, LAUNCHED)


def _again(make: Make, mode: str, digest: Digest, held: Mapping[str, Any]) -> Log:
    again = make(mode)
    again.digest = digest
    digest.age(again.gradients)
    _named_again(again, held)
    return _call(again)


def _second(order: Order, call: Callable[[], Log], first: Log) -> tuple[list[str], Log | None]:
    """The lines that draw, and what a second call does where that is something else. Raises
    CaptureError where a call that draws other numbers does something else."""
    places = order.watch.places

    def drawing(singles: Singles) -> Log:
        with given(singles):
            return call()

    lines, other = deciding(drawing, first, order.model, places)
    if other is not None and lines:
        at = difference(first, other, places.root)
        raise drawn_apart(type(order.model).__name__, lines[0], at)
    return lines, other


def _quick(make: Make, mode: str) -> tuple[Log, bool, int, list[str]]:
    """What a call does, whether a second does the same, how much the first draws, and what is said
    of both."""
    order = make(mode)
    digest = _digest(order)
    held = _changing(order)
    read = surroundings(order.watch.places)
    with read.watched(), given(Singles((LEAST,), order.watch.places)):
        first = _call(order)
    drawn = len(order.watch.draws.made)
    lines, other = _second(order, lambda: _again(make, mode, digest, held), first)
    said = [*told(lines), *read.read, *digest.told(type(order.model).__name__)]
    return first, other is None, drawn, [*said, *taken_for_granted()]


def _digest(order: Order) -> Digest:
    digest = Digest(order.watch.seen.groups, numbers=order.step is None)
    for kind, name, t in _held(order):
        digest.leaf(t, f"{kind} {name}")
    order.digest = digest
    return digest


def _held(order: Order) -> Iterator[tuple[str, str, Any]]:
    """What a call is given, and may change: (kind, name, piece of this rank)."""
    for kind, group in (
        ("parameter", order.model.named_parameters()),
        ("buffer", order.model.named_buffers()),
        (STATE_OF_STEP, () if order.step is None else order.step.state().items()),
        ("argument", order.inputs.items()),
    ):
        yield from ((kind, name, local(t)) for name, t in group)


def _changing(order: Order) -> dict[str, Any]:
    """What a call may change in place: a later one starts from any value of it."""
    kinds = ("buffer",) if order.step is None else ("buffer", "parameter")
    return {f"{kind} {n}": t for kind, n, t in _held(order) if kind in kinds}


def _named_again(order: Order, held: Mapping[str, Any]) -> None:
    """What the first call left in buffers is called as what it found: the second starts from
    buffers of any value, as the first. A buffer that was replaced by another is not."""
    assert order.digest is not None
    for kind, name, t in _held(order):
        known = kind == STATE_OF_STEP or held.get(f"{kind} {name}") is t
        if kind != "argument" and known:
            order.digest.leaf(t, f"{kind} {name}")


def _call(order: Order) -> Log:
    """Run without a trace."""
    assert order.digest is not None
    order.digest.start()
    order.digest.groups = order.watch.seen.groups
    params: dict[str, Any] = dict(order.model.named_parameters())
    for p in params.values() if order.step is None else ():
        p.grad = None
    with warnings.catch_warnings(), preserve_node_meta():
        warnings.simplefilter("ignore")
        run(order, params, {}, dict(order.inputs), Followed(_nothing()), [])
    return order.digest.log


def _nothing() -> Traced:
    from torch import fx

    return Traced(fx.Graph(), None)
