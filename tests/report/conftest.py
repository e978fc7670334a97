"""Reports to render, and a browser to look at them with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardproof.agent.report import Report, render_html
from shardproof.agent.report.model import Memory, MeshDim
from shardproof.synthesis.execute.run.running import Difference
from tests.report import failures, samples
from tests.report.chromium import NAMES, Chromium
from tests.report.hostile import poisoned

GIB = 2**30


def large() -> Report:
    """Many ranks, many modules, and an execution that contradicts the proof."""
    base = samples.proved()
    assert base.execution is not None
    return replace(
        base,
        mesh=(
            MeshDim("pp", 4, "splits the layers", True),
            MeshDim("dp", 16, "splits the batch"),
            MeshDim("tp", 8, "splits heads and hidden units", True),
        ),
        plan=base.plan * 6,
        memory=Memory(
            samples.memory(
                parameters=812 * GIB,
                gradients=812 * GIB,
                optimizer=4872 * GIB,
                activations=913 * GIB,
            ),
            samples.memory(
                parameters=25 * GIB, gradients=25 * GIB, optimizer=10 * GIB, activations=9 * GIB
            ),
            80 * GIB,
        ),
        execution=replace(
            base.execution,
            agrees=False,
            differences=(Difference("output", "logits", float("nan"), 0.0),),
        ),
    )


REPORTS = {
    "proved": samples.proved,
    "refuted": failures.refuted,
    "unknown": failures.unknown,
    "large": large,
    "bare": lambda: Report(title="A model", verdict="unknown", headline="Interrupted."),
    "hostile": lambda: poisoned(samples.proved()),
    "hostile-refuted": lambda: poisoned(failures.refuted()),
    "hostile-unknown": lambda: poisoned(failures.unknown()),
}


@pytest.fixture(params=list(REPORTS))
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`report.html` of every sample."""
    folder = tmp_path_factory.mktemp("reports")
    for name, make in REPORTS.items():
        (folder / f"{name}.html").write_bytes(render_html(make()).encode())
    return {name: folder / f"{name}.html" for name in REPORTS}


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A headless Chromium. Without one the tests skip on a developer's machine, and fail in CI."""
    binary = next(filter(None, map(shutil.which, NAMES)), None)
    if binary is None:
        reason = f"no Chromium: none of {', '.join(NAMES)} is on PATH (apt-get install chromium)"
        if os.environ.get("CI") or os.environ.get("SHARDPROOF_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    opened = Chromium(binary, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
