"""Finds the op of a translation at which it leaves the code, by the values that the code made."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardproof.agent.translation.trust import Differs, Suspect
from shardproof.synthesis.frontends.torch.observed import Sample, Subject
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Output, Program
from shardproof.verifier.refute.evaluate import evaluate

Array = NDArray[Any]
CLOSE = 1e-7


def named(subject: Subject) -> str:
    return f"{subject.name} ({subject.path})" if subject.path else subject.name


def values_of(program: Program, sample: Sample, consts: Mapping[str, Array]) -> dict[str, Array]:
    """A value for every input of the program."""
    held = {"param": sample.params, "cotangent": sample.cotangents, "input": sample.inputs}
    return {
        item.name: np.asarray(consts[item.name])
        if item.role == "const"
        else held[item.role][item.path]
        for item in program.inputs
    }


def forward(
    program: Program,
    subject: Subject,
    sample: Sample,
    consts: Mapping[str, Array],
    path: str,
    found: Any,
) -> Differs:
    """A difference of an output, with the op where it begins."""
    given = values_of(program, sample, consts)
    made = _values(program, given)
    target = next(o for o in program.outputs if o.path == path)
    hints = list(_shape(sample.outputs[path], made[target.value], found))
    suspect = None
    if sample is subject.samples[0]:
        early = _line_of(made[target.value], subject)
        if early:
            hints.append(
                f"the program returns what line {early} makes; the code goes on from there"
            )
        else:
            suspect = _suspect(program, subject, made, given, target)
    elif sample.label not in ("random",):
        hints.append(
            f"on random samples nothing differs; on '{sample.label}' it does: look at "
            "conditions, edges (<, <=), epsilons and limits"
        )
    return Differs(
        f"{target.role} {path}",
        f"{sample.label}, seed {sample.seed}",
        found.index,
        found.expected,
        found.got,
        suspect,
        tuple(hints),
        named(subject),
    )


def _line_of(array: Array, subject: Subject) -> int:
    """The last line of the code that made these numbers; 0 where none did."""
    if array.dtype.kind != "f" or array.size < 2:
        return 0
    found = [v.line for v in subject.values if _among(array, {v.array.size: [v.array]})]
    return found[-1] if found else 0


def ratio(expected: float, got: float) -> tuple[str, ...]:
    if expected and np.isfinite(got):
        return (f"there the program's is {got / expected:.6g} times the code's",)
    return ()


def _shape(expected: Array, got: Array, found: Any) -> list[str]:
    """How the wrong tensor looks beside the right one."""
    if expected.shape != got.shape or expected.dtype.kind != "f":
        return []
    with np.errstate(all="ignore"):
        ratios = got / expected
        off = np.abs(got - expected) > CLOSE * max(float(np.abs(expected).max()), 1e-30)
    real = ratios[np.isfinite(ratios)]
    out = [f"{int(off.sum())} of {off.size} elements differ"]
    if real.size > 1 and np.ptp(real) < 1e-6 * abs(float(real.flat[0])):
        out.append(f"the program's is everywhere {float(real.flat[0]):.8g} times the code's")
    return out


def _values(program: Program, given: dict[str, Array]) -> dict[str, Array]:
    """Every value of the program, composites included."""
    names = [v for n in program.nodes for v in n.outputs]
    names += [i.name for i in program.inputs]
    wide = replace(program, outputs=tuple(Output(v, "output", v) for v in names))
    flat = inline(wide)
    with np.errstate(all="ignore"):
        state = evaluate(flat, given)
    return {v: state[o.value] for v, o in zip(names, flat.outputs, strict=True)}


def _suspect(
    program: Program,
    subject: Subject,
    made: Mapping[str, Array],
    given: Mapping[str, Array],
    target: Output,
) -> Suspect | None:
    """The first op on the way to a wrong output whose operands the code made and itself not."""
    known: dict[int, list[Array]] = defaultdict(list)
    for value in subject.values:
        known[value.array.size].append(value.array)
    matched = set(given) | {v for v, array in made.items() if _among(array, known)}
    needed = {target.value}
    readers: dict[str, list[str]] = defaultdict(list)
    for node in reversed(program.nodes):
        if needed & set(node.outputs):
            needed |= set(node.inputs)
            for value in node.inputs:
                readers[value] += node.outputs
    right = set(matched)
    for node in reversed(program.nodes):
        onward = [v for out in node.outputs for v in readers[out]]
        if onward and all(v in right for v in onward):
            right |= set(node.outputs)
    fine = set(given)
    for node in program.nodes:
        if not set(node.outputs) <= needed:
            continue
        if set(node.outputs) <= right or not node.inputs:
            fine |= set(node.outputs)
            continue
        if lookup(node.op).kind == "view" and all(v in fine for v in node.inputs):
            fine |= set(node.outputs)
            continue
        if all(v in fine for v in node.inputs):
            return Suspect(node.outputs[0], node.op, node.source.line)
    return None


def _among(array: Array, known: Mapping[int, list[Array]]) -> bool:
    """Whether the code made these numbers, in this order or transposed."""
    if array.dtype.kind not in "fiub" or not array.size:
        return False
    flat = np.asarray(array, np.float64).ravel()
    if not np.isfinite(flat).all():
        return False
    near = 1e-10 * min(float(np.abs(flat).max()), 1.0)
    for other in known.get(array.size, []):
        wide = np.asarray(other, np.float64)
        choices = [wide.ravel()]
        if wide.ndim > 1:
            choices.append(np.swapaxes(wide, -1, -2).ravel())
        if any(np.allclose(c, flat, rtol=CLOSE, atol=near) for c in choices):
            return True
    return False
