"""Samples that PyTorch tests its ops with are captured as eager PyTorch computes them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.frontend.conftest import ROOT

pytestmark = pytest.mark.torch
OPS = (
    "var",
    "nn.functional.softplus",
    "scatter_add",
    "gather",
    "cumprod",
    "transpose",
    "as_strided",
)


def test_samples_agree_or_are_refused(tmp_path):
    results = tmp_path / "rows.json"
    command = (sys.executable, "-m", "benchmarks.op_samples", *OPS, "empty_permuted")
    options = ("--count", "6", "--results", str(results))
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    ends = Counter((r["op"], r["end"]) for r in json.loads(results.read_text()))
    assert done.returncode == 0, done.stderr
    assert all(ends[name, "agrees"] for name in OPS), ends
    assert ends["empty_permuted", "refused"] == ends.total() - sum(
        n for (name, _), n in ends.items() if name != "empty_permuted"
    )
