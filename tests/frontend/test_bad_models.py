"""User code that fails, prints, forks, hangs or exits gives one clear error."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    Limits,
    read_config,
)
from tests.frontend.conftest import ROOT

pytestmark = pytest.mark.torch


def failure(target, **options):
    with pytest.raises(CaptureError) as caught:
        capture(CaptureRequest(target, **options))
    return caught.value


def ended(pid, within=5.0):
    """Whether a process is gone, or dead and not yet collected, before some seconds have passed."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("forward", "message", "line"),
    [
        ("y = self.w(x)\nraise ValueError('bad thing')", "ValueError: bad thing", 9),
        ("import sys\nsys.exit(3)", "the user's code called sys.exit(3)", 9),
        ("if self.w(x).sum() > 0:\n    return x\nreturn 2 * x", "data-dependent", 8),
        (
            "return nn.functional.interpolate(self.w(x)[:, None], size=[x.sum().long()])",
            "a shape is data-dependent",
            8,
        ),
        ("return torch.linalg.det(self.w(x) @ x.T)", "aten._linalg_det.default has no meaning", 8),
        ("return self.v(x)", "no attribute 'v'", 8),
    ],
)
def test_what_goes_wrong_in_forward_is_told_with_its_line(user_model, forward, message, line):
    error = failure(user_model(forward))
    assert message in error.message
    assert (error.file, error.line) == ("model.py", line)


@pytest.mark.parametrize(
    "drawn",
    ["torch.zeros(4).random_(3)", "torch.poisson(torch.ones(4))"],
)
def test_numbers_that_are_drawn_are_no_constants(user_model, drawn):
    error = failure(user_model(f"return self.w(x) + {drawn}"))
    assert "has no meaning in the language" in error.message
    assert error.line == 8


def test_draws_that_reach_no_output_are_left_out(user_model):
    """The weights of a layer that is built in forward are drawn, and then replaced."""
    lines = "y = nn.Linear(4, 4)", "y.weight, y.bias = self.w.weight, self.w.bias", "return y(x)"
    found = capture(CaptureRequest(user_model("\n".join(lines)))).program
    usual = capture(CaptureRequest(user_model("return self.w(x)", name="usual.py"))).program
    assert [n.op for n in found.nodes] == [n.op for n in usual.nodes]


def test_an_unknown_op_names_the_recipe(user_model):
    error = failure(user_model("return torch.linalg.det(self.w(x) @ x.T)"))
    assert "add an op: see CONTRIBUTING.md" in str(error)


def test_a_parameter_that_forward_changes_is_refused(user_model):
    error = failure(
        user_model("with torch.no_grad():\n    self.w.weight.div_(2)\nreturn self.w(x)")
    )
    assert "w.weight in place" in error.message


def test_a_process_that_ends_itself_is_told(user_model):
    error = failure(user_model("import os\nprint('so long')\nos._exit(0)"))
    assert "ended the process (exit code 0)" in error.message
    assert "so long" in error.hint


def test_code_that_prints_and_forks_is_captured(user_model):
    top = "import os, sys\nprint('noise' * 100000)\nos.fork()"
    found = capture(CaptureRequest(user_model("print('more')\nreturn self.w(x).sum()", top)))
    assert [o.role for o in found.program.outputs] == ["loss", "grad", "grad"]


def test_code_that_hangs_is_ended_with_all_it_started(user_model, tmp_path):
    mark = tmp_path / "child"
    top = (
        "import os, time\n"
        f"if os.fork() == 0:\n    open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)"
    )
    capture(CaptureRequest(user_model("return self.w(x)", name="first.py")))  # a server is up
    error = failure(user_model("while True: time.sleep(1)", top), limits=Limits(wall_s=5))
    assert "more than 5 s" in error.message
    assert ended(int(mark.read_text()))


def test_code_that_eats_memory_is_ended(user_model):
    forward = "kept = [bytearray(50_000_000) for _ in range(600)]\nreturn x"
    error = failure(user_model(forward), limits=Limits(memory_bytes=2 << 30))
    assert "more than 2 GiB of memory" in error.message


def test_ctrl_c_ends_the_worker(user_model, tmp_path):
    mark = tmp_path / "pid"
    top = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))"
    target = user_model("while True: time.sleep(1)", top)
    code = (
        "from shardproof.synthesis.frontends.torch.capture import capture\n"
        "from shardproof.synthesis.frontends.torch.request import CaptureRequest\n"
        f"capture(CaptureRequest({target!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(30) != 0
    assert ended(int(mark.read_text()))


@pytest.mark.parametrize("ending", ["\r\n", ""])
def test_other_line_endings_are_captured(user_model, ending):
    path = Path(user_model("return self.w(x)")[:-2])
    text = path.read_text()
    data = text.replace("\n", "\r\n") if ending else text.rstrip("\n")
    path.write_bytes(data.encode())
    found = capture(CaptureRequest(f"{path}:M"))
    assert found.facts.files[0].text == data


def test_bad_requests_say_what_to_try(tmp_path):
    missing = failure(f"{tmp_path}/no.py:M")
    assert "not found" in missing.message
    assert "names no model" in failure("nothing").message
    assert "not a Python file" in failure("model.txt:M").message
    assert "write name=dtype[extents]" in _parse("idx=int[2]").hint


def _parse(text):
    with pytest.raises(CaptureError) as caught:
        InputSpec.parse(text)
    return caught.value


def test_config_items_are_read():
    assert read_config(["n_layer=3", "bias=False", "act=gelu"]) == (
        "",
        {"n_layer": 3, "bias": False, "act": "gelu"},
    )
    with pytest.raises(CaptureError, match="write key=value"):
        read_config(["n_layer"])


def test_a_config_file_that_is_not_json_is_told(tmp_path):
    path = tmp_path / "c.json"
    path.write_text("{\n 'a': 1}")
    with pytest.raises(CaptureError, match="not JSON") as caught:
        read_config([str(path)])
    assert caught.value.line == 2


@pytest.mark.hf
def test_unknown_names_get_suggestions():
    error = failure("hf:LlamaForCausalLMM")
    assert "LlamaForCausalLM" in error.hint
    error = failure("hf:LlamaForCausalLM", config={"hidden_sizee": 3})
    assert "hidden_size" in error.hint
    error = failure(f"{ROOT}/examples/nanogpt.py:GTP")
    assert "GPT" in error.hint
    error = failure(f"{ROOT}/examples/nanogpt.py:GPT", config={"n_headd": 3})
    assert "n_head" in error.hint


SLICED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 4)

    def forward(self, x, targets):
        y = self.w(x)
        return (y.view(-1) * targets.{flat}).sum()


def example_inputs(batch: int = 2):
    whole = torch.ones(batch, 5, 4)
    return {{"x": whole[:, 1:], "targets": whole.{piece}}}
"""


@pytest.mark.parametrize(
    ("flat", "piece", "fits", "batch"),
    [
        ("view(-1)", "narrow(1, 0, 4)", False, None),
        ("reshape(-1)", "narrow(1, 0, 4)", True, 6),
        ("view(-1)", "narrow(1, 0, 4).contiguous()", True, None),
        ("view(-1)", "narrow(1, 0, 1).expand(batch, 4, 4)", False, 6),
        ("flatten()", "narrow(1, 0, 1).expand(batch, 4, 4).transpose(1, 2)", True, None),
    ],
)
def test_an_example_that_fails_in_eager_is_refused_with_its_line(
    tmp_path, flat, piece, fits, batch
):
    """Strides of example inputs are kept: what `view` cannot do there it cannot do here."""
    path = tmp_path / "net.py"
    path.write_text(SLICED.format(flat=flat, piece=piece))
    space: dict[str, Any] = {}
    exec(compile(path.read_text(), "net.py", "exec"), space)
    given = space["example_inputs"]() if batch is None else space["example_inputs"](batch)
    if fits:
        space["Net"]()(**given)
        found = capture(CaptureRequest(f"{path}:Net", batch=batch))
        assert [i.type.shape for i in found.program.inputs if i.role == "input"] == [
            tuple(x.shape) for x in given.values()
        ]
        return
    with pytest.raises(RuntimeError, match="view"):
        space["Net"]()(**given)
    error = failure(f"{path}:Net", batch=batch)
    assert "view" in error.message
    assert (Path(error.file).name, error.line) == ("net.py", 12)


@pytest.mark.parametrize("name", ["nanogpt.py:GPT", "minillama.py:Llama"])
def test_examples_run_in_eager_on_their_own_inputs(name):
    file, _, model = name.partition(":")
    module = ModuleType("example")
    sys.modules["example"] = module
    try:
        exec((ROOT / "examples" / file).read_text(), module.__dict__)
        config = next(v for k, v in vars(module).items() if k.endswith(("Config", "Args")))
        loss = getattr(module, model)(config())(**module.example_inputs())[-1]
    finally:
        del sys.modules["example"]
    loss.backward()
    assert loss.isfinite()
