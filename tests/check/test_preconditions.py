"""What the table of collectives says of gloo is what gloo does, and calls that break a row are
refused where the same calls on contiguous tensors are proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from tests.check.conftest import Case
from tests.check.gloo_world import answers

pytestmark = [pytest.mark.torch, pytest.mark.gloo]
pytest.importorskip("torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from shardproof.synthesis.frontends.torch.ranks.preconditions import (  # noqa: E402
    ROWS,
    Backend,
    Memory,
    breach,
    order,
)

MakeCase = Callable[..., Case]
T = torch.Tensor
N = 2


def _numbers(rank: int, rows: int = 4) -> T:
    return torch.arange(4.0 * rows).view(rows, 4) + 100 * rank


def _rows(value: T) -> T:
    return value.clone()


def _columns(value: T) -> T:
    """The same entries, in every second column of a wider matrix."""
    return torch.zeros(value.shape[0], 2 * value.shape[1])[:, ::2].copy_(value)


def _turned(value: T) -> T:
    """The same entries, column by column."""
    return torch.zeros(value.shape[1], value.shape[0]).t().copy_(value)


def _turned_on_one(value: T) -> T:
    return _turned(value) if dist.get_rank() else value.clone()


LAID = {"rows": _rows, "columns": _columns, "turned": _turned}
Lay = Callable[[T], T]


def _all_reduce(rank: int, out: Lay, given: Lay) -> bool:
    x = out(_numbers(rank))
    dist.all_reduce(x)
    return torch.equal(x, _numbers(0) + _numbers(1))


def _broadcast(rank: int, out: Lay, given: Lay) -> bool:
    good = True
    for root in (0, 1):
        x = out(_numbers(rank))
        dist.broadcast(x, root)
        good &= torch.equal(x, _numbers(root))
    return good


def _all_gather(rank: int, out: Lay, given: Lay) -> bool:
    outs = [out(torch.zeros(4, 4)) for _ in range(N)]
    dist.all_gather(outs, given(_numbers(rank)))
    return all(torch.equal(o, _numbers(r)) for r, o in enumerate(outs))


def _into(rank: int, out: Lay, given: Lay) -> bool:
    x = out(torch.zeros(8, 4))
    dist.all_gather_into_tensor(x, given(_numbers(rank)))
    return torch.equal(x, torch.cat([_numbers(0), _numbers(1)]))


def _reduce_scatter(rank: int, out: Lay, given: Lay) -> bool:
    x = out(torch.zeros(4, 4))
    dist.reduce_scatter(x, [given(_numbers(rank)) for _ in range(N)])
    return torch.equal(x, _numbers(0) + _numbers(1))


def _scatter_tensor(rank: int, out: Lay, given: Lay) -> bool:
    x = out(torch.zeros(4, 4))
    dist.reduce_scatter_tensor(x, given(torch.cat([_numbers(rank)] * N)))
    return torch.equal(x, _numbers(0) + _numbers(1))


def _scatter(rank: int, out: Lay, given: Lay) -> bool:
    x = out(torch.zeros(4, 4))
    dist.scatter(x, [given(_numbers(r)) for r in range(N)] if rank == 0 else None)
    return torch.equal(x, _numbers(rank))


def _reduce(rank: int, out: Lay, given: Lay) -> bool:
    x = out(_numbers(rank))
    dist.reduce(x, 0)
    return rank != 0 or torch.equal(x, _numbers(0) + _numbers(1))


def _gather(rank: int, out: Lay, given: Lay) -> bool:
    outs = [out(torch.zeros(4, 4)) for _ in range(N)] if rank == 0 else None
    dist.gather(given(_numbers(rank)), outs)
    return all(torch.equal(o, _numbers(r)) for r, o in enumerate(outs or ()))


def _to_all_single(rank: int, out: Lay, given: Lay) -> bool:
    x = out(torch.zeros(4, 4))
    dist.all_to_all_single(x, given(_numbers(rank)))
    mine = slice(2 * rank, 2 * rank + 2)
    return torch.equal(x, torch.cat([_numbers(0)[mine], _numbers(1)[mine]]))


def _to_all(rank: int, out: Lay, given: Lay) -> bool:
    outs = [out(torch.zeros(4, 4)) for _ in range(N)]
    dist.all_to_all(outs, [given(_numbers(rank)) for _ in range(N)])
    return all(torch.equal(o, _numbers(r)) for r, o in enumerate(outs))


def _message(rank: int, out: Lay, given: Lay) -> bool:
    """A row that raises does so before anything is sent, so both ranks send, or both receive."""
    if given is not _rows:
        dist.send(given(_numbers(rank)), 1 - rank)
    if out is not _rows:
        dist.recv(out(_numbers(rank)), 1 - rank)
    x = out(torch.zeros(4, 4))
    if rank == 0:
        dist.send(given(_numbers(rank)), 1)
        return True
    dist.recv(x, 0)
    return torch.equal(x, _numbers(0))


CALLS: dict[str, Callable[..., bool]] = {
    "allreduce_": _all_reduce,
    "broadcast_": _broadcast,
    "allgather_": _all_gather,
    "_allgather_base_": _into,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _scatter_tensor,
    "scatter_": _scatter,
    "reduce_": _reduce,
    "gather_": _gather,
    "alltoall_base_": _to_all_single,
    "alltoall_": _to_all,
    "send": _message,
    "recv_": _message,
}


def _said(found: object) -> Backend:
    if isinstance(found, bool):
        return Backend.RIGHT if found else Backend.WRONG
    return Backend.RAISES


def _saved(rank: int) -> bool:
    """Whether a backward reads what a collective wrote into what autograd saved, unasked."""
    x = torch.full((2,), 0.5, requires_grad=True)
    y = torch.tanh(x)
    dist.all_reduce(y)
    y.sum().backward()
    assert x.grad is not None
    return torch.allclose(x.grad, 1 - (2 * torch.tanh(torch.tensor(0.5))) ** 2)


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backend]:
    asked: dict[str, Callable[[int], object]] = {"saved": _saved}
    for op, call in CALLS.items():
        asked[f"{op} rows"] = partial(call, out=_rows, given=_rows)
        for name, lay in list(LAID.items())[1:]:
            if ROWS[op].writes:
                asked[f"{op} out {name}"] = partial(call, out=lay, given=_rows)
            if ROWS[op].reads:
                asked[f"{op} input {name}"] = partial(call, out=_rows, given=lay)
        if ROWS[op].out is Memory.DENSE:
            asked[f"{op} out unlike"] = partial(call, out=_turned_on_one, given=_rows)
    found = answers(tmp_path_factory.mktemp("gloo"), asked)
    bad = (Backend.RAISES, Backend.WRONG, Backend.RIGHT)
    both = [{k: _said(v) for k, v in f.items()} for f in found]
    return {k: min((b[k] for b in both), key=bad.index) for k in both[0]}


def test_every_row_has_a_call() -> None:
    assert set(CALLS) == set(ROWS)


@pytest.mark.parametrize("op", ROWS)
def test_a_row_is_what_gloo_does(gloo: dict[str, Backend], op: str) -> None:
    row = ROWS[op]
    assert gloo[f"{op} rows"] is Backend.RIGHT
    for side, asked, said in (
        ("out", row.out, row.gloo_out),
        ("input", row.input, row.gloo_input),
    ):
        found = {k.split()[-1]: v for k, v in gloo.items() if k.startswith(f"{op} {side} ")}
        if asked is Memory.DENSE:
            assert found.pop("turned") is Backend.RIGHT  # alike on all ranks
        order = (Backend.RIGHT, Backend.WRONG, Backend.RAISES)
        worst = max(found.values(), key=order.index, default=Backend.RIGHT)
        assert worst is said, found


def test_what_autograd_saved_is_overwritten_without_a_word(gloo: dict[str, Backend]) -> None:
    assert gloo["saved"] is Backend.RIGHT  # it reads the sum: no error, and no right gradient


def _given(op: str, out: Lay, given: Lay) -> dict[str, object]:
    row, (written, read) = ROWS[op], ROWS[op].factor(N)
    ones: dict[str, object] = {}
    for name, lay, times in ((row.writes, out, written), (row.reads, given, read)):
        if name.endswith("s"):
            several = [lay(_numbers(0)) for _ in range(max(times, 1))]
            ones[name] = (
                several if op in ("allreduce_", "broadcast_", "recv_", "send") else [several]
            )
        elif name:
            ones[name] = lay(torch.cat([_numbers(0)] * max(times, 1)))
    return ones


@pytest.mark.parametrize("op", ROWS)
def test_a_row_is_asked_for(op: str) -> None:
    row = ROWS[op]
    assert breach(op, _given(op, _rows, _rows), N, 0) is None
    for name, lay in LAID.items():
        out = breach(op, _given(op, lay, _rows), N, 0)
        given = breach(op, _given(op, _rows, lay), N, 0)
        kept = {"rows": tuple(Memory), "turned": (Memory.DENSE, Memory.ANY)}.get(
            name, (Memory.ANY,)
        )
        assert (out is None) == (row.out in kept or not row.writes), (name, out)
        assert (given is None) == (row.input in kept or not row.reads), (name, given)


def _breaches() -> Iterator[tuple[str, str, dict[str, object]]]:
    one = _numbers(0)
    two = torch.cat([one, one])
    yield "types", "allgather_", {"output_tensors": [[one, one.double()]], "input_tensors": [one]}
    yield "writes", "_allgather_base_", {"output_tensor": one, "input_tensor": one.clone()}
    yield "writes", "reduce_scatter_", {"output_tensors": [one], "input_tensors": [[two, two]]}
    yield "same memory", "allgather_", {"output_tensors": [[one, one]], "input_tensors": [two[:4]]}
    yield "that it reads", "alltoall_base_", {"output": one, "input": one}
    yield "that it reads", "_allgather_base_", {"output_tensor": two, "input_tensor": two[4:]}


@pytest.mark.parametrize(("said", "op", "given"), list(_breaches()))
def test_what_breaks_a_row_is_told(said: str, op: str, given: dict[str, object]) -> None:
    found = breach(op, given, N, 0)
    assert found is not None
    assert said in found.message


def test_what_looks_like_an_overlap_and_is_none() -> None:
    two, wide = torch.cat([_numbers(0)] * 2), torch.zeros(4, 8)
    own = {"output_tensor": two, "input_tensor": two[4:]}
    assert breach("_allgather_base_", own, N, 1) is None
    columns = {"output_tensors": [[wide[:, ::2], wide[:, 1::2]]], "input_tensors": [_numbers(0)]}
    assert breach("allgather_", columns, N, 0) is None


def test_another_order_in_memory_is_noted() -> None:
    assert order({"tensors": [_turned(_numbers(0))]}, "allreduce_") == "strides (1, 4)"
    assert order({"tensors": [_numbers(0)]}, "allreduce_") == ""


SUM = """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, group):
        r, t = dist.get_rank(), t.clone()
        {body}
        return t

    @staticmethod
    def backward(ctx, d):
        return d, None


class Wrong(ParallelMLP):
    def forward(self, x):
        h = F.relu(self.up(Copy.apply(self.norm(x), self.group)))
        y = Sum.apply(F.linear(h, self.down.weight), self.group)
        return x + y + self.down.bias
"""


def _summed(make_case: MakeCase, *lines: str) -> Case:
    return make_case().write(SUM.replace("{body}", "\n        ".join(lines)))


RIGHT = {
    "rows, each alone": [f"dist.all_reduce(t[{n}], group=group)" for n in range(4)],
    "turned alike on all ranks": [
        "t = t.t().contiguous().t()",
        "dist.all_reduce(t, group=group)",
    ],
    "columns, as a copy": [
        "for part in t.chunk(2, 1):",
        "    whole = part.contiguous()",
        "    dist.all_reduce(whole, group=group)",
        "    part.copy_(whole)",
    ],
    "gathered into columns": [
        "out = t.new_empty(t.shape[0], 2, t.shape[1])",
        "dist.all_gather([out[:, 0], out[:, 1]], t, group=group)",
        "t = out.sum(1)",
    ],
}
WRONG = {
    "columns": ("all_reduce of a tensor", ["dist.all_reduce(t[:, :4], group=group)  # here"]),
    "columns, later": (
        "all_reduce of a tensor",
        ["dist.all_reduce(t[:, :4], group=group, async_op=True).wait()  # here"],
    ),
    "a transposed input of a gather": (
        "NCCL raises, or takes the memory",
        [
            "out = t.new_empty(2 * t.shape[1], t.shape[0])",
            "dist.all_gather_into_tensor(out, t.t(), group=group)  # here",
        ],
    ),
    "turned on one rank": (
        "rank 0 gives a collective a tensor of contiguous memory, rank 1",
        [
            "t = t.t().contiguous().t() if r else t",
            "dist.all_reduce(t, group=group)  # here",
        ],
    ),
    "two outputs in one memory": (
        "two of its outputs",
        ["dist.all_gather([t, t], t.clone(), group=group)  # here"],
    ),
}


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
def test_right_ones_are_proved(case: MakeCase, lines: list[str]) -> None:
    _summed(case, *lines).proved()


@pytest.mark.parametrize(("said", "lines"), WRONG.values(), ids=WRONG)
def test_wrong_ones_are_refused(case: MakeCase, said: str, lines: list[str]) -> None:
    made = _summed(case, *lines)
    with pytest.raises(CaptureError, match=said) as found:
        made.check()
    assert (found.value.file, found.value.line) == ("wrong.py", made.line("# here", "wrong.py"))
    assert "contiguous()" in found.value.hint or "one tensor" in found.value.hint


def _parts_turned(rank: int) -> list[list[list[float]]]:
    """The gradient of parts that PyTorch's own function gathers, and what it is."""
    import torch.distributed.nn.functional as dnn

    x = torch.arange(6.0).view(2, 3).requires_grad_()
    weight = torch.arange(12.0).view(3, 4)
    gathered = torch.cat([part.t() for part in dnn.all_gather(x)], dim=1)
    (gathered * weight).sum().backward()
    assert x.grad is not None
    return [x.grad.tolist(), (N * weight[:, 2 * rank : 2 * rank + 2].t()).tolist()]


def test_gathered_parts_that_are_turned_have_a_wrong_gradient_and_are_refused(
    case: MakeCase, tmp_path: Path
) -> None:
    """`torch.distributed.nn.functional.all_gather` sends the gradients of its parts back into
    memory laid out as these, which gloo takes in order."""
    world = tmp_path / "world"
    world.mkdir()
    for found in answers(world, {"turned": _parts_turned}):
        got, expected = found["turned"]  # type: ignore[misc]
        assert got != expected
        assert sorted(chain(*got)) == sorted(chain(*expected))
    lines = (
        "import torch.distributed.nn.functional as dnn",
        "y = ParallelMLP.forward(self, x)",
        "parts = dnn.all_gather(y, self.group)",
        "return torch.cat([p.t() for p in parts], 1).chunk(2, 1)[0].t()",
    )
    with pytest.raises(CaptureError, match="all_to_all of a tensor"):
        case().forward("\n".join(lines)).check()
