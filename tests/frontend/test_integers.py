"""Integers that a type does not hold are refused with their line; those it holds stay."""

from __future__ import annotations

import pytest

from shardproof import ShardproofError, check
from shardproof.verifier.verdict import Counterexample, Proof

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TEXT = """import torch
from torch import nn


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(600, 4)

    def forward(self, ids):
        return self.table({model})


class P(M):
    def __init__(self, mesh):
        super().__init__()

    def forward(self, ids):
        return self.table({ranks})


def example_inputs():
    return {{"ids": torch.randint(0, 300, (4, 3))}}
"""


def judged(tmp_path, ranks: str, model: str = "ids", below: int = 300, run: bool = False):
    path = tmp_path / "m.py"
    path.write_text(TEXT.format(model=model, ranks=ranks))
    given = [f"ids=i64[4,3]<{below}"]
    return check(f"{path}:P", against=f"{path}:M", mesh="tp=2", inputs=given, mode="eval", run=run)


@pytest.mark.parametrize(
    ("ranks", "below", "said"),
    [
        ("ids.to(torch.bfloat16).long()", 300, "bf16 holds each integer up to 256"),
        ("(ids.half() * 8).long() // 8", 300, "f16 holds each integer up to 2048"),
        ("(ids * 100000).float().long() // 100000", 300, "f32 holds each integer up to 16777216"),
        ("(ids + 1000).bfloat16().sub(1000).long()", 200, "from 1000 to 1199"),
        ("torch.where((ids + 256).bfloat16() == 257, ids, ids)", 300, "are compared"),
        ("(ids.int() * 10000000).long() // 10000000", 300, "i32 holds"),
        ("ids.to(torch.uint8).long()", 300, "u8 holds 0 to 255"),
        ("(ids.int() << 23).long() >> 23", 300, "i32 holds"),
        ("(ids * 2**55) // 2**55", 300, "i64 holds"),
        ("(ids.to(torch.uint8) - 1).long() + 1", 200, "from -1 to 198"),
        ("ids.to(torch.int8).long()", 200, "i8 holds -128 to 127"),
        ("self.table.weight.sum().to(torch.int16).long() + ids", 200, "no known range in i16"),
    ],
)
def test_integers_that_a_type_does_not_hold_are_refused(tmp_path, ranks, below, said):
    with pytest.raises(ShardproofError) as refused:
        judged(tmp_path, ranks, below=below)
    assert said in str(refused.value)
    assert refused.value.where.startswith("m.py:19")


def test_a_run_refutes_integers_that_a_type_does_not_hold(tmp_path):
    found = judged(tmp_path, "ids.to(torch.uint8).long()", run=True)
    assert isinstance(found, Counterexample)


@pytest.mark.parametrize(
    ("ranks", "model", "below"),
    [
        ("ids.to(torch.bfloat16).long()", "ids", 256),
        ("ids.half().float().long()", "ids", 300),
        ("ids.to(torch.uint8).long()", "ids", 200),
        ("(ids.int() * 1000).long()", "ids * 1000", 300),
        ("(ids.to(torch.int16) + torch.tensor([7], dtype=torch.int16)).long()", "ids + 7", 300),
        ("(ids - 100) & 63", "(ids - 100) % 64", 300),
        ("(ids ^ 0) & 511", "ids", 300),
        ("ids >> 1", "ids // 2", 300),
        ("(ids << 1).clamp(max=599)", "(ids * 2).clamp(max=599)", 300),
    ],
)
def test_integers_that_a_type_holds_stay_as_they_are(tmp_path, ranks, model, below):
    if "1000" in ranks:
        ranks, model = f"({ranks}) // 1000", f"({model}) // 1000"
    found = judged(tmp_path, ranks, model, below)
    assert isinstance(found, Proof)
    assert not any("become integers" in a or "overflow" in a for a in found.assumptions)


def test_reals_that_become_integers_are_told(tmp_path):
    asked = "ids % (self.table.weight.sum() * 0 + 5).long()"
    found = judged(tmp_path, asked, asked)
    assert any("Numbers become integers as reals do" in str(a) for a in found.assumptions)
