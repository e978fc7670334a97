"""A model that asks what it runs on is captured as it runs, or refused."""

from __future__ import annotations

import ast

import pytest

from shardproof.synthesis.frontends.torch.asked.sources import is_watching, seen, sources_watched
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here

pytestmark = pytest.mark.torch


def ops(target):
    found = capture_here(CaptureRequest(target), lambda _: None)
    return {node.op for _, node in found.program.walk()}


@pytest.mark.parametrize(
    "asks",
    [
        "type(x).__name__ == 'Tensor'",
        "x.__class__ is torch.Tensor",
        "not hasattr(x, 'fake_mode')",
        "type(self.w.weight) is nn.Parameter",
        "not torch.compiler.is_compiling()",
        "isinstance(x, torch.Tensor) and not isinstance(x, nn.Parameter)",
    ],
)
def test_the_way_of_a_run_is_captured(user_model, asks):
    code = f"h = self.w(x)\nif {asks}:\n    h = h.sigmoid()\nreturn h"
    assert "sigmoid" in ops(user_model(code))


@pytest.mark.parametrize(
    "asks",
    [
        "x.data_ptr() == 0",
        "'Fake' in repr(x)",
        "torch._C._len_torch_dispatch_stack() > 0",
        "torch.backends.mkldnn.enabled",
        "'synthesis' in str(__import__('sys').path_importer_cache)",
        "caught(lambda: x.detach().numpy())",
        "caught(lambda: x[x == x].shape[0] > 0)",
        "caught(lambda: {x[x == x].shape[0]: 1})",
        "caught(lambda: f'{x[x == x].shape[0]}')",
        "isinstance(x[x == x].shape[0], int)",
    ],
)
def test_what_only_a_trace_answers_is_refused(user_model, asks):
    top = (
        "def caught(f):\n    try:\n        f()\n        return False\n"
        "    except Exception:\n        return True"
    )
    target = user_model(f"h = self.w(x)\nif {asks}:\n    h = h * 2\nreturn h", top)
    with pytest.raises(CaptureError) as problem:
        capture_here(CaptureRequest(target), lambda _: None)
    assert asks in problem.value.text or "f()" in problem.value.text


SOURCE = """
class A:
    def __class_getitem__(cls, k): return k
    def f(self, *a: int, k: 'int' = int('1')) -> int:
        try:
            return sum(a) + k
        finally:
            self.done = True
class B(A):
    def f(self, *a, **k):
        with open('/dev/null') as file:
            return super().f(*a, **k) + len(file.read())
def g(v):
    match v:
        case int(): return 'int'
        case [x, *_] if len(x): return type(x).__name__
C = type('C', (A,), {})
found = [B().f(1, 2), g(1), g(['a']), C.__module__, dict(vars(A()))]
found += [isinstance(1, (int, str)), hasattr(A, 'f'), getattr(A, 'z', 3), locals() is vars()]
"""


def test_files_do_what_they_did_and_loaders_are_put_back():
    plain, watched = {"__name__": "m"}, {"__name__": "m"}
    exec(compile(SOURCE, "plain", "exec"), plain)
    with sources_watched():
        exec(compile(seen(ast.parse(SOURCE)), "watched", "exec"), watched)
    assert watched["found"] == plain["found"]
    assert not is_watching()
