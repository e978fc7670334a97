"""Dropout in train mode: masks are inputs, each rank's is its piece of the model's."""

from __future__ import annotations

import pytest

from shardproof.agent.check import dropout
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import TRAIN
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof, Unknown

pytestmark = pytest.mark.torch

MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.inner, self.outer = nn.Dropout({inner}), nn.Dropout({outer})

    def forward(self, x):
        h = self.inner(F.relu(self.up(self.norm(x))))
        return x + self.outer(self.down(h))

def example_inputs():
    return {{"x": torch.randn(4, 8)}}
"""
RANK = """
from torch.utils.checkpoint import checkpoint

class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.inner, self.outer = nn.Dropout({inner}), nn.Dropout({outer})

    def hidden(self, h):
        return F.relu(self.up(h))

    def forward(self, x):
        h = Copy.apply(self.norm(x), self.group)
        rank = dist.get_rank(self.group)
        {hidden}
        y = F.linear(h, self.down.weight)
        y = Reduce.apply(y, self.group) + self.down.bias
        {out}
        return x + y
"""
HIDDEN = "h = self.inner(self.hidden(h))"
OUT = "y = self.outer(y)"


def masked(case, inner=0.0, outer=0.0, hidden=HIDDEN, out=OUT, mine=None, **what):
    """A model that drops hidden features, or outputs, and ranks that do so in these lines."""
    asked = case(modes=(TRAIN,), **what)
    asked.write(MODEL.format(inner=inner, outer=outer), name="model_with_dropout.py")
    asked.against = "model_with_dropout.py:Model"
    own = mine or (inner, outer)
    text = RANK.format(
        inner=own[0],
        outer=own[1],
        hidden=hidden.replace("\n", "\n        "),
        out=out.replace("\n", "\n        "),
    )
    return asked.write(text)


def layouts(found):
    return {p.name: str(p.layout) for p in found.placed if p.kind == "mask"}


def test_whole_values_are_dropped_alike_on_ranks_that_draw_alike(case):
    asked = masked(case, outer=0.25)
    found = asked.proved()
    line = asked.line("y = self.outer(y)", "wrong.py")
    assert found.verdict.assumptions[0] == (
        f"Random numbers at wrong.py:{line} for values that are whole on every tp rank: ranks "
        "along tp draw the same (same random state)."
    )
    assert layouts(found) == {"dropout.outer.0": "[4, 8]"}


def test_pieces_are_dropped_on_ranks_that_draw_masks_of_their_own(case):
    asked = masked(case, inner=0.25)
    found = asked.proved()
    line = asked.line("h = self.inner", "wrong.py")
    assert found.verdict.assumptions[0] == (
        f"Random numbers at wrong.py:{line} for pieces over tp: ranks along tp draw their own "
        "(different random states)."
    )
    assert layouts(found) == {"dropout.inner.0": "[4, 8@tp]"} or "tp" in str(layouts(found))


def test_one_random_state_does_not_do_both(case):
    found = masked(case, inner=0.25, outer=0.25).check()
    assert isinstance(found.verdict, Unknown)
    assert "one random state does not do both" in found.verdict.reason


def test_what_is_computed_again_draws_what_it_drew(case):
    line = "h = checkpoint(lambda h: self.inner(self.hidden(h)), h, use_reentrant=False)"
    masked(case, inner=0.25, hidden=line).proved()


def test_a_mask_of_the_whole_of_which_each_rank_takes_its_columns(case):
    line = "m = self.inner(torch.ones(4, 16))\nh = self.hidden(h) * m[:, {}]"
    masked(case, inner=0.25, hidden=line.format("8 * rank : 8 * rank + 8")).proved()
    masked(case, inner=0.25, hidden=line.format(":8")).refuted()


def test_a_functional_dropout_is_paired_in_order(case):
    masked(case, inner=0.25, hidden="h = F.dropout(self.hidden(h), 0.25, self.training)").proved()


def test_a_mask_that_is_not_scaled(case):
    masked(case, inner=0.25, hidden="h = self.inner(self.hidden(h)) * 0.75").refuted()


def test_draws_that_reach_no_output_are_left_out(case):
    masked(case, out="F.linear(y, nn.Linear(8, 8).weight)").proved()


REFUSED = {
    "a draw after one that is not followed": (
        {"outer": 0.25, "out": "torch.randperm(4)\ny = self.outer(y)"},
        "randperm draws random numbers",
    ),
    "another probability": ({"inner": 0.25, "mine": (0.5, 0.0)}, "kept with probability 0.5"),
    "a mask too many": (
        {"outer": 0.25, "out": "y = self.outer(self.outer(y))"},
        "the parallel module draws random numbers 2 times, the model 1 times",
    ),
    "a mask too few": (
        {"outer": 0.25, "out": "pass"},
        "the model draws random numbers 1 times, a rank 0 times",
    ),
    "a seed of its own": (
        {"outer": 0.25, "out": "torch.manual_seed(0)\ny = self.outer(y)"},
        "from a state that forward sets itself",
    ),
    "one state for two tensors": (
        {
            "outer": 0.25,
            "out": "s = torch.get_rng_state()\nz = self.outer(y[:2])\n"
            "torch.set_rng_state(s)\ny = self.outer(y)",
        },
        "drawn again from the state",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(case, name):
    what, message = REFUSED[name]
    with pytest.raises(CaptureError) as caught:
        masked(case, **what).check()
    assert message in caught.value.message
    assert caught.value.line


def test_rows_over_one_mesh_dim_and_columns_over_another(case):
    asked = masked(case, inner=0.25, mesh=Mesh.of(dp=2, tp=2), input_layouts=["x=S(0)@dp"])
    asked.layouts, asked.output_layouts = ["*=@tp"], ["output=S(0)@dp"]
    asked.after_backward = "finish"
    text = (asked.folder / "wrong.py").read_text()
    own = (
        "\n\ndef finish(model):\n    for p in model.parameters():\n"
        "        dist.all_reduce(p.grad, group=model.rows)\n"
    )
    text = text.replace(
        "        self.inner, self.outer",
        "        self.rows = mesh.get_group('dp')\n        self.inner, self.outer",
    )
    (asked.folder / "wrong.py").write_text(text + own)
    found = asked.proved()
    assert [a.split(":")[-1] for a in found.verdict.assumptions[:2]] == [
        " ranks along dp draw their own (different random states).",
        " ranks along tp draw their own (different random states).",
    ]
    assert dropout.clash(found.captured, {}, Mesh.of(tp=1)) is None


KEEPS = """
class Model(nn.Module):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.up, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)
        self.register_buffer("kept", torch.zeros(4, 8))

    def forward(self, x):
        self.kept.copy_(self.drop(x) * self.factor)
        return self.up(x)

class Wrong(Model):
    factor = 2.0

def example_inputs():
    return {"x": torch.randn(4, 8)}
"""


@pytest.mark.parametrize("target", ["Model", "Wrong"])
def test_what_is_dropped_into_a_buffer_alone_is_compared(case, target):
    asked = case(modes=(TRAIN,), mesh=Mesh.of(tp=2))
    asked.write(KEEPS, name="kept.py")
    asked.target, asked.against = f"kept.py:{target}", "kept.py:Model"
    found = asked.check()
    assert isinstance(found.verdict, Proof if target == "Model" else Counterexample)
