"""Sequences of which each rank has a chunk from each end, or every N-th row, and wrong twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.permuted_rows import Chunks, permuted
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.verdict import Counterexample, Proof, Unknown

Make = Callable[..., Any]
TEXT = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(3))
        self.out = nn.Linear(4, 4)

    def heads(self, x):
        return (w(x).view(*x.shape[:2], 2, 2).transpose(1, 2) for w in self.qkv)

    def whole(self, t):
        return t

    def mask(self, rows, count):
        return rows[:, None] >= torch.arange(count)

    def positions(self, count):
        return torch.arange(count)

    def forward(self, x):
        q, k, v = self.heads(x)
        k, v = self.whole(k), self.whole(v)
        mask = self.mask(self.positions(x.shape[1]), k.shape[2])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g.chunk(ctx.group.size(), 2)[ctx.group.rank()], None
class Split(Attention):
    def __init__(self, cp_rank, cp_size, cp_group):
        super().__init__()
        self.rank, self.size, self.group = cp_rank, cp_size, cp_group

    def of(self, rank, chunk):
        second = SECOND
        return torch.cat([torch.arange(n * chunk, (n + 1) * chunk) for n in (rank, second)])

    def positions(self, count):
        return self.of(self.rank, count // 2)

    def whole(self, t):
        return Gather.apply(t, self.group)

    def mask(self, rows, count):
        chunk = count // (2 * self.size)
        return rows[:, None] >= torch.cat([self.of(r, chunk) for r in range(self.size)])
class InOrder(Split):
    def whole(self, t):
        parts = Gather.apply(t, self.group).chunk(2 * self.size, 2)
        return torch.cat([*parts[::2], *parts[1::2][::-1]], 2)

    def mask(self, rows, count):
        return Attention.mask(self, rows, count)


def summed(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)
"""
SECOND = "2 * self.size - 1 - rank"


def asked(case: Make, text: str, name: str, layout: str = "zigzag(1)@cp", size: int = 2) -> Any:
    made = case(mesh=Mesh.of(cp=size), inputs=[f"x=f32[1,{4 * size},4]"], no_grad=["x"])
    made.input_layouts, made.output_layouts = [f"x={layout}"], [f"output={layout}"]
    made.after_backward, made.modes = "summed", ("train",)
    made.write(text, name)
    made.against = f"{made.target.partition(':')[0]}:Attention"
    return made


@pytest.mark.torch
@pytest.mark.parametrize("size", [2, 4])
def test_attention_on_keys_of_all_ranks_in_a_zigzag(case: Make, size: int) -> None:
    found = asked(case, TEXT.replace("SECOND", SECOND), "Split", size=size).check()
    assert isinstance(found.verdict, Proof), found.verdict
    assert "zigzag" in next(p.how for p in found.placed if p.name == "x")


WRONG = {
    "the second chunk of a rank": (SECOND, "self.size + rank"),
    "gradients are not summed": ("dist.all_reduce(p.grad, group=model.group)", "None"),
    "positions in order": (
        "return self.of(self.rank, count // 2)",
        "return torch.arange(count) + self.rank * count",
    ),
    "the mask of the contiguous layout": (
        "torch.cat([self.of(r, chunk) for r in range(self.size)])",
        "torch.arange(count)",
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_zigzag_is_refuted(case: Make, wrong: str) -> None:
    old, new = WRONG[wrong]
    text = TEXT.replace("SECOND", SECOND)
    assert text.count(old) == 1
    found = asked(case, text.replace(old, new), "Split").check().verdict
    assert isinstance(found, Counterexample), found


@pytest.mark.torch
@pytest.mark.parametrize("back", ["*parts[1::2][::-1]", "*parts[1::2]"])
def test_keys_may_be_put_back_in_order(case: Make, back: str) -> None:
    """That they are right is not proved yet."""
    text = TEXT.replace("SECOND", SECOND).replace("*parts[1::2][::-1]", back)
    found = asked(case, text, "InOrder").check().verdict
    assert isinstance(found, Proof | Unknown if "[::-1]" in back else Counterexample), found


@pytest.mark.torch
def test_dropout_of_rows_in_an_order_is_refused(case: Make) -> None:
    text = TEXT.replace("SECOND", SECOND).replace("return x +", "return F.dropout(x, 0.5) +")
    with pytest.raises(InputError, match="dropout draws for rows"):
        asked(case, text, "Split").check()


STRIPED = (
    "return torch.cat([torch.arange(n * chunk, (n + 1) * chunk) for n in (rank, second)])",
    "return torch.arange(2 * chunk) * self.size + rank",
)


@pytest.mark.torch
@pytest.mark.parametrize("layout", ["striped(1)@cp", "zigzag(1)@cp"])
def test_ranks_may_hold_every_nth_row(case: Make, layout: str) -> None:
    text = TEXT.replace("SECOND", "0").replace(*STRIPED)
    found = asked(case, text, "Split", layout).check().verdict
    right = layout.startswith("striped")
    assert isinstance(found, Proof if right else Counterexample), found


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("zigzag(1)", "is not a placement"),
        ("zagzig(1)@cp", "is not a placement"),
        ("zigzag(1)@cp,S(1)@dp", "another mesh dim splits dim 1 too"),
        ("zigzag(1)@cp", "dim 1 of shape .* is not divisible by 4"),
        ("striped(7)@cp", "tensor of 3 dims"),
    ],
)
def test_a_bad_order_is_an_error(case: Make, layout: str, said: str) -> None:
    made = asked(case, TEXT.replace("SECOND", SECOND), "Split", layout)
    made.mesh, made.inputs = (
        Mesh.of(dp=2, cp=2),
        ["x=f32[1,12,4]" if "dp" in layout else "x=f32[1,6,4]"],
    )
    with pytest.raises(CaptureError, match=said):
        made.check()


@pytest.mark.torch
def test_a_parameter_lies_in_no_zigzag(case: Make) -> None:
    made = asked(case, TEXT.replace("SECOND", SECOND), "Split")
    made.layouts = ["out.weight=zigzag(0)@cp"]
    with pytest.raises(CaptureError, match="an order of rows is of inputs"):
        made.check()


@pytest.mark.parametrize("along", [1, 2])
def test_a_program_on_permuted_rows_gives_the_same(along: int) -> None:
    b = Builder("one")
    rows, columns = TensorType((2, 8, 3), "f64"), TensorType((3, 8), "f64")
    b.input("x", rows)
    b.input("w", columns)
    b.input("mask", TensorType((8, 8), "f64"), "const")
    flat = b.add("reshape", "x", shape=(16, 3))
    apart = b.add("reshape", b.add("mm", flat, "w"), shape=(2, 8, 8))
    scores = b.add("bmm", "x", b.add("permute", "x", dims=(0, 2, 1)))
    masked = b.add("softmax", b.add("add", b.add("mul", scores, apart), "mask"))
    values = b.add("bmm", masked, "x")
    moved = b.add("slice", values, dim=1, start=1, stop=8, step=1)
    spread = b.add("expand", b.add("amax", "x", dims=(1,), keepdim=True), shape=(2, 8, 3))
    b.output(b.add("add", values, spread), path="y")
    b.output(b.add("sum", moved, dims=(0, 1, 2)), path="loss")
    program = b.build()
    rng = np.random.default_rng(0)
    given = {i.name: rng.integers(-3, 4, i.type.shape).astype(float) for i in program.inputs}
    order = (0, 3, 1, 2)
    chunks, tables = Chunks(1, order), {"mask": given["mask"]}
    new, tables = permuted(program, {"x": chunks}, {"y": chunks}, tables, along)
    index = np.concatenate([np.arange(2 * c, 2 * c + 2) for c in order])
    laid = {**given, **tables, "x": given["x"][:, index]}
    want, got = evaluate(program, given), evaluate(new, {i.name: laid[i.name] for i in new.inputs})
    (y, loss), (new_y, new_loss) = program.outputs, new.outputs
    assert np.allclose(got[new_y.value], want[y.value][:, index])
    assert np.allclose(got[new_loss.value], want[loss.value])
