"""Parallel training configurations: degrees, schedule, sharding, what is kept and what is not."""

import re
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.reading import PriceError, Table, degree, number, whole, words

SCHEDULES = {
    "1f1b": "1f1b",
    "interleaved": "1f1b",
    "gpipe": "gpipe",
    "zb-1p": "zb-1p",
    "zb-2p": "zb-2p",
    "zb": "zb-1p",
    "zero bubble": "zb-1p",
    "dualpipe": "dualpipe",
}
"""What schedules are called, and which bubble and which memory each has."""


@dataclass(frozen=True)
class Plan:
    """One configuration. Degrees in ranks, batches in sequences."""

    gpus: int
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro_batch: int
    micro_batches: int
    """Of one rank in one optimizer step."""
    seq: int
    chunks: int
    """Virtual stages of a rank (interleaving); 1: none."""
    schedule: str
    zero: int
    shard: int
    """Ranks that share one copy of what ZeRO splits; at most `dp`."""
    sequence_parallel: bool
    recompute: str
    """none, selective (the core of attention), half (every other layer) or full."""
    precision: str
    """bf16, fp8 or fp4: what matrix products run in."""
    async_tp: bool
    trained: bool
    """False where base weights get no gradient (LoRA)."""
    flash: bool | None
    """Whether attention is one kernel that keeps no scores; None: as the software stack does."""
    release: float = 0.0
    """Months of the software's release after January 2026."""
    open: tuple[str, ...] = ()
    """Which of recompute and zero are not stated: the least that fits is assumed; layout (and cp)
    where no degrees are."""
    by_heads: bool = False
    """Whether attention over cp exchanges rows for heads, instead of passing keys around."""
    in_stages: bool = False
    """Whether a launcher runs its stages."""

    @cached_property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        return self.micro_batch * self.seq / self.cp

    @cached_property
    def step_tokens(self) -> int:
        """Tokens of one optimizer step on all ranks."""
        return self.micro_batch * self.micro_batches * self.dp * self.seq


def read_plan(table: Table, model: Model, unstated: int = 0) -> Plan:
    """A plan from its description; what it leaves out follows from the rest or is 1, and the ZeRO
    stage is `unstated`.

    Raises:
        PriceError: degrees contradict one another or the model.
    """
    tp, pp, cp, ep = (degree(table, key) or 1 for key in ("tp", "pp", "cp", "ep"))
    gpus, dp = degree(table, "n_gpus"), degree(table, "dp") or _replicas(table)
    if gpus is None and dp is None:
        raise PriceError("n_gpus of the plan is missing, and dp too")
    gpus = gpus or (dp or 1) * tp * pp * cp
    if gpus % (tp * pp * cp):
        raise PriceError(f"n_gpus {gpus} is not divisible by tp {tp} x pp {pp} x cp {cp}")
    dp = dp or gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus:
        raise PriceError(f"dp {dp} x tp {tp} x pp {pp} x cp {cp} is not n_gpus {gpus}")
    seq = whole(table, "seq") or model.seq
    if not seq:
        raise PriceError("seq is missing in plan and model")
    free = _free(table) if gpus > 1 else ()
    if free and (total := whole(table, "global_batch")):
        dp = gcd(dp, total)
    micro_batch, micro_batches = _batches(table, dp, pp)
    zero, shard = _zero(table, dp, unstated)
    chunks = degree(table, "vp") or 1
    _check(model, tp, pp, cp, ep, seq, gpus)
    precision = words(table, "precision") or words(table, "dtype")
    return Plan(
        gpus=gpus,
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        seq=seq,
        chunks=_chunks(table, chunks, model, pp),
        schedule=_schedule(words(table, "schedule")),
        zero=zero,
        shard=shard,
        sequence_parallel=tp > 1 and table.get("sequence_parallel") is not False,
        recompute=_recompute(words(table, "recompute")),
        precision=("fp8" if "fp8" in precision else "fp4" if "fp4" in precision else "bf16"),
        async_tp=table.get("async_tp") is True,
        trained=words(table, "task") != "lora",
        flash=table["flash"] if isinstance(table.get("flash"), bool) else None,
        release=_release(words(table, "release")),
        open=(*(k for k in ("recompute", "zero") if table.get(k) is None), *free),
    )


def _release(text: str) -> float:
    """Months after January 2026 of a release such as 26.04; a patch, 26.04.1, is half a month."""
    found = re.match(r"(\d\d)\.(\d\d)(?:\.(\d{1,2}))?", text)
    if not found:
        return 0.0
    year, month, patch = (int(x or 0) for x in found.groups())
    return 12 * (year - 26) + month - 1 + patch / 2


def _free(table: Table) -> tuple[str, ...]:
    """Layout, and cp, where no more than the number of devices says what the degrees are."""
    stated = ("tp", "pp", "dp", "ep", "dp_replicate", "dp_shard", "zero", "fsdp", "micro_batch")
    if any(table.get(key) is not None for key in stated):
        return ()
    return ("layout",) if table.get("cp") is not None else ("layout", "cp")


def _replicas(table: Table) -> int | None:
    replicate, shard = degree(table, "dp_replicate"), degree(table, "dp_shard")
    return (replicate or 1) * (shard or 1) if replicate or shard else None


def _batches(table: Table, dp: int, pp: int) -> tuple[int, int]:
    """Sequences of a micro-batch, and micro-batches of a rank in a step."""
    size, total = whole(table, "micro_batch"), whole(table, "global_batch")
    count = whole(table, "grad_acc") or whole(table, "num_microbatches")
    if size is None and total and count and total % (dp * count) == 0:
        size = total // (dp * count)
    if size is None:
        local = re.match(r"local batch (\d+)", words(table, "micro_batch"))
        if local and pp == 1:
            size = int(local[1])
        elif local:
            size, total = 1, total or int(local[1]) * dp
    size = size or 1
    if total is None:
        return size, count or (pp if pp > 1 else 1)
    if total % (dp * size):
        if number(table, "micro_batch") is None:
            raise PriceError(f"global_batch {total} is not divisible by dp {dp}")
        raise PriceError(f"global_batch {total} is not divisible by dp {dp} x micro_batch {size}")
    return size, total // (dp * size)


def _zero(table: Table, dp: int, unstated: int) -> tuple[int, int]:
    """ZeRO stage, and ranks that share one copy."""
    text = words(table, "zero")
    stage = int(text[0]) if text[:1].isdecimal() else unstated
    if "fsdp" in text or "hsdp" in text or table.get("fsdp") is True:
        stage = 3
    if stage > 3:
        raise PriceError(f"zero is {text}, expected 0, 1, 2 or 3")
    group = degree(table, "dp_shard") or degree(table, "zero1_group")
    if group is None and text.startswith("hsdp"):
        group = 8
    return stage, min(group or dp, dp)


def _chunks(table: Table, chunks: int, model: Model, pp: int) -> int:
    """Virtual stages; an interleaved schedule without a number has two, or one layer each."""
    if pp == 1:
        return 1
    if chunks == 1 and "interleaved" in words(table, "schedule"):
        chunks = 2
    return max(1, min(chunks, model.layers // pp))


def _schedule(text: str) -> str:
    if not text:
        return "1f1b"
    for name in sorted(SCHEDULES, key=len, reverse=True):
        if name in text:
            return SCHEDULES[name]
    raise PriceError(f"schedule is {text!r}, expected one of {', '.join(sorted(SCHEDULES))}")


def _recompute(text: str) -> str:
    if text.startswith(("full", "yes", "per layer")):
        return "full"
    if "selective layer" in text:
        return "half"
    return "none" if not text or text.startswith("none") else "selective"


def _check(m: Model, tp: int, pp: int, cp: int, ep: int, seq: int, gpus: int) -> None:
    if m.heads % tp:
        raise PriceError(f"heads {m.heads} is not divisible by tp {tp}")
    if pp > m.layers:
        raise PriceError(f"pp {pp} exceeds the {m.layers} layers")
    if seq % cp:
        raise PriceError(f"seq {seq} is not divisible by cp {cp}")
    if ep > 1 and not m.experts:
        raise PriceError(f"ep is {ep}, and the model has no experts")
    if m.experts % ep:
        raise PriceError(f"experts {m.experts} is not divisible by ep {ep}")
    if gpus // pp % ep:
        raise PriceError(f"the {gpus // pp} ranks of a stage are not divisible by ep {ep}")
