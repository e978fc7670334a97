"""What shows that no plan of a space is faster than the best: every region, with a bound or opened.

`shardproof.synthesis.strategy.check` reads it, and shares no code with what made it but the price.
"""

from dataclasses import asdict
from typing import Any

from shardproof.synthesis.strategy.search import Found, Search

FILE = "strategy.json"
FORMAT = 1


def certificate(search: Search, best: Found) -> dict[str, Any]:
    """As JSON. Bounds and steps in seconds, sizes in bytes."""
    space = search.space
    slower: dict[tuple[int, ...], float] = {}
    for region, bound in search.slower.items():
        slower[region.degrees] = min(slower.get(region.degrees, bound), bound)
    return {
        "format": FORMAT,
        "claim": "no plan of this space is faster than `best` under this price model",
        "space": {
            "gpus": space.gpus,
            "global_batch": space.global_batch,
            "seq": space.seq,
            "precision": space.precision,
            "fixed": dict(space.fixed),
            "model": asdict(space.model),
            "machine": asdict(space.machine),
        },
        "best": {"step_s": best.step_s, "plan": asdict(best.plan)},
        "columns": ["tp", "cp", "ep", "pp", "dp"],
        "slower": [[*degrees, bound] for degrees, bound in slower.items()],
        "opened": [[*region, found.step_s] for region, found in search.opened.items()],
        "too_large": [[*region, least.total] for region, least in search.too_large.items()],
    }
