"""Plans and prices in plain words."""

from shardproof.synthesis.price.plan import Plan

STEP_ERROR, MEMORY_ERROR = 0.35, 0.44
"""Mean error of step time and memory on software that no constant was fitted to: docs/price.md."""
TERMS = {
    "layers": "layers, with the exchange inside them",
    "sends": "sends between stages",
    "gathers": "exchange of ZeRO-3",
    "gradients": "exchange of gradients",
    "bubble": "bubble",
    "update": "optimizer",
    "other": "waiting",
}
"""What a step is spent on."""
SCHEDULES = {
    "1f1b": "1F1B", "zb-1p": "zero bubble with the memory of 1F1B", "zb-2p": "zero bubble",
    "dualpipe": "DualPipe", "gpipe": "GPipe",
}  # fmt: skip
KEPT = {
    "none": "nothing computed again",
    "selective": "attention and elementwise ops computed again",
    "half": "every other layer computed again",
    "full": "each layer computed again",
}


def degrees(plan: Plan) -> str:
    """`tp=2 pp=4 dp=8`, without those that are 1."""
    named = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "pp": plan.pp, "dp": plan.dp}
    return " ".join(f"{name}={size}" for name, size in named.items() if size > 1) or "one device"


def sharding(plan: Plan) -> str:
    """What ZeRO splits, and over how many ranks."""
    if plan.dp * plan.cp == 1 or plan.zero == 0:
        return "ZeRO-0" if plan.dp * plan.cp > 1 else ""
    over = plan.shard * plan.cp
    whole = over == plan.dp * plan.cp
    return f"ZeRO-{plan.zero}" + ("" if whole else f" in groups of {over}")


def schedule(plan: Plan) -> str:
    if plan.pp == 1:
        return ""
    chunks = f", {plan.chunks} virtual stages a rank" if plan.chunks > 1 else ""
    return SCHEDULES[plan.schedule] + chunks


def short(plan: Plan) -> str:
    """A plan in one line."""
    batch = f"micro-batch {plan.micro_batch} x {plan.micro_batches}"
    parts = (degrees(plan), sharding(plan), schedule(plan), batch, KEPT[plan.recompute])
    return "; ".join(filter(None, parts))


def beyond(plan: Plan) -> list[str]:
    """What of a plan no patch does yet. Experts it splits over the ranks of tp."""
    apart = plan.ep if plan.ep != plan.tp else 1
    ring = 1 if plan.by_heads else plan.cp
    pp = 1 if plan.in_stages else plan.pp
    out = [n for n, size in (("pp", pp), ("cp as a ring", ring), ("ep", apart)) if size > 1]
    groups = plan.shard < plan.dp and (plan.zero < 3 or plan.cp > 1 or plan.shard == 1)
    if plan.dp * plan.cp > 1 and (plan.zero < 2 or groups):
        out.append(sharding(plan))
    return out + (["recompute half"] if plan.recompute == "half" else [])


def band(seconds: float) -> tuple[float, float]:
    """Between which a step lies, by the mean error of the price."""
    return seconds * (1 - STEP_ERROR), seconds * (1 + STEP_ERROR)
