"""Train mode, eval mode and inference are told apart where they differ, and so is a second call."""

from __future__ import annotations

from functools import partial

import pytest

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.command import modes_told, run_check
from shardproof.agent.run import events
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Run
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import (
    EVAL,
    FORWARD,
    INFERENCE,
    MODES,
    TRAIN,
)
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = pytest.mark.torch

BODY = """
h = Copy.apply(self.norm(x), self.group)
h = F.relu(self.up(h))
y = F.linear(h, self.down.weight)
{}
return x + y + self.down.bias
"""
COUNTED = """
class Wrong(ParallelMLP):
    k = 0

    def forward(self, x):
        h = Copy.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = F.linear(h, self.down.weight)
        self.k += 1
        y = {}
        return x + y + self.down.bias
"""


@pytest.fixture
def case(case):
    """As everywhere in this folder, in all modes."""
    return partial(case, modes=MODES)


def judged(found):
    return [(c.captured.modes, type(c.verdict)) for c in found]


def test_a_module_is_judged_once_where_its_modes_are_alike(case):
    (found,) = case().each()
    assert isinstance(found.verdict, Proof)
    assert found.captured.modes == (EVAL, INFERENCE, TRAIN, FORWARD)
    assert modes_told([found.captured])[0] == (
        "The modules run the same ops in eval mode, eval mode under torch.no_grad(), train "
        "mode and train mode under torch.no_grad(), without dropout."
    )


def test_a_reduction_of_the_first_call_alone(case):
    asked = case().write(COUNTED.format("Reduce.apply(y, self.group) if self.k <= 1 else y"))
    with pytest.raises(CaptureError, match=r"second call of Wrong .* \(k changed\)") as caught:
        asked.check()
    assert f"called at wrong.py:{asked.line('Reduce.apply', 'wrong.py')}" in caught.value.message
    assert (caught.value.file, caught.value.text) == (
        "regions.py",
        "dist.all_reduce(y, group=group)",
    )


def test_a_constant_that_counts_calls(case):
    asked = case().write(COUNTED.format("Reduce.apply(y * self.k, self.group)  # here"))
    with pytest.raises(CaptureError, match="second call of Wrong") as caught:
        asked.check()
    assert caught.value.line == asked.line("# here", "wrong.py")


def test_a_counter_that_no_op_depends_on(case):
    found = case().write(COUNTED.format("Reduce.apply(y, self.group)")).proved()
    notes = [n for rank in found.captured.ranks for n in rank.notes]
    assert "Wrong: k changes from call to call; two calls run the same." in notes


def test_what_the_first_call_leaves_in_a_cache(case):
    text = COUNTED.format("Reduce.apply(y * self.table(), self.group)") + (
        "\n    held = None\n\n    def table(self):\n        if self.held is None:\n"
        "            self.held = torch.arange(8.0).cos() ** 0\n        return self.held\n"
    )
    case().write(text).proved()


KEPT = """
class Wrong(ParallelMLP):
    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = {}
        h = Copy.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = Reduce.apply(F.linear(h, self.down.weight), self.group)
        return x + y + self.down.bias + (self.kept - {})
"""


def test_what_the_first_call_makes_of_its_input_and_keeps(case):
    found = case(no_grad=["x"]).write(KEPT.format(*["x.detach().exp()"] * 2))
    with pytest.raises(CaptureError, match="second call of Wrong does something else"):
        found.check()


@pytest.mark.parametrize("trained", [True, False])
def test_what_the_first_call_makes_of_a_parameter_and_keeps(case, trained):
    found = case(gradients=trained).write(KEPT.format(*["self.down.bias.detach().exp()"] * 2))
    if trained:
        with pytest.raises(CaptureError, match="second call of Wrong does something else"):
            found.check()
    else:
        notes = found.proved().captured.ranks[0].notes
        assert any(n.startswith("Wrong keeps what it makes of parameters") for n in notes)


def test_a_table_that_the_first_call_makes_and_keeps(case):
    case().write(KEPT.format(*["torch.arange(8.0).cos()"] * 2)).proved()


def test_a_module_that_changes_its_weights_as_it_is_put_into_a_mode(case):
    found = case().write(
        "class Wrong(ParallelMLP):\n"
        "    def train(self, mode=True):\n"
        "        self.up.weight.data.mul_(2)\n"
        "        return super().train(mode)\n"
    )
    with pytest.raises(CaptureError, match=r"to put Wrong into eval mode changes up\.weight"):
        found.check()


def test_a_buffer_that_ranks_change_in_eval_mode_alone(case):
    text = (
        "class Wrong(ParallelMLP):\n"
        "    def __init__(self, mesh):\n"
        "        super().__init__(mesh)\n"
        "        self.register_buffer('seen', torch.zeros(8))\n"
        "    def forward(self, x):\n"
        "        if not self.training:\n"
        "            self.seen.zero_()\n"
        "        return super().forward(x)\n"
    )
    found = case(against="model.py:Seen").write(text)
    with (found.folder / "model.py").open("a") as model:
        model.write(
            "\n\nclass Seen(MLP):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.register_buffer('seen', torch.zeros(8))\n"
        )
    with pytest.raises(CaptureError, match="changes its buffer seen, which the model leaves"):
        found.check()


def test_what_is_returned_and_not_compared_is_told(case):
    text = """
class Wrong(ParallelMLP):
    def forward(self, x):
        y = super().forward(x)
        return {"loss": y.pow(2).mean(), "aux": y.mean(), "n": 3}
class Right(Wrong):
    def __init__(self):
        nn.Module.__init__(self)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        y = x + self.down(F.relu(self.up(self.norm(x))))
        return {"loss": y.pow(2).mean(), "aux": y.mean(), "n": 4}
"""
    found = case(against="wrong.py:Right", inputs=["x=f32[4,8]"]).write(text).proved().captured
    told = [
        "Gradients are those of loss; what else is returned (aux) is taken to get none.",
        "What forward returns beside tensors is not compared: output.n (int).",
    ]
    for side in (found.one, *found.ranks):
        assert set(told) <= {*side.notes}


def test_a_reduction_in_eval_mode_alone(case):
    line = "y = Reduce.apply(y, self.group) if not self.training else y"
    found = case().forward(BODY.format(line)).each()
    assert judged(found) == [((EVAL, INFERENCE), Proof), ((TRAIN, FORWARD), Counterexample)]


def test_a_reduction_in_eval_mode_alone_is_enough_for_eval_mode(case):
    line = "y = Reduce.apply(y, self.group) if not self.training else y"
    asked = case(modes=(EVAL,)).forward(BODY.format(line))
    (found,) = asked.each()
    assert isinstance(found.verdict, Proof)
    assert "Nothing is said of training: train mode was not asked for." in modes_told(
        [found.captured]
    )
    asked.modes = (TRAIN,)
    asked.refuted()


def test_a_reduction_where_gradients_are_asked_alone(case):
    line = "y = Reduce.apply(y, self.group) if y.requires_grad else y"
    found = case().forward(BODY.format(line)).each()
    assert judged(found) == [((EVAL, TRAIN), Proof), ((INFERENCE, FORWARD), Counterexample)]


def test_modes_that_reduce_in_ways_of_their_own(case):
    line = (
        "if not y.requires_grad:\n    y = y.clone()\n    dist.all_reduce(y, group=self.group)\n"
        "elif self.training:\n    y = Reduce.apply(2 * y, self.group) / 2\n"
        "else:\n    y = Reduce.apply(y, self.group)"
    )
    found = case().forward(BODY.format(line)).each()
    assert judged(found) == [((EVAL, INFERENCE, FORWARD), Proof), ((TRAIN,), Proof)]


def test_a_wrong_backward_in_train_mode_alone(case):
    line = "y = Reduce.apply(y, self.group)\nif self.training:\n    y = y + 0 * y.detach()"
    case().forward(BODY.format(line)).proved()
    line = "y = Reduce.apply(y, self.group)\nif self.training:\n    y = 2 * y - y.detach()"
    found = case().forward(BODY.format(line)).each()
    assert judged(found)[-1] == ((TRAIN, FORWARD), Counterexample)


def test_without_gradients_the_forwards_of_both_modes_are_judged(case):
    line = "y = Reduce.apply(y, self.group) if not self.training else y"
    found = case(gradients=False).forward(BODY.format(line)).each()
    assert judged(found) == [((INFERENCE,), Proof), ((TRAIN,), Counterexample)]


def test_what_train_mode_alone_draws_is_told_with_the_mode(case):
    line = "y = Reduce.apply(y, self.group)\ny = y + torch.randn(4, 8) if self.training else y"
    with pytest.raises(CaptureError, match=r"in train mode: .*random numbers 1 times") as caught:
        case().forward(BODY.format(line)).check()
    assert "--mode eval" in caught.value.hint
    case(modes=(EVAL,)).forward(BODY.format(line)).proved()


CLAMPED = "w = self.down.weight.clamp(-0.05, 0.05){}\ny = Reduce.apply(F.linear(h, w), self.group)"


def test_a_clamp_in_train_mode_alone(case):
    found = case().forward(BODY.format(CLAMPED.format(" if self.training else self.down.weight")))
    assert judged(found.each()) == [((EVAL, INFERENCE), Proof), ((TRAIN, FORWARD), Counterexample)]


def test_a_clamp_from_the_second_call_on(case):
    line = CLAMPED.format(" if self.norm.__dict__.get('seen') else self.down.weight")
    asked = case().forward(BODY.format(f"{line}\nself.norm.__dict__['seen'] = True"))
    with pytest.raises(CaptureError, match=r"second call of Wrong .*clamp"):
        asked.check()


def test_a_parameter_that_train_mode_clamps_in_place(case):
    line = "if self.training:\n    self.down.weight.data.clamp_(-0.05, 0.05)\n"
    asked = case().forward(BODY.format(f"{line}y = Reduce.apply(y, self.group)"))
    with pytest.raises(CaptureError, match=r"in train mode: .*changes the parameter down.weight"):
        asked.check()


DRAWN = "y = Reduce.apply(y, self.group)\nif {}:\n    y = 2 * y"


@pytest.mark.parametrize("which", ["", "self.training and "])
def test_a_branch_that_a_draw_decides(case, which):
    asked = case().forward(BODY.format(DRAWN.format(f"{which}__import__('random').random() > 0.9")))
    with pytest.raises(CaptureError, match=r"a number that Wrong draws, at wrong.py:\d+, decides"):
        asked.check()


def test_a_draw_that_decides_nothing_is_told(case):
    line = DRAWN.format("self.training and __import__('random').random() < 0.0")
    found = case().forward(BODY.format(line)).proved()
    notes = [n for rank in found.captured.ranks for n in rank.notes]
    assert any("decides nothing: draws near 0, 1/4, 1/2, 3/4 and 1" in n for n in notes)


@pytest.mark.parametrize("read", ["os.environ.get('SHARDPROOF_A')", "time.time() < 0"])
def test_what_train_mode_alone_reads_is_told(case, read):
    line = f"import os, time\n{DRAWN.format(f'self.training and {read}')}"
    found = case().forward(BODY.format(line)).proved()
    notes = [n for rank in found.captured.ranks for n in rank.notes]
    assert any("reads the" in n and "a run that reads something else" in n for n in notes)


ATTENTION = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x){more}

def example_inputs():
    return {{"x": torch.randn(2, 4, 8)}}
"""


def test_what_pytorch_fuses_for_inference_is_no_difference(case):
    asked = case().write(ATTENTION.format(name="Model", more=""), "Model", "model_of_torch.py")
    asked.against = "model_of_torch.py:Model"
    asked.write(ATTENTION.format(name="Wrong", more="")).proved()
    asked.write(ATTENTION.format(name="Wrong", more=" * 2")).refuted()


def test_a_mode_that_there_is_not(case):
    asked = Check(target="a.py:A", mesh="tp=2", against="b.py:B", mode="trian")
    with pytest.raises(InputError, match="there is no mode trian"):
        run_check(Run([]), asked)


@pytest.mark.slow
def test_the_verdict_says_which_mode_is_which(case, tmp_path):
    line = "y = Reduce.apply(y, self.group) if not self.training else y"
    asked = case().forward(BODY.format(line))
    run, kept = Run([]), tmp_path / "kept"
    model, rank = f"{asked.folder}/{asked.against}", f"{asked.folder}/{asked.target}"
    asked = Check(target=rank, mesh="tp=2", against=model, keep=kept)
    assert run_check(run, asked).answer == "refuted"
    (verdict,) = [e for e in run.seen if isinstance(e, events.VerdictReached)]
    said = (
        "eval mode and eval mode under torch.no_grad(): proved; train mode and train mode under "
        "torch.no_grad(): refuted"
    )
    assert said in verdict.message
    assert sorted(p.name for p in kept.iterdir()) == ["eval", "train"]
    run = Run([])
    assert (
        run_check(run, asked.model_copy(update={"keep": None, "mode": "eval"})).answer == "proved"
    )
    (verdict,) = [e for e in run.seen if isinstance(e, events.VerdictReached)]
    assert "Nothing is said of training: train mode was not asked for." in verdict.assumptions
