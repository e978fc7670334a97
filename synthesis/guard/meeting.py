"""What ranks say of a call before they make it."""

from __future__ import annotations

from typing import Any

import torch

from synthesis.guard import wire
from synthesis.guard.calls import Call

LONGEST = 96


def device_of(call: Call) -> torch.device:
    """Where the tensors of a call are."""
    tensors = call.tensors
    return tensors[0].device if tensors else torch.device("cpu")


def descriptions(call: Call, pg: Any, size: int) -> list[str]:
    """The op, dtype and size that each member of the group is about to meet in."""
    text = call.text().encode()[:LONGEST].ljust(LONGEST)
    mine = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device_of(call))
    told = mine.new_empty(LONGEST * size)
    wire.all_gather(told, mine, pg)
    raw = told.cpu().numpy().tobytes()
    return [raw[i : i + LONGEST].decode().strip() for i in range(0, len(raw), LONGEST)]
