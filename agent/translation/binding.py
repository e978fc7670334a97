"""Holds a translation to the code: values and gradients on the samples that the code was run on.

Floats are compared in float64 where the code allows it. The tolerance there is 1e-9 of the largest
magnitude in a tensor, a million times float64's rounding and a thousandth of what an epsilon
of 1e-6 makes; 1e-6 on samples of large numbers, whose products lose as much in an exponent. In
float32 it is 6e-5, the rounding of a thousand operations, and large numbers are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.agent.translation import localising
from shardproof.agent.translation.trust import (
    BackwardDiffers,
    Bound,
    Differs,
    Evidence,
    Judged,
    NotRunnable,
    Seal,
)
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.frontends.torch.observed import Sample, Subject, Trouble
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate

TOLERANCE = {"f64": 1e-9, "f32": 2.0**-14}
LARGE = ("scale 20", "scale 50", "scale 100", "scale 1e3", "scale 10000.0")
LARGE_EDGE = 1e4
"""Edges at scales above are large too."""
TOLERANCE_OF_LARGE = 1e-6
FINE = 1e-3
"""On random samples in float64 an entry of an output is held to a thousandfold of its own magnitude
where that is less than the largest, and to no less than a thousandth of that. Elsewhere, and in
gradients, what cancels leaves more rounding."""
SMALLEST = 1e-30
LEAST = 3
"""Samples without which nothing is bound."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """Where one tensor is farthest off."""

    error: float
    index: tuple[int, ...]
    expected: float
    got: float


def bind(program: Program, subject: Subject, consts: Mapping[str, Array] | None = None) -> Judged:
    """Compare a forward program with the code.

    `consts` gives the values of its const inputs by name; those of the subject by default.
    """
    if subject.problem is not None:
        return NotRunnable(subject.problem)
    compared = [s for s in subject.samples if not s.left_out]
    if subject.precision == "f32":
        compared = [s for s in compared if not _is_large(s)]
    if len(compared) < LEAST:
        why = next((s.left_out for s in subject.samples if s.left_out), "")
        return NotRunnable(Trouble(f"only {len(compared)} samples can be compared: {why}"))
    floats = any(TensorType(i.shape, i.dtype).is_float for i in subject.inputs)
    if floats or any(p.trainable for p in subject.params):
        with_grads = sum(1 for s in compared if s.grads)
        if with_grads < LEAST:
            why = next((s.left_out for s in subject.samples if s.left_out), "")
            what = f"only on {with_grads} samples gradients can be compared: {why}"
            return NotRunnable(Trouble(what))
    given = dict(consts) if consts is not None else dict(subject.consts)
    for out, fact in zip(program.outputs, subject.outputs, strict=True):
        found = program[out.value]
        if (found.shape, found.kind) != (fact.type.shape, fact.type.kind):
            what = f"{out.role} {out.path} is {found}, the code gives {fact.type}"
            return Differs(what, subject=localising.named(subject))
    try:
        forward, both_ways = inline(program), inline(_joint(program, subject, inputs=True))
    except IRError as error:
        return _without_gradient(error, subject)
    worst = 0.0
    for sample in compared:
        run = both_ways if sample.grads else forward
        try:
            found = _compare(program, run, subject, sample, given)
        except (ValueError, IndexError, ArithmeticError) as error:
            what = f"the program cannot be run on the sample '{sample.label}': {error}"
            return Differs(what, subject=localising.named(subject))
        if isinstance(found, Differs | BackwardDiffers):
            return found
        worst = max(worst, found)
    try:
        joint = _joint(program, subject, inputs=False)
    except IRError as error:
        return _without_gradient(error, subject)
    evidence = _evidence(subject, compared, worst)
    return Bound(program, joint, (evidence,), given, Seal(program, joint))


def bind_whole(
    program: Program, subject: Subject, parts: Sequence[Bound], consts: Mapping[str, Array]
) -> Judged:
    """Compare a program made of a captured rest and bound parts with the whole model."""
    found = bind(program, subject, consts)
    if not isinstance(found, Bound):
        return found
    more = tuple(e for part in parts for e in part.evidence)
    return replace(found, evidence=(*found.evidence, *more))


def _is_large(sample: Sample) -> bool:
    edge = sample.label.rpartition("edge ")[2] if "edge " in sample.label else "0"
    return sample.label in LARGE or float(edge) > LARGE_EDGE


def _without_gradient(error: IRError, subject: Subject) -> Differs:
    return Differs(
        f"the program has no gradient: {error}",
        hints=("put `detach` where the code passes no gradient on",),
        subject=localising.named(subject),
    )


def _joint(program: Program, subject: Subject, inputs: bool) -> Program:
    """Forward and backward, with the gradients of trainable parameters, and of inputs."""
    trained = {p.path for p in subject.params if p.trainable}
    wrt = [i.name for i in program.inputs if i.role == "param" and i.path in trained]
    if inputs:
        wrt += [i.name for i in program.inputs if i.role == "input" and i.type.is_float]
    return grad(program, wrt=wrt)


def _compare(
    program: Program,
    flat: Program,
    subject: Subject,
    sample: Sample,
    consts: Mapping[str, Array],
) -> float | Differs | BackwardDiffers:
    """The largest error on one sample, or the first difference. `flat` is the program in primitive
    ops, with its backward where the sample has gradients."""
    with np.errstate(all="ignore"):
        state = evaluate(flat, localising.values_of(flat, sample, consts))
    tolerance = TOLERANCE_OF_LARGE if _is_large(sample) else TOLERANCE[subject.precision]
    fine = subject.precision == "f64" and sample.label == "random"
    worst = 0.0
    forward = [o for o in flat.outputs if o.role != "grad"]
    for out in forward:
        found = measure(sample.outputs[out.path], state[out.value], fine)
        if not found.error <= tolerance:
            return localising.forward(program, subject, sample, consts, out.path, found)
        worst = max(worst, found.error)
    names = _gradient_names(program, subject)
    for name, out in zip(names, flat.outputs[len(forward) :], strict=False):
        found = measure(sample.grads[name], state[out.value])
        if not found.error <= tolerance:
            return _gradient(program, subject, sample, name, found)
        worst = max(worst, found.error)
    for name in sorted(sample.grads.keys() - set(names)):
        found = measure(sample.grads[name], np.zeros_like(sample.grads[name]))
        if found.error:
            return _gradient(program, subject, sample, name, found)
    return worst


def _gradient_names(program: Program, subject: Subject) -> list[str]:
    trained = {p.path for p in subject.params if p.trainable}
    names = [i.path for i in program.inputs if i.role == "param" and i.path in trained]
    return names + [
        f"input:{i.path}" for i in program.inputs if i.role == "input" and i.type.is_float
    ]


def _gradient(
    program: Program, subject: Subject, sample: Sample, name: str, found: Difference
) -> Differs | BackwardDiffers:
    """A gradient that differs where all values agree: whose fault is it?"""
    faulty = tuple(f for f in subject.functions if f.argument)
    shown = name.replace("input:", "input ")
    stops = any(node.op == "detach" for node in program.nodes)
    if faulty and not stops and not subject.slopes.get(name, True):
        return BackwardDiffers(f"gradient of {shown}", faulty, localising.named(subject))
    hints = ["all outputs agree; only the gradient differs"]
    if not subject.slopes.get(name, True):
        hints.append(
            "the code's gradient is not the slope of its own forward: it stops gradients "
            "somewhere (.detach(), .item(), no_grad, a round trip through numpy, a comparison); "
            "put `detach` on that value"
        )
    else:
        hints.append("the code passes the whole gradient on; a `detach` too many stops one")
    return Differs(
        f"gradient of {shown}",
        f"{sample.label}, seed {sample.seed}",
        found.index,
        found.expected,
        found.got,
        None,
        (*localising.ratio(found.expected, found.got), *hints),
        localising.named(subject),
    )


def measure(expected: Array, got: Array, fine: bool = False) -> Difference:
    """The largest difference, relative to the largest magnitude; integers and bools exactly.

    Entries that are filled with one huge number (masks) count apart from the others: beside them
    every difference would be small. With `fine`, so do small entries, as far as `FINE` allows.
    """
    if expected.shape != got.shape:
        return Difference(np.inf, (), 0.0, 0.0)
    if not expected.size:
        return Difference(0.0, (), 0.0, 0.0)
    a, b = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
    off = np.where(np.isnan(off), np.inf, off)
    if expected.dtype.kind == "f":
        size = np.abs(a)
        filled = _filled(size)
        rest = float(size[~filled].max()) if not filled.all() else 0.0
        scale = np.where(filled, float(size.max()), rest)
        if fine:
            scale = np.minimum(scale, np.maximum(size / FINE, scale * FINE))
        off = off / np.maximum(scale, SMALLEST)
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    return Difference(float(off[at]), at, float(a[at]), float(b[at]))


def _filled(size: Array) -> Array:
    """Entries that stand ten thousand times above all others and are about equal."""
    top = size >= size.max() / 2
    others = size[~top]
    gap = bool(others.size) and float(size.max()) > 1e4 * float(others.max())
    alike = float(np.ptp(size[top])) <= 1e-3 * float(size.max())
    return top if gap and alike else np.zeros_like(top)


def _evidence(subject: Subject, compared: Sequence[Sample], worst: float) -> Evidence:
    extents = ", ".join(f"{i.name}={i.dtype}{list(i.shape)}{i.range}" for i in subject.inputs)
    one_way: list[str] = []
    both = 0
    for way in subject.ways:
        if way.loop and way.true:
            one_way.append(
                f"The loop at {way.file}:{way.line} ({way.text}) repeats as often as values ask "
                "for: more often than on the samples is not covered."
            )
        if way.true and way.false:
            both += 1
            continue
        said = "false" if way.true else "true"
        one_way.append(
            f"On no sample is the condition at {way.file}:{way.line} ({way.text}) {said}: "
            "what the code does then is not covered."
        )
    notes = [
        f"The backward of {f.name} ({f.file}:{f.line}) is not the gradient of its forward; "
        "the translation has the gradient that the code has."
        for f in subject.functions
        if f.argument
    ]
    notes += [f"{note[:1].upper()}{note[1:]}." for note in subject.notes]
    return Evidence(
        localising.named(subject),
        len(compared),
        sum(1 for s in compared if s.grads),
        extents,
        "float64" if subject.precision == "f64" else "float32",
        worst,
        tuple(s.seed for s in compared),
        tuple(f"sample '{s.label}', because {s.left_out}" for s in subject.samples if s.left_out),
        both,
        tuple(one_way),
        tuple(notes),
    )
