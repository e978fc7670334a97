"""Custom ops that are said to be collectives."""

from __future__ import annotations

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.meanings import Meaning

pytestmark = pytest.mark.torch


def test_a_meaning_names_the_op_the_collective_and_the_mesh_dim() -> None:
    assert Meaning.read("vllm.all_reduce=all_reduce@tp") == Meaning(
        "vllm.all_reduce", "all_reduce", "tp"
    )
    assert Meaning.read("vllm.gather=all_gather@tp:-1").dim == -1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm.all_reduce", "no meaning of an op"),
        ("vllm.all_reduce=scan@tp", "no meaning of an op"),
        ("vllm.all_reduce=all_reduce@", "no meaning of an op"),
        ("vllm.gather=all_gather@tp:x", "no meaning of an op"),
        ("aten.relu=all_reduce@tp", "an op of PyTorch means what PyTorch says"),
    ],
)
def test_other_statements_are_errors(text: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        Meaning.read(text)
