"""`python -m benchmarks.found CLONES`: faults that `check` found in published code, confirmed by
the library alone: a number on one process, and on two ranks with gloo. CLONES is as for
`benchmarks.clones`. The page is `benchmarks/results/found.md`.
"""

# pyright: basic

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.clones.__main__ import FOLDERS, HERE

PAGE = HERE.parent / "results" / "found.md"
HEADER = """# Faults found in published code

Written by `python -m benchmarks.found CLONES`; do not edit. `shardproof check` refuted each, on
code as published; only `BarlowTwinsLoss`, which it refuses, was found beside another. Then the
library alone was run, in float64 where it lets one choose: *one* is its number on one process,
*ranks* on two. None was in a list of known faults that we looked at.

| code | at | what is wrong | number | one | ranks | mended |
|---|---|---|---|---|---|---|
"""
OTHERS = """
Six more have pages of their own:

| code | what is wrong | confirmed by |
|---|---|---|
| torchtitan 0.2.2, pipelines | nothing divides the gradients by the tokens of the batch | [torchtitan.md](torchtitan.md) |
| torchtitan 0.2.2, DDP | averages gradients of a loss that is divided by the tokens of all ranks | [torchtitan.md](torchtitan.md) |
| transformers, HrmText | `from_pretrained` gives ranks other elements than their placements say | [tp_plans.md](tp_plans.md) |
| transformers, Inkling2 | the same | [tp_plans.md](tp_plans.md) |
| transformers, Youtu | the same | [tp_plans.md](tp_plans.md) |
| transformers, Apertus | the gradients of its activation's parameters are those of a rank's own part | [tp_plans.md](tp_plans.md) |

*Mended*: the change with which `check` proves it. Faults that raise an error are not counted.
"""  # noqa: E501


@dataclass(frozen=True)
class Fault:
    name: str
    at: str
    what: str
    number: str
    measure: Callable[[bool], float]
    """Of one process, or with true of this rank."""
    mended: str = ""


def _cases(name: str):
    spec = importlib.util.spec_from_file_location(f"{name}_cases", HERE / f"{name}_cases.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _mesh(name: str):
    return dist.init_device_mesh("cpu", (2,), mesh_dim_names=(name,))


def _half(x, dim: int = 0):
    return x.chunk(2, dim)[dist.get_rank()].contiguous()


def _naive(ranks: bool) -> float:
    cases = _cases("picotron")
    torch.manual_seed(0)
    model, _ = cases.naive(_mesh("dp")) if ranks else cases.mlp()
    x, y = torch.randn(2, 8, 8)
    if ranks:
        x, y = _half(x), _half(y)
    cases.F.mse_loss(model(x), y).backward()
    return float(sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5)


def _z_loss(ranks: bool) -> float:
    cases = _cases("nanotron")
    logits, labels = 5 + torch.arange(8.0).view(1, 1, 8), torch.zeros(1, 1, dtype=torch.long)
    if not ranks:
        return 1e-4 * float(logits.logsumexp(-1)) ** 2
    found = cases.sharded_cross_entropy(
        _half(logits, 2), labels, group=dist.group.WORLD, z_loss_coef=1e-4
    )
    return float(found[1])


def _lightly(kind: str) -> Callable[[bool], float]:
    def loss(ranks: bool) -> float:
        cases = _cases("lightly")
        torch.manual_seed(0)
        pair = torch.randn(2, 8, 6)
        a, b = (_half(t) for t in pair) if ranks else pair
        found = cases.Trained(kind, ranks)(a, b).detach()
        if ranks:
            dist.all_reduce(found)
            found /= 2
        return float(found)

    return loss


def _sliced(ranks: bool) -> float:
    cases = _cases("verl")
    x = torch.arange(8.0).view(1, 8)
    total = x.sum()
    if ranks:
        total = cases.ulysses.slice_input_tensor(x, 1, group=dist.group.WORLD).sum()
        dist.all_reduce(total)
    return float(total)


def _mean(ranks: bool) -> float:
    """One token in two is certain."""
    logits, labels = torch.zeros(2, 8, dtype=torch.float32), torch.tensor([0, 1])
    logits[0, 0] = 100.0
    if not ranks:
        return float(torch.nn.functional.cross_entropy(logits, labels))
    losses = _cases("colossalai").losses
    given = {"process_group": dist.group.WORLD, "vocab_size": 8, "dtype": torch.float32}
    return float(losses.cross_entropy_1d(_half(logits, 1), labels, **given))


FAULTS = (
    Fault("picotron 59714b1, `DataParallelNaive`", "data_parallel.py:39",
          "averages parameters where it should average gradients", "norm of gradients", _naive,
          "`p.register_hook(hook)`"),
    Fault("nanotron 2411b02, `sharded_cross_entropy`", "functional.py:162",
          "the z-loss leaves the maximum of the logits out of log(Z)", "z-loss", _z_loss),
    Fault("lightly 1.6.0, `DCLWLoss`", "dcl_loss.py:38",
          "weights pairs over the rows of one rank, though it gathers", "loss",
          _lightly("DCLWLoss")),
    Fault("lightly 1.6.0, `BarlowTwinsLoss`", "barlow_twins_loss.py:93",
          "normalizes over the rows of one rank, though it gathers", "loss",
          _lightly("BarlowTwinsLoss")),
    Fault("verl b178a3c, `slice_input_tensor`", "ulysses.py:120",
          "takes the rank in the global group, not in the group that is passed",
          "sum of all slices", _sliced,
          "`sp_rank = get_ulysses_sequence_parallel_rank(group)`"),
    Fault("ColossalAI 4f9953b, `cross_entropy_1d`", "loss.py:114",
          "the mean is over tokens whose loss is not 0, not over those that count", "mean loss",
          _mean, "`num_non_zero = torch.sum(target != ignore_index)`"),
)  # fmt: skip


def _rank(rank: int, place: str, out: str, number: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    torch.set_default_dtype(torch.float64)
    value = FAULTS[number].measure(True)
    if not rank:
        Path(out).write_text(repr(value))
    dist.barrier()
    os._exit(0)  # groups that libraries keep have threads, which abort where Python ends first


def main(argv: Sequence[str] | None = None) -> int:
    """A row for each; 1 where one is not confirmed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", type=Path)
    given = parser.parse_args(argv)
    places = [str((given.clones / n / at).resolve()) for n, at in FOLDERS.items()]
    sys.path += places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])
    torch.set_default_dtype(torch.float64)
    lines, agree = [], False
    for k, fault in enumerate(FAULTS):
        with TemporaryDirectory() as folder:
            mp.spawn(_rank, (f"{folder}/meet", f"{folder}/out", k), 2)
            ranks = float(Path(f"{folder}/out").read_text())
        one = fault.measure(False)
        agree |= abs(one - ranks) <= 1e-6 * abs(one)
        numbers = (fault.number, f"{one:.6g}", f"{ranks:.6g}")
        lines.append("| " + " | ".join((fault.name, fault.at, fault.what, *numbers, fault.mended)))
        print(lines[-1] + " |", flush=True)
    PAGE.write_text(HEADER + "".join(f"{line} |\n" for line in lines) + OTHERS)
    return int(agree)


if __name__ == "__main__":
    raise SystemExit(main())
