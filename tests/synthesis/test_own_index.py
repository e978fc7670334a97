"""An embedding that works out its own rows keeps its weight whole: no style of PyTorch fits it."""

from __future__ import annotations

import pytest

from synthesis.planner import can_emit
from synthesis.roles import modules
from verifier.ir.text import parse_text

LOOKUP = """program m
  input %ids: i64[4]
  param %w: f32[8, 2] "pos.weight"
  {index}
  %y = take %w, %i {{dim=0}}  @ m.py:3 pos | return super().forward(i + 2)
  return %y
"""
INDEX = {
    "given": ("%i = add_scalar %ids {value=0}  @ m.py:9 top | self.pos(ids)", False),
    "in the module": ("%i = add_scalar %ids {value=2}  @ m.py:3 pos | i + 2", True),
    "constant": ("%i = iota {shape=[4], dim=0, offset=2}  @ m.py:9 top | arange", True),
}


@pytest.mark.parametrize("where", INDEX)
def test_rows_of_its_own_are_seen(where: str) -> None:
    index, own = INDEX[where]
    (module,) = modules(parse_text(LOOKUP.format(index=index)), {"pos": "LearnedPositions"})
    assert module.own_index == own
    assert can_emit(module, "vocab") != own
    assert can_emit(module, "replicate")


def test_a_plain_embedding_of_positions_may_be_split() -> None:
    text = LOOKUP.format(index=INDEX["constant"][0])
    (module,) = modules(parse_text(text), {"pos": "Embedding"})
    assert can_emit(module, "vocab")
