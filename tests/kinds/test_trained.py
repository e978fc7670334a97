"""A patch as it is written trains as the owner's model does, and its weights go both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parallelize import ROOT, Job
from benchmarks.trained import train

pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.campaign]


def test_a_patch_trains_and_its_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    job = Job("mlp", str(ROOT / "examples" / "mlp.py") + ":MLP", (), ("--mesh", "tp=2", "--no-run"))
    row = train(job, "tp=2", tmp_path)
    assert row.cause == ""
    assert row.trained
    assert (row.mode, row.loss) == ("train", "own")
    assert (row.saved, row.loaded) == ("get_model_state_dict", "set_model_state_dict")
    assert row.norm
