"""`python -m benchmarks.fingerprints`: how fast the fingerprints are, in GB/s of data.

The best of several runs, by the wall clock and by the processor time of this process (they differ
where the machine is shared). Exits 1 where numpy hashes less than 0.8 GB/s or compiled torch less
than 2 GB/s of processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import zlib
from collections.abc import Callable

import numpy as np

from shardproof.synthesis.guard.fingerprint import Region, TensorPartition, coverage, fingerprint
from shardproof.synthesis.guard.fingerprint.sums import sample

FLOORS = {"movement, numpy": 0.8, "movement, torch.compile": 2.0}


def measure(run: Callable[[], object], size: int, times: int) -> tuple[float, float]:
    """GB/s by the wall clock and by processor time."""
    run()
    wall, busy = [], []
    for _ in range(times):
        a, b = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - a)
        busy.append(time.process_time() - b)
    return size / min(wall) / 1e9, size / max(min(busy), 1e-9) / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--torch", action="store_true", help="the torch paths too")
    args = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((args.mib << 8, 1024), np.float32)
    part = TensorPartition(1, 4, 1, global_shape=(args.mib << 8, 4096))
    raw = x.view(np.uint8).reshape(-1)
    rows: dict[str, Callable[[], object]] = {
        "movement, numpy": lambda: fingerprint(x, None, 7),
        "movement, numpy, column shard": lambda: fingerprint(x, part, 7),
        "movement, numpy, word by element": lambda: fingerprint(x, None, 7, width=4),
        "coverage (of as many f32)": lambda: coverage(Region.whole(x.shape), 7),
        "T2 sample": lambda: sample(x, 7),
        "for comparison: crc32": lambda: zlib.crc32(raw),
        "for comparison: sha1": lambda: hashlib.sha1(raw).digest(),
    }
    if args.torch:
        import torch

        from shardproof.synthesis.guard import fingerprint_torch as ours

        t = torch.from_numpy(x)
        if ours.compiles("cpu"):
            rows["movement, torch.compile"] = lambda: ours.fingerprint(
                t, None, 7, backend="compile"
            )
        rows["movement, torch through numpy"] = lambda: ours.fingerprint(
            t, None, 7, backend="numpy"
        )
    print(f"{x.nbytes >> 20} MiB of float32, best of {args.times}: GB/s wall, GB/s processor")
    slow = []
    for name, run in rows.items():
        wall, busy = measure(run, x.nbytes, args.times)
        print(f"  {name:34} {wall:7.2f} {busy:7.2f}")
        if busy < FLOORS.get(name, 0.0):
            slow.append(name)
    for name in slow:
        print(f"below its floor of {FLOORS[name]} GB/s: {name}")
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
