"""Distributed programs with these ops: the right ones are proved, the wrong ones never are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.verdict import Proof, Unknown
from tests.ops.running import judged

Shapes = Mapping[str, tuple[int, ...]]
HALF = Fraction(1, 2)


def laid(mesh: Mesh, shape: tuple[int, ...], **placements: str) -> Layout:
    return from_placements(shape, [(n, mesh[n], placements.get(n, "R")) for n in mesh.names])


class Pair:
    """Both programs, built by one function: `whole` on one device, else on a rank."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.elements = True
        self.inputs: dict[str, Layout] = {}
        self.outputs: dict[str, Layout] = {}

    def verdict(self, build: Callable[[Builder, bool], None], **inputs: Layout) -> object:
        return judged(*self.programs(build, **inputs), self.elements)

    def programs(
        self, build: Callable[[Builder, bool], None], **inputs: Layout
    ) -> tuple[Program, Program, Contract]:
        dtypes = {"seed": "i64", "labels": "i64"}
        made: list[Program] = []
        for whole in (True, False):
            b = Builder("one" if whole else "many", Mesh() if whole else self.mesh)
            for name, layout in inputs.items():
                shape = layout.global_shape if whole else layout.local_shape
                b.input(name, TensorType(shape, dtypes.get(name, "f32")))
            build(b, whole)
            made.append(b.build())
        return made[0], made[1], Contract(inputs, self.outputs)


EP = Mesh.of(ep=2)


def experts(fault: str = "") -> tuple[Program, Program, Contract]:
    """A layer of experts: groups of tokens over ep, and the experts over ep as well."""
    pair = Pair(EP)
    inputs = {
        "x": laid(EP, (4, 3, 6), ep="S(0)"),
        "w": laid(EP, (6, 4)),
        "up": laid(EP, (4, 6, 8), ep="S(0)"),
        "down": laid(EP, (4, 8, 6), ep="S(0)"),
    }
    pair.outputs = {"output:y": inputs["x"], "output:loss": laid(EP, ())}

    def build(b: Builder, whole: bool) -> None:
        def comm(x: str, split: int, concat: int) -> str:
            if whole:
                return x
            return b.add("all_to_all", x, mesh_dim="ep", split_dim=split, concat_dim=concat)

        gates, mask, probs = b.add_node("top_k_gate", ("x", "w"), {"k": 2})
        dispatch, combine = b.add_node("moe_routes", (gates, mask), {"capacity": 2})
        slots = comm(b.add("moe_dispatch", "x", dispatch), 1, 0)
        y = b.add("expert_ffn", slots, "up", "down", activation="gelu")
        if not whole and fault == "unreturned":
            y = b.add("all_gather", b.add("slice", y, dim=0, start=0, stop=2), mesh_dim="ep", dim=1)
        else:
            y = comm(y, 0, 1)
        weights = dispatch if fault == "ungated" and not whole else combine
        b.output(b.add("moe_combine", y, weights), path="y")
        if whole:
            b.output(b.add("load_balance_loss", probs, mask, k=2), path="loss")
            return
        if fault == "local loss":
            loss = b.add("load_balance_loss", probs, mask, k=2)
            b.output(b.add("all_reduce", loss, mesh_dim="ep", reduce="avg"), path="loss")
            return
        parts = [
            b.add("all_reduce", b.add("mean", v, dims=(0, 1)), mesh_dim="ep", reduce="avg")
            for v in (mask, probs)
        ]
        total = b.add("sum", b.add("mul", *parts), dims=(0,))
        b.output(b.add("mul_scalar", total, value=Fraction(4, 2)), path="loss")

    return pair.programs(build, **inputs)


def test_expert_parallel_is_proved() -> None:
    assert isinstance(judged(*experts()), Proof)


@pytest.mark.parametrize("fault", ["unreturned", "ungated", "local loss"])
def test_faults_of_expert_parallel_are_refuted(fault: str) -> None:
    assert not isinstance(judged(*experts(fault)), Proof | Unknown), fault


@pytest.mark.parametrize(("how", "proved"), [("sum", True), ("avg", False), ("", False)])
def test_gradients_of_expert_parallel(how: str, proved: bool) -> None:
    """The router is replicated and sees other tokens on each rank: its gradient is summed."""
    one, many, contract = experts()
    names = ["x", "w", "up", "down"]
    back = grad(many, wrt=names, reduced={"w": [("ep", how)]} if how else {})
    cotangents = {f"ct.{k.partition(':')[2]}": v for k, v in contract.outputs.items()}
    grads = {f"grad:{n}": contract.inputs[n] for n in names}
    joint = Contract({**contract.inputs, **cotangents}, {**contract.outputs, **grads})
    verdict = judged(grad(one, wrt=names), back, joint, elements=False)
    assert isinstance(verdict, Proof) == proved
    assert not isinstance(verdict, Unknown)


TP = Mesh.of(tp=2)
GRID = Mesh.of(dp=2, tp=2)


def dropped(
    mesh: Mesh, shape: tuple[int, ...], where: Mapping[str, str], **attrs: object
) -> object:
    """Dropout of an activation split over the mesh."""
    pair = Pair(mesh)
    x = laid(mesh, shape, **where)
    pair.outputs = {"output:y": x}

    def build(b: Builder, whole: bool) -> None:
        given = {} if whole else attrs
        b.output(b.add("dropout", "x", "seed", **{"p": HALF, **given}), path="y")  # type: ignore[arg-type]

    return pair.verdict(build, x=x, seed=laid(mesh, ()))


RIGHT = [
    (TP, (4, 6), {"tp": "S(0)"}, {"offset": Affine.of(0, {"tp": 12})}),
    (TP, (4, 6), {"tp": "S(1)"}, {"offset": Affine.of(0, {"tp": 3}), "strides": (6, 1)}),
    (TP, (4, 6), {}, {}),
    (
        GRID,
        (4, 6),
        {"dp": "S(0)", "tp": "S(1)"},
        {"offset": Affine.of(0, {"dp": 12, "tp": 3}), "strides": (6, 1)},
    ),
]
WRONG = [
    (TP, (4, 6), {"tp": "S(0)"}, {}),
    (TP, (4, 6), {"tp": "S(1)"}, {"offset": Affine.of(0, {"tp": 3})}),
    (TP, (4, 6), {"tp": "S(1)"}, {"offset": Affine.of(0, {"tp": 12})}),
    (TP, (4, 6), {}, {"offset": Affine.of(0, {"tp": 24})}),
    (TP, (4, 6), {}, {"stream": 1}),
    (TP, (4, 6), {}, {"p": Fraction(1, 4)}),
    (
        GRID,
        (4, 6),
        {"dp": "S(0)", "tp": "S(1)"},
        {"offset": Affine.of(0, {"dp": 3, "tp": 12}), "strides": (6, 1)},
    ),
]


@pytest.mark.parametrize(("mesh", "shape", "where", "attrs"), RIGHT)
def test_masks_that_are_parts_of_one_mask_are_proved(
    mesh: Mesh, shape: tuple[int, ...], where: dict[str, str], attrs: dict[str, object]
) -> None:
    assert isinstance(dropped(mesh, shape, where, **attrs), Proof)


@pytest.mark.parametrize(("mesh", "shape", "where", "attrs"), WRONG)
def test_masks_of_other_entries_are_refuted(
    mesh: Mesh, shape: tuple[int, ...], where: dict[str, str], attrs: dict[str, object]
) -> None:
    verdict = dropped(mesh, shape, where, **attrs)
    assert not isinstance(verdict, Proof | Unknown), verdict


def rounded(fault: str = "") -> object:
    """A row-parallel product in f8, its activation scaled by the magnitude of the whole."""
    pair = Pair(TP)
    inputs = {"x": laid(TP, (4, 6), tp="S(1)"), "w": laid(TP, (6, 4), tp="S(0)")}
    pair.outputs = {"output:y": laid(TP, (4, 4))}

    def build(b: Builder, whole: bool) -> None:
        def comm(x: str, how: str) -> str:
            return x if whole else b.add("all_reduce", x, mesh_dim="tp", reduce=how)

        top = b.add("abs_max", "x")
        if fault != "local scale" or whole:
            top = comm(top, "max")
        scale = b.add("reciprocal", top)
        form = "f8e5m2" if fault == "format" and not whole else "f8e4m3"
        q = b.add("quantize", "x", scale, format=form)
        product = b.add("dequantize", b.add("mm", q, "w"), scale)
        if fault == "before the sum" and not whole:
            product = comm(b.add("round_to", product, format="bf16"), "sum")
        else:
            product = b.add("round_to", comm(product, "sum"), format="bf16")
        b.output(product, path="y")

    return pair.verdict(build, **inputs)


def test_rounding_where_one_device_rounds_is_proved() -> None:
    assert isinstance(rounded(), Proof)


@pytest.mark.parametrize("fault", ["local scale", "format", "before the sum"])
def test_rounding_elsewhere_is_not_proved(fault: str) -> None:
    assert not isinstance(rounded(fault), Proof)


def test_causal_attention_over_a_split_sequence() -> None:
    mesh = Mesh.of(cp=2)
    split = laid(mesh, (1, 2, 6, 4), cp="S(2)")
    for offset, proved in ((3, True), (2, False), (0, False)):
        pair = Pair(mesh)
        pair.outputs = {"output:y": split}

        def build(b: Builder, whole: bool, start: int = offset) -> None:
            q, k, v = "q", "k", "v"
            if whole:
                y = b.add("sdpa", q, k, v, causal=True, scale=HALF)
            else:
                k, v = (b.add("all_gather", x, mesh_dim="cp", dim=2) for x in (k, v))
                at = Affine.of(0, {"cp": start})
                y = b.add("sdpa", q, k, v, causal=True, scale=HALF, q_offset=at)
            b.output(y, path="y")

        verdict = pair.verdict(build, q=split, k=split, v=split)
        assert isinstance(verdict, Proof) == proved, (offset, verdict)


def test_clipping_by_the_norm_of_split_gradients() -> None:
    from tests.ops.clipping import clip_by_global_norm

    grads = {"a": laid(TP, (4, 6), tp="S(0)"), "b": laid(TP, (6,))}
    for over, proved in (
        ({"a": ("tp",)}, True),
        ({}, False),
        ({"a": ("tp",), "b": ("tp",)}, False),
    ):
        pair = Pair(TP)
        pair.elements = False
        pair.outputs = {f"output:{n}": layout for n, layout in grads.items()}

        def build(b: Builder, whole: bool, split: Mapping[str, tuple[str, ...]] = over) -> None:
            made = clip_by_global_norm(b, list(grads), Fraction(1), None if whole else split)
            for name, value in zip(grads, made, strict=True):
                b.output(value, path=name)

        verdict = pair.verdict(build, **grads)
        assert isinstance(verdict, Proof) == proved, (over, verdict)


def test_an_optimizer_step_on_shards() -> None:
    shards = dict.fromkeys(("p", "g", "m", "v"), laid(TP, (4, 6), tp="S(0)"))
    pair = Pair(TP)
    pair.outputs = {f"output:{n}": shards["p"] for n in "pmv"}

    def build(b: Builder, whole: bool) -> None:
        results = b.add_node("adamw_update", ("p", "g", "m", "v", "step"), {"lr": Fraction(1, 100)})
        for name, value in zip("pmv", results, strict=True):
            b.output(value, path=name)

    assert isinstance(pair.verdict(build, **shards, step=laid(TP, ())), Proof)


def test_router_gradients_pass_through_probabilities_alone() -> None:
    b = Builder("router")
    b.input("x", TensorType((3, 4)))
    b.param("w", TensorType((4, 4)))
    _, mask, probs = b.add_node("top_k_gate", ("x", "w"), {"k": 2})
    b.output(b.add("load_balance_loss", probs, mask, k=2), "loss", "loss")
    made = grad(b.build())
    assert [o.role for o in made.outputs] == ["loss", "grad"]
    feeds = {v for n in made.nodes for v in n.inputs}
    assert {n.outputs[0] for n in made.nodes if n.op == "topk_mask"} <= feeds


def entropy(b: Builder, logits: str, offset: Affine | int, comm: Callable[..., str]) -> None:
    """Smoothed cross entropy of logits whose classes are split: three exchanges of rows."""
    n, eighth = b.types[logits].shape[0], Fraction(1, 8)
    top = comm(b.add("amax", logits, dims=(1,), keepdim=True), "max")
    shifted = b.add("sub", logits, top)
    total = comm(b.add("sum", b.add("exp", shifted), dims=(1,), keepdim=True), "sum")
    logs = b.add("sub", shifted, b.add("log", total))
    line = b.add("reshape", "labels", shape=(n, 1))
    own = b.add("take_along", logs, line, dim=1, offset=offset)
    label = b.add("reshape", comm(own, "sum"), shape=(n,))
    spread = comm(b.add("sum", logs, dims=(1,)), "sum")
    picked = b.add(
        "add",
        b.add("mul_scalar", label, value=1 - eighth),
        b.add("mul_scalar", spread, value=eighth / 6),
    )
    ignored = b.add("full", shape=(), value=-100, dtype="i64")
    valid = b.add("cast", b.add("ne", "labels", ignored), dtype="f32")
    total = b.add("sum", b.add("mul", picked, valid), dims=(0,))
    b.output(b.add("neg", b.add("div", total, b.add("sum", valid, dims=(0,)))), path="loss")


@pytest.mark.parametrize(("offset", "proved"), [(3, True), (2, False), (0, False)])
def test_cross_entropy_over_split_classes(offset: int, proved: bool) -> None:
    pair = Pair(TP)
    pair.outputs = {"output:loss": laid(TP, ())}

    def build(b: Builder, whole: bool) -> None:
        if whole:
            y = b.add("cross_entropy", "logits", "labels", smoothing=Fraction(1, 8))
            b.output(y, path="loss")
            return

        def comm(x: str, how: str) -> str:
            return b.add("all_reduce", x, mesh_dim="tp", reduce=how)

        entropy(b, "logits", Affine.of(0, {"tp": offset}), comm)

    verdict = pair.verdict(build, logits=laid(TP, (4, 6), tp="S(1)"), labels=laid(TP, (4,)))
    assert isinstance(verdict, Proof) == proved
    assert not isinstance(verdict, Unknown)


def test_a_mean_of_local_means_is_refuted_where_ranks_leave_out_other_counts() -> None:
    pair = Pair(TP)
    pair.outputs = {"output:loss": laid(TP, ())}

    def build(b: Builder, whole: bool) -> None:
        y = b.add("cross_entropy", "logits", "labels")
        b.output(y if whole else b.add("all_reduce", y, mesh_dim="tp", reduce="avg"), path="loss")

    rows = {"logits": laid(TP, (4, 6), tp="S(0)"), "labels": laid(TP, (4,), tp="S(0)")}
    verdict = pair.verdict(build, **rows)
    assert not isinstance(verdict, Proof | Unknown), verdict
