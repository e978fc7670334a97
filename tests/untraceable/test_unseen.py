"""Faults that show on few numbers: far off, behind another edge, backward, beside large values."""

from __future__ import annotations

import pytest

from shardproof.agent.translation.trial import Trial
from shardproof.agent.translation.trust import Bound, Differs
from shardproof.synthesis.frontends.torch.edges import edges
from shardproof.verifier.text.parser import parse_text
from tests.untraceable.conftest import shared, try_all
from tests.untraceable.test_odd_code import model

pytestmark = pytest.mark.torch

CLIP = """
class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return torch.from_numpy(1 * x.detach().numpy())
    @staticmethod
    def backward(ctx, g): return g.clamp(-6.0, 6.0)
class M(nn.Module):
"""
CODE = {
    "behind": model(
        "x = torch.where(x.abs() > 0.01, x, 0 * x)\n"
        "x = torch.where(x > 3.7, 2 * x, x)\n"
        "return Twice.apply(self.w(x))"
    ),
    "far": model("x = torch.where(x > 3e6, 2 * x, x)\nreturn Twice.apply(self.w(x))"),
    "clip": model("return Clip.apply(self.w(x)) + 0 * Twice.apply(x)").replace(
        "\nclass M(nn.Module):\n", CLIP
    ),
    "beside": model("return torch.cat([3e9 * x, Twice.apply(x) + 0 * self.w(x)], -1)"),
    "steps": model(
        "for _ in range(int(x.abs().max() / 3.7)):\n    x = x / 2\nreturn Twice.apply(self.w(x))"
    ),
    "leaves": model(
        "import numpy as np\n"
        "y = torch.from_numpy(np.where(x.detach().numpy() > 9e6, 0.0, 1.0)).to(x)\n"
        "return Twice.apply(self.w(x)) * y"
    ),
    "weights": model("return Twice.apply(x @ self.w.weight.clamp(-3.4, 3.4).T)"),
}
HEAD = """
program M
  param %w.weight: f32[6, 6]
  input %x: f32[4, 6]
  %wt = permute %w.weight {dims=[1, 0]}
  %zero = full {shape=[], value=0}
"""
PLAIN = '%h = mm %x, %wt\n %y = mul_scalar %h {value=2}\n return %y "output"'
BEHIND = """
  %small = full {shape=[], value=0.01}
  %size = abs %x
  %kept = gt %size, %small
  %x1 = where %kept, %x, %zero
  %edge = full {shape=[], value=EDGE}
  %above = gt %x1, %edge
  %twice = mul_scalar %x1 {value=2}
  %x2 = where %above, %twice, %x1
  %h = mm %x2, %wt
  %y = mul_scalar %h {value=2}
  return %y "output"
"""
BESIDE = """
  %a = mul_scalar %x {value=3000000000}
  %b = mul_scalar %x {value=FACTOR}
  %y = concat %a, %b {dim=1}
  return %y "output"
"""
STEPS = (
    """
  %size = abs %x
  %most = amax %size {dims=[0, 1]}
"""
    + "".join(
        f"""
  %edge{k} = full {{shape=[], value={(k + 1) * 3.72}}}
  %above{k} = ge %most, %edge{k}
  %half{k} = mul_scalar %{"x" if not k else f"x{k}"} {{value=0.5}}
  %x{k + 1} = where %above{k}, %half{k}, %{"x" if not k else f"x{k}"}
"""
        for k in range(12)
    )
    + """
  %h = mm %x12, %wt
  %y = mul_scalar %h {value=2}
  return %y "output"
"""
)
WRONG = {
    "behind": BEHIND.replace("EDGE", "3.73"),
    "far": PLAIN,
    "clip": '%y = mm %x, %wt\n return %y "output"',
    "beside": BESIDE.replace("FACTOR", "3"),
    "steps": STEPS,
}
RIGHT = {"behind": BEHIND.replace("EDGE", "3.7"), "beside": BESIDE.replace("FACTOR", "2")}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    folder = tmp_path_factory.mktemp("unseen")
    for name, text in CODE.items():
        (folder / f"{name}.py").write_text(text)
    targets = [f"{folder / name}.py:M" for name in CODE]
    found = try_all(targets, shared(tmp_path_factory) / "unseen-tried")
    assert not [made for made in found if isinstance(made, str)]
    return {n: Trial(o, "M") for n, o in zip(CODE, found, strict=True) if not isinstance(o, str)}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_that_few_numbers_show_is_found(trials: dict[str, Trial], name: str) -> None:
    assert isinstance(trials[name].judge(parse_text(HEAD + WRONG[name])), Differs)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_there_is_bound(trials: dict[str, Trial], name: str) -> None:
    found = trials[name].judge(parse_text(HEAD + RIGHT[name]))
    assert isinstance(found, Bound), found


def test_a_limit_that_no_sample_reaches_is_told(trials: dict[str, Trial]) -> None:
    found = trials["weights"].judge(parse_text(HEAD + PLAIN))
    assert isinstance(found, Bound), found
    assert any("clamp changes an entry" in said for said in found.assumptions)


def test_where_values_leave_torch_is_told(trials: dict[str, Trial]) -> None:
    found = trials["leaves"].judge(parse_text(HEAD + PLAIN))
    assert isinstance(found, Bound), found
    assert any("leave PyTorch at leaves.py" in said for said in found.assumptions)


def test_edges_of_one_decision_leave_room_for_those_of_another() -> None:
    """Forty edges of one decision come before the only one of the other."""

    def trail(scale: float) -> list[tuple[str, object]]:
        return [("many", int(scale * 10)), ("one", scale > 3000)]

    found = edges(trail)
    assert any(low <= 3000 < high for low, high in zip(found[::2], found[1::2], strict=True))
