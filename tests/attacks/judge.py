"""What `check` and `parallelize` say of the programs of this folder.

A program has TRUE, `wrong` or `right` as it runs on gloo in float64, and OPTS. GIVEN is the
assumption in whose words a wrong one may be proved: it is `assumed` where the verdict prints them.

`python -m tests.attacks.judge [NAME ...]` judges them anew and writes `verdicts.txt`.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE / "verdicts.txt"
WORTH = {
    "wrong": {"proved": 0, "assumed": 1, "unknown": 1, "refused": 1, "refuted": 1},
    "right": {"refuted": 0, "unknown": 1, "refused": 1, "proved": 2},
}
"""How good a verdict is, by what is true of the program."""


@dataclass(frozen=True)
class Judged:
    verdict: str
    said: str = ""
    hint: str = ""


def stated(name: str) -> Mapping[str, Any]:
    """What a program says of itself, read without importing it."""
    tree = ast.parse((HERE / f"{name}.py").read_text())
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("TRUE", "OPTS", "GIVEN")
    }


def judged(name: str) -> Judged:
    """Ranks of `ranks/` are checked, models of `models/` made parallel."""
    import shardproof

    says = stated(name)
    options = dict(says.get("OPTS", {}))
    mesh = options.pop("mesh", "tp=2")
    file = HERE / f"{name}.py"
    try:
        if name.startswith("models/"):
            with tempfile.TemporaryDirectory() as out:
                target = f"{file}:M"
                plan = shardproof.parallelize(target, mesh=mesh, out=f"{out}/out", **options)
                proved = _proved(says, plan.assumptions)
                return Judged(proved if plan.proved else plan.verdict, plan.message, plan.message)
        options.setdefault("repair_seconds", 0)
        found = shardproof.check(f"{file}:P", f"{file}:M", mesh, **options)
    except shardproof.ShardproofError as problem:
        return Judged("refused", str(problem), str(getattr(problem, "hint", "")))
    match found:
        case shardproof.Proof():
            return Judged(_proved(says, found.assumptions))
        case shardproof.Counterexample():
            return Judged("refuted", str(found.witness))
        case _:
            return Judged("unknown", str(found), str(found))


def _proved(says: Mapping[str, Any], assumptions: Iterable[object]) -> str:
    given = says.get("GIVEN")
    return "assumed" if given and any(given in str(a) for a in assumptions) else "proved"


def table() -> dict[str, str]:
    """The verdict of each program, as it was last written."""
    return dict(line.split() for line in TABLE.read_text().splitlines())


def names() -> list[str]:
    files = [*HERE.glob("ranks/*/*.py"), *HERE.glob("models/*/*.py")]
    return sorted(str(f.relative_to(HERE).with_suffix("")) for f in files)


def main() -> None:
    found = table() if TABLE.is_file() else {}
    for name in sys.argv[1:] or names():
        found[name] = judged(name).verdict
        print(name, stated(name)["TRUE"], found[name], flush=True)
        lines = (f"{n} {v}\n" for n, v in sorted(found.items()) if n in names())
        TABLE.write_text("".join(lines))


if __name__ == "__main__":
    main()
