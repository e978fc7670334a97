"""What must be right for a proof to mean anything: lines of the checker and of what it imports.

python -m benchmarks.trust
"""

from __future__ import annotations

from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("verifier.checker", "verifier.verification")


def lines(module: str) -> int:
    """Of the module's file."""
    path = ROOT / Path(*module.split("."))
    file = path.with_suffix(".py")
    file = file if file.exists() else path / "__init__.py"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def main() -> None:
    graph = grimp.build_graph("verifier")
    for room in ROOMS:
        own = {room, *graph.find_descendants(room)}
        reached = own.union(*(graph.find_upstream_modules(m) for m in own))
        print(f"{room}: {sum(map(lines, own)):,} lines of its own, ", end="")
        print(f"{sum(map(lines, reached)):,} with what it imports, in {len(reached)} modules")


if __name__ == "__main__":
    main()
