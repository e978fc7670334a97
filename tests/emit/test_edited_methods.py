"""Modules of a library: one with a method of its own, and one whose parts are replaced."""

from __future__ import annotations

import importlib.util
import traceback
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.torch

LIBRARY = """import torch

SCALE = 2


class Attention(torch.nn.Module):
    def forward(self, x, fail=False):
        b, t, c = x.shape
        if fail:
            raise RuntimeError("here")
        y = x[..., : c // 2] * SCALE
        return y.reshape(b, t, c)
"""


@pytest.fixture
def library(tmp_path: Path) -> ModuleType:
    path = tmp_path / "edited_library.py"
    path.write_text(LIBRARY)
    spec = importlib.util.spec_from_file_location("edited_library", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_module_runs_what_is_edited(library: ModuleType) -> None:
    import torch

    from shardproof.runtime import edited_method

    one, other = library.Attention(), library.Attention()
    edited_method(one, "forward", ".reshape(b, t, c)", ".reshape(b, t, -1)")
    x = torch.ones(2, 3, 4)
    assert one(x).shape == (2, 3, 2)
    library.SCALE = 3
    assert one(x).max() == 3
    with pytest.raises(RuntimeError, match="invalid for input"):
        other(x)
    with pytest.raises(RuntimeError, match="here") as found:
        one(x, fail=True)
    last = traceback.extract_tb(found.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (library.__file__, 10)


def test_another_version_of_the_library_is_refused(library: ModuleType) -> None:
    from shardproof.runtime import edited_method

    with pytest.raises(ValueError, match=r"Attention\.forward has no"):
        edited_method(library.Attention(), "forward", ".view(b, t, c)", ".view(b, t, -1)")


def test_a_part_that_forward_replaces_is_divided_once() -> None:
    import torch

    from shardproof.runtime import divide_held

    class Part(torch.nn.Module):
        width = 8

        def forward(self) -> int:
            return self.width

    class Owner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Part()

        def forward(self) -> int:
            return self.part()

    owner = Owner()
    divide_held(owner, "part", "width", 2)
    assert [owner(), owner()] == [4, 4]
    owner.part = Part()
    assert [owner(), owner()] == [4, 4]


SWAPPED = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.kept = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        self.part = torch.nn.Sequential(self.part)
        return self.part(self.kept(x))


def example_inputs():
    return {"x": torch.randn(2, 4)}
"""


def test_modules_that_forward_replaces_are_known(tmp_path: Path) -> None:
    from shardproof.synthesis.execute.collect import collect
    from shardproof.synthesis.frontends.torch.request import CaptureRequest

    path = tmp_path / "swapped_model.py"
    path.write_text(SWAPPED)
    modules = collect(CaptureRequest(f"{path}:Model")).modules
    assert {m.path: m.replaced for m in modules} == {
        "": False,
        "part": True,
        "part.0": True,
        "kept": False,
    }
