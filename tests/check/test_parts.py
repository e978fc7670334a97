"""A parameter of several parts, unlike in extent, each split alone: grouped heads in one weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardproof.agent.run.errors import InputError

pytestmark = pytest.mark.torch
MODULES = """
class Grouped(nn.Module):
    '''Two queries for each key, in one weight.'''

    def __init__(self, n=1):
        super().__init__()
        self.qk = nn.Parameter(torch.randn(12 // n, 8))
        self.sizes = 8 // n, 4 // n

    def forward(self, x):
        q, k = F.linear(x, self.qk).split(self.sizes, -1)
        return q.unflatten(-1, (-1, 2)).sum(-1) * k


class Split(Grouped):
    def __init__(self, tp_size):
        super().__init__(tp_size)

    def forward(self, x):
        return super().forward(Copy.apply(x, dist.group.WORLD))
"""


@pytest.fixture
def made(case: Callable[..., object]) -> Callable[[str], object]:
    def make(layout: str) -> object:
        asked = case(
            against="wrong.py:Grouped",
            inputs=["x=f32[2,8]"],
            layouts=[f"qk={layout}"],
            output_layouts=["*=S(1)@tp"],
        )
        return asked.write(MODULES, "Split")

    return make


def test_each_part_is_laid_out_alone_with_its_gradient(made: Callable[[str], object]) -> None:
    found = made("[2@tp 4 + 2@tp 2][8]").proved()
    kept = {p.name: p.layout.global_shape for p in found.placed if p.kind == "parameter"}
    assert kept == {"qk.part0": (8, 8), "qk.part1": (4, 8)}
    grads = {o.path for o in found.question.sequential.outputs if o.role == "grad"}
    assert grads == {"qk.part0", "qk.part1", "input:x"}


@pytest.mark.parametrize("layout", ["[2@tp 2 + 2@tp 4][8]", "S(0)@tp", "[3 2@tp 2][8]"])
def test_other_parts_are_refuted(made: Callable[[str], object], layout: str) -> None:
    made(layout).refuted()


REFUSED = {
    "[2@tp 4 + 2@tp 4][8]": "the parts of qk do not make it up",
    "[2@tp 4 + 2@tp 2][4 + 4]": "no layout of parts that is known",
    "[2@tp 4 + x][8]": "no layout of parts that is known",
}


@pytest.mark.parametrize("layout", REFUSED)
def test_parts_that_say_nothing_are_refused(made: Callable[[str], object], layout: str) -> None:
    with pytest.raises(InputError, match=REFUSED[layout]):
        made(layout).check()
