"""Capture and reference runs, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthesis.frontends.torch import captured as results
from synthesis.frontends.torch import observed
from synthesis.frontends.torch.captured import Captured
from synthesis.frontends.torch.observed import Observed
from synthesis.frontends.torch.process import run_worker, workspace
from synthesis.frontends.torch.request import (
    CaptureRequest,
    Progress,
    read_config_file,
    silent,
    split_target,
)
from synthesis.frontends.torch.rolling.paths import Group, members

Arrays = Mapping[str, NDArray[Any]]


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
        found = results.load(folder)
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
        return observed.load(folder)


def _check(request: CaptureRequest) -> None:
    split_target(request.target)
    if request.config_file:
        read_config_file(request.config_file)


@dataclass(frozen=True)
class Reference:
    """One forward and backward of the model by PyTorch, in float64."""

    inputs: Arrays
    params: Arrays
    """By first name; tied parameters once."""
    outputs: Arrays
    """By result name, the loss included."""
    grads: Arrays
    cotangents: Arrays
    """Where there is no scalar loss: what was passed back, by output name."""

    def values(self, captured: Captured) -> dict[str, NDArray[Any]]:
        """Inputs for the captured program: layers of repeated blocks are stacked."""
        out: dict[str, NDArray[Any]] = {}
        for item in captured.program.inputs:
            if item.role == "param":
                out[item.name] = stacked(self.params, item.path, captured.facts.groups)
            elif item.role == "const":
                out[item.name] = np.asarray(captured.consts[item.name])
            elif item.role == "cotangent":
                out[item.name] = self.cotangents[item.path]
            else:
                out[item.name] = self.inputs[item.path]
        return out

    def expected(self, captured: Captured) -> dict[str, NDArray[Any]]:
        """What the outputs of the captured program must be, by value name."""
        out: dict[str, NDArray[Any]] = {}
        for item in captured.program.outputs:
            if item.role == "grad":
                out[item.value] = stacked(self.grads, item.path, captured.facts.groups)
            else:
                out[item.value] = self.outputs[item.path]
        return out


def stacked(values: Arrays, path: str, groups: tuple[Group, ...]) -> NDArray[Any]:
    """The array of a path; for a pattern, those of its members, stacked."""
    if path in values:
        return values[path]
    return np.stack([values[p] for p in members(path, groups)])


def reference(request: CaptureRequest, seed: int = 0, progress: Progress = silent) -> Reference:
    """Run the model in PyTorch, in float64 with random parameters, on random inputs.

    For small models: parameters are real. Casts to a narrower float are not done where they would
    round a value that depends on a parameter.

    Raises:
        CaptureError: as `capture`.
    """
    _check(request)
    with workspace() as folder:
        data = {**request.to_json()}
        run_worker(f"reference:{seed}", data, request.limits, progress, folder)
        kinds: dict[str, dict[str, NDArray[Any]]] = {}
        for kind in ("inputs", "params", "outputs", "grads", "cotangents"):
            with np.load(folder / f"{kind}.npz", allow_pickle=False) as arrays:
                kinds[kind] = {k: arrays[k] for k in arrays.files}
    return Reference(**kinds)
