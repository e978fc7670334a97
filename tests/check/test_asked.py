"""Ranks that ask what they run on: they are told what a run says, or refused with the line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError

pytestmark = pytest.mark.torch

SUMMED = """
{asks}
y = Reduce.apply(F.linear(h, self.down.weight), self.group) + self.down.bias
return x + (y if traced else y * 2)
"""
HEAD = """
h = Copy.apply(self.norm(x), self.group)
h = F.relu(self.up(h))
"""
TOLD = {
    "a class by its name": "traced = type(x).__name__ != 'Tensor'",
    "a class by the function that is given": "traced = list(map(type, [h]))[0] is not torch.Tensor",
    "a class by the attribute": "traced = h.__class__ is not torch.Tensor",
    "the class of a parameter": "traced = type(self.up.weight) is not nn.Parameter",
    "a class of PyTorch's own": (
        "from torch._subclasses import FakeTensor\ntraced = isinstance(h, FakeTensor)"
    ),
    "an attribute": "traced = hasattr(h, 'fake_mode')",
    "the class of a copy": (
        "import copy\ntraced = type(copy.deepcopy(self.up.weight.detach())) is not torch.Tensor"
    ),
    "whether it is compiled": "traced = torch._dynamo.is_compiling() or not self.training * 0 == 0",
}
REFUSED = {
    "an exception that is caught": (
        "try:\n    traced = not bool(torch.isfinite(h).all())  # here\n"
        "except Exception:\n    traced = True",
        "DataDependentOutputException .* is raised while the code is traced",
    ),
    "an exception that is suppressed": (
        "import contextlib\ntraced = True\nwith contextlib.suppress(RuntimeError):\n"
        "    traced = h.detach().numpy() is None  # here",
        r"RuntimeError .* is raised while the code is traced",
    ),
    "an exception that a return ends": (
        "def ask():\n    try:\n        return h.tolist() is None  # here\n"
        "    finally:\n        return True\ntraced = ask()",
        "DataDependentOutputException",
    ),
    "an address": ("traced = h.data_ptr() == 0  # here", "forward calls data_ptr"),
    "a storage": (
        "traced = h.untyped_storage().device.type == 'meta'  # here",
        "forward calls untyped_storage",
    ),
    "a version": ("traced = h._version == 0  # here", "forward reads _version of a tensor"),
    "text": ("traced = 'Fake' in f'{h}'  # here", "forward makes text of a tensor"),
    "bytes": (
        "import pickle\ntraced = not len(pickle.dumps({'h': h}))  # here",
        "forward makes bytes of a tensor",
    ),
    "a mode": (
        "traced = torch._C._len_torch_dispatch_stack() > 0  # here",
        "forward calls _len_torch_dispatch_stack",
    ),
    "a mode by another name": (
        "from torch._guards import detect_fake_mode as ask\ntraced = ask((h,)) is not None  # here",
        "forward calls detect_fake_mode",
    ),
    "modules": (
        "from sys import modules as known\ntraced = 'synthesis' in known  # here",
        "forward reads modules of sys",
    ),
    "callers": (
        "import traceback\ntraced = len(traceback.extract_stack()) > 0  # here",
        "forward calls extract_stack",
    ),
    "hooks": (
        "traced = len(self._forward_hooks) > 0  # here",
        "forward reads _forward_hooks of a module",
    ),
    "another thread": (
        "import threading\ntraced = True\n"
        "ask = threading.Thread(target=lambda: h.exp())\n"
        "ask.start()\nh.exp()  # here\nask.join()",
        "aten.exp.default runs beside a thread that is not joined",
    ),
    "a switch": (
        "traced = not torch.backends.mkldnn.enabled  # here",
        "forward reads enabled of mkldnn, and it is set otherwise",
    ),
    "memory that is shared": (
        "traced = True\ntorch.utils.dlpack.to_dlpack(h)  # here",
        "forward calls _to_dlpack",
    ),
}
HONEST = """
assert isinstance(x, torch.Tensor) and type(x) is torch.Tensor, type(x)
try:
    scale = self.scale
except AttributeError:
    scale = 1
try:
    width = int(str(self.training))
except ValueError:
    width = 0
try:
    width = {"a": 1}["b"]
except KeyError:
    width = width or 0
with torch.no_grad():
    print(self.__class__.__name__, x.shape, x.dtype, x)
traced = True
"""


def _body(asks: str) -> str:
    return HEAD + SUMMED.format(asks=asks)


@pytest.mark.parametrize("what", TOLD)
def test_ranks_that_are_told_what_a_run_says_are_refuted(
    case: Callable[..., object], what: str
) -> None:
    case().forward(_body(TOLD[what])).refuted()


@pytest.mark.parametrize("what", REFUSED)
def test_what_only_a_trace_answers_is_refused_with_its_line(
    case: Callable[..., object], what: str
) -> None:
    asks, message = REFUSED[what]
    made = case().forward(_body(asks))
    with pytest.raises(CaptureError, match=message) as problem:
        made.check()
    assert problem.value.file == "wrong.py"
    assert problem.value.line == made.line("# here", "wrong.py")


def test_code_that_asks_what_any_run_answers_is_proved(case: Callable[..., object]) -> None:
    case().forward(_body(HONEST)).proved()


CONSTRUCTORS = {
    "an exception that is caught": (
        "try:\n    self.up.weight.detach().numpy()\n    self.traced = False\n"
        "except RuntimeError:\n    self.traced = True"
    ),
    "an address": "self.traced = self.up.weight.data_ptr() == 0",
    "a class": "self.traced = type(self.up.weight) is not nn.Parameter",
}


@pytest.mark.parametrize("what", CONSTRUCTORS)
def test_a_constructor_that_asks_is_told_what_a_run_says(
    case: Callable[..., object], what: str
) -> None:
    body = textwrap.indent(CONSTRUCTORS[what], " " * 8)
    text = (
        "class Wrong(ParallelMLP):\n    def __init__(self, mesh):\n        super().__init__(mesh)\n"
        f"{body}\n    def forward(self, x):\n"
        "        y = super().forward(x)\n        return y if self.traced else y * 2\n"
    )
    case().write(text).refuted()


def test_another_kernel_of_an_op_is_refused(case: Callable[..., object]) -> None:
    text = """
        library = torch.library.Library("aten", "IMPL")
        class Wrong(ParallelMLP):
            def __init__(self, mesh):
                super().__init__(mesh)
                library.impl("tanh", torch.sigmoid, "CPU")
    """
    with pytest.raises(CaptureError, match="gives aten::tanh another kernel"):
        case().write(textwrap.dedent(text)).check()
