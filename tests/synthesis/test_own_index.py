"""Embeddings that work out their own rows keep their weight whole; biases of heads are split."""

from __future__ import annotations

import pytest

from shardproof.synthesis.planner.assign import options, split
from shardproof.synthesis.planner.planner import can_emit
from shardproof.synthesis.planner.roles import modules
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.text.parser import parse_text

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


@pytest.mark.parametrize(("kind", "use"), [("Embedding", "embedding"), ("Places", "other")])
def test_a_table_whose_rows_are_read_in_order_is_split_by_columns(kind: str, use: str) -> None:
    text = """program m
  param %w: f32[8, 2] "pos.weight"
  %r = slice %w {dim=0, start=0, stop=4, step=1}  @ m.py:3 pos | embedding
  %y = mul_scalar %r {value=2}  @ m.py:9 top | 2 * pos
  return %y
"""
    (module,) = modules(parse_text(text), {"pos": kind})
    assert module.use == use
    assert options(module, 2) == ["replicate", *(["gathered"] if use == "embedding" else [])]


def test_a_plain_embedding_of_positions_may_be_split() -> None:
    text = LOOKUP.format(index=INDEX["constant"][0])
    (module,) = modules(parse_text(text), {"pos": "Embedding"})
    assert can_emit(module, "vocab")


BIAS = """program m
  input %ids: i64[5, 6]
  param %w: f32[8, 4] "bias.weight"
  %t = take %w, %ids {dim=0}  @ m.py:3 bias | self.bias(ids)
  %p = permute %t {dims=[ORDER]}  @ m.py:4 attn | bias.permute(2, 0, 1)
  return %p
"""


def test_a_bias_for_each_head_is_split_by_heads() -> None:
    (table,) = modules(parse_text(BIAS.replace("ORDER", "2, 0, 1")), {"bias": "Embedding"})
    assert table.heads == 4
    assert options(table, 2) == ["replicate", "column", "gathered"]
    assert options(table, 3) == ["replicate"]
    assert TACTICS["column_row"]([table], 2).style("bias") == "column"
    weight = table.params[0]
    assert split(table, weight, "column", "tp", 2).placement("tp") == "Shard(1)"


def test_rows_that_stay_vectors_are_no_biases_of_heads() -> None:
    (table,) = modules(parse_text(BIAS.replace("ORDER", "1, 0, 2")), {"bias": "Embedding"})
    assert table.heads == 0
    assert options(table, 2) == ["replicate", "vocab", "gathered"]


def test_a_table_with_a_module_inside_stays_whole() -> None:
    """PyTorch's style would split the parameters of that too, and add up behind it."""
    text = LOOKUP.format(index=INDEX["given"][0])
    kinds = {"pos": "NormedEmbedding", "pos.norm": "LayerNorm"}
    (module,) = modules(parse_text(text), kinds)
    assert not can_emit(module, "vocab")
    assert can_emit(module, "replicate")
