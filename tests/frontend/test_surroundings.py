"""What the owner's code reads of the environment, the clock and the process is an assumption."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.frontends.torch.session import capture_here

pytestmark = pytest.mark.torch

TOP = "import datetime\nimport pathlib\nimport os\nfrom os import getenv\nfrom time import time\n"
READ = {
    "os.environ.get('SHARDPROOF_A')": "the environment variable SHARDPROOF_A, which was not set",
    "'SHARDPROOF_A' in os.environ": "the environment variable SHARDPROOF_A, which was not set",
    "self.training and getenv('PATH') == ''": "the environment variable PATH, which was '/",
    "[k for k in os.environ if k == 'A']": "all variables of the environment",
    "time() < 0": "the clock",
    "datetime.datetime.now().year < 0": "the clock",
    "not torch.is_grad_enabled() and time() < 0": "the clock",
    "os.path.exists('/nowhere')": "a file",
    "pathlib.Path('/nowhere').is_file()": "a file",
    "os.getpid() == 1": "which process or machine this is",
    "hash('a') == 0": "a hash, which is another in each process",
    "list({'a', 'b'}) == []": "the order of a set, which is another in each process",
    "[k for k in {'a', 'b'} if k == 'c']": "the order of a set",
    "','.join(frozenset('ab')) == ''": "the order of a set",
    "sorted({'a', 'b'}, key=len) == []": "the order of a set",
    "self.w.weight.grad is not None": "that a parameter has no gradient",
    "id(self) < 0": "the address of an object, which is another in each process",
    "__import__('resource').getrusage(0) is None": "what a process has used",
}


def told(user_model, condition, top=TOP):
    body = f"if {condition}:\n    return self.w(x) * 2\nreturn self.w(x)"
    request = CaptureRequest(user_model(body, top), gradients=True)
    found = capture_here(request, lambda _: None).assumptions
    return [line for line in found if " reads " in line]


MOST = 5
"""Of many conditions `make test` runs these."""
CONDITIONS = [
    pytest.param(condition, marks=[pytest.mark.campaign] if number >= MOST else [])
    for number, condition in enumerate(READ)
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_is_read_is_told_with_its_line(user_model, condition):
    (line,) = told(user_model, condition)
    assert f"model.py:13 reads {READ[condition]}" in line
    assert line.endswith("a run that reads something else is not covered.")


def test_what_is_read_while_the_file_is_imported_is_told(user_model):
    (line,) = told(user_model, "FLAG", f"{TOP}FLAG = getenv('SHARDPROOF_A')\n")
    assert line.startswith("model.py:8 reads the environment variable SHARDPROOF_A")


def test_what_may_be_secret_is_not_told(user_model, monkeypatch):
    monkeypatch.setenv("SHARDPROOF_TOKEN", "abc")
    (line,) = told(user_model, "os.environ['SHARDPROOF_TOKEN'] == ''")
    assert "abc" not in line
    assert "which was set here" in line


@pytest.mark.parametrize(
    "condition", ["hash(3) == 0", "list({1, 2}) == []", "sorted({'a', 'b'}) == []", "'a' in {'b'}"]
)
def test_what_is_the_same_in_each_process_is_not_told(user_model, condition):
    assert not told(user_model, condition)


def test_what_libraries_read_is_not_told(user_model):
    assert not told(user_model, "tempfile.gettempdir() == ''", "import tempfile\n")


class Later(ModuleType):
    def __getattr__(self, name):
        raise ImportError(f"{self.__name__} is not installed")


def test_a_module_that_is_imported_lazily_is_asked_for_nothing(user_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "not_installed", Later("not_installed"))
    assert told(user_model, "x is None") == []
