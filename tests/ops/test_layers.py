"""Dropout in repeated layers: one seed a layer, each rank the masks of its own entries."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, TensorType
from shardproof.verifier.verdict import Proof, Unknown
from tests.ops.running import judged

TP = Mesh.of(tp=2)
LAYERS = 3


def laid(shape: tuple[int, ...], placement: str) -> Layout:
    return from_placements(shape, [("tp", 2, placement)])


def layers(whole: bool, **mask: Attr) -> Program:
    """`h + dropout(tanh(h * w))`, repeated; the hidden dim of a rank is half of it."""
    mesh, n = (Mesh(), 6) if whole else (TP, 3)
    b, step = Builder("layers", mesh), Builder("layer", mesh)
    b.input("x", TensorType((4, n)))
    b.param("w", TensorType((LAYERS, n)))
    b.input("seeds", TensorType((LAYERS,), "i64"))
    h = step.input("h", TensorType((4, n)), "carry")
    w = step.input("piece", TensorType((n,)), "xs")
    seed = step.input("seed", TensorType((), "i64"), "xs")
    y = step.add("tanh", step.add("mul", h, w))
    y = step.add("dropout", y, seed, p=Fraction(1, 4), **mask)
    step.output(step.add("add", h, y), "carry")
    attrs: dict[str, Attr] = {"length": LAYERS, "carry": 1, "xs": 2}
    (out,) = b.add_node("scan", ("x", "w", "seeds"), attrs, body=step.build())
    b.output(out, path="y")
    return grad(b.build())


@pytest.mark.parametrize(
    ("mask", "proved"),
    [
        ({"offset": Affine.of(0, {"tp": 3}), "strides": (6, 1)}, True),
        ({"offset": Affine.of(0, {"tp": 4}), "strides": (6, 1)}, False),
        ({"offset": Affine.of(0, {"tp": 12})}, False),
        ({}, False),
    ],
)
def test_masks_of_split_layers(mask: dict[str, Attr], proved: bool) -> None:
    half = laid((4, 6), "S(1)")
    contract = Contract(
        {"x": half, "w": laid((3, 6), "S(1)"), "seeds": laid((3,), "R"), "ct.y": half},
        {"output:y": half, "grad:w": laid((3, 6), "S(1)")},
    )
    verdict = judged(layers(whole=True), layers(whole=False, **mask), contract, elements=False)
    assert isinstance(verdict, Proof) == proved
    assert not isinstance(verdict, Unknown)
