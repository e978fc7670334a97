"""Random model files: the same for the same seed, and all that is in them is there."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.patches.losses import ROW_LOSSES, TOKEN_LOSSES, VALUE_LOSSES
from benchmarks.patches.models import MESHES, Generated, generate
from benchmarks.patches.pieces import COUPLING, PLAIN

MODELS = [generate(seed) for seed in range(400)]


def test_a_seed_gives_the_same_file() -> None:
    assert [generate(seed) for seed in range(20)] == MODELS[:20]
    assert len({model.source for model in MODELS}) == len(MODELS)


def test_every_piece_loss_and_mesh_comes_up() -> None:
    found = {feature.split(" (")[0] for model in MODELS for feature in model.features}
    assert {p.name for p in (*PLAIN, *COUPLING) if p.weight >= 1} <= found
    losses = {**ROW_LOSSES, **VALUE_LOSSES, **TOKEN_LOSSES}
    assert {f"loss: {name}" for name, (weight, _) in losses.items() if weight >= 1} <= found
    assert {mesh for model in MODELS for mesh in model.meshes} == set(MESHES)


def test_nothing_is_said_of_parallelism() -> None:
    for model in MODELS:
        assert not any(word in model.source for word in ("distributed", "mesh", "rank", "DTensor"))


@pytest.mark.torch
@pytest.mark.parametrize("model", MODELS[::8], ids=lambda m: m.name)
def test_models_run_forward_and_backward(model: Generated) -> None:
    torch: Any = pytest.importorskip("torch")
    space: dict[str, Any] = {"__name__": "model"}
    exec(compile(model.source, f"model {model.name}", "exec"), space)
    torch.manual_seed(0)
    module = space["M"]()
    outputs = module(**space["example_inputs"]())
    last = outputs if hasattr(outputs, "sum") else outputs[-1]
    last.sum().backward()
    assert any(p.grad is not None for p in module.parameters())
