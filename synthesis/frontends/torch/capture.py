"""Capture, and trial runs of what it refuses, each in a process of its own."""

import time
from dataclasses import replace

from shardproof.synthesis.frontends.torch.captured import RESULT, Captured, load
from shardproof.synthesis.frontends.torch.observed import Observed
from shardproof.synthesis.frontends.torch.process import run_worker, workspace
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    Progress,
    read_config_file,
    silent,
    split_target,
)


def capture(request: CaptureRequest, progress: Progress = silent) -> Captured:
    """The model as a one-device program, forward and backward, with facts about it.

    The user's code runs in a fresh process under `request.limits`. `progress` is called with the
    name of each phase: import, build, trace, lower, roll.

    Raises:
        CaptureError: the request, the user's code or an op; the message names the line.
    """
    start = time.perf_counter()
    _check(request)
    with workspace() as folder:
        run_worker("capture", request.to_json(), request.limits, progress, folder)
        found = load(Captured, (folder / RESULT).read_text())
    timings = {**found.timings, "total": time.perf_counter() - start}
    return replace(found, timings=timings)


def attempt(request: CaptureRequest, progress: Progress = silent) -> Observed:
    """Try to capture a model of the user's; where that fails, run its code on samples.

    Raises:
        CaptureError: the request is wrong, or the process came to no end of its own.
    """
    _check(request)
    with workspace() as folder:
        run_worker("try", request.to_json(), request.limits, progress, folder)
        return load(Observed, (folder / RESULT).read_text())


def _check(request: CaptureRequest) -> None:
    split_target(request.target)
    if request.config_file:
        read_config_file(request.config_file)
