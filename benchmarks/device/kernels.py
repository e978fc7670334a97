"""`python -m benchmarks.device.kernels OUT.json`: seconds of kernels by shape, on one GPU.

Products and attention in bf16, by the shapes that tensor parallelism leaves of published models,
and chains of elementwise ops as `torch.compile` fuses them. Needs PyTorch alone. The median of
runs on random numbers, between events of the device, the cache cleared before each.
"""

# pyright: basic

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

TOKENS = (1024, 2048, 4096, 8192, 16384)
WIDTHS = {"8B": (4096, 14336), "70B": (8192, 28672), "405B": (16384, 53248)}
"""Of the residual stream and of the feed-forward block."""
RANKS = (1, 2, 4, 8)
HEADS = {"8B": (32, 8), "70B": (64, 8)}
CACHE = 256 << 20
"""Bytes that are written before each run: more than any cache holds."""


def seconds(work: Callable[[], Any], device: str, runs: int = 12) -> float:
    """Of one call of `work`: the median, after three calls that do not count."""
    for _ in range(3):
        work()
    if device == "cpu":
        return 0.0
    flush = torch.empty(CACHE, dtype=torch.uint8, device=device)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in marks:
        flush.zero_()
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in marks)[runs // 2] / 1e3


def random(device: str, *shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=device, requires_grad=grad)


def products(device: str) -> Iterator[dict[str, Any]]:
    """m x k by k x n, by what splits a feed-forward block's columns and rows."""
    done: set[tuple[int, int, int]] = set()
    for hidden, inner in WIDTHS.values():
        for ranks in RANKS:
            for m in TOKENS:
                for k, n in (
                    (hidden, inner // ranks),
                    (inner // ranks, hidden),
                    (hidden, hidden // ranks),
                ):
                    if (m, k, n) in done:
                        continue
                    done.add((m, k, n))
                    a, w = random(device, m, k), random(device, n, k)
                    spent = seconds(lambda a=a, w=w: F.linear(a, w), device)
                    yield {"kind": "product", "m": m, "k": k, "n": n, "seconds": spent}


def attention(device: str) -> Iterator[dict[str, Any]]:
    """Causal attention as one kernel, forward and backward, by heads of a rank and tokens."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for heads, keys in HEADS.values():
        for ranks in RANKS:
            for seq in (2048, 4096, 8192, 16384):
                q = random(device, 1, heads // ranks, seq, 128, grad=True)
                k, v = (random(device, 1, max(keys // ranks, 1), seq, 128, grad=True) for _ in "kv")

                def forward(q=q, k=k, v=v) -> torch.Tensor:
                    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

                with sdpa_kernel(
                    [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
                ):
                    out = forward()
                    up = torch.randn_like(out)
                    first = seconds(forward, device)
                    back = seconds(
                        lambda o=out, u=up, t=(q, k, v): torch.autograd.grad(
                            o, t, u, retain_graph=True
                        ),
                        device,
                    )
                row = {"kind": "attention", "heads": heads // ranks, "seq": seq, "head_dim": 128}
                yield {**row, "seconds": first, "backward": back}


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def normed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x + y
    return z * torch.rsqrt(z.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(z.dtype)


def chains(device: str) -> Iterator[dict[str, Any]]:
    """Elementwise chains, compiled and op by op: bytes are one read of each operand, one write."""
    for name, chain in (("gated", gated), ("norm", normed)):
        fused = torch.compile(chain) if device != "cpu" else chain
        for tokens, width in ((4096, 4096), (8192, 4096), (8192, 14336), (16384, 8192)):
            x, y = random(device, tokens, width), random(device, tokens, width)
            row = {"kind": "chain", "name": name, "bytes": 3 * x.nbytes}
            yield {**row, "seconds": seconds(lambda x=x, y=y, f=fused: f(x, y), device),
                   "eager": seconds(lambda x=x, y=y, f=chain: f(x, y), device)}  # fmt: skip


def copies(device: str) -> Iterator[dict[str, Any]]:
    x = torch.randn(1 << 30, device=device)
    y = torch.empty_like(x)
    yield {"kind": "copy", "bytes": 2 * x.nbytes, "seconds": seconds(lambda: y.copy_(x), device)}


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    rows: list[dict[str, Any]] = [{"kind": "device", "name": name, "torch": torch.__version__}]
    for part in (copies, products, attention, chains):
        rows += part(device)
        Path(sys.argv[1]).write_text("".join(json.dumps(r) + "\n" for r in rows))
        print(f"{part.__name__}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
