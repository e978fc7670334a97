"""Samples that PyTorch tests its ops with are captured as eager PyTorch computes them."""

from __future__ import annotations

import json
import subprocess
import sys

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
    "exp2",
    "logaddexp",
    "round",
    "fft.rfft",
    "fft.irfft2",
)


def test_samples_agree_or_are_refused(tmp_path):
    results = tmp_path / "rows.json"
    command = (sys.executable, "-m", "benchmarks.op_samples", *OPS, "empty_permuted")
    options = ("--count", "3", "--results", str(results))
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    rows = {r["op"]: r for r in json.loads(results.read_text())}
    assert done.returncode == 0, done.stderr
    assert all(rows[name].get("agrees") for name in OPS), rows
    assert set(rows["empty_permuted"]) == {"op", "refused", "why"}
