# pyright: basic
"""`python -m benchmarks.verifier_faults`: every fault, and what finds it; `make trust` shows it.

Exits 1 where the checker accepts a wrong program, a faulty rule is not found, or a fault does
nothing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.verifier_faults.campaign import campaign
from benchmarks.verifier_faults.edits import made
from benchmarks.verifier_faults.rules import FAULTS as RULES
from benchmarks.verifier_faults.structure import FAULTS as STRUCTURE
from shardproof.verifier.checker.conclusion import conclude
from shardproof.verifier.smt.answers import UNACCEPTED
from shardproof.verifier.smt.discharge import discharge
from shardproof.verifier.smt.forms import form

FOUND = Path(__file__).resolve().parents[1] / "results" / "verifier_faults.json"


def rules() -> list[dict[str, Any]]:
    """What Z3 says of the step of each fault of a rule, as the rule is and with the fault."""
    out: list[dict[str, Any]] = []
    for fault in RULES:
        before = discharge(form(fault.step), conclude).extent
        with fault.made():
            after = discharge(form(fault.step), conclude).extent
        out.append({"name": fault.name, "place": fault.place, "before": before, "after": after})
    return out


def structure() -> list[dict[str, Any]]:
    """Where the law of each fault of what no step shows does not hold under it."""
    out: list[dict[str, Any]] = []
    for fault in STRUCTURE:
        before = fault.law()
        with made(fault.edit):
            after = fault.law()
        found = {"law": fault.law.__name__, "before": before, "after": after}
        out.append({"name": fault.name, "place": fault.place, **found})
    return out


def main() -> int:
    believed: list[dict[str, Any]] = []
    for told in campaign():
        believed.append(asdict(told))
        found = f"{len(told.proved)} proved, {told.replayed} replayed, {told.accepted} accepted"
        sys.stdout.write(f"{told.room}: {told.name}: {found} {told.changed}\n")
        sys.stdout.flush()
    steps, whole = rules(), structure()
    found = {"believed": believed, "rules": steps, "structure": whole}
    FOUND.write_text(json.dumps(found, indent=1) + "\n")
    idle = [t["name"] for t in believed if not t["proved"] and not t["changed"]]
    accepted = [t["name"] for t in believed if t["accepted"]]
    left = [r["name"] for r in steps if r["after"] not in UNACCEPTED or r["before"] in UNACCEPTED]
    left += [r["name"] for r in whole if not r["after"] or r["before"]]
    sys.stdout.write(f"idle: {idle}\naccepted: {accepted}\nnot found: {left}\n")
    return 1 if idle or accepted or left else 0


if __name__ == "__main__":
    sys.exit(main())
