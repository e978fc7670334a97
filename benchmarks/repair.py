"""`python -m benchmarks.repair`: wrong programs, repaired by structured edits and proved.

The wrong programs of the corpus, and mutants with one, two or three faults of the campaign's bases
and of training steps of every strategy. A mutant counts where float64 simulation of every rank says
that it is wrong; a repaired program is simulated too, and one that is wrong though proved is a
false accept. Outcomes are appended to a file, so that a run goes on where the last one stopped.
Exits 1 on a false accept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from synthesis.training.step import Step
from synthesis.training.strategies import STRATEGIES
from synthesis.training.truth import agrees
from verifier.campaign import messages
from verifier.campaign.author import Base
from verifier.campaign.corpus import cases
from verifier.campaign.mutants import Mutation, mutations
from verifier.campaign.truth import equal
from verifier.campaign.zoo import bases
from verifier.contract import Contract, ContractError, check
from verifier.domains.base import Array
from verifier.inline import inline
from verifier.ir.errors import IRError
from verifier.ir.program import Program
from verifier.refute import refute
from verifier.repair import Repaired, repair
from verifier.verify import well_formed

assert messages.__name__  # importing it declares its kinds of mutations
KEPT = Path("build/repair")
PARTS = ("corpus", "zoo", "training")
FAULTS = (1, 1, 2, 2, 3)
"""How many faults the mutants have, in turn."""


@dataclass(frozen=True)
class Source:
    """A right pair of programs to put faults into."""

    name: str
    sequential: Program
    distributed: Program
    contract: Contract
    consts: dict[str, Array]
    right: Callable[[Program], bool]
    """Whether every rank computes what one device does, by float64 simulation."""

    @property
    def fixed(self) -> frozenset[str]:
        """Values that programs of the contract make."""
        made = (v for n in self.distributed.nodes for v in n.outputs)
        return frozenset(v for v in made if v.startswith(("given.", "taken.")))


@dataclass(frozen=True)
class Outcome:
    """One wrong program and what became of it."""

    source: str
    faults: int
    """Faults that were put in; 0 where nobody counted them."""
    what: list[str]
    repaired: bool
    edits: list[str]
    right: bool
    """The repaired program, simulated."""
    tried: int
    seconds: float
    processor: float
    """Seconds of the processor, where other work shares the machine."""
    reason: str = ""


def zoo() -> Iterator[Source]:
    for base in bases():

        def right(program: Program, base: Base = base) -> bool:
            return _safely(lambda: equal(base, program))

        one, many = base.sequential, base.distributed
        yield Source(f"zoo: {base}", one, many, base.contract, {}, right)


def training() -> Iterator[Source]:
    for strategy in STRATEGIES:
        step = strategy.step()

        def trained(program: Program, step: Step = step) -> bool:
            return _safely(lambda: agrees(step, program))

        yield Source(
            f"training: {strategy}",
            step.sequential,
            step.distributed,
            step.contract,
            step.preconditions,
            trained,
        )


def _safely(judge: Callable[[], bool]) -> bool:
    """A program that some rank cannot run computes nothing."""
    try:
        return judge()
    except (IRError, KeyError, ValueError):
        return False


def mutant(
    source: Source, faults: int, rng: np.random.Generator
) -> tuple[Program, list[str]] | None:
    """A wrong program with some faults in a row, each of a kind and at a place drawn evenly."""
    program, what = source.distributed, list[str]()
    for _ in range(faults):
        pools: dict[str, list[Mutation]] = defaultdict(list)
        for mutation in mutations(program):
            pools[mutation.kind].append(mutation)
        edited: Program | None = None
        for _ in range(20):
            kinds = sorted(pools)
            pool = pools[kinds[int(rng.integers(len(kinds)))]]
            mutation = pool[int(rng.integers(len(pool)))]
            edited = mutation.edit()
            if edited is not None and _admitted(source, edited) and not source.right(edited):
                what.append(f"{mutation.kind}: {mutation.text}")
                break
            edited = None
        if edited is None:
            return None
        program = edited
    return program, what


def _admitted(source: Source, program: Program) -> bool:
    try:
        check(source.sequential, well_formed(program), source.contract)
    except (IRError, ContractError):
        return False
    return True


def mended(source: Source, program: Program, faults: int, what: list[str], most: float) -> Outcome:
    begin, busy = time.perf_counter(), time.process_time()
    found = repair(
        source.sequential,
        program,
        source.contract,
        max_edits=max(faults, 3),
        seconds=most,
        consts=source.consts,
        fixed=source.fixed,
    )
    seconds, spent = time.perf_counter() - begin, time.process_time() - busy
    if isinstance(found, Repaired):
        edits, right = [str(e) for e in found.edits], source.right(inline(found.program))
        return Outcome(source.name, faults, what, True, edits, right, found.tried, seconds, spent)
    best = [str(e) for e in found.best]
    return Outcome(
        source.name, faults, what, False, best, False, found.tried, seconds, spent, found.reason
    )


def corpus(most: float, done: Counter[str]) -> Iterator[Outcome]:
    """The wrong side of every case whose programs can be read."""
    for case in cases():
        if case.kind != "program" or "wrong" not in case.sides:
            continue
        name = f"corpus: {case.path.parent.name}/{case.path.stem}"
        if done[name]:
            continue
        begin = time.perf_counter()
        try:
            one, many, contract = case.programs("wrong")

            def right(program: Program, one: Program = one, contract: Contract = contract) -> bool:
                with np.errstate(all="ignore"):
                    return _safely(lambda: refute(inline(one), program, contract, seed=91) is None)

            source = Source(name, one, many, contract, {}, right)
            yield mended(source, many, 0, [case.about["title"]], most)
        except (IRError, ContractError) as error:
            seconds = time.perf_counter() - begin
            reason = f"no program: {error}"
            yield Outcome(
                name, 0, [case.about["title"]], False, [], False, 0, seconds, seconds, reason
            )


def mutated(
    every: Sequence[Source], each: int, seed: int, most: float, done: Counter[str]
) -> Iterator[Outcome]:
    """`each` mutants of every source; as many as are in `done` are left out."""
    for number, (place, source) in product(range(each), enumerate(every)):
        if number < done[source.name]:
            continue
        rng = np.random.default_rng([seed, zlib.crc32(source.name.encode()), number])
        made = mutant(source, FAULTS[(number + place) % len(FAULTS)], rng)
        if made is not None:
            program, what = made
            yield mended(source, program, len(what), what, most)


def summary(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float | int]]:
    """By number of faults, 0 for the corpus: shares repaired with 1, 2, 3 edits, and seconds."""
    out: dict[str, dict[str, float | int]] = {}
    for faults in sorted({o.faults for o in outcomes}):
        mine = [o for o in outcomes if o.faults == faults]
        done = [o for o in mine if o.repaired]
        times = sorted(o.seconds for o in mine)
        busy = sorted(o.processor for o in mine)
        out[str(faults) if faults else "corpus"] = {
            "programs": len(mine),
            "no program": sum(o.reason.startswith("no program") for o in mine),
            "repaired and proved": len(done),
            "share": round(len(done) / len(mine), 4),
            **{f"with at most {k} edits": sum(len(o.edits) <= k for o in done) for k in (1, 2, 3)},
            "no more edits than faults": sum(len(o.edits) <= max(faults, 1) for o in done),
            "false accepts": sum(not o.right for o in done),
            "median s": round(statistics.median(times), 3),
            "p95 s": round(times[min(len(times) - 1, int(0.95 * len(times)))], 3),
            "median processor s": round(statistics.median(busy), 3),
            "p95 processor s": round(busy[min(len(busy) - 1, int(0.95 * len(busy)))], 3),
        }
    return out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repair", description=__doc__)
    parser.add_argument("--zoo", type=int, default=30, help="mutants of each base of the zoo")
    parser.add_argument("--training", type=int, default=4, help="mutants of each strategy")
    parser.add_argument("--part", choices=PARTS, help="only this part; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="for one program at most")
    parser.add_argument("--stop", type=float, help="seconds after which to stop, and go on later")
    parser.add_argument("--folder", type=Path, default=KEPT, help="where outcomes are kept")
    parser.add_argument("--fresh", action="store_true", help="forget outcomes that are kept")
    parser.add_argument("--write", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    each = {"corpus": 0, "zoo": given.zoo, "training": given.training}
    for part in [given.part] if given.part else PARTS:
        path = _path(given.folder, part, given.seed)
        if given.fresh:
            path.unlink(missing_ok=True)
        kept = _lines(path)
        with path.open("a", encoding="utf-8") as file:
            for outcome in _some(part, each[part], given.seed, given.seconds, kept):
                file.write(json.dumps(asdict(outcome)) + "\n")
                file.flush()
                if given.stop and time.perf_counter() - begin > given.stop:
                    break
    outcomes = [o for part in PARTS for o in _lines(_path(given.folder, part, given.seed))]
    found = summary(outcomes)
    for name, row in found.items():
        sys.stdout.write(f"faults {name}: {json.dumps(row)}\n")
    if given.write:
        data = {"summary": found, "outcomes": [asdict(o) for o in outcomes]}
        given.write.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 1 if any(o.repaired and not o.right for o in outcomes) else 0


def _some(
    part: str, each: int, seed: int, most: float, kept: Sequence[Outcome]
) -> Iterator[Outcome]:
    done = Counter(o.source for o in kept)
    if part == "corpus":
        return corpus(most, done)
    return mutated(list(zoo() if part == "zoo" else training()), each, seed, most, done)


def _path(folder: Path, part: str, seed: int) -> Path:
    return folder / f"{part}.{seed}.jsonl"


def _lines(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [Outcome(**json.loads(line)) for line in whole.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
