"""`shardproof verify`: checks an out-directory again, or two IR files under a contract.

Needs numpy alone: no torch, no search, no network, and for a directory no solver either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agent import events, outdir
from agent.errors import Exit, InputError
from agent.run import Outcome, Run
from synthesis import plan as plans
from verifier.checker import Accepted, Rejected, check
from verifier.contract import Contract
from verifier.contract_text import compose, load_contract
from verifier.ir.files import load
from verifier.ir.program import Program
from verifier.layout import bound
from verifier.verdict import Proof

if TYPE_CHECKING:
    from verifier.incremental import Base

T = TypeVar("T")


def dispatch(
    run: Run,
    directory: Path | None,
    sequential: Path | None,
    distributed: Path | None,
    contract: Path | None,
    relations: bool = False,
    cache: bool = True,
) -> Outcome:
    """Check whichever was given.

    Raises:
        InputError: neither a directory nor all three files, or both.
    """
    files = (sequential, distributed, contract)
    if directory is not None and not any(files):
        from agent.batch.folder import is_batch

        if is_batch(directory):
            from agent.batch import again

            return again.folder_again(run, directory)
        return directory_again(run, directory)
    if directory is None and sequential and distributed and contract:
        return programs(run, sequential, distributed, contract, relations, cache)
    raise InputError(
        "nothing to verify, or too much",
        expected="a DIRECTORY, or --sequential, --distributed and --contract together",
    )


def directory_again(run: Run, directory: Path) -> Outcome:
    """Hashes, then the certificate, then that plan and contract agree.

    Raises:
        InputError: not an out-directory, or a file of it that cannot be read.
    """
    with run.phase("files") as phase:
        recorded = outdir.manifest(directory)
        strangers = sorted(outdir.changed(directory))
        phase.summary = f"{len(recorded['files'])} files"
    if strangers:
        return _open(run, "changed since they were written: " + ", ".join(strangers))
    if recorded.get("verdict") != "proved":
        return _open(run, f"that run ended {recorded.get('verdict')}: it holds no certificate")
    with run.phase("load") as phase:
        sequential = load(directory / "program.json")
        distributed = load(directory / "distributed.json")
        contract = read_contract(directory / "contract.json")
        plan = _read(directory / "plan.json", plans.from_json)
        certificate = _read(directory / "certificate.json", _object)
        phase.summary = f"{len(sequential.nodes)} and {len(distributed.nodes)} ops"
    with run.phase("check") as phase:
        result = check(certificate, sequential, distributed, contract)
        if isinstance(result, Accepted):
            phase.summary = f"certificate accepted, {result.claims} claims"
            phase.facts["claims"] = result.claims
    if isinstance(result, Rejected):
        return _open(run, f"certificate rejected: {result.reason}", result.where)
    differing = disagreement(plan, sequential, contract)
    if differing:
        return _open(run, differing)
    stated: dict[str, list[str]] = {
        key: [str(line) for line in recorded.get(key, ())] for key in ("scope", "assumptions")
    }
    stated["assumptions"] += [
        a for a in _assumed(contract, certificate) if a not in stated["assumptions"]
    ]
    run.emit(
        events.VerdictReached(
            verdict="proved",
            message="; ".join(stated["scope"]),
            scope=stated["scope"],
            assumptions=stated["assumptions"],
        )
    )
    return Outcome(Exit.PROVED, "proved", directory=str(directory), answer="proved")


def _assumed(contract: Contract, certificate: Mapping[str, Any]) -> list[str]:
    """What the proof takes for granted, whatever the manifest says of it."""
    compared = certificate.get("assumptions", ())
    return [*contract.assumptions, *map(str, contract.balanced), *map(str, compared)]


def disagreement(plan: plans.Plan, program: Program, contract: Contract) -> str:
    """Where the plan lays a parameter out otherwise than the contract; empty if nowhere.

    A plan speaks of one layer; the program stacks the layers of a repeated block in leading dims.
    """
    for item in program.inputs:
        placements = plan.params.get(item.path)
        if item.role != "param" or placements is None:
            continue
        stacked = sum(part == "*" or part.startswith("[") for part in item.path.split("."))
        rank = len(item.type.shape) - stacked
        layout = contract.inputs[item.name]
        for name, _ in plan.mesh.dims:
            split = _split_dim(placements.get(name, "R"), rank)
            found = [d - stacked for d, dim in enumerate(layout.dims) if name in bound(dim)]
            if found != ([] if split is None else [split]):
                return f"plan.json and contract.json lay {item.path} out differently over {name}"
    return ""


def _split_dim(placement: str, rank: int) -> int | None:
    """The dim that `S(d)` or `S(d) in n parts` splits; None for `R`. Raises ValueError."""
    if placement == "R":
        return None
    found = re.fullmatch(r"S\((-?\d+)\)( in \d+ parts)?", placement)
    if found is None:
        raise ValueError(f"a parameter cannot be placed {placement!r}")
    return int(found[1]) % rank


def programs(
    run: Run,
    sequential: Path,
    distributed: Path,
    contract: Path,
    relations: bool = False,
    cache: bool = True,
) -> Outcome:
    """Decide whether one IR file computes another under a contract.

    With `cache`, proofs of programs too large to be run are kept, and an edited program is proved
    by what changed.

    Raises:
        InputError, IRError, ContractError: files that cannot be read, or that do not fit.
    """
    from agent import remembered, verdicts
    from verifier.verify import verify

    files = remembered.read(sequential, distributed, contract) if cache else None
    if files is not None and not relations:
        found = remembered.recall(run, files)
        if found is not None:
            proof, said = found
            return verdicts.report(run, proof, said)
    with run.phase("load"):
        one, spans = load(sequential), None
        if files is None:
            written = load(distributed)
        else:
            written, spans = remembered.parse(files, str(distributed))
        stated = load_contract(contract, one, written)
        many, asked = compose(written, stated)
    kept: list[Base] = []
    with run.phase("verify") as phase:
        verdict = verify(one, many, asked, fixes=True, relations=relations, remember=kept)
        phase.facts.update(verdict.stats)
    if isinstance(verdict, Proof):
        with run.phase("check") as phase:
            result = check(verdict.certificate, one, many, asked)
            if isinstance(result, Rejected):
                return _open(run, f"certificate rejected: {result.reason}", result.where)
            phase.summary = f"certificate accepted, {result.claims} claims"
            phase.facts["claims"] = result.claims
        large = not verdict.stats.get("refuter_ran", 1.0)
        if files is not None and spans is not None and kept and large and many is written:
            remembered.remember(run, files, kept[0], spans, result.claims)
    return verdicts.report(run, verdict)


def read_contract(path: Path) -> Contract:
    """Raises InputError where the file holds no contract."""

    def parse(text: str) -> Contract:
        return Contract.from_json(_object(text))

    return _read(path, parse)


def _object(text: str) -> dict[str, Any]:
    data: Any = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    return cast("dict[str, Any]", data)


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("file not found", where=str(path)) from None
    except KeyError as error:
        raise InputError("an entry is missing", where=str(path), expected=str(error)) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError("file cannot be read", where=str(path), got=str(error)) from None


def _open(run: Run, reason: str, where: str = "") -> Outcome:
    """A check that did not go through proves nothing."""
    run.emit(events.VerdictReached(verdict="unknown", message=reason, where=where))
    return Outcome(Exit.NOT_PROVED, "unknown", answer="unknown")
