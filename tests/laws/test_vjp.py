"""Every vjp is the adjoint of its op: by central differences, and exactly where it is linear."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from shardproof.verifier.domains.base import Array, Domain
from shardproof.verifier.domains.field import Field
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.registry import Op
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.ops import REGISTRY, facets
from shardproof.verifier.refute.evaluate import evaluate
from tests.laws.samples import forms

STEP = 1e-6
STRAIGHT = {"round_to", "detach"}
"""Ops whose vjp is not their slope: a cotangent passes straight through, or not at all."""
NO_GRADIENT = {"sign", "floor", "erf"} | {n for n in REGISTRY if n.endswith("_grad")}
"""Float ops without a vjp: piecewise constant, derivatives of others, or of an irrational scale."""


def applications(op: Op) -> list[tuple[Program, Program]]:
    """The op alone, and its vjp alone, on small shapes."""
    out: list[tuple[Program, Program]] = []
    for form in forms(op, Mesh.of(tp=3)):
        if not any(t in ("f32",) for t in form.dtypes):
            continue
        for attrs in islice(form.attrs(form.shapes, Mesh.of(tp=3)), 24):
            if any(isinstance(v, Affine) for v in attrs.values()):
                continue
            b, back = Builder("op"), Builder("vjp")
            names = []
            for i, (shape, dtype) in enumerate(zip(form.shapes, form.dtypes, strict=True)):
                kind = "f64" if dtype == "f32" else dtype
                names.append(b.input(f"i{i}", TensorType(shape, kind)))
                back.input(f"i{i}", TensorType(shape, kind))
            out_name = b.add(op.name, *names, **attrs)
            b.output(out_name)
            back.input("y", b.types[out_name])
            back.input("ct", b.types[out_name])
            rule = facets(op.name).vjp_rule
            assert rule is not None
            cts = rule(back, names, ["y"], ["ct"], op.with_defaults(dict(attrs)))
            for i, ct in enumerate(cts):
                if ct is not None and form.dtypes[i] == "f32":
                    back.output(ct, "grad", f"i{i}")
            out.append((b.build(), back.build()))
    return out


def inputs(program: Program, domain: Domain, rng: np.random.Generator, op: str) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for item in program.inputs:
        if item.type.dtype == "bool":
            values[item.name] = rng.integers(2, size=item.type.shape).astype(bool)
        elif not item.type.is_float:
            values[item.name] = rng.integers(-1, 5, size=item.type.shape)
        else:
            drawn = domain.random(item.type.shape, rng)
            if isinstance(domain, Floats) and REGISTRY[op].traits.needs:
                drawn = np.abs(drawn) + 0.5
            values[item.name] = drawn
    return values


def run(program: Program, values: dict[str, Array], domain: Domain) -> list[Array]:
    state = evaluate(program, values, domain)
    return [state[o.value] for o in inline(program).outputs]


APART = ("collective", "movement", "create")
"""Kinds whose vjp moves a cotangent between ranks, or that have no float operand."""
DIFFERENTIABLE = sorted(
    n
    for n, op in REGISTRY.items()
    if facets(op.name).vjp_rule and op.kind not in APART and n not in STRAIGHT
)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_vjp_agrees_with_central_differences(name: str) -> None:
    rng, floats = np.random.default_rng(0), Floats()
    tried = 0
    for forward, backward in applications(REGISTRY[name]):
        values = inputs(forward, floats, rng, name)
        (y,) = run(forward, values, floats)
        ct = rng.standard_normal(y.shape)
        grads = run(backward, {**values, "y": y, "ct": ct}, floats)
        found = {o.path: g for o, g in zip(backward.outputs, grads, strict=True)}
        for item in forward.inputs:
            if not item.type.is_float:
                continue
            got = found.get(item.name, np.zeros(item.type.shape))
            assert got.shape == item.type.shape
            direction = rng.standard_normal(got.shape)
            ends = [
                run(forward, {**values, item.name: values[item.name] + s * direction}, floats)[0]
                for s in (STEP, -STEP)
            ]
            want = float(np.sum(ct * (ends[0] - ends[1])) / (2 * STEP))
            assert float(np.sum(got * direction)) == pytest.approx(want, rel=1e-5, abs=1e-5)
            tried += 1
    assert tried


@pytest.mark.parametrize("name", [n for n in DIFFERENTIABLE if REGISTRY[n].linear])
def test_vjp_of_a_linear_op_is_its_adjoint_exactly(name: str) -> None:
    """`<ct, f(v)> = <vjp(ct), v>` over a prime field, for each group of linear operands."""
    rng, field = np.random.default_rng(1), Field()
    for forward, backward in applications(REGISTRY[name]):
        values = inputs(forward, field, rng, name)
        (y,) = run(forward, values, field)
        ct = field.random(y.shape, rng)
        grads = run(backward, {**values, "y": y, "ct": ct}, field)
        by_path = {o.path: g for o, g in zip(backward.outputs, grads, strict=True)}
        for group in REGISTRY[name].linear:
            paths = [f"i{i}" for i in sorted(group)]
            left = _dot(field, ct, y)
            right = [_dot(field, by_path[p], values[p]) for p in paths]
            assert int(left) == int(sum(right, start=np.uint64(0)) % np.uint64(2**31 - 1))


def _dot(field: Field, a: Array, b: Array) -> Array:
    product = field.mul(a, b)
    return field.sum(product, tuple(range(product.ndim)))


def test_every_op_with_float_operands_has_a_vjp_or_a_reason() -> None:
    mesh = Mesh.of(tp=3)
    for name, op in REGISTRY.items():
        if facets(op.name).vjp_rule is not None or op.kind in ("control", "create", "movement"):
            continue
        if op.expand is not None:
            continue  # expanded, or the backward of another composite
        form = next(forms(op, mesh))
        attrs = dict(next(form.attrs(form.shapes, mesh)))
        b = Builder("op")
        names = [
            b.input(f"i{i}", TensorType(s, t))
            for i, (s, t) in enumerate(zip(form.shapes, form.dtypes, strict=True))
        ]
        result = b.types[b.add(name, *names, **attrs)]
        assert not result.is_float or name in NO_GRADIENT, f"{name} has no vjp"
