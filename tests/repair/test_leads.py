"""Lines to look at beside a blamed one, from the text alone."""

from __future__ import annotations

import pytest

from shardproof.synthesis.repair.faults import beside
from shardproof.synthesis.repair.in_source import Module, SourceFile
from shardproof.synthesis.repair.looked import Looked
from shardproof.verifier.kernel.program.types import Source

REGIONS = """class Summed(Function):
    def forward(ctx, x, group):
        y = x.clone()
        all_reduce(y, group=group)
        return y

    def backward(ctx, grad):
        return grad, None

class Silent(Function):
    def forward(ctx, x, group):
        return x

    def backward(ctx, grad):
        grad = grad.clone()
        return grad, None

class Other(nn.Module):
    def forward(self, x):
        return Summed.apply(x, self.group)
"""
LAYER = """from regions import Silent, Summed

PLAN = {"up": ColwiseParallel(), "down.*": RowwiseParallel()}

class Layer(nn.Module):
    def __init__(self, rank, rows):
        self.first, self.up = rank * rows, nn.Linear(8, 8)

    def forward(self, ids):
        local = ids - self.first
        h = self.up(local)

        return self.given(h)

    def given(self, h):

        return Summed.apply(Silent.apply(h, self.group), self.group)

def build(mesh):
    return parallelize_module(Layer(), mesh, PLAN)

def finish(model):
    all_reduce(model.up.weight.grad)
"""


def found(target: str, place: str, *wrong: str, finish: str = "") -> list[tuple[str, str]]:
    texts = {"layer.py": LAYER, "regions.py": REGIONS}
    files = {n: SourceFile(n, t) for n, t in texts.items()}
    module = Module(files, {"tp": 2}, (), wrong, bool(wrong), finish, target)
    file, _, line = place.partition(":")
    lines = {n: t.splitlines() for n, t in texts.items()}
    out = beside(Looked(module, Source(file, int(line))))
    assert all(lines[o.line.file][o.line.line - 1].strip() == o.line.text for o in out)
    return [(f"{o.line.file}:{o.line.line}", o.why) for o in out]


CASES = [
    ("within an autograd function", "Layer", "regions.py:4", (), "", "layer.py:17"),
    ("applied on the line", "Layer", "layer.py:17", (), "", "regions.py:3"),
    ("a method of the module", "Layer", "layer.py:13", (), "", "layer.py:17"),
    (
        "a backward without a collective",
        "Layer",
        "layer.py:11",
        ("up.weight",),
        "",
        "regions.py:15",
    ),
    ("a number that was set", "Layer", "layer.py:11", (), "", "layer.py:7"),
    ("after the backward", "Layer", "layer.py:9", ("up.weight",), "finish", "layer.py:22"),
    ("an entry of a plan", "build", "layer.py:11", ("down.0.bias",), "", "layer.py:3"),
]


@pytest.mark.parametrize(
    ("target", "place", "wrong", "finish", "line"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_a_line_is_led_to(
    target: str, place: str, wrong: tuple[str, ...], finish: str, line: str
) -> None:
    assert line in [at for at, _ in found(target, place, *wrong, finish=finish)]


def test_what_the_module_does_not_use_is_left_out() -> None:
    assert not [at for at, _ in found("Layer", "regions.py:4") if at == "regions.py:20"]
    assert found("Nothing", "layer.py:11") == []


def test_few_lines_are_shown_and_never_the_blamed_one() -> None:
    for line in range(1, 24):
        led = found("build", f"layer.py:{line}", "up.weight", finish="finish")
        assert len(led) <= 3
        assert f"layer.py:{line}" not in [at for at, _ in led]
