"""Which line of a training step is to blame, and which of a module whose gradients are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardproof.synthesis.repair.agreement import differing, needless
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.faults import blamed
from shardproof.synthesis.repair.in_source import Module, SourceFile
from shardproof.synthesis.repair.localize import RIGHT_WITH
from shardproof.synthesis.repair.looked import Looked, Rate
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import parse_text

ONE = """def build():
    model = MLP()
    return model, AdamW(model.parameters(), lr=1e-3)

def train(model, optimizer, x):
    for part in x.chunk(2):
        (loss_of(model(part)) / 2).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
RANKS = """def sharded(mesh):
    model = fully_shard(MLP())
    return model, AdamW(model.parameters(), lr=1e-3)

def train(net, adam, x):
    parts = x.chunk(2)
    for n, part in enumerate(parts):
        last = n == 0
        net.set_requires_gradient_sync(last)
        loss = loss_of(net(part))
        (loss / 2).backward()
    clip_grad_norm_(net.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
"""
NONE = Program("", (), (), (), {})
PLACE = Source("ranks.py", 6)


def of_step(
    old: str,
    new: str,
    *,
    pending: bool = False,
    program: Program | None = None,
    step: str = "train",
    place: Source = PLACE,
    also: tuple[str, str] = ("", ""),
) -> str:
    """What is blamed of a step with another text, where nothing else is known."""
    assert old in RANKS
    files = {"ranks.py": SourceFile("ranks.py", RANKS.replace(old, new).replace(*also))}
    theirs = {"one.py": SourceFile("one.py", ONE)}
    module = Module(
        *(files, {"dp": 2}, (), (), False, "", "sharded", frozenset(), frozenset({"dp"})),
        *(step, step, "build", theirs),
    )
    made = parse_text(REDUCED.replace("LINE", "11")) if program is None else program
    found = blamed(Looked(module, place, pending=pending, program=made))
    return f"{found.line.line} {found.why}" if found is not None else ""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("    adam.step()\n", "", "12 the model calls step here"),
        ("        (loss / 2).backward()\n", "", "10 the model calls backward here"),
        ("    adam.zero_grad()\n", "", "13 the model calls zero_grad here"),
    ],
)
def test_a_call_that_the_step_lacks_is_blamed_where_the_model_has_it(
    old: str, new: str, line: str
) -> None:
    assert of_step(old, new) == line
    assert of_step(old, new, step="") != line


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("lr=1e-3", "lr=2e-3", "3 AdamW is given another number"),
        ("(loss / 2)", "(loss / 4)", "11 Div is given another number"),
        ("(), 1.0", "(), 2.0", "12 clip_grad_norm_ is given another number"),
    ],
)
def test_a_number_that_the_model_gives_otherwise_is_blamed(old: str, new: str, line: str) -> None:
    assert of_step(old, new) == line
    assert of_step(old, old).startswith("6 ")
    assert of_step(old, new, step="") != line


def test_a_choice_that_the_model_makes_alone_is_blamed() -> None:
    old, new = "AdamW(model.parameters(), lr=1e-3)", "AdamW(model.parameters())"
    assert of_step(old, new) == "3 AdamW is not given lr"
    assert of_step("x.chunk(2)", "x.chunk()") != "6 chunk is not given 0"


def test_a_call_that_the_module_has_of_its_own_is_not_lacking() -> None:
    own = "def clip_all(net, most):\n    pass\n\n\ndef train(net"
    old = "    clip_grad_norm_(net.parameters(), 1.0)\n"
    added = ("def train(net", own)
    assert of_step(old, "", also=added) == "15 the model calls clip_grad_norm_ here"
    assert of_step(old, "    clip_all(net, 1.0)\n", also=added).startswith("6 ")


def test_a_call_lacks_behind_what_is_done_with_gradients() -> None:
    new = "    for p in net.parameters():\n        all_reduce(p.grad)\n    adam.zero_grad()\n"
    old = "    adam.step()\n    adam.zero_grad()\n"
    assert of_step(old, new) == "14 the model calls step here"


def test_a_call_that_comes_too_early_is_blamed_where_outputs_stay_what_they_were() -> None:
    old = "    adam.step()\n    adam.zero_grad()\n"
    new = "    adam.zero_grad()\n    adam.step()\n"
    assert of_step(old, new, place=NOWHERE) == "13 the model calls step before"
    assert of_step(old, new) != "13 the model calls step before"


def test_gradients_that_nothing_reduces_are_blamed_where_they_are_changed_last() -> None:
    said = "gradients are not reduced"
    assert of_step("n == 0", "n == 0", program=NONE) == f"11 {said}"
    scaled = "net.w.grad.mul_(0.5)\n    adam.step()"
    assert of_step("adam.step()", scaled, program=NONE) == f"13 {said}"


AVERAGED = """program ranks mesh(dp=2)
  param %w: f32[8]
  input %x: f32[]
  %a = all_reduce %w {mesh_dim=dp, reduce=sum} @ ranks.py:11 | a
  %b = all_reduce %x {mesh_dim=dp, reduce=sum} @ ranks.py:11 | b
  return %a "state:w", loss %b "loss"
"""


def test_sums_of_parameters_and_of_a_loss_reduce_no_gradients() -> None:
    found = of_step("n == 0", "n == 0", program=parse_text(AVERAGED))
    assert found == "11 gradients are not reduced"


def test_what_both_define_alike_is_not_blamed() -> None:
    used = ("fully_shard(MLP())", "fully_shard(MLP(SMALL))")
    assert of_step("def sharded(", "SMALL = AdamW(lr=2e-3)\n\n\ndef sharded(").startswith("6 ")
    text = f"{RANKS.replace(*used)}\n\nSMALL = AdamW(wide=1)\n"
    theirs = ONE.replace("MLP()", "MLP(SMALL)") + "\n\nSMALL = AdamW(wide=1)\n"
    files, model = ({n: SourceFile(n, t)} for n, t in (("ranks.py", text), ("one.py", theirs)))
    module = Module(
        *(files, {"dp": 2}, (), (), False, "", "sharded", frozenset(), frozenset({"dp"})),
        *("train", "train", "build", model),
    )
    made = parse_text(REDUCED.replace("LINE", "11"))
    found = blamed(Looked(module, PLACE, program=made))
    assert found is None or "is not given" not in found.why


REDUCED = """program ranks mesh(dp=2)
  input %x: f32[8]
  %a = all_reduce %x {mesh_dim=dp, reduce=sum} @ ranks.py:LINE | a
  return %a "output"
"""


def test_what_says_when_gradients_are_reduced_is_blamed_where_a_sum_lacks() -> None:
    by_wrapper = parse_text(REDUCED.replace("LINE", "11"))
    said = "8 says which micro-batches reduce gradients"
    assert of_step("n == 0", "n == 0", pending=True, program=by_wrapper) == said
    assert of_step("n == 0", "n == 0", program=by_wrapper) != said
    new = "all_reduce(adam)\n    adam.step()"
    by_hand = parse_text(REDUCED.replace("LINE", "13"))
    assert of_step("adam.step()", new, pending=True, program=by_hand) != said


LAYER = """class Layer(Model):
    def forward(self, x):
        h = all_reduce(self.enter(x), group=self.group)
        return scattered(h)

    def enter(self, x):
        return from_local(x, self.mesh).to_local(PLACED)

class Gather(Function):
    def backward(ctx, g):
        return reduce_scatter(g, group=ctx.group)

def finish(model):
    for p in model.parameters():
        all_reduce(p.grad)
"""
GRADIENTS = """program ranks mesh(dp=2)
  param %w: f32[8]
  %a = all_reduce %w {mesh_dim=dp, reduce=sum} @ layer.py:3 | a
  %b = reduce_scatter %w {mesh_dim=dp, dim=0, reduce=sum} @ layer.py:11 | b
  %c = all_reduce %w {mesh_dim=dp, reduce=sum} @ layer.py:15 | c
  %d = reduce_scatter %a {mesh_dim=dp, dim=0, reduce=sum} @ layer.py:4 | d
  %e = reduce_scatter %w {mesh_dim=dp, dim=0, reduce=sum} @ layer.py:4 | d
  return grad %a "w", %b "b", %c "c", %d "d"
"""


def of_gradients(
    place: Source, reason: str, *, placed: str = "", finish: str = "", pending: bool = False
) -> str:
    """What is blamed of a module whose gradients alone are wrong."""
    files = {"layer.py": SourceFile("layer.py", LAYER.replace("PLACED", placed))}
    module = Module(
        *(files, {"dp": 2}, ("w",), ("w",), True, finish, "Layer", frozenset()),
        frozenset({"dp"}),
    )
    found = blamed(Looked(module, place, reason, False, pending, parse_text(GRADIENTS)))
    return f"{found.line.line} {found.why}" if found is not None else ""


def test_a_collective_that_autograd_runs_is_blamed_where_its_forward_is() -> None:
    said = "3 gradients go wrong here"
    assert of_gradients(Source("layer.py", 3, text="a"), f"{RIGHT_WITH} reduce=avg") == said
    assert of_gradients(Source("layer.py", 3, text="a"), "adds what it must not") != said


def test_gradients_of_activations_are_not_blamed_for_those_of_parameters() -> None:
    assert of_gradients(NOWHERE, "", finish="finish") == "15 reduces gradients"


def test_a_local_tensor_without_a_layout_of_its_gradient_is_blamed_where_a_sum_lacks() -> None:
    said = "7 lays its gradient out as its value: no grad_placements"
    assert of_gradients(NOWHERE, "", pending=True) == said
    assert of_gradients(NOWHERE, "") != said
    assert of_gradients(NOWHERE, "", placed="grad_placements=[Partial()]", pending=True) != said


def test_a_line_of_the_model_alone_is_blamed_on_what_runs_it() -> None:
    assert of_gradients(Source("model.py", 3), "") == "1 is the module"
    assert of_gradients(Source("layer.py", 3), "") == ""


def test_a_collective_whose_result_is_lost_is_blamed() -> None:
    files = {"layer.py": SourceFile("layer.py", LAYER.replace("PLACED", ""))}
    module = Module(files, {"dp": 2}, (), (), False, "", "Layer")
    traced = parse_text(GRADIENTS)
    found = blamed(Looked(module, Source("layer.py", 3), traced=traced))
    assert found is not None
    assert (found.line.line, found.why) == (4, "some results of this are not used")
    step = replace(module, step="train")
    for text, said in (("scattered(h)", True), ("entered(h)", False), ("scattered(h.grad)", False)):
        made = {"layer.py": SourceFile("layer.py", LAYER.replace("scattered(h)", text))}
        here = Looked(replace(step, files=made), Source("layer.py", 3), traced=traced)
        found = blamed(here)
        assert (found is not None and "not used" in found.why) == said
    used = parse_text(GRADIENTS.replace('%d "d"', '%d "d", %e "e"'))
    found = blamed(Looked(module, Source("layer.py", 3), traced=used))
    assert found is None or found.line.line == 3


MEAN = """program one
  input %x: f32[4]
  %s = sum %x {dims=[0], keepdim=false}
  return %s "y"
"""
SUMMED = """program ranks mesh(dp=2)
  input %x: f32[4]
  %s = sum %x {dims=[0], keepdim=false} @ m.py:1 | s
  %r = all_reduce %s {mesh_dim=dp, reduce=sum} @ m.py:2 | r
  return %r "y"
"""


def test_a_sum_that_is_right_as_a_mean_is_found_over_the_dims_that_are_asked_for() -> None:
    contract = Contract(
        {"x": Layout(((Atom(4),),))},
        {"output:y": Layout(())},
    )
    asked = Problem(parse_text(MEAN), parse_text(SUMMED), contract)
    run = differing(asked)
    assert run is not None
    assert needless(asked, run, ("dp",)) == Edit("set_alike", "r", attrs=(("reduce", "avg"),))
    assert needless(asked, run) is None


TRAINED = """import torch
from one import MLP

RATE = 1e-3

def average(p):
    all_reduce(p.grad)

def hooks(model):
    for p in model.parameters():
        if p.ndim > 1:
            p.register_hook(average)

def build():
    model = MLP()
    hooks(model)
    return model, torch.optim.AdamW(model.parameters(), lr=RATE * 2)

def train(model, adam, x):
    loss = loss_of(model(x))
    count = x.sum()
    all_reduce(count)
    loss.backward()
    norm(model)
    adam.step()
    logged = loss * 2
    return logged
"""
ALONE = """import torch

def build():
    model = MLP()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

def train(model, adam, x):
    loss = loss_of(model(x))
    loss.backward()
    adam.step()
    return loss
"""
STEPPED = """program ranks mesh(dp=2)
  param %w: f32[8]
  param %b: f32[8]
  input %x: f32[8]
  %loss = mul %x, %w @ ranks.py:20 | loss
  %gw = mul %loss, %x @ ranks.py:23 | backward
  %gb = mul %loss, %loss @ ranks.py:23 | backward
  %aw = all_reduce %gw {mesh_dim=dp, reduce=sum} @ ranks.py:7 | average
  %nw = add %w, %aw @ ranks.py:25 | step
  %nb = add %b, %gb @ ranks.py:25 | step
  %logged = mul_scalar %loss {value=2.0} @ ranks.py:26 | logged
  return loss %logged "loss", %nw "state:w", %nb "state:b"
"""


def of_trained(line: int, wrong: tuple[str, ...], **known: object) -> str:
    """What is blamed of a step that trains two parameters, of which some outputs are wrong."""
    files = {"ranks.py": SourceFile("ranks.py", TRAINED)}
    theirs = {"one.py": SourceFile("one.py", ALONE)}
    module = Module(
        *(files, {"dp": 2}, ("w", "b"), (), False, "", "build", frozenset(), frozenset({"dp"})),
        *("train", "train", "build", theirs),
    )
    looked = Looked(module, Source("ranks.py", line), program=parse_text(STEPPED), wrong=wrong)
    found = blamed(replace(looked, **known))
    return f"{found.line.line} {found.why}" if found is not None else ""


def test_a_number_that_an_optimizer_has_otherwise_is_blamed_where_it_is_made() -> None:
    said = "the optimizer has other numbers for some parameters"
    rates = [Rate("lr", False, False)]
    assert of_trained(25, ("output:state:w", "output:state:b"), rates=rates) == f"17 {said}"


def test_what_most_parameters_pass_is_blamed_where_it_is_asked_for() -> None:
    found = of_trained(25, ("output:state:b",))
    assert found == "12 does not reach what is wrong"


def test_gradients_that_are_read_before_they_are_reduced_are_blamed_there() -> None:
    early = {"value": "gw", "pending": True}
    found = of_trained(23, ("output:state:w", "output:state:b"), **early)
    assert found == "23 gradients are reduced after this"


def test_a_line_that_leads_to_right_states_is_not_blamed_for_a_wrong_output() -> None:
    changed = TRAINED.replace("logged = loss * 2", "logged = loss + loss")
    files = {"ranks.py": SourceFile("ranks.py", changed)}
    theirs = {"one.py": SourceFile("one.py", TRAINED)}
    module = Module(
        *(files, {"dp": 2}, ("w", "b"), (), False, "", "build", frozenset(), frozenset({"dp"})),
        *("train", "train", "build", theirs),
    )
    looked = Looked(
        module, Source("ranks.py", 20), program=parse_text(STEPPED), wrong=("loss:loss",)
    )
    found = blamed(looked)
    assert found is not None
    assert (found.line.line, found.why) == (26, "leads to what is wrong alone")
