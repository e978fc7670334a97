"""`shardproof verify`: checks an out-directory again, or two IR files under a contract.

Needs numpy and Z3: no torch, no search and no network. The solver is asked about steps of a proof
that no answer is kept of. Only `--recapture` runs the owner's code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shardproof.agent.patching import record
from shardproof.agent.pipeline.agreement import disagreement, unchecked, unlike_patch
from shardproof.agent.run import events, outdir
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict import verdicts
from shardproof.agent.verdict.certificates import CERTIFICATE, Files, answers, read_file, rejected
from shardproof.synthesis.planner import plan as plans
from shardproof.synthesis.strategy.certificate import FILE as STRATEGY
from shardproof.synthesis.strategy.check import misstated
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, load_contract
from shardproof.verifier.text.files import load
from shardproof.verifier.verdict import Counterexample, Proof

if TYPE_CHECKING:
    from shardproof.agent.actions.programs import Verify


def dispatch(run: Run, asked: Verify) -> Outcome:
    """Check whichever was given.

    Raises:
        InputError: neither a directory nor all three files, or both.
    """
    directory, files = asked.path, (asked.sequential, asked.distributed, asked.contract)
    if directory is not None and not any(files):
        from shardproof.agent.batch.folder import is_batch

        if is_batch(directory):
            from shardproof.agent.batch import reverify as again

            return again.folder_again(run, directory, asked.recapture, asked.root)
        return examined(run, directory, asked.recapture, asked.root, asked.cache)[0]
    sequential, distributed, contract = files
    if directory is None and sequential and distributed and contract and not asked.recapture:
        given = sequential, distributed, contract
        return programs(run, *given, asked.relations, asked.cache)
    raise InputError(
        "nothing to verify, or too much",
        expected="a DIRECTORY (--recapture reads its patch), or --sequential, --distributed and "
        "--contract together",
    )


def examined(
    run: Run,
    directory: Path,
    recapture: bool = False,
    root: Path = Path(),
    cache: bool = True,
) -> tuple[Outcome, tuple[str, ...]]:
    """Hashes, certificates, the order in time, the plan, and what patch.diff would touch; and all
    that what was found rests on, one sentence each.

    What is said of the proof is worked out from the files that were checked. With `recapture`, the
    patched source (paths of the patch are relative to `root`) is read and proved as well.

    Raises:
        InputError: not an out-directory, or a file of it that cannot be read.
    """
    with run.phase("files") as phase:
        recorded = outdir.manifest(directory)
        strangers = sorted(outdir.changed(directory))
        phase.summary = f"{len(recorded['files'])} files"
    if strangers:
        what = "changed since it was written" if len(strangers) == 1 else "changed since"
        return rejected(run, ", ".join(strangers), what), ()
    unknown = sorted(set(recorded) - outdir.ENTRIES)
    if unknown:
        return rejected(run, outdir.MANIFEST, f"no run writes an entry {unknown[0]!r}"), ()
    said = recorded.get("verdict")
    if CERTIFICATE not in recorded["files"]:
        return _open(run, f"there is no certificate: that run ended {said}"), ()
    if said != "proved":
        reason = f"it says that the run ended {said}, and such a run writes no certificate"
        return rejected(run, outdir.MANIFEST, reason), ()
    with run.phase("load") as phase:
        problem, certificate = Files.beside(directory).read()
        sequential, distributed = problem.sequential, problem.distributed
        plan = read_file(directory / "plan.json", plans.from_json)
        phase.summary = f"{len(sequential.nodes)} and {len(distributed.nodes)} ops"
    with run.phase("check") as phase:
        result = check(certificate, problem, answers(cache))
        if isinstance(result, Accepted):
            phase.summary = f"{result}; its order in time holds"
            phase.facts["claims"] = result.claims
    if isinstance(result, Rejected):
        return rejected(run, CERTIFICATE, result.reason, result.where), ()
    try:
        differing = disagreement(plan, sequential, distributed, problem.contract)
    except ValueError as error:
        differing = str(error)
    if differing:
        return rejected(run, "plan.json", differing), ()
    wrong = _wrong_choice(run, directory) if STRATEGY in recorded["files"] else ""
    if wrong:
        return rejected(run, STRATEGY, wrong), ()
    patched = record.NAME in recorded["files"]
    if patched != ("patch" in recorded):
        return rejected(run, outdir.MANIFEST, f"it does not say what {record.NAME} is for"), ()
    touched = _touched(directory) if patched else ""
    if touched:
        return rejected(run, record.NAME, touched), ()
    unlike = unlike_patch(plan, record.read(directory).diff.decode("utf-8")) if patched else ""
    if unlike:
        return rejected(run, "plan.json", unlike), ()
    if recapture and not patched:
        raise InputError("the directory holds no patch to read", where=f"--recapture {directory}")
    rests = result.assumptions
    told = tuple(str(line) for line in recorded.get("assumptions", ()))
    more = (*(line for line in told if line not in rests), *unchecked(plan))
    word: events.VerdictWord = "accepted"
    scope, message = (
        result.scope,
        "; ".join(("distributed.json computes program.json", *result.scope)),
    )
    patch = ""
    if recapture:
        from shardproof.agent.pipeline.rereading import patch_again

        with run.phase("recapture") as phase:
            found, patch, name = patch_again(
                run, directory, recorded, plan, sequential, problem.contract, root
            )
            phase.summary = patch
        if isinstance(found, Counterexample):
            return rejected(run, name, patch, verdicts.place(found)), ()
        if not isinstance(found, Proof):
            return _open(run, patch), ()
        word, scope, message = "proved", found.scope, "; ".join(found.scope)
        rests = tuple(dict.fromkeys((*found.assumptions, *rests)))
    elif patched:
        patch = NOT_READ + (READ_BEFORE if record.read(directory).read else "")
    run.emit(
        events.VerdictReached(
            verdict=word,
            message=message,
            scope=list(scope),
            assumptions=list(rests),
            recorded=list(more),
            patch=patch,
        )
    )
    outcome = Outcome(Exit.PROVED, word, directory=str(directory), answer=word)
    return outcome, (*rests, *more)


def _wrong_choice(run: Run, directory: Path) -> str:
    """Why the configuration that was chosen is not the best of its space; empty where it is."""
    written = read_file(directory / STRATEGY, json.loads)
    if not isinstance(written, dict):
        return "not an object"
    choice = cast("dict[str, Any]", written)
    if "certificate" in choice and choice["certificate"] is None:
        return ""
    with run.phase("choice") as phase:
        wrong = misstated(choice)
        phase.summary = wrong or "no plan of its space is faster, under the price"
    return wrong


NOT_READ = (
    "the patch itself was not read again (--recapture does): the certificate is about "
    "distributed.json, and nothing but the hashes in manifest.json ties patch.diff to it"
)
READ_BEFORE = "; the run that wrote it says that it read the patch and proved it"


def _touched(directory: Path) -> str:
    """What is wrong with the files that patch.diff would touch; empty where nothing is."""
    from shardproof.agent.patching.diffs import counts
    from shardproof.agent.patching.disk import check_name

    try:
        stated = record.read(directory)
        touched = counts(stated.diff)
        for name in (*stated.files, *touched, *stated.sources):
            check_name(name)
    except InputError as error:
        return ": ".join(part for part in (error.what, error.where, error.got.strip()) if part)
    if wrong := record.unlike(stated.diff, stated.proved) or _other_proof(directory, stated):
        return f"{wrong}; run parallelize again"
    if set(touched) != set(stated.files):
        listed = ", ".join(sorted(touched))
        return f"it touches {listed}, manifest.json records {', '.join(sorted(stated.files))}"
    return ""


def _other_proof(directory: Path, stated: record.Recorded) -> str:
    """How the line of a patch that names its certificate names another; empty where it does not."""
    line = record.PROVED.search(stated.diff.decode("utf-8"))
    digest = record.sha256((directory / CERTIFICATE).read_bytes())[:12]
    if line is None or f"certificate {digest}," in line[0]:
        return ""
    return f"it says {line[0][1:]!r}, {CERTIFICATE} is {digest}"


def programs(
    run: Run,
    sequential: Path,
    distributed: Path,
    contract: Path,
    relations: bool = False,
    cache: bool = True,
) -> Outcome:
    """Decide whether one IR file computes another under a contract.

    With `cache`, what Z3 says of steps is kept.

    Raises:
        InputError, IRError, ContractError: files that cannot be read, or that do not fit.
    """
    from shardproof.synthesis.repair.diagnosis import verify

    with run.phase("load"):
        one, written = load(sequential), load(distributed)
        many, asked = compose(written, load_contract(contract, one, written))
    with run.phase("verify") as phase:
        verdict = verify(
            Problem(one, many, asked),
            fixes=True,
            relations=relations,
            discharge=answers(cache),
        )
        phase.facts.update(verdict.stats)
        if isinstance(verdict, Proof):
            phase.summary = verdict.checked
            phase.facts["claims"] = verdict.claims
    return verdicts.report(run, verdict)


def _open(run: Run, reason: str) -> Outcome:
    """A check that did not go through proves nothing."""
    run.emit(events.VerdictReached(verdict="unknown", message=reason))
    return Outcome(Exit.NOT_PROVED, "unknown", answer="unknown")
