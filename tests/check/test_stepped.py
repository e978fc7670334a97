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
TWINS = [
    ("owned", "self.clip(0.05)", "self.clip(0.05); self.clip(0.05)", Proof),
    ("owned", "self.inner.step()", "self.inner.step(); self.inner.step()", Counterexample),
    ("averaging", "", "", Proof),
    ("averaging", "1 - DECAY", "0.0051", Counterexample),
    ("hybrid", "set_to_none=True", "set_to_none=False", Proof),
    ("hybrid", "opt.zero_grad(set_to_none=True)", "pass", Counterexample),
    ("scaled", "", "", Proof),
    ("scaled", "lr=0.01,", "lr=0.01, lr_decay=0.1,", Counterexample),
]
"""They take an optimizer in another object, values that are clamped twice, numbers as they are
written, and state that an optimizer has before its first step."""


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(("name", "old", "new", "verdict"), TWINS)
def test_a_step_is_judged_however_it_is_written(
    case: Callable[..., Any], tmp_path: Path, name: str, old: str, new: str, verdict: type
) -> None:
    base = HELD[name]
    for file in base.folder.glob("*.py"):
        shutil.copy(file, tmp_path)
    asked = case(mesh=base.mesh, target=f"ranks.py:{base.many}", against=f"one.py:{base.one}")
    asked.step, asked.inputs, asked.input_layouts = base.step, base.inputs, base.layouts
    if old:
        asked.edit(old, new, file="ranks.py")
    assert isinstance(asked.check().verdict, verdict)
