"""What is recorded is what `make_fx` traces: the same ops on the same operands, in one order, with
the same decompositions.

Chunks that are made one by one are those of FSDP2.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def _shown(graph: Any) -> list[Any]:
    """Each op with its operands by number, and what it makes."""
    from torch.fx.node import map_arg

    numbers = {node: index for index, node in enumerate(graph.nodes)}

    def row(node: Any) -> Any:
        made = [
            (tuple(v.shape), v.stride(), v.storage_offset(), v.dtype)
            for v in torch.utils._pytree.tree_leaves(node.meta.get("val"))
            if isinstance(v, torch.Tensor)
        ]
        named = node.op in ("placeholder", "get_attr")
        args = map_arg((node.args, node.kwargs), numbers.__getitem__)
        return (node.op, "" if named else str(node.target), "" if named else repr(args), made)

    return [row(node) for node in graph.nodes if node.op != "output"]


def _both(run: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from shardproof.synthesis.frontends.torch.decompose import decompositions
    from shardproof.synthesis.frontends.torch.ranks.recording import Recorder

    def given() -> list[Any]:
        return [torch.empty(s).requires_grad_() for s in shapes]

    with FakeTensorMode():
        traced = make_fx(run, decomposition_table=decompositions())(*given())
        tensors = given()
        recorder = Recorder(tensors)
        with recorder:
            recorder.returns(run(*tensors))
    return _shown(traced.graph), _shown(recorder.graph)


def backward(x: Any, w: Any) -> Any:
    y = torch.nn.functional.gelu(x @ w).clone()
    y[0] = 0
    y.mul_(2)
    parts = (y * torch.arange(4)).split(1, -1)
    loss = sum(part.sum() for part in parts[:3]) + y.max(-1).values.mean()
    return list(torch.autograd.grad(loss, [x, w]))


def small_constants(x: Any) -> Any:
    count = torch.tensor(3)
    count += 1
    return [x * torch.tensor([1.0, 2.0]), x + count.item(), x.masked_fill(x > 0, float(count))]


def without_autograd(x: Any) -> Any:
    with torch.inference_mode():
        return [torch.nn.functional.linear(x, x).flatten().softmax(0).type_as(x)]


def recomputed(x: Any) -> Any:
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    aten: Any = torch.ops.aten
    kept = partial(create_selective_checkpoint_contexts, [aten.mm.default])

    def part(v: Any) -> Any:
        return (v @ v).sin().exp()

    y = checkpoint(part, x, use_reentrant=False, context_fn=kept)
    return list(torch.autograd.grad(checkpoint(part, y, use_reentrant=False).sum(), [x]))


@pytest.mark.parametrize(
    ("run", "shapes"),
    [
        (backward, ((3, 4), (4, 4))),
        (small_constants, ((5, 2),)),
        (without_autograd, ((4, 4),)),
        (recomputed, ((4, 4),)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_as_make_fx(run: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    traced, recorded = _both(run, *shapes)
    assert recorded == traced
    assert len(recorded) > len(shapes)


@pytest.mark.parametrize(("extent", "ranks"), [(8, 4), (7, 4), (5, 4), (1, 4), (0, 4), (6, 1)])
@pytest.mark.parametrize("dim", [0, 1])
def test_chunks_are_those_of_fsdp(extent: int, ranks: int, dim: int) -> None:
    from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

    from shardproof.synthesis.frontends.torch.ranks.placing import Chunks

    whole = torch.arange(3 * extent).view(extent, 3).movedim(0, dim)
    theirs = _chunk_with_empty(whole, ranks, dim=dim)
    ours = Chunks(whole, ranks, dim=dim)
    assert len(ours) == len(theirs) == ranks
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.equal(other)
        assert mine.stride() == other.stride()


def test_a_way_to_cut_of_the_owners_stays() -> None:
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    from shardproof.synthesis.frontends.torch.ranks.placing import Chunks, cut_when_asked

    def theirs(*_: Any) -> None: ...

    pytorchs = _fsdp_param._chunk_with_empty
    with cut_when_asked():
        assert _fsdp_param._chunk_with_empty is Chunks
        _fsdp_param._chunk_with_empty = theirs
    assert _fsdp_param._chunk_with_empty is theirs
    with cut_when_asked():
        assert _fsdp_param._chunk_with_empty is theirs
    _fsdp_param._chunk_with_empty = pytorchs
