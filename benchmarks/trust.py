"""`python -m benchmarks.trust`: what must be right for a proof to mean anything.

Lines of the checker and of all that it imports, by room; which of them run while it accepts the
certificates of the corpus; what each of these programs was proved by; steps and faults as measured;
what cvc5 says of the obligations that Z3 discharges for them, which ends 1 where the two disagree.
Tables go to `benchmarks/results/trust.md`, totals to docs/trust.md.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import grimp
import networkx as nx

from benchmarks.blocks import DOCS, RESULTS, write
from benchmarks.mutation_testing.corpus import cases
from benchmarks.second_solver import Compared, compare
from shardproof.verifier.checker import Accepted, Result, check
from shardproof.verifier.checker.replay import PARTS
from shardproof.verifier.problem import Problem
from shardproof.verifier.smt.answers import UNACCEPTED, Answers
from shardproof.verifier.smt.solver import Obligation, obligations
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify

ROOT = Path(__file__).resolve().parents[1]
TABLES = RESULTS / "trust.md"
FAULTS = RESULTS / "verifier_faults.json"
DISCHARGE = FAULTS.with_name("discharge.json")
LAWS = {
    "induction": "induction over blocks",
    "layouts": "layouts",
    "peeling": "loop peeling",
    "claims_of_ops": "claims of declarations",
    "order": "order in time",
    "equal_terms": "equal terms",
    "obligations": "obligations as text",
}
CHECKER = "shardproof.verifier.checker"
REPLAY = "shardproof.verifier.checker.replay"
REWRITTEN = "shardproof.verifier.checker.rewritten"
EVENTS = "shardproof.verifier.order.from_program"
BESIDE = (
    EVENTS,
    "shardproof.verifier.checker.conclusion",
    "shardproof.verifier.checker.entries",
    REWRITTEN,
    "shardproof.verifier.checker.moves",
    "shardproof.verifier.provers.scalars.closing",
)
"""Loaded with some of the parts; `conclusion` and `entries` for whoever asks Z3; `closing` where a
proof is made and not where it is checked."""
OPS = (
    "shardproof.verifier.kernel.ops",
    "shardproof.verifier.kernel.movements",
    "shardproof.verifier.kernel.composites",
    "shardproof.verifier.ops",
)
"""Import their modules by name: an op is one file."""
LOADS = {
    "shardproof.verifier.kernel.movements": "shardproof.verifier.checker.moves",
    "shardproof.verifier.kernel.composites": "shardproof.verifier.kernel.movements",
    "shardproof.verifier.kernel.peeling": REWRITTEN,
    "shardproof.verifier.provers.cross_entropy": REWRITTEN,
    "shardproof.verifier.checker.order": EVENTS,
}
"""What is loaded for a part besides what it imports; rooms of ops are looked through in turn."""
Line = tuple[str, int]


@dataclass(frozen=True)
class Reach:
    """A module or package, and the modules that it can reach by imports, itself included."""

    own: frozenset[str]
    all: frozenset[str]


def reach(room: str = CHECKER) -> Reach:
    graph = _graph()
    own = {room, *graph.find_descendants(room)}
    rooms = own.union(*(graph.find_descendants(part) | {part} for part in PARTS.values()))
    return Reach(frozenset(own), _reached(rooms, graph))


def core() -> frozenset[str]:
    """What the checker reaches where a certificate asks for none of `PARTS`."""
    graph = _graph()
    for room in (*PARTS.values(), *BESIDE):
        for module in (room, *graph.find_descendants(room)):
            graph.remove_module(module)
    return _reached({REPLAY}, graph)


def parts() -> dict[str, frozenset[str]]:
    """What each part adds to that, where it is asked for."""
    graph, known = _graph(), core()
    for module in (*known, REWRITTEN):
        for asked in graph.find_modules_directly_imported_by(module) - known - {REWRITTEN}:
            graph.remove_import(importer=module, imported=asked)
    rooms = {name: {room, *graph.find_descendants(room)} for name, room in PARTS.items()}
    return {name: _reached(room, graph) - known for name, room in rooms.items()}


def _graph() -> grimp.ImportGraph:
    """Who imports whom when the verifier runs: a module loads the packages that it lies in, and
    those of ops their modules."""
    graph = grimp.build_graph("shardproof", exclude_type_checking_imports=True)
    for module in graph.modules:
        above = module.rpartition(".")[0]
        if above and above != "shardproof.verifier":
            graph.add_import(importer=module, imported=above)
    for room, loaded in LOADS.items():
        graph.add_import(importer=room, imported=loaded)
    for room in OPS:
        for module in graph.find_children(room):
            graph.add_import(importer=room, imported=module)
    return graph


def _reached(begin: Iterable[str], graph: grimp.ImportGraph) -> frozenset[str]:
    return frozenset(begin).union(*(graph.find_upstream_modules(m) for m in begin))


def file_of(module: str) -> Path:
    path = ROOT / Path(*module.split("."))
    file = path.with_suffix(".py")
    return file if file.exists() else path / "__init__.py"


def lines(modules: Iterable[str]) -> int:
    """Of their files."""
    files = (file_of(module) for module in modules)
    return sum(len(f.read_text(encoding="utf-8").splitlines()) for f in files if f.exists())


def room_of(module: str) -> str:
    """`shardproof.verifier.kernel.ops.reduce` is in `kernel`."""
    return (*module.split("."), "itself")[2]


class Runs:
    """Lines of the verifier that run while it looks on."""

    def __init__(self) -> None:
        self.seen: set[Line] = set()
        self._left: dict[CodeType, set[int]] = {}

    def __call__(self, act: Callable[[], object]) -> None:
        sys.settrace(self._enter)
        try:
            act()
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        del event, arg
        code = frame.f_code
        if code not in self._left:
            ours = code.co_filename.startswith(str(ROOT / "shardproof" / "verifier"))
            known = {number for _, _, number in code.co_lines() if number} if ours else set[int]()
            self._left[code] = known - {code.co_firstlineno}
        return self._line if self._left[code] else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        del arg
        left = self._left[frame.f_code]
        if event == "line" and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line if left else None


def engine(proof: Proof) -> str:
    """What a program was proved by."""
    if proof.certificate.get("kind") == "elementwise":
        return "entries as polynomials"
    if "opened" in proof.certificate:
        return "relations, cross entropies opened"
    return "relations in further ways" if "widened_s" in proof.stats else "relations"


def pages() -> tuple[str, str, Compared]:
    """The totals and the tables, made anew, and what a second solver says."""
    asked, answers = dict[str, Obligation](), Answers()
    runs, engines = Runs(), Counter[str]()
    sections: list[int] = []
    rooms = Counter[tuple[str, ...]]()
    for case in cases():
        if case.kind in ("time", "schedule") or "right" not in case.sides:
            continue
        problem = Problem(*case.programs("right"))
        verdict = verify(problem)
        assert isinstance(verdict, Proof), case.path
        certificate = verdict.certificate
        told: list[Result] = []
        runs(lambda p=problem, c=certificate, told=told: told.append(check(c, p)))
        (accepted,) = told
        assert isinstance(accepted, Accepted), case.path
        rooms[accepted.rests] += 1
        engines[engine(verdict)] += 1
        with obligations() as found:
            again = check(certificate, problem, answers)
        assert isinstance(again, Accepted), case.path
        asked |= found
        if certificate["order"]:
            sections.append(len(json.dumps(certificate["order"])))
    reached, compared = reach(), compare(asked.values())
    told = totals(reached, runs.seen, engines, sections, rooms)
    said = _obligations(asked.values(), compared), _equalities(answers), _entries(answers, engines)
    told = "\n".join((*said, told))
    return told, tables(reached, runs.seen, engines), compared


def _obligations(asked: Iterable[Obligation], compared: Compared) -> str:
    """What Z3 was asked for the certificates of the corpus."""
    counts = Counter(one.status for one in asked)
    left = counts["sat"] + counts["unknown"]
    more = f", and leaves {left:,} open" if left else ""
    said = f"- Z3 discharges {counts['unsat']:,} obligations of certificates of the corpus{more}"
    return f"{said}. {compared}."


def _equalities(answers: Answers) -> str:
    """On what the equal terms rest that the certificates of the corpus need."""
    rest = Counter(answers.equal.values())
    asked, left = rest.total() - rest["definition"], rest["numbers"] + rest["large"]
    return (
        f"- Of their {rest.total():,} distinct equalities of terms, {rest['definition']:,} hold by "
        f"definition, Z3 shows {rest['shown']:,} ({rest['shown'] / asked:.1%} of the others), and "
        f"{left:,} rest on numbers alone."
    )


def _entries(answers: Answers, engines: Counter[str]) -> str:
    """On what the proofs rest that compare entries."""
    classes = Counter(answers.classes.values())
    return (
        f"- {engines['entries as polynomials']} proofs compare entries, by steps that the checker "
        f"replays. Of their {classes.total()} distinct identities Z3 shows {classes['shown']} from "
        "the ops alone."
    )


def totals(
    found: Reach,
    seen: set[Line],
    engines: Counter[str],
    sections: Sequence[int],
    asked: Counter[tuple[str, ...]],
) -> str:
    """Lines, parts, and what was measured of steps and faults."""
    heads, *steps = json.loads(DISCHARGE.read_text(encoding="utf-8"))
    alone = heads.index("rule alone")
    faults: dict[str, list[dict[str, Any]]] = json.loads(FAULTS.read_text(encoding="utf-8"))
    put, rules, whole = faults["believed"], faults["rules"], faults["structure"]
    believed = sum(len(t["proved"]) for t in put)
    return "\n".join(
        [
            f"- The checker has {lines(found.own):,} lines of its own, and {lines(found.all):,} "
            f"with all that it can import. The core, which every certificate needs, has "
            f"{lines(core()):,}.",
            f"- {len(seen):,} of these lines run while it accepts the {sum(engines.values())} "
            f"certificates of the corpus. {len(sections)} of them have an order section, of at "
            f"most {max(sections):,} characters.",
            f"- Steps that rest on the rule alone, without Z3: "
            f"{sum(int(row[alone]) for row in steps)}.",
            f"- {len(put)} faults were put into provers, terms and the refuter, with the refuter "
            f"muted. They produced {believed:,} wrong proofs; replay alone accepts "
            f"{sum(t['replayed'] for t in put):,} of them, `verify` accepts "
            f"{sum(t['accepted'] for t in put)} at the extents of the corpus and "
            f"{sum(t['large_accepted'] for t in put)} of {sum(t['large'] for t in put)} at inputs "
            "of 262,144 numbers and more.",
            f"- {len(rules)} faults were put into rules of the checker: Z3 refutes "
            f"{sum(r['after'] == 'refuted' for r in rules)} of the steps they admit, and does not "
            f"show {sum(r['after'] == 'not shown' for r in rules)}. "
            f"{len(whole)} faults were put where no single step shows them: "
            f"{sum(bool(r['after']) for r in whole)} break a law.",
            "",
            "| part | loaded for | lines | programs of the corpus |",
            "|---|---|---|---|",
            f"| core | every certificate | {lines(core()):,} | {asked[()]} with nothing else |",
            *(
                f"| {name} | `{PARTS[name]}` | {lines(added):,} "
                f"| {sum(count for rests, count in asked.items() if name in rests)} |"
                for name, added in parts().items()
            ),
            "",
        ]
    )


def tables(found: Reach, seen: set[Line], engines: Counter[str]) -> str:
    """What the totals are of."""
    rooms = sorted({room_of(module) for module in found.all})
    rows: list[str] = []
    for room in rooms:
        modules = [module for module in found.all if room_of(module) == room]
        files = {str(file_of(module)) for module in modules}
        ran = sum(file in files for file, _ in seen)
        rows.append(f"| `{room}` | {len(modules)} | {lines(modules):,} | {ran:,} |")
    proved = [f"| {name} | {count} |" for name, count in engines.most_common()]
    return "\n".join(
        [
            "# What must be right: tables",
            "",
            "Written by `make trust`; do not edit. [The page](../../docs/trust.md) has the totals.",
            "",
            "| package | files | lines | lines run |",
            "|---|---|---|---|",
            *rows,
            "",
            "## What proved the corpus",
            "",
            "| by | programs |",
            "|---|---|",
            *proved,
            "",
            *shown(),
            *faults(),
            *order(),
        ]
    )


def shown() -> list[str]:
    """How the steps of proofs were shown (`python -m benchmarks.discharge --write`)."""
    heads, *rows = json.loads(DISCHARGE.read_text(encoding="utf-8"))
    alone = heads.index("rule alone")
    return [
        "## How steps are shown",
        "",
        "`python -m benchmarks.discharge --write`: distinct steps that proofs rest on, how far Z3 "
        "shows them, and on what the distinct equalities of terms rest. A form is a step with its "
        "extents as variables. Processor seconds: to prove, to check without Z3, with an empty "
        "cache, with a full one. [What Z3 is asked](../../docs/proofs.md#the-steps-of-a-proof).",
        "",
        f"Shown by rule alone: {sum(int(row[alone]) for row in rows)}.",
        "",
        *(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)),
        "",
    ]


def order() -> list[str]:
    """The files of the core, each after those that it imports."""
    graph, modules = _graph(), core()
    known = nx.DiGraph()
    known.add_nodes_from(modules)
    for module in modules:
        for used in graph.find_modules_directly_imported_by(module) & modules:
            if not module.startswith(f"{used}."):  # a package is loaded first, and says little
                known.add_edge(used, module)
    together = nx.condensation(known)
    steps = nx.lexicographical_topological_sort(
        together, key=lambda n: min(together.nodes[n]["members"])
    )
    read = [m for step in steps for m in sorted(together.nodes[step]["members"])]
    rows = [
        f"| `{m.removeprefix('shardproof.verifier.')}` | {lines([m])} | {_about(m)} |" for m in read
    ]
    return [
        "## The order to read it in",
        "",
        "The core, each file after those that it imports.",
        "",
        "| module | lines | |",
        "|---|---|---|",
        *(row for row, m in zip(rows, read, strict=True) if lines([m]) > 1),
        "",
    ]


def _about(module: str) -> str:
    """The first sentence of a module."""
    told = ast.get_docstring(ast.parse(file_of(module).read_text(encoding="utf-8"))) or ""
    return " ".join(told.split("\n\n")[0].split()).replace("|", "\\|")


def faults() -> list[str]:
    """What was measured of faults in the verifier itself (`make verifier-faults`)."""
    found: dict[str, list[dict[str, Any]]] = json.loads(FAULTS.read_text(encoding="utf-8"))
    believed, rules, whole = found["believed"], found["rules"], found["structure"]

    def counts(told: Sequence[dict[str, Any]]) -> str:
        proved = sum(len(t["proved"]) for t in told)
        through = sum(bool(t["proved"]) for t in told)
        kinds = (sum(t[k] for t in told) for k in ("replayed", "shown", "accepted"))
        return " | ".join(map(str, (len(told), through, proved, *kinds)))

    rooms = sorted({t["room"] for t in believed})
    large = "; ".join(t["name"] for t in believed if t["large_accepted"])
    return [
        "## Faults put into the verifier",
        "",
        f"`make verifier-faults` changes {len(believed)} places of provers, terms and the refuter, "
        "one at a time, and mutes the refuter. The checker has the fault wherever it shares the "
        "code. Every fault that lets no wrong program through still changes a verdict or a "
        "certificate of the corpus.",
        "",
        "| room | faults | let through | wrong programs believed | accepted by replay alone | with "
        "steps and terms tried | with programs run too |",
        "|---|---|---|---|---|---|---|",
        *(f"| `{r}` | {counts([t for t in believed if t['room'] == r])} |" for r in rooms),
        f"| all | {counts(believed)} |",
        "",
        f"Of {sum(t['large'] for t in believed)} wrong proofs at inputs of 262,144 numbers and "
        f"more, {sum(t['large_accepted'] for t in believed)} are accepted"
        f"{f', under these faults: {large}' if large else ''}.",
        "",
        "| fault | room | wrong programs believed | accepted by replay alone | as verified |",
        "|---|---|---|---|---|",
        *(
            f"| {t['name']} | `{t['room']}` | {len(t['proved']) or 'verdicts change'} "
            f"| {t['replayed']} | {t['accepted']} |"
            for t in believed
        ),
        "",
        f"{len(rules)} faults of rules of the checker, each with a step that it lets through; "
        f"{sum(r['after'] in UNACCEPTED for r in rules)} of these steps are refuted, or not "
        f"shown, when Z3 is asked about them. {len(whole)} faults of what no single step shows; "
        f"{sum(bool(r['after']) for r in whole)} break a law "
        "(`benchmarks/verifier_faults/laws.py`), which holds without them.",
        "",
        "| fault of the checker | where | found by |",
        "|---|---|---|",
        *(f"| {r['name']} | `{r['place']}` | the discharge of its step |" for r in rules),
        *(f"| {r['name']} | `{r['place']}` | the law of {LAWS[r['law']]} |" for r in whole),
        "",
    ]


def main() -> int:
    told, rows, compared = pages()
    TABLES.write_text(rows, encoding="utf-8")
    write(DOCS / "trust.md", "trust", told)
    print(told)
    print(*compared.disagreements, sep="\n")
    return 1 if compared.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
