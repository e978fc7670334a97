"""A batch norm in train mode: the patch that splits its channels, and the one that takes the
statistics of the batch of all ranks, are read and proved."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch]
MODEL = Path(__file__).parent / "models" / "running.py"


ALONE = [pytest.param(mesh, marks=pytest.mark.campaign) for mesh in ("tp=2", "dp=2")]


@pytest.mark.parametrize("mesh", [*ALONE, "dp=2,tp=2"])
def test_the_patch_of_a_batch_norm_is_proved(mesh, here):
    done = here("parallelize", f"{MODEL}:BN", "--mesh", mesh, "--no-run", "--out", "out")
    assert done.code == 0, done.out + done.err
    assert "read again and proved" in done.out + done.err
