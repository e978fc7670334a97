"""`python -m benchmarks.guard_run`: the guard on a training run of a small Llama, 4 gloo processes.

The Llama is parallelized by `shardproof parallelize --guard`, and trained under that patch: first
without faults, for at least `--calls` collectives a rank; then every kind of fault is injected into
the real collectives, below the guard, on a rank and in a call that are drawn, and has to be found
in the step in which it happens, with the rank that it happened on, and of a move with the elements
that it changed. Exits 1 on a false alarm, a fault missed, a wrong rank or elements named, or a
verdict that is not the same on all ranks.

`--overhead` measures instead what `every=100` costs on that run, and `--per-call` what one call
costs that is not looked at: `benchmarks/guard_cost.py` says how, and what the exit codes mean.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import guard_cost
from shardproof.synthesis.execute.child import fork, wait

ROOT = Path(__file__).resolve().parent.parent
KINDS = (
    ("bit_flip", "all_gather"), ("bit_flip", "all_reduce"), ("drop", "all_gather"),
    ("drop", "all_reduce"), ("drop", "reduce_scatter"), ("swap", "all_gather"),
    ("duplicate", "all_gather"), ("stale", "all_gather"), ("not_reduced", "all_reduce"),
    ("not_reduced", "reduce_scatter"), ("missing_rank", "all_reduce"),
    ("missing_rank", "reduce_scatter"), ("wrong_handoff", "recv"), ("bit_flip", "recv"),
    ("race", "send"), ("race", "all_gather"),
)  # fmt: skip
EXACT = (("bit_flip", "reduce_scatter"), ("bit_flip", "all_reduce"), ("not_reduced", "all_reduce"))
"""Under `level="T3"`: to the bit, in sums of any order."""


class Training:
    """One rank: the patched model, its data, an optimizer, and a handoff round the ring."""

    def __init__(
        self, module: Any, config: dict[str, Any], tokens: tuple[int, int], device: str
    ) -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = module.parallelize(module.build_model(**config).to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        torch.manual_seed(self.rank // 2)
        self.ids = torch.randint(0, self.model.config.vocab_size, tokens).to(device)
        self.message = torch.zeros(256, device=device)

    def forward_backward(self) -> None:
        import torch
        import torch.distributed as dist

        self.optimizer.zero_grad()
        loss = self.model(self.ids, labels=self.ids).loss
        loss.backward()
        first = torch.arange(256, device=self.message.device)
        out = self.message + loss.detach() + first * (1 + self.rank)
        self.message = torch.empty_like(self.message)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        ops = [
            dist.P2POp(dist.isend, out, after),
            dist.P2POp(dist.irecv, self.message, before),
        ]
        works = dist.batch_isend_irecv(ops)
        for injector in INJECTOR:
            injector.settle()
        for work in works:
            work.wait()

    def step(self) -> None:
        self.forward_backward()
        self.optimizer.step()


def campaign(run: Training, calls: int, rounds: int, seed: int) -> dict[str, Any]:
    """Clean steps, then faults. What rank 0 says."""
    import random

    from benchmarks.fault_injection import Fault, Injector
    from shardproof.synthesis.guard import FaultError, active

    rng = random.Random(seed)
    guard = active()
    assert guard is not None
    injector = INJECTOR[0]
    assert isinstance(injector, Injector)
    start = time.perf_counter()
    while guard.seen < calls:
        run.step()
    clean = {**guard.summary(), "seconds": time.perf_counter() - start}
    say(run, f"clean: {guard.seen} calls a rank, {clean['judged']} judged, "
             f"{clean['unjudged']} could not be, {clean['alarms']} alarms")  # fmt: skip
    rows: list[dict[str, Any]] = []
    plan = [(k, o, "R") for k, o in KINDS] + [(k, o, "T3") for k, o in EXACT]
    for kind, op, level in plan:
        guard.level = level
        for _ in range(rounds):
            changed, tries = False, 0
            while not changed and tries < 8:  # a fault that changes no byte is none
                tries += 1
                at = rng.randrange(4) if op != "recv" and op != "send" else 0
                fault = Fault(kind, rng.randrange(run.size), op, at, rng.randrange(1 << 40))
                injector.arm(fault)
                said = ""
                step = guard.steps
                try:
                    run.step()
                except FaultError as error:
                    said = str(error)
                alarms = guard.alarms[-1:] if said else []
                culprit = alarms[0].verdict.culprit_ranks if alarms else ()
                there = (
                    injector.done[-1][1]
                    if injector.done and (injector.done[-1][0] == fault)
                    else False
                )
                span = injector.spans[-1] if there else None
                told = guard.tell_all({"changed": there, "said": said, "span": span}, "a fault")
                changed = told[fault.rank]["changed"]
                injector.arm(None)
            verdict = alarms[0].verdict if alarms else None
            span, moved = told[fault.rank]["span"], verdict is not None and verdict.check == "H"
            placed = not moved or list(verdict.index_range or ()) == span
            rows.append(
                {
                    "fault": fault.to_json(), "level": level, "changed": changed,
                    "found": bool(said), "located": culprit == (fault.rank,) and placed,
                    "in_step": bool(alarms) and alarms[0].step == step,
                    "same": len({t["said"] for t in told}) == 1, "said": said,
                }
            )  # fmt: skip
            row = rows[-1]
            good = row["found"] and row["located"] and row["in_step"] and row["same"]
            say(run, f"  {level:2} {kind:14} {op:14} rank {fault.rank}: "
                     + ("found" if good else f"MISSED {row}") + f"; {said[:150]}")  # fmt: skip
    return {"clean": clean, "rows": rows}


INJECTOR: list[Any] = []


def say(run: Training, text: str) -> None:
    if run.rank == 0:
        print(text, flush=True)


def rank_main(folder: Path, rank: int, size: int, args: argparse.Namespace) -> None:
    import warnings

    import torch.distributed as dist

    from benchmarks.fault_injection import Injector
    from benchmarks.patches.compare import take_gpu
    from shardproof.synthesis.execute.load import load_file

    warnings.simplefilter("ignore")
    if args.device == "cuda":
        take_gpu(rank, size)
    dist.init_process_group(
        "nccl" if args.device == "cuda" else "gloo",
        init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size,
    )  # fmt: skip
    if not args.overhead:
        INJECTOR.append(Injector(rank))
    module = load_file(folder / "parallel_llama.py")
    run = Training(module, args.sizes, args.tokens, args.device)
    work: Callable[[], dict[str, Any]] = (
        (lambda: guard_cost.steps(run.step, args.seconds, args.null))
        if args.overhead
        else (lambda: campaign(run, args.calls, args.rounds, args.seed))
    )
    result = work()
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    dist.barrier()


def emitted(mesh: str, folder: Path) -> None:
    """The patch of `parallelize --guard`, applied."""
    command = [
        sys.executable, "-m", "shardproof", "parallelize", "hf:LlamaForCausalLM", "--config",
        str(ROOT / "examples/llama-small.json"), "--mesh", mesh, "--batch", "4", "--seq", "16",
        "--guard", "--no-run", "--out", str(folder / "out"),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    patch = folder / "out" / "patch.diff"
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mesh", default="dp=2,tp=2")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--per-call", action="store_true")
    parser.add_argument("--every", type=int, default=100, help="of --overhead")
    parser.add_argument("--seconds", type=float, default=360, help="of --overhead, about")
    parser.add_argument("--null", action="store_true", help="--overhead of no guard at all")
    parser.add_argument("--device", default="cpu", help="cuda: over NCCL")
    parser.add_argument("--patched", type=Path, help="a parallel_llama.py that is there already")
    args = parser.parse_args()
    args.sizes, args.tokens = {}, (2, 16)
    size = 1
    for part in args.mesh.split(","):
        size *= int(part.split("=")[1])
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    os.environ["SHARDPROOF_GUARD"] = json.dumps(
        {"every": args.every if args.overhead else 1, "timeout": 60}
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if args.per_call:
            guard_cost.per_call(folder, 30)
            return 0
        if args.patched:
            (folder / "parallel_llama.py").write_text(args.patched.read_text())
        else:
            emitted(args.mesh, folder)
        import torch
        import transformers  # noqa: F401  (once, before the forks)

        torch.set_num_threads(1)
        wait([fork(lambda r=r: rank_main(folder, r, size, args)) for r in range(size)])
        results = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(size)]
    if args.overhead:
        return guard_cost.report(results, args.every, args.null)
    return report(results, args.seed)


def report(results: list[dict[str, Any]], seed: int) -> int:
    rows = [
        {**row, "same": all(r["rows"][i]["said"] == row["said"] for r in results)}
        for i, row in enumerate(results[0]["rows"])
    ]
    real = [r for r in rows if r["changed"]]
    good = [r for r in real if r["found"] and r["located"] and r["in_step"] and r["same"]]
    alarms = sum(r["clean"]["alarms"] for r in results)
    unreal = len(rows) - len(real)
    print(
        f"seed {seed}: {results[0]['clean']['calls']} clean calls a rank, {alarms} alarms; "
        f"{len(good)} of {len(real)} faults found in their step, by every rank, with their rank"
        + (f"; {unreal} changed no byte" if unreal else "")
    )
    return int(bool(alarms) or len(good) < len(real) or not real or unreal > 0)


if __name__ == "__main__":
    sys.exit(main())
