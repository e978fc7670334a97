"""The machine that was measured on: processor, cores, memory, versions, load, date."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

from shardproof.agent.run import machine


def described() -> dict[str, str]:
    """What a table of measurements says about where it was taken."""
    model = platform.processor() or platform.machine()
    info, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text(encoding="utf-8"))
        model = found.group(1) if found else model
    facts = {"processor": model, "cores": str(os.cpu_count())}
    if memory.exists():
        found = re.search(r"MemTotal:\s*(\d+) kB", memory.read_text(encoding="utf-8"))
        facts |= {"memory": f"{int(found.group(1)) / 2**20:.0f} GB"} if found else {}
    shown = {k: v for k, v in machine.versions().items() if k in ("shardproof", "python", "numpy")}
    load = " ".join(f"{x:.2f}" for x in os.getloadavg())
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {**facts, "system": platform.platform(terse=True), **shown, "load": load, "date": now}
