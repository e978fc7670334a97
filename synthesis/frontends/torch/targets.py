"""Runs one subject, a model or a module of it, on samples, and writes down what came out."""

# pyright: basic

import copy
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from shardproof.synthesis.frontends.torch import runs
from shardproof.synthesis.frontends.torch.branch_coverage import Ways
from shardproof.synthesis.frontends.torch.edges import edges
from shardproof.synthesis.frontends.torch.lower import DTYPES
from shardproof.synthesis.frontends.torch.observed import (
    Handwritten,
    OutFact,
    ParamFact,
    Sample,
    Subject,
    Trouble,
    Value,
)
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.results import flatten_result, named_outputs
from shardproof.synthesis.frontends.torch.runs import Call, Watch, array
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES
from shardproof.verifier.kernel.program.types import TensorType

PLANNED = (
    ("random", 0, True),
    ("random", 1, True),
    ("random", 2, True),
    ("scale 8", 3, True),
    ("scale 1e-3", 4, True),
    ("negative", 5, True),
    ("positive", 6, True),
    ("zeros", 7, False),
    ("ties", 8, False),
    ("half zeros", 9, False),
    ("scale 1e3", 10, False),
    ("scale 1e-7", 11, False),
)
"""Label, seed, and whether gradients are taken: not where there are kinks by construction."""
OPEN = ("zeros", "ties", "half zeros")
"""Samples on which equal values are made on purpose."""
SEARCHED = tuple(
    (f"scale {s}", 20 + n, False)
    for n, s in enumerate((0.03, 0.1, 0.3, 0.5, 2, 3, 5, 20, 50, 100, 0.01, 1e4))
)
"""Tried where a condition only went one way."""
COTANGENTS = {1: 1e3, 2: 1e-3}
"""Their size by seed, where it is not 1: a backward may clip what it is given."""
MOST_SLOPES = 32
ALIKE = 1e-3
"""Of the largest magnitude: what the code's values in float32 may be off those in float64."""
BOTH = ("random", "scale 1e-3")
"""Samples that are run in float32 too; on smaller ones rounding alone decides between near ties."""


@dataclass
class Order:
    """What is to be run."""

    name: str
    path: str
    make: Callable[[], nn.Module]
    specs: tuple[InputSpec, ...]
    call: Call
    result_names: tuple[str, ...]
    root: str
    ways: Ways
    explain: Callable[[BaseException], Trouble]
    alike: tuple[str, ...] = ("",)
    dtype: str = "f32"
    """Of the program's floats."""
    losses: bool = True
    """Whether a scalar result is a loss."""
    exact: bool = False
    """Casts are left out in float32 too."""

    def watch(self, dtype: Any, record: bool = False) -> Watch:
        """A watch over runs in a dtype, and over the trail that is being kept."""
        wide = dtype is torch.float64 or self.exact
        like = TORCH_DTYPES[self.dtype]
        return Watch(self.root, wide, record, dtype, self.ways.trail, like, self.ways)


@contextmanager
def default_dtype(dtype: Any) -> Iterator[None]:
    """What floats are where nothing is said."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass
class _Facts:
    outputs: list[OutFact] = field(default_factory=list[OutFact])
    loss: str | None = None
    values: list[Value] = field(default_factory=list[Value])
    functions: dict[type, tuple[Any, ...]] = field(default_factory=dict[type, tuple[Any, ...]])
    notes: list[str] = field(default_factory=list[str])


class StateError(Exception):
    """The code gives other values when it is called again, or of other shapes."""


def observe(order: Order) -> Subject:
    """Run the subject. What its code raises becomes the subject's `problem`."""
    model = order.make()
    empty = Subject(
        order.name, order.path, order.alike, order.specs, *_tensors(model, order.dtype), ()
    )
    try:
        first = _facts(order, torch.float32)
    except Exception as problem:  # noqa: BLE001  (the user's code)
        return _with(empty, problem=order.explain(problem))
    facts, dtype = first, torch.float32
    try:
        facts, dtype = _facts(order, torch.float64), torch.float64
    except Exception as problem:  # noqa: BLE001
        facts.notes.append(f"not run in float64: {order.explain(problem)}")
    try:
        samples = _samples(order, facts, dtype)
    except StateError as problem:
        return _with(empty, outputs=tuple(facts.outputs), problem=Trouble(str(problem)))
    if dtype is torch.float64 and (odd := _other_in_float32(order, facts, samples)):
        facts, dtype, order = first, torch.float32, replace(order, exact=True)
        facts.notes.append(f"compared in float32: in float64 the code gives other values ({odd})")
        samples = _samples(order, facts, dtype)
    wide = dtype is torch.float64
    slopes = _slopes(order, facts, samples[0]) if wide and samples else {}
    functions = [_examined(cls, args, order, wide) for cls, args in facts.functions.items()]
    return _with(
        empty,
        outputs=tuple(facts.outputs),
        samples=tuple(samples),
        values=tuple(facts.values),
        ways=tuple(copy.copy(w) for w in order.ways.reached()),
        functions=tuple(functions),
        slopes=slopes,
        precision="f64" if wide else "f32",
        notes=tuple(dict.fromkeys(facts.notes)),
    )


def _with(subject: Subject, **changes: Any) -> Subject:
    return Subject(**{**subject.__dict__, **changes})


def _examined(cls: type, args: tuple[Any, ...], order: Order, wide: bool) -> Handwritten:
    try:
        return runs.examine(cls, args, order.root, wide)
    except Exception:  # noqa: BLE001  (a function that cannot be called alone is not judged)
        return Handwritten(cls.__name__, "", 0)


def _tensors(model: nn.Module, dtype: str) -> tuple[tuple[ParamFact, ...], dict[str, Any]]:
    """Parameters and buffers, each under its first name."""
    params = tuple(
        ParamFact(path, TensorType(tuple(p.shape), dtype), p.requires_grad)
        for path, p in model.named_parameters()
    )
    return params, {path: array(b) for path, b in model.named_buffers()}


def _run(
    order: Order, model: nn.Module, given: dict[str, Any], watch: Watch, loss: bool
) -> tuple[list[tuple[str, Any]], str | None]:
    with watch:
        result = order.call(model, given)
    if loss and order.losses:
        named, found = named_outputs(result, order.result_names)
    else:
        named, found = flatten_result(result, order.result_names), None
    if not named:
        raise StateError(f"{order.name}.forward returns no tensor")
    return named, found


def _prepared(order: Order, seed: int, dtype: Any, label: str = "") -> nn.Module:
    torch.manual_seed(seed)
    model = order.make().to(dtype).eval()
    runs.randomise(model, seed, label)
    return model


def _facts(order: Order, dtype: Any) -> _Facts:
    """One run for names, types and values; another call of the same model must agree."""
    facts = _Facts()
    with default_dtype(dtype):
        model = _prepared(order, 0, dtype)
        given = runs.draw(order.specs, "random", 0, dtype)
        kept = {k: v.clone() for k, v in given.items()}
        kept_state = _state(model)
        watch = order.watch(dtype, record=True)
        named, facts.loss = _run(order, model, given, watch, True)
        facts.values = watch.values
        facts.notes += [
            f"values leave PyTorch at {Path(file).name}:{line} "
            f"({linecache.getline(file, line).strip()}): what is decided there is looked for on "
            "the samples alone"
            for file, line in sorted(watch.left)
        ]
        facts.notes += [
            f"forward changes its argument {name} in place; the program does not"
            for name in given
            if not torch.equal(given[name], kept[name])
        ]
        facts.notes += [
            f"forward changes its own {name} in place; the program does not"
            for name, value in _state(model).items()
            if not torch.equal(value, kept_state[name])
        ]
        torch.manual_seed(99)
        again = {k: v.clone() for k, v in kept.items()}
        twice, _ = _run(order, model, again, order.watch(dtype), False)
        _check_memory(order, model, dtype)
    for (name, t), (_, other) in zip(named, twice, strict=True):
        if not runs.same(array(t), array(other)):
            raise StateError(
                f"{name} is another value when forward is called again on the same input: "
                "it keeps state between calls, or draws random numbers"
            )
        kind = order.dtype if t.is_floating_point() else DTYPES[t.dtype]
        path = "loss" if name == facts.loss and name.startswith("output") else name
        role = "loss" if name == facts.loss else "output"
        facts.outputs.append(OutFact(role, path, TensorType(tuple(t.shape), kind)))
    return facts


def _state(model: nn.Module) -> dict[str, Any]:
    """Copies of parameters and buffers."""
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: t.detach().clone() for name, t in found.items()}


def _check_memory(order: Order, used: nn.Module, dtype: Any) -> None:
    """Another input must give what it gives a model that was never called.

    Raises:
        StateError: the code remembers what it was called with, or how often.
    """
    found: list[list[Any] | None] = []
    for model in (used, _prepared(order, 0, dtype)):
        torch.manual_seed(98)
        given = runs.draw(order.specs, "random", 1, dtype)
        try:
            named, _ = _run(order, model, given, order.watch(dtype), False)
            found.append([array(t) for _, t in named])
        except Exception:  # noqa: BLE001  (such a sample is left out later)
            found.append(None)
    a, b = found
    if a is None and b is None:
        return
    if a is None or b is None or not all(map(runs.same, a, b)):
        raise StateError(
            "forward gives another value on a model that was called before: it keeps state "
            "between calls, or draws random numbers"
        )


def _other_in_float32(order: Order, facts: _Facts, samples: list[Sample]) -> str:
    """Where float32 gives what is not about the same: an epsilon or a branch of the dtype."""
    order = replace(order, exact=True)
    with default_dtype(torch.float32):
        for sample in samples:
            if sample.label not in BOTH or sample.left_out:
                continue
            model = _prepared(order, sample.seed, torch.float32, sample.label)
            given = runs.draw(order.specs, sample.label, sample.seed, torch.float32)
            try:
                with torch.no_grad():
                    named, _ = _run(order, model, given, order.watch(torch.float32), False)
            except Exception:  # noqa: BLE001  (it ran on another sample)
                continue
            for fact, (_, t) in zip(facts.outputs, named, strict=True):
                want, got = sample.outputs[fact.path], array(t)
                if want.dtype.kind != "f" or not want.size:
                    continue
                size = float(np.abs(want).max())
                if got.shape != want.shape or not np.all(np.abs(got - want) <= ALIKE * size):
                    return f"{fact.path} on the sample '{sample.label}'"
    return ""


def _samples(order: Order, facts: _Facts, dtype: Any) -> list[Sample]:
    order.ways.counting = True
    try:
        with default_dtype(dtype):
            out = [_sample(order, facts, dtype, *planned) for planned in PLANNED]
            for planned in SEARCHED:
                reached = order.ways.reached()
                if all(w.true and w.false for w in reached):
                    break
                seen = order.ways.taken()
                more = _sample(order, facts, dtype, *planned)
                if order.ways.taken() - seen:
                    out.append(more)
            return [*out, *_edges(order, facts, dtype)]
    finally:
        order.ways.counting = False


def _edges(order: Order, facts: _Facts, dtype: Any) -> list[Sample]:
    """Samples on both sides of where the code changes its way, along three rays: a condition,
    or what an op decides by comparing or rounding."""
    if not any(s.dtype in ("f64", "f32", "bf16", "f16") for s in order.specs):
        return []
    out: list[Sample] = []
    for ray, seed in (("edge", 40), ("negative edge", 41), ("edge", 42)):
        fresh = _prepared(order, seed, dtype)

        def trail(scale: float, ray: str = ray, seed: int = seed, fresh: Any = fresh) -> Any:
            torch.manual_seed(seed)
            model = copy.deepcopy(fresh)
            drawn = runs.draw(order.specs, f"{ray} {scale!r}", seed, dtype)
            order.ways.counting, order.ways.trail = False, []
            try:
                with torch.no_grad():
                    _run(order, model, drawn, order.watch(dtype), False)
                return tuple(order.ways.trail)
            except Exception:  # noqa: BLE001  (the user's code)
                return None
            finally:
                order.ways.counting, order.ways.trail = True, None

        if trail(1.0) == ():
            return out
        out += [
            _sample(order, facts, dtype, f"{ray} {scale!r}", seed, False) for scale in edges(trail)
        ]
    return out


def _sample(
    order: Order, facts: _Facts, dtype: Any, label: str, seed: int, gradients: bool
) -> Sample:
    """One run. Ways that were gone on a sample that is left out do not count."""
    before = order.ways.counts()
    made = _sampled(order, facts, dtype, label, seed, gradients)
    if made.left_out:
        order.ways.restore(before)
    return made


def _sampled(
    order: Order, facts: _Facts, dtype: Any, label: str, seed: int, gradients: bool
) -> Sample:
    model = _prepared(order, seed, dtype, label)
    drawn = runs.draw(order.specs, label, seed, dtype)
    inputs = {k: array(v) for k, v in drawn.items()}
    params = {k: array(p) for k, p in model.named_parameters()}
    leaves = {
        k: v.requires_grad_(True) if gradients and v.is_floating_point() else v
        for k, v in drawn.items()
    }
    watch = order.watch(dtype)
    try:
        with runs.noted_functions(facts.functions if gradients else {}):
            named, _ = _run(order, model, {k: v.clone() for k, v in leaves.items()}, watch, False)
    except StateError:
        raise
    except Exception as problem:  # noqa: BLE001
        why = f"the code raises on it: {order.explain(problem)}"
        return Sample(label, seed, inputs, params, {}, {}, {}, why)
    named = [(o.path, t) for o, (_, t) in zip(facts.outputs, named, strict=True)]
    for fact, (name, t) in zip(facts.outputs, named, strict=True):
        if tuple(t.shape) != fact.type.shape:
            raise StateError(
                f"the shape of {name} depends on values: {list(t.shape)} on one sample, "
                f"{list(fact.type.shape)} on another"
            )
    outputs = {name: array(t) for name, t in named}
    why = ""
    if not all(np.isfinite(a).all() for a in outputs.values() if a.dtype.kind == "f"):
        why = "the code gives a value that is not finite"
    elif watch.tied and label in OPEN:
        why = "it has equal values of which one is named, and which one is not specified"
    grads: dict[str, Any] = {}
    cotangents: dict[str, Any] = {}
    if gradients and not why:
        grads, cotangents = _gradients(facts, model, leaves, named, seed)
        if not all(np.isfinite(a).all() for a in grads.values()):
            why = "the code gives a gradient that is not finite"
    return Sample(label, seed, inputs, params, outputs, grads, cotangents, why)


def _gradients(
    facts: _Facts, model: nn.Module, leaves: dict[str, Any], named: list[tuple[str, Any]], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the code's own backward gives; zeros where it gives nothing."""
    g = torch.Generator().manual_seed(seed + 2)
    cotangents: dict[str, Any] = {}
    loss = next((o.path for o in facts.outputs if o.role == "loss"), None)
    roots: list[Any] = []
    for name, t in named:
        if not t.is_floating_point() or (loss is not None and name != loss):
            continue
        ct = torch.randn(t.shape, generator=g, dtype=torch.float64).to(t.dtype)
        ct = ct * COTANGENTS.get(seed, 1.0)
        if loss is not None:
            ct = torch.ones_like(t)
        else:
            cotangents[name] = array(ct)
        if t.requires_grad:
            roots.append((t, ct))
    wrt = {k: p for k, p in model.named_parameters() if p.requires_grad}
    wrt |= {f"input:{k}": v for k, v in leaves.items() if v.requires_grad}
    found: Any = [None] * len(wrt)
    if roots and wrt:
        found = torch.autograd.grad(
            [t for t, _ in roots], list(wrt.values()), [c for _, c in roots], allow_unused=True
        )
    return {
        k: array(v if v is not None else torch.zeros_like(t))
        for (k, t), v in zip(wrt.items(), found, strict=True)
    }, cotangents


def _slopes(order: Order, facts: _Facts, sample: Sample) -> dict[str, bool]:
    """Whether each gradient is the slope of the code's own forward, on the first sample."""
    if sample.left_out:
        return {}
    loss = next((o.path for o in facts.outputs if o.role == "loss"), None)
    out: dict[str, bool] = {}
    with default_dtype(torch.float64):
        fresh = _prepared(order, sample.seed, torch.float64)
        for name, grad in list(sample.grads.items())[:MOST_SLOPES]:
            key = name.rpartition("input:")[2]
            at = torch.from_numpy((sample.inputs if "input:" in name else sample.params)[key])

            def value(x: Any, name: str = name, key: str = key) -> float:
                torch.manual_seed(sample.seed)
                model = copy.deepcopy(fresh)
                given = {k: torch.from_numpy(v.copy()) for k, v in sample.inputs.items()}
                with torch.no_grad():
                    if "input:" in name:
                        given[key] = x
                    else:
                        dict(model.named_parameters())[key].copy_(x)
                    named, _ = _run(order, model, given, order.watch(torch.float64), False)
                total = 0.0
                for fact, (_, t) in zip(facts.outputs, named, strict=True):
                    if fact.path == loss:
                        total += float(t)
                    elif loss is None and fact.path in sample.cotangents:
                        total += float((t * torch.from_numpy(sample.cotangents[fact.path])).sum())
                return total

            out[name] = runs.slope(value, at, torch.from_numpy(grad), 5).agree
    return out
