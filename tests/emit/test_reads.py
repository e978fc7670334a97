"""Parameters that code reads outside of their module, and those of modules that hold parts."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from shardproof.synthesis.emit import EmitError, Patch, emit
from shardproof.synthesis.emit.facts import Argument, ModelFacts, ModuleFact
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.verifier.kernel.program.types import Mesh

SOURCE = """from torch import nn


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.scale = nn.Parameter(nn.Parameter(self.up.weight[:2, :1]))
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        h = self.up(x.to(self.up.weight.dtype)) * self.scale
        return self.down(h)


class Other(nn.Module):
    def forward(self, x):
        return x * self.up.weight


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()
        self.norm = nn.LayerNorm(8)

    def forward(model, x):
        y = model.norm(model.part(x))
        return y + model.part.up.weight.pow(2).mean() + model.part.scale + model.norm.bias.mean()
"""
X = Argument(0, "x", (2, 8), True)


def module(path: str, kind: str, children: int = 0, **params: tuple[int, ...]) -> ModuleFact:
    return ModuleFact(path, kind, kind, params, {}, (X,), 1, "tensor", (2, 8), children)


def patched(folder: Path, *more: ModulePlan, parts: int = 0) -> Patch:
    path = folder / "model.py"
    path.write_text(SOURCE)
    modules = (
        module("", "Model", 2),
        module("part", "Part", 2, scale=(2, 1)),
        module("part.up", "Linear", weight=(16, 8), bias=(16,)),
        module("part.down", "Linear", weight=(8, 16), bias=(8,)),
        module("norm", "LayerNorm", parts, weight=(8,), bias=(8,)),
    )
    facts = ModelFacts(f"{path}:Model", "Model", {}, "", modules)
    pair = (
        ModulePlan("part.up", "Linear", "column", "R", "S(-1)"),
        ModulePlan("part.down", "Linear", "row", "S(-1)", "R"),
    )
    return emit(facts, Plan(Mesh.of(tp=2), tp="tp", modules=(*pair, *more)), folder)


def test_reads_of_split_parameters_are_made_whole(tmp_path: Path) -> None:
    new = patched(tmp_path).files["model.py"][1]
    assert "y + whole_param(model.part.up.weight).pow(2).mean() + model.part.scale" in new
    assert "+ model.norm.bias.mean()" in new  # `replicate_rest` leaves it as it is seen
    assert "import proved_mesh, replicate_rest, whole_param\n" in new


def test_what_is_built_or_asked_of_them_stays(tmp_path: Path) -> None:
    new = patched(tmp_path).files["model.py"][1]
    assert "self.scale = nn.Parameter(nn.Parameter(self.up.weight[:2, :1]))" in new
    assert "x.to(self.up.weight.dtype)" in new
    assert "return x * self.up.weight" in new  # of a class that the model has no instance of


def test_own_gradients_of_a_module_with_parts_are_added_up(tmp_path: Path) -> None:
    own = ModulePlan("part", "Part", "sequence", "S(1)", "S(1)")
    new = patched(tmp_path, own).files["model.py"][1]
    assert "    summed_over(model.part, tp)\n" in new
    assert '"part":' not in new


def test_own_parameters_of_a_module_with_parts_are_split(tmp_path: Path) -> None:
    own = ModulePlan("part", "Part", "channels", "S(1)", "S(1)", splits=(("scale", 0, 1),))
    new = patched(tmp_path, own).files["model.py"][1]
    assert '    own_pieces(model.part, tp, {"scale": 0})\n' in new
    assert '"part":' not in new
    assert "whole_param(model.part.scale)" in new  # of all ranks, outside of its module


@pytest.mark.parametrize(
    ("takes", "gives", "layouts"),
    [
        ("R", "S(-1)", "output_layouts=Shard(-1)"),
        ("S(-1)", "R", "input_layouts=Shard(-1)"),
        ("R", "R", ""),
    ],
)
def test_a_product_of_a_modules_own_runs_on_dtensors(
    tmp_path: Path, takes: str, gives: str, layouts: str
) -> None:
    own = ModulePlan("norm", "Own", "product", takes, gives, splits=(("weight", 0, 1),))
    new = " ".join(patched(tmp_path, own).files["model.py"][1].split())
    wanted = '"norm": ProductParallel({"weight": 0}' + (f", {layouts}" if layouts else "")
    assert f"{wanted})," in new


def test_a_product_that_takes_more_than_its_activation_is_not_emitted(tmp_path: Path) -> None:
    own = ModulePlan("part.up", "Own", "product", "R", "S(-1)", splits=(("weight", 0, 1),))
    up = replace(module("part.up", "Own", weight=(16, 8)), positional=2)
    facts = ModelFacts(f"{tmp_path}/model.py:Model", "Model", {}, "", (module("", "Model", 1), up))
    (tmp_path / "model.py").write_text(SOURCE)
    with pytest.raises(EmitError, match=r"part\.up: Own takes more than the activation"):
        emit(facts, Plan(Mesh.of(tp=2), tp="tp", modules=(own,)), tmp_path)


def test_a_module_whose_parts_hold_nothing_has_a_style_of_its_own(tmp_path: Path) -> None:
    splits = (("weight", 0, 1), ("bias", 0, 1))
    norm = ModulePlan("norm", "NormAct", "channels", "S(1)", "S(1)", splits=splits)
    new = patched(tmp_path, norm, parts=1).files["model.py"][1]
    assert '"norm": ChannelParallel(\n            {"weight": 0, "bias": 0},' in new
    assert "own_pieces" not in new


@pytest.mark.torch
def test_a_whole_parameter_is_itself_on_one_device(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = loaded(patched(tmp_path), tmp_path)
    x = torch.ones(3)
    assert made.whole_param(x) is x


def loaded(patch: Patch, folder: Path) -> ModuleType:
    path = folder / "patched.py"
    path.write_text(patch.files["model.py"][1])
    spec = importlib.util.spec_from_file_location("patched", path)
    assert spec
    assert spec.loader
    out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out
