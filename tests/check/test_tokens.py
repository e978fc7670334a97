"""Losses over tokens: a vocabulary over ranks, labels of split sequences, and zigzag positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Unknown

pytestmark = pytest.mark.torch
Make = Callable[..., Any]
HEAD = """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.out = nn.Linear(8, 12, bias=False)

    def logits(self, x):
        return self.out(torch.tanh(self.body(x)))

    def forward(self, x, labels):
        return F.cross_entropy(self.logits(x).flatten(0, -2), labels.flatten(), ignore_index=0)
"""
PARALLEL = """
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
class Split(Head):
    def forward(self, x, labels):
        loss = F.cross_entropy(self.logits(x), labels)
        return loss.full_tensor() if hasattr(loss, "full_tensor") else loss
class Whole(Head):
    def forward(self, x, labels):
        return F.cross_entropy(self.logits(x), labels)
def build(mesh):
    loss_parallel().__enter__()
    style = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    model = parallelize_module(Split(), mesh, {"out": style})
    return model
"""


@pytest.mark.parametrize("factor", ["", "* 2"])
def test_the_loss_of_a_vocabulary_over_ranks(case: Make, factor: str) -> None:
    made = case(mesh=Mesh.of(tp=2), inputs=["x=f32[4,8]", "labels=i64[4]<12"])
    text = PARALLEL.replace("return loss.full_tensor()", f"return loss.full_tensor() {factor}")
    made.write(HEAD + text, "build")
    made.against = f"{made.target.partition(':')[0]}:Whole"
    found = made.check().verdict
    assert isinstance(found, Counterexample if factor else Proof), found


SEQUENCES = """
class Split(Head):
    def __init__(self, sp_size, sp_group):
        super().__init__()
        self.size, self.group = sp_size, sp_group

    def forward(self, x, labels):
        logits = self.logits(x).flatten(0, -2)
        total = F.cross_entropy(logits, labels.flatten(), ignore_index=0, reduction="sum")
        counted = (labels != 0).sum()
        dist.all_reduce(counted, group=self.group)
        return {"loss": self.size * total / counted}


def averaged(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)
        p.grad /= model.size
"""


@pytest.mark.parametrize("counted", ["        dist.all_reduce(counted, group=self.group)\n", ""])
def test_tokens_of_split_sequences_are_counted_on_all_ranks(case: Make, counted: str) -> None:
    rows = ["x=S(1)@sp", "labels=S(1)@sp"]
    made = case(mesh=Mesh.of(sp=2), inputs=["x=f32[2,4,8]", "labels=i64[2,4]<12"])
    made.input_layouts, made.no_grad, made.after_backward = rows, ["x"], "averaged"
    whole = "        dist.all_reduce(counted, group=self.group)\n"
    made.write(HEAD + SEQUENCES.replace(whole, counted), "Split")
    made.against = f"{made.target.partition(':')[0]}:Head"
    found = made.check().verdict
    assert isinstance(found, Proof if counted else Counterexample), found


MOVED = """
class Next(Head):
    def forward(self, x, labels):
        after = F.pad(labels, (0, 1), value=-100)[..., 1:]
        return F.cross_entropy(self.logits(x).flatten(0, 1), after.flatten())
class ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        kept, rows = labels != -100, labels.clamp(min=0).unsqueeze(1)
        logs = F.log_softmax(logits, 1)
        ctx.save_for_backward(logs, kept, rows)
        return -(logs.gather(1, rows).squeeze(1) * kept).sum() / kept.sum()

    @staticmethod
    def backward(ctx, g):
        logs, kept, rows = ctx.saved_tensors
        put = torch.zeros_like(logs).scatter(1, rows, kept.to(logs.dtype).unsqueeze(1))
        grad = logs.exp() * kept.unsqueeze(1) - put
        return g * grad / kept.sum(), None
class Split(Head):
    def __init__(self, dp_group):
        super().__init__()

    def forward(self, x, labels):
        after = F.pad(labels, (0, 1), value=-100)[..., 1:]
        return ByHand.apply(self.logits(x).flatten(0, 1), after.flatten())
"""


@pytest.mark.parametrize("kept", [" * kept.unsqueeze(1)", ""])
def test_ignored_labels_give_no_gradient(case: Make, kept: str) -> None:
    made = case(mesh=Mesh.of(dp=1), inputs=["x=f32[2,4,8]", "labels=i64[2,4]<12"])
    made.no_grad = ["x"]
    made.write(HEAD + MOVED.replace("logs.exp() * kept.unsqueeze(1)", f"logs.exp(){kept}"), "Split")
    made.against = f"{made.target.partition(':')[0]}:Next"
    found = made.check().verdict
    assert isinstance(found, (Proof, Unknown) if kept else Counterexample), found


def test_labels_that_move_by_a_token_are_related_over_a_vocabulary(case: Make) -> None:
    made = case(mesh=Mesh.of(tp=2), inputs=["x=f32[2,4,8]", "labels=i64[2,4]<12"])
    made.no_grad = ["x"]
    built = """
def build(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    return parallelize_module(Next(), mesh, {"out": ColwiseParallel(output_layouts=Replicate())})
"""
    made.write(HEAD + MOVED + "from torch.distributed.tensor import Replicate\n" + built, "build")
    made.against = f"{made.target.partition(':')[0]}:Next"
    found = made.check().verdict
    assert isinstance(found, Proof), found


ROTARY = """
def turned(x, positions):
    angle = positions.unsqueeze(-1).to(x.dtype) * torch.tensor([1.0, 0.1], dtype=x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4, bias=False)

    def scores(self, x, target, positions):
        return (turned(self.proj(x), positions) * target).sum()

    def forward(self, x, target):
        return {"loss": self.scores(x, target, torch.arange(x.shape[1])) / x.shape[1]}
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, g):
        return g, None
class Split(Rotary):
    def __init__(self, cp_rank, cp_size, cp_group):
        super().__init__()
        self.rank, self.size, self.group = cp_rank, cp_size, cp_group

    def forward(self, x, target):
        n, chunk = x.shape[1], x.shape[1] // (2 * self.size)
        front = slice(self.rank * chunk, (self.rank + 1) * chunk)
        back = slice(n - (self.rank + 1) * chunk, n - self.rank * chunk)
        x, target = (torch.cat([t[:, front], t[:, back]], 1) for t in (x, target))
        positions = torch.cat([torch.arange(front.start, front.stop), torch.arange(LATER)])
        return {"loss": Sum.apply(self.scores(x, target, positions), self.group) / n}


def summed(model):
    dist.all_reduce(model.proj.weight.grad, group=model.group)
"""


@pytest.mark.parametrize(
    ("later", "right"),
    [("back.start, back.stop", True), ("0, chunk", False)],
)
def test_positions_in_a_zigzag(case: Make, later: str, right: bool) -> None:
    made = case(mesh=Mesh.of(cp=2), inputs=["x=f32[1,8,4]", "target=f32[1,8,4]"])
    made.no_grad, made.after_backward = ["x", "target"], "summed"
    made.write(ROTARY.replace("LATER", later), "Split")
    made.against = f"{made.target.partition(':')[0]}:Rotary"
    found = made.check().verdict
    assert isinstance(found, Proof if right else Counterexample), found


HEADS = """
class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, take, put, group):
        ctx.take, ctx.put, ctx.group = take, put, group
        send = torch.stack([t.contiguous() for t in x.chunk(group.size(), take)])
        got = torch.empty_like(send)
        dist.all_to_all_single(got, send, group=group)
        return torch.cat(list(got.unbind(0)), put)

    @staticmethod
    def backward(ctx, g):
        return Swap.apply(g, ctx.put, ctx.take, ctx.group), None, None, None
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def moved(self, x, take, put):
        return x

    def forward(self, x):
        batch, rows, _ = x.shape
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (self.moved(t.view(batch, rows, 4, 2).transpose(1, 2), 1, 2) for t in parts)
        y = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
        return self.moved(y, 2, 1).transpose(1, 2).reshape(batch, rows, 8)
class Split(Attention):
    def __init__(self, cp_group):
        super().__init__()
        self.group = cp_group

    def moved(self, x, take, put):
        return Swap.apply(x, take, put, self.group)
def summed(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)
"""


@pytest.mark.parametrize("came", ["got", "got.flip(0)"])
def test_heads_for_rows_by_all_to_all(case: Make, came: str) -> None:
    made = case(mesh=Mesh.of(cp=2), inputs=["x=f32[2,4,8]"], input_layouts=["x=S(1)@cp"])
    made.output_layouts, made.after_backward = ["*=S(1)@cp"], "summed"
    made.write(HEADS.replace("got.unbind", f"{came}.unbind"), "Split")
    made.against = f"{made.target.partition(':')[0]}:Attention"
    found = made.check().verdict
    assert isinstance(found, Proof if came == "got" else Counterexample), found


OFFERED = """
class Low(nn.Module):
    def __init__(self, tp_size, tp_group, rank=2):
        super().__init__()
        self.down = nn.Linear(8, rank, bias=False)
        self.up = nn.Linear(rank, 8, bias=False)

    def forward(self, x):
        return self.up(self.down(x))
class Whole(Low):
    def __init__(self):
        super().__init__(1, None)
"""


def test_an_argument_with_a_default_keeps_it(case: Make) -> None:
    made = case(mesh=Mesh.of(tp=2), inputs=["x=f32[4,8]"])
    made.write(OFFERED, "Low")
    made.against = f"{made.target.partition(':')[0]}:Whole"
    notes = made.proved().captured.ranks[0].notes
    assert "Low is given of its rank: tp_size, tp_group." in notes
    assert any("Low keeps its default of rank" in note for note in notes)


MEANS = """
import torch.distributed as dist

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, ids, labels):
        logits = self.out(self.table(ids)).flatten(0, 1)
        return F.cross_entropy(logits, labels.flatten(), WEIGHT)

def means(mesh):
    return nn.parallel.DistributedDataParallel(Tokens())

class Counted(Tokens):
    def __init__(self, dp_group):
        super().__init__()
        self.group = dp_group

    def forward(self, ids, labels):
        logits = self.out(self.table(ids)).flatten(0, 1)
        count = (labels != -100).sum()
        dist.all_reduce(count, group=self.group)
        total = F.cross_entropy(logits, labels.flatten(), reduction="sum")
        return total / count * self.group.size()

def counted(mesh):
    return nn.parallel.DistributedDataParallel(Counted(mesh["dp"].get_group()))
"""


@pytest.mark.parametrize(
    ("target", "labels", "right"),
    [
        ("means", "labels=i64[4,8]<12", True),
        ("means", "labels=i64[4,8]<12|-100", False),
        ("counted", "labels=i64[4,8]<12|-100", True),
        ("counted", "labels=i64[4,8]|-100", True),
    ],
)
@pytest.mark.parametrize("shifted", [False, True], ids=["", "shifted"])
def test_labels_may_be_ones_that_a_loss_ignores(
    case: Make, target: str, labels: str, right: bool, shifted: bool
) -> None:
    """Means of means are the mean only where all ranks count as many labels."""
    rows = ["ids=S(0)@dp", "labels=S(0)@dp"]
    made = case(mesh=Mesh.of(dp=2), inputs=["ids=i64[4,8]<12", labels], input_layouts=rows)
    text = MEANS.replace(", WEIGHT", "")
    if shifted:
        begin = "        logits = self.out"
        text = text.replace(
            begin, f"        labels = F.pad(labels, (0, 1), value=-100)[:, 1:]\n{begin}"
        )
    made.write(text, target)
    made.against = f"{made.target.partition(':')[0]}:Tokens"
    found = made.check()
    assert isinstance(found.verdict, Proof if right else Counterexample), found.verdict


@pytest.mark.parametrize(("target", "right"), [("means", False), ("counted", True)])
def test_a_label_that_is_ignored_may_be_above_the_classes(
    case: Make, target: str, right: bool
) -> None:
    """As the 255 of segmentations."""
    inputs = ["ids=i64[4,8]<12", "labels=i64[4,8]<12|255"]
    made = case(mesh=Mesh.of(dp=2), inputs=inputs, input_layouts=["ids=S(0)@dp", "labels=S(0)@dp"])
    text = MEANS.replace(", WEIGHT", "").replace("-100", "255")
    text = text.replace("labels.flatten()", "labels.flatten(), ignore_index=255")
    made.write(text, target)
    made.against = f"{made.target.partition(':')[0]}:Tokens"
    found = made.check()
    assert isinstance(found.verdict, Proof if right else Counterexample), found.verdict


@pytest.mark.parametrize(("target", "right"), [("means", False), ("counted", True)])
def test_labels_of_an_example_that_a_loss_ignores_are_inputs_too(
    case: Make, target: str, right: bool
) -> None:
    made = case(mesh=Mesh.of(dp=2), inputs=[], input_layouts=["ids=S(0)@dp", "labels=S(0)@dp"])
    example = """
def example_inputs():
    ids = torch.arange(32).view(4, 8) % 12
    return {"ids": ids, "labels": ids.masked_fill(ids == 3, -100)}
"""
    made.write(MEANS.replace(", WEIGHT", "") + example, target)
    made.against = f"{made.target.partition(':')[0]}:Tokens"
    found = made.check()
    assert found.captured.one.inputs[1].ignored == -100
    assert isinstance(found.verdict, Proof if right else Counterexample), found.verdict


def test_a_table_that_looks_up_ignored_labels_is_not_followed(case: Make) -> None:
    """PyTorch raises where an embedding is given the label that a loss ignores."""
    made = case(mesh=Mesh.of(dp=2), inputs=["ids=i64[4,8]<12", "labels=i64[4,8]<12|-100"])
    text = MEANS.replace(
        "labels.flatten(), WEIGHT)", "labels.flatten()) + self.table(labels).sum()"
    )
    made.write(text, "means")
    made.against = f"{made.target.partition(':')[0]}:Tokens"
    found = made.check().verdict
    assert isinstance(found, Unknown)
    assert "looks up entry -100, for labels = -100" in found.reason


@pytest.mark.parametrize(
    ("text", "below", "ignored"),
    [("x=i64[4]<7|-1", 7, -1), ("x=i64[4]|-100", 0, -100), ("x=i64[4]<7", 7, None)],
)
def test_an_input_is_read_with_what_its_entries_may_be(
    text: str, below: int, ignored: int | None
) -> None:
    spec = InputSpec.parse(text)
    assert (spec.below, spec.ignored, spec.limit) == (below, ignored, 0 if ignored else below)
    assert text == f"x=i64[4]{spec.range}"
