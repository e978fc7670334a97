"""Training steps in spellings of their own, each with a twin that is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.step_mutants import BASES
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = pytest.mark.torch
HELD = {base.folder.name: base for base in BASES}
WRONG = {
    "owned": ("self.inner.step()", "self.inner.step(); self.inner.step()"),
    "averaging": ("1 - DECAY", "0.0051"),
    "scaled": ("lr=0.01)", "lr=0.01, lr_decay=0.1)"),
}
"""They take an optimizer in another object, numbers as they are written, and state that an
optimizer has before its first step."""


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("name", WRONG)
def test_a_step_is_judged_however_it_is_written(
    case: Callable[..., Any], tmp_path: Path, name: str, right: bool
) -> None:
    base = HELD[name]
    for file in base.folder.glob("*.py"):
        shutil.copy(file, tmp_path)
    asked = case(mesh=base.mesh, target=f"ranks.py:{base.many}", against=f"one.py:{base.one}")
    asked.step, asked.inputs, asked.input_layouts = base.step, base.inputs, base.layouts
    if not right:
        asked.edit(*WRONG[name], file="ranks.py")
    assert isinstance(asked.check().verdict, Proof if right else Counterexample)
