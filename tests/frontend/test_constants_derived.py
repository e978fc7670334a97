"""Constants of two graphs are one where they are made alike of the same, and by PyTorch alone."""

from __future__ import annotations

# pyright: basic
from typing import Any

import pytest
import torch
from torch import fx, nn

from shardproof.synthesis.frontends.torch.constants import Band, Constant, Full
from shardproof.synthesis.frontends.torch.folding import constant_nodes, derivations
from shardproof.synthesis.frontends.torch.lower import Lowering
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.trace import Traced

aten: Any = torch.ops.aten


@torch.library.custom_op("shardproof_tests::asks_for_the_rank", mutates_args=())
def _asks(like: torch.Tensor) -> torch.Tensor:
    return like.clone()


@_asks.register_fake
def _(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like)


def traced(*steps: tuple[Any, tuple[Any, ...]], held: Any = None) -> Traced:
    """A graph of steps, each on the one before where its first argument is None."""
    graph, module = fx.Graph(), nn.Module()
    if held is not None:
        module.register_buffer("held", held)
        last: Any = graph.create_node("get_attr", "held")
        last.meta["val"] = value = held
    for target, args in steps:
        whole = tuple(value if a is None else a for a in args)
        node = graph.call_function(target, tuple(last if a is None else a for a in args))
        node.meta["val"] = value = target(*whole)
        last = node
    given = graph.placeholder("given")
    given.meta["val"] = value
    out = graph.call_function(aten.add.Tensor, (given, last))
    out.meta["val"] = value
    graph.output((out,))
    found = Traced(graph, module)
    found.inputs[given] = "given"
    return found


def derived(found: Traced) -> str | None:
    """Of the last constant."""
    constants = constant_nodes(found)
    last = [n for n in found.graph.nodes if n in constants][-1]
    return derivations(found, constants, {}).get(last)


RAMP = (aten.arange.default, (8,))


def test_alike_steps_have_one_derivation() -> None:
    assert derived(traced(RAMP, (aten.mul.Tensor, (None, 2)))) is not None
    assert derived(traced(RAMP, (aten.mul.Tensor, (None, 2)))) == derived(
        traced(RAMP, (aten.mul.Tensor, (None, 2)))
    )


@pytest.mark.parametrize(
    "other",
    [
        traced(RAMP, (aten.mul.Tensor, (None, 3))),
        traced(RAMP, (aten.mul.Tensor, (None, 2.0))),
        traced(RAMP, (aten.add.Tensor, (None, 2))),
        traced((aten.arange.default, (9,)), (aten.mul.Tensor, (None, 2))),
        traced((aten.mul.Tensor, (None, 2)), held=torch.arange(8)),
    ],
)
def test_other_steps_have_another(other: Traced) -> None:
    assert derived(other) not in (None, derived(traced(RAMP, (aten.mul.Tensor, (None, 2)))))


def test_held_tensors_count_by_their_contents() -> None:
    def of(values: list[float]) -> str | None:
        return derived(traced((aten.neg.default, (None,)), held=torch.tensor(values)))

    assert of([0.0, 1.0]) == of([0.0, 1.0])
    assert len({of([0.0, 1.0]), of([-0.0, 1.0]), of([0.0, 1.5])}) == 3


@pytest.mark.parametrize(
    "step",
    [
        (torch.ops.shardproof_tests.asks_for_the_rank.default, (None,)),
        (aten.empty_like.default, (None,)),
    ],
)
def test_what_anybody_else_makes_has_none(step: Any) -> None:
    assert derived(traced(RAMP, step, (aten.neg.default, (None,)))) is None


def test_a_constant_that_is_known_is_not_made_again() -> None:
    def lowering(known: dict[str, Constant]) -> dict[str, Constant]:
        mask = traced(
            (aten.ones.default, ([8, 8],)),
            (aten.tril.default, (None,)),
            (aten.neg.default, (None,)),
        )
        made = Lowering(mask, {}, Provenance(""), {}, "m", known=known)
        return {n.name: c for n, c in made.constants.items()}

    known: dict[str, Constant] = {}
    (first,) = lowering(known).values()
    assert isinstance(first.structure, Band)
    (key,) = known
    other = Constant(first.shape, (1, 1), first.dtype, Full(first.structure.inside))
    (again,) = lowering({key: other}).values()
    assert again is other
