"""`shardproof verify-ranks`: the programs of all ranks, read as one program and verified."""

from pathlib import Path

from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.frontends.rank_programs import Finding, Ingested, judged, read_ranks
from shardproof.verifier.text.contract import compose, load_contract
from shardproof.verifier.text.files import load


def verify(run: Run, path: Path, sequential: Path, contract: Path) -> Outcome:
    """Read every rank, name those that deviate, and verify what they run together.

    Raises:
        InputError: a file or a rank's program that cannot be read, a rank that is missing or twice,
            a mesh that does not multiply out.
        IRError, ContractError: a one-device program or a contract that cannot be read.
    """
    for given in (sequential, contract):
        if not given.is_file():
            raise InputError("no such file", where=str(given))
    with run.phase("load") as phase:
        one = load(sequential)
        phase.summary = f"{len(one.nodes)} ops"
    with run.phase("read") as phase:
        read = read_ranks(path, run.note)
        _usable(read, path)
        phase.summary = _summary(read)
        phase.facts.update(read.stats)
    for found in read.of_kind("deviates"):
        run.warn(str(found))
    program = read.program or read.majority
    with run.phase("verify") as phase:
        if program is None:
            verdict = judged(one, read, None)
        else:
            stated = load_contract(contract, one, program)
            written, asked = compose(program, stated)
            if written is not program:
                raise InputError(
                    "the contract adds to the program of the ranks",
                    where=str(contract),
                    expected="layouts of the inputs that the ranks' programs name",
                )
            verdict = judged(one, read, asked, progress=run.note)
        phase.facts.update(verdict.stats)
    return verdicts.report(run, verdict)


def _usable(read: Ingested, path: Path) -> None:
    found = next(iter(read.of_kind("malformed")), None)
    if found is not None:
        raise InputError(
            _said(found),
            where=found.where or str(path),
            expected=found.expected,
            got=found.got,
            hint="the form is described in docs/programs.md",
        )


def _said(found: Finding) -> str:
    if found.rank is None:
        return found.message
    at = ", ".join(f"{name}={c}" for name, c in found.coords.items())
    return f"rank {found.rank} ({at}): {found.message}"


def _summary(read: Ingested) -> str:
    ranks, classes = int(read.stats.get("ranks", 0)), len(read.classes)
    size = read.stats.get("bytes", 0) / 1e6
    return f"{ranks} ranks, {size:.1f} MB, {classes} classes"
