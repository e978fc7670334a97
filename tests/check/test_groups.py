"""Process groups that ranks make: as all of them do, or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.check.conftest import Case

pytestmark = [pytest.mark.torch]
pytest.importorskip("torch")

MakeCase = Callable[..., Case]
WRONG = """
class Wrong(ParallelMLP):
    def __init__(self, mesh, hidden=8, wide=16):
        super().__init__(mesh, hidden, wide)
        r = dist.get_rank()
        {built}

    def forward(self, x):
        r = dist.get_rank()
        {called}
        return super().forward(x)
"""


def _case(make_case: MakeCase, built: str, called: str = "pass") -> Case:
    lines = ("\n        ".join(code.splitlines()) for code in (built, called))
    return make_case().write(WRONG.format(**dict(zip(("built", "called"), lines, strict=True))))


MESH = "from torch.distributed.device_mesh import init_device_mesh"
RIGHT = {
    "one that all make": ("self.group = dist.new_group([0, 1])", "pass"),
    "one of each rank, in forward": (
        "pass",
        "for q in range(2):\n    own = dist.new_group([q])\n"
        "    dist.barrier(group=own) if q == r else None",
    ),
    "a mesh, in forward": (
        "pass",
        f"{MESH}\nself.group = init_device_mesh('cpu', (2,)).get_group()",
    ),
    "one of its own rank": ("dist.new_group([r])\nself.group = dist.new_group([0, 1])", "pass"),
    "two, called in one order": (
        "a, b = dist.new_group([0, 1]), dist.new_group([0, 1])\nself.group, self.more = b, a",
        "dist.all_reduce(torch.ones(2), group=self.more)",
    ),
}


@pytest.mark.parametrize(("built", "called"), RIGHT.values(), ids=RIGHT)
def test_groups_that_all_ranks_make_are_proved(case: MakeCase, built: str, called: str) -> None:
    _case(case, built, called).proved()


ALONE = {
    "in the constructor": ("if r == 0:\n    dist.new_group([0, 1])  # here", "pass"),
    "in forward": ("pass", "if r == 0:\n    dist.new_group([0, 1])  # here"),
    "of other ranks": (
        "if r == 0:\n    dist.new_group([0])\nself.group = dist.new_group([0, 1])  # here",
        "pass",
    ),
}


@pytest.mark.parametrize(("built", "called"), ALONE.values(), ids=ALONE)
def test_one_that_a_rank_makes_alone_is_refuted(case: MakeCase, built: str, called: str) -> None:
    found = _case(case, built, called).refuted_here()
    assert "new_group of ranks [0, 1]" in str(found.verdict)


def test_groups_that_are_interchanged_are_refuted(case: MakeCase) -> None:
    built = "a, b = dist.new_group([0, 1]), dist.new_group([0, 1])\nself.more = b if r else a"
    called = "dist.all_reduce(torch.ones(2), group=self.more)  # here"
    found = _case(case, built, called).refuted_here()
    assert "(group" in str(found.verdict)
