"""A module of a library with a method of its own, in which a shape is another."""

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
