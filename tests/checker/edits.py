"""Edits of certificates: one thing changed, or one claim more, and the seal made anew.

`python -m tests.checker.edits --count 10` makes so many of each certificate of the corpus and of
the small programs here, and says what the checker and the second one say of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mutation_testing.cases import Case
from benchmarks.mutation_testing.corpus import cases
from shardproof.verifier.checker import Accepted, check, replay
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.text.digest import digest
from shardproof.verifier.text.jsonio import dumps
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.checker.forging import edited
from tests.checker.pairs import PAIRS
from tests.checker.second import Second, made_up, spelled_out
from tests.verifier.meaning import Meaning

CASES = {c.path.stem: c for c in cases() if c.kind == "program" and "right" in c.sides}
NAMES = [*PAIRS, *CASES]
Document = dict[str, Any]
Row = dict[str, Any]
KINDS = ("same", "sum", "share", "piece", "addend", "digits", "concat", "spread", "home")


def edits(
    document: Document, rng: random.Random, names: list[str]
) -> Iterator[tuple[str, Document]]:
    """Without end: what was changed, and the certificate. `names` are values of one device."""
    document = spelled_out(document) if "claims" in document else document
    makers = _makers(document)
    while True:
        kind = rng.choice([*makers])
        other = copy.deepcopy(document)
        makers[kind](other, rng, names)
        if other != document:
            other = packed(other) if "claims" in other else other
            yield kind, {**other, "seal": seal(other)}


def packed(document: Document) -> Document:
    """The certificate with what repeats in lists of its own: the way back of `spelled_out`."""
    lists: dict[str, list[Any]] = {"layouts": [], "ranks": [], "blocks": []}
    places: dict[tuple[str, str], int] = {}

    def place(kind: str, said: Any) -> int:
        key = kind, json.dumps(said, sort_keys=True)
        if key not in places:
            places[key] = len(lists[kind])
            lists[kind].append(said)
        return places[key]

    def scope(said: Document) -> Document:
        values: Document = {}
        for name, rows in said["values"].items():
            values[name] = [{**row, "layout": place("layouts", row["layout"])} for row in rows]
            for row in (row for row in values[name] if "on" in row):
                row["on"] = place("ranks", row["on"])
        bodies = {
            label: {"block": body["block"], "claims": place("blocks", scope(body))}
            for label, body in said["bodies"].items()
        }
        return {"values": values, "bodies": bodies}

    return {**document, "claims": scope(document["claims"]), **lists}


def certified(name: str) -> tuple[Problem, Document]:
    """A right program and its certificate, as it is read from a file."""
    problem, text = _proved(name)
    return problem, json.loads(text)


@cache
def _proved(name: str) -> tuple[Problem, str]:
    problem = Problem(*(PAIRS[name]() if name in PAIRS else CASES[name].programs("right")))
    verdict = verify(problem)
    assert isinstance(verdict, Proof), name
    return problem, json.dumps(verdict.certificate)


def put_down(name: str, folder: Path) -> Path:
    """The files of a proof in a folder, as an out-directory holds them."""
    problem, document = certified(name)
    (folder / "program.json").write_text(dumps(problem.sequential))
    (folder / "distributed.json").write_text(dumps(problem.distributed))
    (folder / "contract.json").write_text(json.dumps(problem.contract.to_json()))
    (folder / "certificate.json").write_text(json.dumps(document))
    return folder


def wrong(name: str) -> Problem | None:
    """The wrong program beside a right one, where there is one that can be read."""
    case: Case | None = CASES.get(name)
    if case is None or "wrong" not in case.sides:
        return None
    try:
        problem = Problem(*case.programs("wrong"))
        Second(problem)
    except (IRError, ContractError, ValueError):
        return None
    return problem


def made_out(document: Document, second: Second) -> Document:
    """The certificate, made out to another problem."""
    one, many = second.plain, second.many
    said = {"sequential": {"name": one.name, "digest": digest(one)}}
    said |= {"distributed": {"name": many.name, "digest": digest(many)}}
    contract = {"contract": second.contract.to_json(), "mesh": [list(d) for d in many.mesh.dims]}
    return {**document, **said, **contract}


def judged(name: str, count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(kind of edit, what is said of it) for edits of the certificate of a right program, and for
    a fourth as many that are made out to the wrong program beside it.

    `accepted, false` is a fault of the checker.
    """
    rng = random.Random(f"{name} {seed}")
    problem, document = certified(name)
    told = [(problem, document, count)]
    other = wrong(name)
    if other is not None:
        told.append((other, made_out(document, Second(other)), count // 4))
    for asked, given, number in told:
        second = Second(asked)
        for kind, edit in islice(edits(given, rng, sorted(second.plain.types)), number):
            where = kind if asked is problem else "made out to a wrong program"
            yield where, _said(asked, second, edit)


def derived(problem: Problem, certificate: Any, second: Second) -> None:
    """Terms that the first checker gives claims that name none, against the pieces.

    Raises:
        FalseError: a claim at the top of the program whose pieces are another value.
    """
    if "claims" not in certificate:
        return
    at = Cursor(certificate, "certificate")
    one = as_terms(second.one(at))
    known = replay._Walk(second.many, problem.contract, at).top(one, at["claims"])
    for inputs, ran in zip(second.inputs, second.theirs, strict=True):
        meaning = Meaning(one.terms, inputs)
        for name, claims in known.items():
            for claim in claims:
                try:
                    whole = np.asarray(meaning.of(claim.ref))
                except (KeyError, TypeError, ValueError):  # part of a fold, a block, a window
                    continue
                made_up(claim.layout, claim.where, ran.values[name], second.mesh, whole)


def _said(problem: Problem, second: Second, edit: Document) -> str:
    if not isinstance(check(edit, problem), Accepted):
        return "rejected"
    try:
        second.check(edit)
        derived(problem, edit, second)
    except (ValueError, KeyError) as error:
        return f"accepted, false: {error}"
    return "accepted, true"


def _makers(document: Document) -> dict[str, Callable[[Document, random.Random, list[str]], None]]:
    found: dict[str, Callable[[Document, random.Random, list[str]], None]] = {
        "outputs": _outputs,
        "header": _header,
    }
    if "claims" in document:
        found |= {
            "factor": _factor,
            "of": _of,
            "layout": _layout,
            "premises": _premises,
            "rule": _rule,
            "ranks": _ranks,
            "claim left out": _less,
            "claim copied": _copied,
            "claim joined": _joined,
            "claim derived": _derived,
            "body": _body,
            "term and layout": _both,
        }
    for key, make in (("order", _order), ("peels", _peels)):
        if document.get(key):
            found[key] = make
    return found


def _scopes(claims: Document) -> Iterator[Document]:
    yield claims
    for body in claims["bodies"].values():
        yield from _scopes(body)


def _rows(document: Document, rng: random.Random) -> tuple[Document, list[Row]]:
    """The claims of one program or body, and those of one value there."""
    scope = rng.choice([s for s in _scopes(document["claims"]) if any(s["values"].values())])
    return scope, rng.choice([rows for rows in scope["values"].values() if rows])


def _factor(document: Document, rng: random.Random, names: list[str]) -> None:
    row = rng.choice(_rows(document, rng)[1])
    if row["factor"] is not None:
        row["factor"] = _multiple(row["factor"], document, rng)


def _multiple(factor: str, document: Document, rng: random.Random) -> str:
    top, bottom = map(int, factor.split("/"))
    n = rng.choice([2, 3, *(size for _, size in document["mesh"])])
    ways = [(top * n, bottom), (top, bottom * n), (-top, bottom), (0, 1), (bottom, top or 1)]
    a, b = rng.choice(ways)
    return f"{a}/{b}"


def _of(document: Document, rng: random.Random, names: list[str]) -> None:
    row = rng.choice(_rows(document, rng)[1])
    if rng.random() < 0.3:
        row["of"], row["factor"] = None, None
    else:
        row["of"], row["factor"] = rng.choice(names), row["factor"] or "1/1"


def _both(document: Document, rng: random.Random, names: list[str]) -> None:
    """A claim without a term is as true as its layout, if anything follows it."""
    row = rng.choice(_rows(document, rng)[1])
    row["of"] = row["factor"] = None
    row["layout"] = _other_layout(row["layout"], document, rng)


def _layout(document: Document, rng: random.Random, names: list[str]) -> None:
    scope, rows = _rows(document, rng)
    row = rng.choice(rows)
    if rng.random() < 0.3:
        others = [r["layout"] for rows in scope["values"].values() for r in rows]
        row["layout"] = copy.deepcopy(rng.choice(others))
    else:
        row["layout"] = _other_layout(row["layout"], document, rng)


def _other_layout(layout: Document, document: Document, rng: random.Random) -> Document:
    """The same pieces, read otherwise: one mesh dim taken out of it and put elsewhere."""
    layout = copy.deepcopy(layout)
    name, size = rng.choice(document["mesh"] or [["tp", 2]])
    dims, partial = layout["dims"], [p for p in layout["partial"] if p[0] != name]
    dims = [[a for a in dim if a[1] != name] for dim in dims]
    match rng.randrange(4) if size > 1 else 0:
        case 0:
            partial.append([name, rng.choice(["sum", "sum", "max", "min"])])
        case 1:
            pass
        case _ if dims:
            at = rng.randrange(len(dims))
            dims[at].insert(rng.randrange(len(dims[at]) + 1), [size, name])
        case _:
            pass
    if rng.random() < 0.15 and partial:
        partial[rng.randrange(len(partial))][1] = rng.choice(["sum", "max", "min"])
    return {**layout, "dims": [_merged(dim) for dim in dims], "partial": sorted(partial)}


def _merged(dim: list[list[Any]]) -> list[list[Any]]:
    out: list[list[Any]] = []
    for atom in dim:
        if out and atom[1] is None and out[-1][1] is None:
            out[-1] = [out[-1][0] * atom[0], None]
        else:
            out.append(atom)
    return out


def _premises(document: Document, rng: random.Random, names: list[str]) -> None:
    rows = [r for scope in _scopes(document["claims"]) for v in scope["values"].values() for r in v]
    found = [row for row in rows if row["from"]]
    if found:
        premises = rng.choice(found)["from"]
        premises[rng.randrange(len(premises))] += rng.choice([-2, -1, 1, 1, 2])
        if rng.random() < 0.2:
            premises.append(0)


def _rule(document: Document, rng: random.Random, names: list[str]) -> None:
    scope, rows = _rows(document, rng)
    row = rng.choice(rows)
    others = [r["rule"] for rows in scope["values"].values() for r in rows]
    name = rng.choice(document["mesh"] or [["tp", 2]])[0]
    rules = [f"blocks:{row['rule']}", f"balanced:{name}", f"{row['rule']}:{name}", "contract"]
    rules += ["enter", "scan", f"joined:{rng.choice(KINDS)}:{name}", row["rule"].partition(":")[0]]
    row["rule"] = rng.choice([*rules, *others])


def _ranks(document: Document, rng: random.Random, names: list[str]) -> None:
    row = rng.choice(_rows(document, rng)[1])
    if "on" in row and rng.random() < 0.5:
        del row["on"]
        return
    name, size = rng.choice(document["mesh"] or [["tp", 2]])
    kept = sorted(rng.sample(range(size), rng.randrange(1, size) if size > 1 else 1))
    row["on"] = sorted([*(w for w in row.get("on", []) if w[0] != name), [name, kept]])


def _less(document: Document, rng: random.Random, names: list[str]) -> None:
    rows = _rows(document, rng)[1]
    rows.pop(rng.randrange(len(rows)))


def _copied(document: Document, rng: random.Random, names: list[str]) -> None:
    _, rows = _rows(document, rng)
    rows.insert(rng.randrange(len(rows) + 1), copy.deepcopy(rng.choice(_rows(document, rng)[1])))


def _joined(document: Document, rng: random.Random, names: list[str]) -> None:
    """One claim more about a value, from others about it: as its rule would lay it out, or not."""
    _, rows = _rows(document, rng)
    at = rng.randrange(len(rows))
    given = rows[at]
    name, size = rng.choice(document["mesh"] or [["tp", 2]])
    kind = rng.choice(KINDS)
    row = copy.deepcopy(given)
    row["from"], row["rule"] = [at], f"joined:{kind}:{name}"
    dims, partial = row["layout"]["dims"], row["layout"]["partial"]
    where = [w for w in row.get("on", []) if w[0] != name]
    dim = rng.randrange(len(dims)) if dims else 0
    if kind in ("concat", "spread", "home"):
        row["rule"] += f":{dim}"
    match kind:
        case "share":
            row["layout"]["partial"] = sorted([*partial, [name, "sum"]])
            row["factor"] = _multiple(row["factor"], document, rng) if row["factor"] else None
        case "digits":
            row["layout"]["dims"] = [[a for a in d if a[1] != name] for d in dims]
            row["layout"]["partial"] = sorted([*partial, [name, "sum"]])
        case "addend":
            row["layout"]["partial"] = [p for p in partial if p[0] != name]
            row["on"] = sorted([*where, [name, [rng.randrange(size)]]])
        case "piece":
            row["layout"]["dims"] = [[a for a in d if a[1] != name] for d in dims]
            row["on"] = sorted([*where, [name, [rng.randrange(size)]]])
        case "spread" | "home" if dims:
            bare = [[a for a in d if a[1] != name] for d in dims]
            bare[dim].insert(0 if kind == "home" else len(bare[dim]), [size, name])
            row["layout"]["dims"] = bare
        case _:
            row["from"] = rng.sample(range(len(rows)), rng.randrange(1, len(rows) + 1))
            row["layout"] = _other_layout(row["layout"], document, rng)
    if kind not in ("addend", "share") or rng.random() < 0.5:
        row["of"] = row["factor"] = None
    rows.append(row)


def _derived(document: Document, rng: random.Random, names: list[str]) -> None:
    """One claim more by the rule of the op, laid out otherwise, and a term of its own."""
    _, rows = _rows(document, rng)
    row = copy.deepcopy(rng.choice(rows))
    row["of"] = row["factor"] = None
    if rng.random() < 0.7:
        row["layout"] = _other_layout(row["layout"], document, rng)
    for at in range(len(row["from"])):
        row["from"][at] += rng.choice([0, 0, 1])
    rows.append(row)


def _body(document: Document, rng: random.Random, names: list[str]) -> None:
    found = [s for s in _scopes(document["claims"]) if s["bodies"]]
    if not found:
        _factor(document, rng, names)
        return
    bodies = rng.choice(found)["bodies"]
    label = rng.choice([*bodies])
    match rng.randrange(3):
        case 0:
            del bodies[label]
        case 1:
            bodies[label]["block"] = rng.choice(names)
        case _:
            bodies[label] = copy.deepcopy(rng.choice([*bodies.values()]))
            bodies[label]["values"].pop(rng.choice([*bodies[label]["values"]]))


def _outputs(document: Document, rng: random.Random, names: list[str]) -> None:
    outputs = document["outputs"]
    key = rng.choice([*outputs])
    other = rng.choice([*outputs])
    if isinstance(outputs[key], int):
        ways = [outputs[key] + rng.choice([-1, 1, 2]), outputs[other], None, str(outputs[key])]
        outputs[key] = rng.choice(ways)
    else:
        outputs[key] = outputs[other] if other != key else "0"
    if rng.random() < 0.1:
        del outputs[key]


def _header(document: Document, rng: random.Random, names: list[str]) -> None:
    match rng.randrange(6):
        case 0:
            document["version"] = rng.choice([1, 2, "3", None])
        case 1:
            document[rng.choice(["sequential", "distributed"])]["digest"] = "0" * 64
        case 2:
            document["mesh"] = [*document["mesh"][::-1], ["more", 2]]
        case 3:
            document["contract"]["assumptions"] = ["all is well"]
        case 4:
            key = rng.choice([*document["contract"]["outputs"]])
            layout = document["contract"]["outputs"][key]
            document["contract"]["outputs"][key] = _other_layout(layout, document, rng)
        case _:
            document[rng.choice(["opened", "more", "peels", "kind"])] = {}


def _order(document: Document, rng: random.Random, names: list[str]) -> None:
    document["order"] = edited(document["order"], rng)


def _peels(document: Document, rng: random.Random, names: list[str]) -> None:
    peels = document["peels"]
    block = rng.choice(peels)
    if rng.random() < 0.3:
        peels.remove(block)
    elif block[1]:
        rng.choice(block[1])[rng.randrange(2)] += rng.choice([-1, 1])
    else:
        block[1].append([0, 1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="edits of each certificate")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    table: Counter[tuple[str, str]] = Counter()
    with np.errstate(all="ignore"):
        for name in NAMES:
            for kind, said in judged(name, asked.count, asked.seed):
                table[kind, said.partition(":")[0]] += 1
                if "false" in said:
                    print(f"{name}, {kind}: {said}")
    for (kind, said), count in sorted(table.items()):
        print(f"{kind:30}{said:20}{count:6}")
    totals = Counter[str]()
    for (_, said), count in table.items():
        totals[said] += count
    print(f"{sum(totals.values())} edits: {dict(totals)}")
    return 1 if "accepted, false" in totals else 0


if __name__ == "__main__":
    sys.exit(main())
