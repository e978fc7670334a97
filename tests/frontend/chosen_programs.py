"""Random programs on rows that a mask chooses: read as all rows, they give what PyTorch gives.

    python -m tests.frontend.chosen_programs --count 6000

A program chooses rows, does one to six things to them and adds or puts them back. It is run on
several masks, once as PyTorch runs it and once with all rows, results and gradients compared. One
that is refused is no difference; one that PyTorch itself cannot run is not counted.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from shardproof.synthesis.frontends.torch import chosen
from shardproof.synthesis.frontends.torch.errors import CaptureError

RUNS = 4
"""Masks that each program is run on."""
ODD = 0.1
"""How often a step is any, not one of those that are done to each row alone."""
FLAT = (
    "x[mask] x[i] x[at] x[line] x[mask,...] x[mask,:2] x[i,1:] x[mask,None] x[i][:,:3] x[i,1,None]"
)
ODD_FLAT = """x[mask,[0,1]] x[mask,(0,1)] x[i,[0,1]] x[mask,range(2)] x[mask,np.array([0,1])]
x[mask,True] x[i,:,None] x[mask][:,:3] x.index_select(0,i) x[i,i] x[:,i]
x[mask,torch.tensor(1)]"""
GRID = "x[both] x[a,b] x[both,:2] x[both,...] x[a,b,1:] x[both,None] x[a,:,None][:,:,0]"
ODD_GRID = (
    """x[b,a] x[b] x[both,[0,1]] x[a,:,b] x[a][:,b] x[pairs[:,0],pairs[:,1]] x[both,0][:,None]"""
)
ROWS = """r.tanh() r*2 1-r r+v[:{c}] r*o F.relu(r) r.clamp(min=0) r.clamp_(max=1)
torch.maximum(r,r*.5) torch.where(r>0,r,r*.1) r.masked_fill(r>0,.5) r.abs().add(1).log()
r.pow(2) -r r.mul_(2) r.add_(1) F.gelu(r) r/2 F.hardtanh(r) r@w[:{c},:{c}]
F.linear(r,w[:{c},:{c}]) r.matmul(w[:{c},:2]) F.layer_norm(r,({c},))
F.layer_norm(r,r.shape[1:]) F.rms_norm(r,({c},)) r.softmax(-1) F.softmax(r,dim=-1)
r.cumsum(dim=-1) r-r.mean(-1,keepdim=True) r/r.abs().amax(-1,keepdim=True).add(1)
r.unsqueeze(1) r.flatten(1) r.reshape(-1,{inner}) r.view(r.shape[0],-1)
r.reshape(r.size(0),-1) r[:,:2] r[...,:3] r[:,None] torch.cat([r,r*2],1)
torch.cat((r,r),dim=-1) torch.stack([r,r],-1) r.chunk(2,-1)[0] r.max(-1)[0][:,None]
r.float().double() r.clone() r.split(1,-1)[0] r.transpose(1,-1) torch.min(r,r*2)
r.sum(1,keepdim=True) r.sin().mul(r) r.unbind(1)[0] r[:,-1] r[:,::2]
r.view(-1,*r.shape[1:]) F.dropout(r,.5,False) r.to(r.dtype)"""
ALONG = """r.softmax({d}) F.softmax(r,dim={d}) r.cumsum(dim={d}) r-r.mean({d},keepdim=True)
r.max({d})[0] r/r.amax({d},keepdim=True).abs().add(1)
r.transpose({d},{e}).cumsum(1).transpose({d},{e}) r-r.sum({d},True)
r.transpose(dim0={d},dim1={e}).softmax(1).transpose(dim0={d},dim1={e})
torch.cat([r,r],{d}) r.unsqueeze({d}) r.view({n},-1).softmax(1).view(-1,*r.shape[1:])
r[:,[0,1]] r[[0,1],[1,0]] r.chunk(2,{d})[0]"""
ANY = """r.softmax({d}) F.softmax(r,dim={d}) r.log_softmax(dim={d}) r.cumsum({d})
r.cumsum(dim={d}) r.sum({d},keepdim=True) r-r.mean({d},keepdim=True)
r-r.mean(dim=({d},),keepdim=True) r.sort({d})[0] r/r.amax({d},keepdim=True).abs().add(1)
r.topk(1,{d})[0] r.flip({d}) r.flip(({d},)) r.roll(1,{d}) r.roll(1) r.max({d})[0]
torch.max(r,{d}).values r.max({d})[1]*r r.min({d},keepdim=True)[0] r.transpose({d},{e})
r.transpose(dim0={d},dim1={e}) r.swapaxes({d},{e}) r.swapaxes(axis0={d},axis1={e})
r.movedim({d},{e}) r.permute({perm}) r.view({n},-1) r.view(-1,{n}) r.reshape({n},{n})
r.reshape({n},-1) r.view(-1) r.flatten() r.flatten({d},{e})
r.flatten(start_dim={d},end_dim={e}) r.unflatten({d},(-1,2)) r.unsqueeze({d})
r.squeeze({d}) r.squeeze() r.repeat(2,1) r.repeat(1,2) r.repeat_interleave(2,{d})
r.expand({n},*r.shape[1:]) r.T r.mT r.t() r.chunk(2,{d})[0] r.split(2,{d})[-1]
r.unbind({d})[0] torch.cat([r,r],{d}) torch.cat((r,x),{d}) torch.stack((r,r),dim={d})
r.index_select({d},torch.tensor([0,1])) r.gather({d},(r>0).long()) r[0] r[:2] r[-1]
r[:,[0,1]] r[[0,1]] r[...,[0]] r[:,True] r[None] r[::2] r[:,(0,1)]
r[:,torch.tensor([1,0])] r*len(r) r/r.shape[0] r*r.numel() r[:r.shape[0]] r*r.size(0)
w@r r@r.T torch.einsum('nc,cd->nd',r,w) torch.einsum('nc->cn',r) F.normalize(r,dim={d})
F.batch_norm(r,None,None,training=True) r.std({d},keepdim=True)
r.norm(dim={d},keepdim=True)*r r.prod({d},keepdim=True) F.glu(r,{d}) r.diff(dim={d}) r+x
r*x r+x[:1] r-r.mean() r-r.sum() r/r.max() r.cummax({d})[0] r.tril() r.triu()
r.logsumexp({d},keepdim=True) r.amax(({d},),True) r.argsort({d})*r
r.argmax({d},keepdim=True)*r torch.maximum(r,x) F.layer_norm(r,r.shape) r.view(r.shape)
r.t().softmax(-1).t() r.view({n},{c}) r.reshape(shape=({n},-1)) r.view(torch.float32)
F.pad(r,(0,1)) F.pad(r,(0,0,1,0)) r.cumprod({d}) torch.sum(input=r,dim={d},keepdim=True)
torch.transpose(input=r,dim0=0,dim1=1) torch.softmax(input=r,dim={d}) r.expand_as(x)
r.sum(dim=[]) r.all({d},keepdim=True)*r r.median({d})[0] torch.add(r,r,out=x)
r.transpose_({d},{e}) r.squeeze_({d}) r.unsqueeze_({d}) r.t_() r.cumsum_({d})
torch.addmm(r,r,w) torch.vander(r[:,0],3) r.bool().sum()*r (r>0).any()*r
r.count_nonzero()*r r.view(-1,2,2) r.flatten(-2,-1)
r.index_add(0,torch.tensor([0]),r[:1])"""
BACK = "out[{k}]=r out[{k}]+=r out.index_put_(({k},),r,accumulate=True)"
ODD_BACK = """out[{k}]=r.sum() out=out+r.sum() out[{k}]=.5 out[{k},0]=r[:,0] out[{k},...]=r
out[{k}]=r[:1] out=r out[{k},[0,1]]=r[:,:2] out[{k}]*=r out[{k}]=r+out[{k}]
out=out.index_put(({k},),r) out[{k}]=x[{k}]*0+1"""
ADDED = "out.index_add_(0,i,r) out=out.index_add(0,i,r,alpha=2)"
ODD_ADDED = """out.index_add_(-1,i,r) out.index_copy_(0,i,r)
out.scatter_add_(0,i[:,None].expand(-1,r.shape[1]),r)
out.index_add_(dim=0,index=i,source=r) out.index_fill_(0,i,1.) out.index_add_(1,i,r.t())"""


@dataclass(frozen=True)
class Written:
    """A program in Python: rows of `x`, what is done to them, and `out`."""

    shape: tuple[int, ...]
    lines: tuple[str, ...]
    extents: str
    """Of `out`."""

    @property
    def text(self) -> str:
        start = [f"out = x.new_zeros({self.extents})", "x = x.clone()", *MASKS[len(self.shape) - 2]]
        return "\n    ".join(["def run(x, w, v, o, mask):", *start, *self.lines, "return out"])


FLAT_MASKS = ["i = torch.where(mask)[0]", "(line,) = mask.nonzero(as_tuple=True)"]
FLAT_MASKS += ["at = mask.nonzero().squeeze(-1)"]
GRID_MASKS = ["both = mask", "a, b = torch.where(mask)", "pairs = mask.nonzero()"]
MASKS = (FLAT_MASKS, GRID_MASKS)


def _run(text: str) -> Any:
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "np": np}
    exec(compile(text, "chosen_program.py", "exec"), space)
    return space["run"]


def given(shape: Sequence[int], draw: random.Random) -> list[torch.Tensor]:
    """A tensor of all rows, a matrix, a vector, one number a row, and a mask."""
    make = torch.Generator().manual_seed(draw.getrandbits(32))
    last, of = shape[-1], {"generator": make, "dtype": torch.float64}
    made = [torch.randn(tuple(s), **of) for s in (shape, (1,), (9,), (1,))]
    made[1] = torch.randn((last, 9), **of)
    likely = draw.choice((0.3, 0.5, 0.7, 0.9))
    return [*made, torch.rand(tuple(shape[: len(shape) - 1]), generator=make) < likely]


def written(draw: random.Random) -> Written | None:
    """A program that PyTorch runs on one mask; None where none is found."""
    n = draw.choice((3, 4, 4, 5))
    shape = (n, draw.choice((n, n, 2, 6))) if draw.random() < 0.7 else (n, draw.choice((n, 3)), n)
    flat = len(shape) == 2
    trial = given(shape, draw)
    plain, odd = (FLAT, ODD_FLAT) if flat else (GRID, ODD_GRID)
    choose = draw.choice((odd if draw.random() < ODD else plain).split())
    lines = [f"r = {choose}"]
    for _ in range(draw.randint(1, 6)):
        for _ in range(8):
            rows = _rows(shape, lines, trial)
            if rows is None or not rows.ndim:
                return None
            kind = draw.choices((ROWS, ALONG, ANY), (1 - 2 * ODD, ODD, ODD))[0]
            step = draw.choice(kind.split())
            tried = [*lines, f"r = {_filled(step, rows, n, draw)}"]
            if _rows(shape, tried, trial) is not None:
                lines = tried
                break
    keys = ["mask", "i", "at", "line"] if flat else ["both", "both", "a,b", "b,a", "a"]
    ends = [ODD_BACK, ODD_ADDED] if draw.random() < ODD else [BACK, ADDED]
    end = draw.choice(" ".join(ends if flat and choose != "x[mask]" else ends[:1]).split())
    end = end.replace("({k},)", "({k})" if not flat else "({k},)")
    end = end.replace("{k}", _key(choose) if draw.random() > ODD else draw.choice(keys))
    rows = _rows(shape, lines, trial)
    if rows is None or not rows.ndim:
        return None
    inner = "".join(f"{m}, " for m in rows.shape[1:])
    grid = "".join(f"{m}, " for m in shape[: len(shape) - 1])
    return Written(shape, (*lines, end), f"{grid}{inner}")


def _key(choose: str) -> str:
    inner = choose[2:].partition("]")[0]
    for key in ("mask", "both", "line", "at", "a,b", "b,a", "pairs", "i", "a", "b"):
        if inner.startswith(key):
            return key if key != "pairs" else "a,b"
    return "i" if "i" in choose else "both"


def _filled(step: str, rows: torch.Tensor, n: int, draw: random.Random) -> str:
    rank = rows.ndim
    perm = ",".join(map(str, draw.sample(range(rank), rank)))
    dims = {k: draw.randrange(-rank, rank) for k in "de"}
    inner = rows[0].numel() if len(rows) else 1
    for key, value in {**dims, "perm": perm, "n": n, "c": rows.shape[-1], "inner": inner}.items():
        step = step.replace("{" + key + "}", str(value))
    return step


def _rows(
    shape: tuple[int, ...], lines: Sequence[str], trial: list[torch.Tensor]
) -> torch.Tensor | None:
    try:
        found = _run(Written(shape, (*lines, "out = r"), "1").text)(*(t.clone() for t in trial))
    except Exception:  # noqa: BLE001
        return None
    return found if isinstance(found, torch.Tensor) else None


@dataclass
class Tally:
    """What became of programs."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    differing: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])
    """Refused with another error than ours."""

    @property
    def counted(self) -> int:
        return sum(self.outcomes.values())


def judge(program: Written, draw: random.Random, tally: Tally) -> None:
    """Run a program on several masks, both ways."""
    run, outcomes = _run(program.text), set[str]()
    for _ in range(RUNS):
        inputs = given(program.shape, draw)
        try:
            want = _ends(run, inputs)
        except Exception:  # noqa: BLE001
            continue
        try:
            got = _ends(lambda *a: chosen.called(lambda: run(*a)), inputs)
        except CaptureError:
            outcomes.add("refused")
            continue
        except Exception as problem:  # noqa: BLE001
            outcomes.add("refused")
            tally.broken.append(f"{type(problem).__name__}: {problem}\n{program.text}")
            continue
        outcomes.add("accepted" if _same(want, got) else "differs")
    if "differs" in outcomes:
        tally.differing.append(program.text)
    if outcomes:
        worst = next(o for o in ("differs", "refused", "accepted") if o in outcomes)
        tally.outcomes[worst] += 1


def _ends(run: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    y = run(*leaves)
    if not isinstance(y, torch.Tensor) or not y.is_floating_point() or not y.requires_grad:
        return [y]
    floats = [t for t in leaves if t.requires_grad]
    weigh = torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()
    grads = torch.autograd.grad((y * weigh).sum(), floats, allow_unused=True)
    return [
        y,
        *(torch.zeros_like(t) if g is None else g for g, t in zip(grads, floats, strict=True)),
    ]


def _same(want: list[torch.Tensor], got: list[torch.Tensor]) -> bool:
    try:
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a, equal_nan=True)
    except (AssertionError, ValueError):
        return False
    return True


def campaign(count: int, seed: int) -> Tally:
    """Judge programs until so many ran."""
    tally, draw = Tally(), random.Random(seed)
    on, chosen._ON[:] = list(chosen._ON), [True]
    try:
        while tally.counted < count:
            program = written(draw)
            if program is not None:
                judge(program, draw, tally)
    finally:
        chosen._ON[:] = on
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    tally = campaign(asked.count, asked.seed)
    for text in tally.differing:
        print(f"differs:\n{text}\n")
    for error, times in Counter(t.partition(":")[0] for t in tally.broken).items():
        print(f"{error}: {times} runs")
    said = ", ".join(f"{n} {k}" for k, n in sorted(tally.outcomes.items()))
    print(f"{tally.counted} programs: {said}")
    return 1 if tally.differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
