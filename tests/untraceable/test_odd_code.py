"""Code that is harder to hold a translation to: it keeps state, draws numbers, fails, hides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardproof.agent.run.errors import InputError
from shardproof.agent.translation.rounds import GivenUp, Report
from shardproof.agent.translation.trial import Trial
from shardproof.agent.translation.trust import Bound, Differs, DisplayOnly
from shardproof.synthesis.frontends.torch.observed import Observed
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.text.parser import parse_text
from tests.llm.scripted import Scripted
from tests.untraceable.conftest import try_all

pytestmark = pytest.mark.torch

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return torch.from_numpy(2 * x.detach().numpy())
    @staticmethod
    def backward(ctx, g): return 2 * g
class Part(nn.Module):
    def forward(self, x): return Twice.apply(x)
"""
TAIL = """
def example_inputs():
    return {"x": torch.randn(4, 6)}
"""
MODEL = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(6, 6, bias=False)
        self.part = Part()
{init}
    def forward(self, x):
{forward}
"""
WHOLE = """
program M
  param %w.weight: f32[6, 6]
  input %x: f32[4, 6]
  %wt = permute %w.weight {dims=[1, 0]}
  %h = mm %x, %wt
"""
PART = """
program Part
  input %x: f32[4, 6]
  %y = mul_scalar %x {value=2}
  return output %y "output"
"""


def model(forward: str, init: str = "") -> str:
    lines = ["\n".join(f"        {line}" for line in text.splitlines()) for text in (init, forward)]
    return HEAD + MODEL.format(init=lines[0], forward=lines[1]) + TAIL


CODE = {
    "counts its calls": model(
        "self.n += 1\nreturn Twice.apply(self.w(x)) * self.n", "self.n = 0"
    ),
    "draws numbers": model("return 2 * self.w(x) + torch.rand(6)"),
    "shape of values": model("y = Twice.apply(self.w(x))\nreturn y[y[:, 0] > 0]"),
    "raises": model("raise ValueError('not today')"),
    "exits": model("import sys\nsys.exit(3)"),
    "needs a gpu": model("return Twice.apply(self.w(x)).cuda()"),
    "float32 alone": model(
        "assert x.dtype == torch.float32\nreturn Twice.apply(self.w(x)).tanh()"
    ),
    "part called twice": model("return self.part(self.part(self.w(x)))"),
    "two sizes": model(
        "return self.part(self.w(x)) + self.other(self.v(x)).sum(-1, keepdim=True)",
        "self.v = nn.Linear(6, 2, bias=False)\nself.other = Part()",
    ),
    "other settings": model(
        "return self.soft(self.w(self.part(x)))",
        "class Soft(Part):\n    def __init__(self, acts):\n        super().__init__()\n"
        "        self.acts = nn.Sequential(*acts)\n"
        "    def forward(self, x): return Twice.apply(self.acts(x))\n"
        "self.part, self.soft = Soft([nn.ReLU()]), Soft([nn.Tanh()])",
    ),
    "alike": model(
        "return self.part(self.w(self.other(x)))", "self.other = Part()"
    ),
    "changes its argument": model("x[:, 0] = 0\nreturn Twice.apply(self.w(x))"),
    "frozen": model(
        "return Twice.apply(self.w(x)) * self.s",
        "self.s = nn.Parameter(torch.ones(6), requires_grad=False)",
    ),
    "rare branch": model(
        "y = Twice.apply(self.w(x))\nif x.sum() > 1e30:\n    y = y + 1\nreturn y"
    ),
    "narrow window": model(
        "y = Twice.apply(self.w(x))\nreturn torch.where(y.abs() < 1e-4, 0 * y, y)"
    ),
    "guarded import": HEAD.replace(
        "import torch\n", "try:\n    import nowhere_to_be_found as fast\n"
        "except ImportError:\n    fast = None\nimport torch\n", 1
    )
    + MODEL.format(init="", forward="        assert fast is None\n        "
                   "return Twice.apply(self.w(x))") + TAIL,
    "tied": model(
        "return self.tail(self.w(x))",
        "class Tail(nn.Module):\n    def __init__(self, w):\n        super().__init__()\n"
        "        self.weight = w\n    def forward(self, x): return Twice.apply(x) @ self.weight\n"
        "self.tail = Tail(self.w.weight)",
    ),
    "gradient out of nothing": model(
        "return Twice.apply(self.w(x)) + (self.g - self.g.detach())",
        "self.g = nn.Parameter(torch.ones(6))",
    ),
    "epsilon of the dtype": model(
        "y = Twice.apply(self.w(x))\n"
        "y = (y + 1e6 * torch.finfo(y.dtype).eps).to(torch.bfloat16)\n"
        "return F.rms_norm(y, (6,))"
    ),
    "branch on the dtype": model(
        "y = Twice.apply(self.w(x))\nreturn y if y.dtype == torch.float32 else 2 * y"
    ),
    "first input counts": model(
        "y = Twice.apply(self.w(x))\ntry:\n    shift = self.shift\nexcept AttributeError:\n"
        "    shift = self.shift = y.mean().detach()\nreturn y - shift"
    ),
    "third call": model(
        "self.n += 1\nreturn Twice.apply(self.w(x)) * (1 + max(0, self.n - 2))", "self.n = 0"
    ),
    "jump": model("y = Twice.apply(self.w(x))\nreturn torch.where(y > 3.7, 2 * y, y)"),
    "no gradient is finite": model(
        "y = Twice.apply(self.w(x))\nreturn y + (y - y.detach()).pow(2).sum().sqrt()"
    ),
    "counts in a buffer": model(
        "self.n.add_(1)\nreturn Twice.apply(self.w(x))",
        "self.register_buffer('n', torch.zeros(1))",
    ),
    "integers": model("y = Twice.apply(self.w(x))\nreturn y, (y > 0).long()"),
}  # fmt: skip


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observed | str]:
    folder = tmp_path_factory.mktemp("odd")
    targets: list[str] = []
    for number, text in enumerate(CODE.values()):
        own = folder / f"code{number}"
        own.mkdir()
        (own / "m.py").write_text(text)
        targets.append(f"{own / 'm.py'}:M")
    return dict(zip(CODE, try_all(targets, folder / "runs"), strict=True))


def silent(*said: object) -> None:
    del said


def asked(found: Observed | str, *programs: str) -> Report:
    assert isinstance(found, Observed), found
    replies = [json.dumps({"program": p, "unsupported": []}) for p in programs]
    trial = Trial(found, "M", (InputSpec("x", (4, 6)),))
    return trial.run(Scripted(replies), silent)


def whole(rest: str = "", out: str = "y", value: str = "2") -> str:
    return f'{WHOLE}  %y = mul_scalar %h {{value={value}}}\n{rest}  return output %{out} "{out}"\n'


def output(text: str, path: str = "output") -> str:
    return text.replace('"y"', f'"{path}"')


def test_what_draws_numbers_is_captured(odd: dict[str, Observed | str]) -> None:
    found = odd["draws numbers"]
    assert isinstance(found, Observed)
    assert found.problem is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("counts its calls", "keeps state between calls, or draws random numbers"),
        ("shape of values", "depends on values"),
        ("first input counts", "keeps state between calls"),
        ("third call", "keeps state between calls"),
        ("no gradient is finite", "only on 0 samples gradients can be compared"),
        ("raises", "ValueError: not today"),
        ("needs a gpu", ""),
    ],
)
def test_what_cannot_be_compared_is_display_only(
    code: str, said: str, odd: dict[str, Observed | str]
) -> None:
    found = odd[code]
    assert isinstance(found, Observed)
    assert found.whole is not None
    path = found.whole.outputs[0].path if found.whole.outputs else "output"
    report = asked(found, output(whole(), path))
    assert isinstance(report.end, DisplayOnly), report
    assert said in report.end.reason


def test_code_that_ends_the_process_is_one_error(odd: dict[str, Observed | str]) -> None:
    assert "sys.exit(3)" in str(odd["exits"])


def test_float32_alone_is_compared_in_float32(odd: dict[str, Observed | str]) -> None:
    tanh = whole("  %z = tanh %y\n", "z").replace('"z"', '"output"')
    report = asked(odd["float32 alone"], tanh)
    assert isinstance(report.end, Bound), report
    assert report.end.evidence[0].precision == "float32"
    assert any("not run in float64" in a.lower() for a in report.end.assumptions)
    wrong = asked(odd["float32 alone"], tanh.replace("value=2", "value=2.01"))
    assert isinstance(wrong.end, GivenUp)
    assert isinstance(wrong.differences[0], Differs)


def test_a_module_that_is_called_twice_is_not_cut_out(odd: dict[str, Observed | str]) -> None:
    found = odd["part called twice"]
    assert isinstance(found, Observed)
    assert found.parts == ()
    assert isinstance(asked(found, output(whole(value="4"))).end, Bound)


def test_a_part_of_two_sizes_is_asked_for_twice(odd: dict[str, Observed | str]) -> None:
    found = odd["two sizes"]
    assert isinstance(found, Observed)
    assert [p.path for p in found.parts] == ["part", "other"]
    report = asked(found, PART, PART.replace("[4, 6]", "[4, 2]"))
    assert isinstance(report.end, Bound), report
    assert [e.subject for e in report.end.evidence] == ["M", "Part (part)", "Part (other)"]


def test_parts_that_are_alike_are_asked_for_once(odd: dict[str, Observed | str]) -> None:
    found = odd["alike"]
    assert isinstance(found, Observed)
    assert [sorted(p.alike) for p in found.parts] == [["other", "part"]]
    report = asked(found, PART)
    assert isinstance(report.end, Bound), report
    assert sum(n.op == "mul_scalar" for n in report.end.forward.nodes) == 2


def test_parts_of_other_settings_are_asked_for_each(odd: dict[str, Observed | str]) -> None:
    found = odd["other settings"]
    assert isinstance(found, Observed)
    assert [p.alike for p in found.parts] == [("part",), ("soft",)]
    part = PART.replace("Part", "Soft").replace("= mul_scalar %x", "= mul_scalar %a")
    texts = [part.replace("  %y", f"  %a = {op} %x\n  %y") for op in ("relu", "tanh")]
    assert isinstance(asked(found, *texts).end, Bound)


def test_an_argument_that_is_changed_is_told(odd: dict[str, Observed | str]) -> None:
    zeroed = """
program M
  param %w.weight: f32[6, 6]
  input %x: f32[4, 6]
  %rest = slice %x {dim=1, start=1, stop=6}
  %x0 = pad %rest {dim=1, lo=1, hi=0}
  %wt = permute %w.weight {dims=[1, 0]}
  %h = mm %x0, %wt
  %y = mul_scalar %h {value=2}
  return output %y "output"
"""
    report = asked(odd["changes its argument"], zeroed)
    assert isinstance(report.end, Bound), report
    assert any("changes its argument x in place" in a for a in report.end.assumptions)
    assert isinstance(asked(odd["changes its argument"], output(whole())).end, GivenUp)


def test_a_frozen_parameter_has_no_gradient(odd: dict[str, Observed | str]) -> None:
    text = whole("  %z = mul %y, %s\n", "z").replace('"z"', '"output"')
    text = text.replace("  input", "  param %s: f32[6]\n  input")
    report = asked(odd["frozen"], text.replace("param %w.weight: f32[6, 6]\n", "", 0))
    assert isinstance(report.end, Bound), report
    assert [o.path for o in report.end.program.outputs if o.role == "grad"] == ["w.weight"]


def judged(found: Observed | str, text: str) -> object:
    assert isinstance(found, Observed)
    return Trial(found, "M", (InputSpec("x", (4, 6)),)).judge(parse_text(output(text), "program"))


def test_a_parameter_that_is_left_out_has_its_gradient(odd: dict[str, Observed | str]) -> None:
    found = judged(odd["gradient out of nothing"], whole())
    assert isinstance(found, Differs)
    assert found.what == "gradient of g"


def test_a_program_of_many_devices_is_no_translation(odd: dict[str, Observed | str]) -> None:
    meshed = whole("  %z = all_reduce %y {mesh_dim=tp, reduce=sum}\n", "z")
    meshed = meshed.replace("program M\n", "program M\nmesh (tp=1)\n").replace('"z"', '"output"')
    with pytest.raises(InputError, match="none of one device"):
        judged(odd["jump"], meshed)


NORM = """  %n = add_scalar %y {value=SHIFT}
  %one = full {shape=[6], value=1}
  %z = rms_norm %n, %one {eps=EPS}
"""


def test_what_depends_on_the_dtype_is_compared_in_that_of_the_program(
    odd: dict[str, Observed | str],
) -> None:
    text = whole(NORM, "z").replace('"z"', '"output"').replace("SHIFT", f"1000000/{2**23}")
    code = odd["epsilon of the dtype"]
    assert isinstance(judged(code, text.replace("EPS", f"1/{2**23}")), Bound)
    assert isinstance(judged(code, text.replace("EPS", f"1/{2**52}")), Differs)
    assert isinstance(judged(odd["branch on the dtype"], whole()), Bound)
    assert isinstance(judged(odd["branch on the dtype"], whole(value="4")), Differs)


@pytest.mark.parametrize(("edge", "end"), [("3.7", Bound), ("3.72", Differs), ("3.69", Differs)])
def test_an_edge_of_every_element_is_found(
    edge: str, end: type, odd: dict[str, Observed | str]
) -> None:
    rest = f"""  %edge = full {{shape=[], value={edge}}}
  %up = gt %y, %edge
  %twice = mul_scalar %y {{value=2}}
  %z = where %up, %twice, %y
"""
    assert isinstance(judged(odd["jump"], whole(rest, "z").replace('"z"', '"output"')), end)


def test_a_buffer_that_is_changed_is_told(odd: dict[str, Observed | str]) -> None:
    found = judged(odd["counts in a buffer"], whole())
    assert isinstance(found, Bound)
    assert any("changes its own n in place" in a for a in found.assumptions)


def test_a_branch_that_no_sample_takes_is_an_assumption(odd: dict[str, Observed | str]) -> None:
    report = asked(odd["rare branch"], output(whole(), "y"))
    assert isinstance(report.end, Bound), report
    assert any("if x.sum() > 1e30:) true" in a for a in report.end.assumptions)


def test_an_edge_near_zero_is_found(odd: dict[str, Observed | str]) -> None:
    report = asked(odd["narrow window"], output(whole()))
    assert isinstance(report.end, GivenUp)
    assert "zeros" in report.differences[0].sample or "1e-3" in report.differences[0].sample


def test_a_guarded_import_is_left_to_the_code(odd: dict[str, Observed | str]) -> None:
    found = odd["guarded import"]
    assert isinstance(found, Observed)
    assert found.missing == ()
    assert isinstance(asked(found, output(whole())).end, Bound)


def test_a_parameter_of_the_part_and_of_the_rest_is_one(odd: dict[str, Observed | str]) -> None:
    found = odd["tied"]
    assert isinstance(found, Observed)
    tail = """
program Tail
  param %weight: f32[6, 6]
  input %x: f32[4, 6]
  %d = mul_scalar %x {value=2}
  %y = mm %d, %weight
  return output %y "output"
"""
    report = asked(found, tail)
    assert isinstance(report.end, Bound), report
    assert [i.path for i in report.end.forward.inputs if i.role == "param"] == ["w.weight"]


def test_integers_are_compared_exactly(odd: dict[str, Observed | str]) -> None:
    right = f"""{WHOLE}  %y = mul_scalar %h {{value=2}}
  %zero = full {{shape=[], value=0}}
  %up = gt %y, %zero
  %n = cast %up {{dtype=i64}}
  return output %y "output.0", output %n "output.1"
"""
    assert isinstance(asked(odd["integers"], right).end, Bound)
    wrong = asked(odd["integers"], right.replace("gt %y", "ge %y"))
    assert isinstance(wrong.end, GivenUp)
    assert wrong.differences[0].what == "output output.1"


def test_there_is_a_test_for_all_code() -> None:
    text = Path(__file__).read_text()
    assert all(text.count(f'"{name}"') >= 2 for name in CODE)
