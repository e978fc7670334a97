"""Proofs on disk, and `shardproof check-certificate`: the checker alone.

Imports neither PyTorch nor what searches, and Z3 only to ask it about steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import user_folder
from shardproof.agent.run.run import Outcome, Run
from shardproof.verifier.checker import Rejected, Result, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.jsonio import parse
from shardproof.verifier.verdict import Proof, Unknown, Verdict

if TYPE_CHECKING:
    from shardproof.agent.actions.programs import CheckCertificate
    from shardproof.verifier.smt.answers import Answers
    from shardproof.verifier.smt.solver import Obligation

T = TypeVar("T")
CERTIFICATE = "certificate.json"


@dataclass(frozen=True)
class Files:
    """The three files that a certificate is about, and the certificate."""

    sequential: Path
    distributed: Path
    contract: Path
    certificate: Path

    @classmethod
    def beside(cls, path: Path, *named: Path | None) -> Files:
        """Those of a directory, or of the one that a certificate is in; `named` replace them.

        Raises:
            InputError: there is no such place.
        """
        if not path.exists():
            raise InputError("no such file or directory", where=str(path))
        folder = path if path.is_dir() else path.parent
        known = (folder / n for n in ("program.json", "distributed.json", "contract.json"))
        one, many, asked = [a or b for a, b in zip(named or (None,) * 3, known, strict=True)]
        return cls(one, many, asked, path / CERTIFICATE if path.is_dir() else path)

    def read(self) -> tuple[Problem, dict[str, Any]]:
        """The question and the certificate.

        Raises:
            InputError, MalformedError, ContractError: a file that cannot be read.
        """
        from shardproof.verifier.text.files import load

        one, many = load(self.sequential), load(self.distributed)
        if read_file(self.contract, str).lstrip().startswith("{"):
            contract = Contract.from_json(read_object(self.contract), str(self.contract))
        else:
            from shardproof.verifier.text.contract import compose, load_contract

            many, contract = compose(many, load_contract(self.contract, one, many))
        return Problem(one, many, contract), read_object(self.certificate)


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """A certificate as `certificate.json` has it."""
    return json.dumps(certificate, separators=(",", ":")) + "\n"


def answers(cache: bool = True) -> Answers:
    """What Z3 said of the steps of proofs: kept in `$XDG_CACHE_HOME/shardproof/steps.json`, or the
    same in `~/.cache`; in memory alone without `cache`."""
    from shardproof.verifier.smt.answers import Answers

    return Answers(user_folder("CACHE") / "steps.json" if cache else None)


def check_alone(run: Run, asked: CheckCertificate) -> Outcome:
    """Replay a certificate; with `rules_trusted` Z3 is asked about none of its steps, with `smtlib`
    about all, and what it is asked is written to that directory.

    Raises:
        InputError, MalformedError, ContractError: a file that cannot be read or written, or
            options that exclude each other.
    """
    if asked.smtlib is not None and asked.rules_trusted:
        raise InputError(
            "--smtlib writes what Z3 is asked, and --rules-trusted asks it nothing",
            where="--smtlib",
            hint="leave one of the two options out",
        )
    files = Files.beside(asked.path, asked.sequential, asked.distributed, asked.contract)
    with run.phase("load") as phase:
        problem, certificate = files.read()
        sizes = (len(p.nodes) for p in (problem.sequential, problem.distributed))
        phase.summary = "{} and {} ops".format(*sizes)
    known = None if asked.rules_trusted else answers(asked.cache and asked.smtlib is None)
    with run.phase("check") as phase:
        with _written(asked.smtlib) as obligations:
            result = check(certificate, problem, known)
        if isinstance(result, Rejected):
            return rejected(run, files.certificate.name, result.reason, result.where)
        phase.summary = str(result)
        phase.facts["claims"] = result.claims
        if asked.smtlib is not None:
            phase.summary += f"; {len(obligations)} obligations in {asked.smtlib}"
    said = ("the ranks' program computes that of one device", *result.scope)
    more = ("the checker's rules are trusted",) if asked.rules_trusted else ()
    run.emit(
        events.VerdictReached(
            verdict="accepted",
            message="; ".join((*said, *more)),
            scope=list(result.scope),
            assumptions=list(result.assumptions),
        )
    )
    return Outcome(Exit.PROVED, "accepted", answer="accepted")


@contextmanager
def _written(folder: Path | None) -> Generator[Mapping[str, Obligation]]:
    """Each distinct obligation that is asked inside, as a file of a folder where one is given.

    Raises:
        InputError: it cannot be written.
    """
    if folder is None:
        yield {}
        return
    from shardproof.verifier.smt.solver import obligations

    with obligations() as found:
        yield found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found.values():
            name = hashlib.sha256(one.text.encode()).hexdigest()[:16]
            (folder / f"{name}.smt2").write_text(one.text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            "obligations cannot be written", where=str(folder), got=str(error)
        ) from None


def second(
    run: Run, verdict: Verdict, problem: Problem, asked: Answers | None = None
) -> tuple[Verdict, Result | None]:
    """The verdict after a second opinion, in a phase of its own, and what the checker says. A proof
    whose certificate it rejects is none."""
    if not isinstance(verdict, Proof):
        return verdict, None
    with run.phase("check") as phase:
        result = check(verdict.certificate, problem, asked)
        phase.summary = "certificate rejected"
        if isinstance(result, Rejected):
            why = f"the checker rejects the certificate: {result.reason} ({result.where})"
            return Unknown(why), result
        phase.summary = str(result)
    return verdict, result


def rejected(run: Run, file: str, reason: str, where: str = "") -> Outcome:
    """A file is not what it says it is."""
    run.emit(events.VerdictReached(verdict="rejected", message=f"{file}: {reason}", where=where))
    return Outcome(Exit.NOT_PROVED, "rejected", answer="rejected")


def read_object(path: Path) -> dict[str, Any]:
    """Raises InputError where the file holds no JSON object."""

    def object_of(text: str) -> dict[str, Any]:
        data = parse(text, str(path))
        if not isinstance(data, dict):
            raise ValueError("expected an object")
        return cast("dict[str, Any]", data)

    return read_file(path, object_of)


def read_file(path: Path, read: Callable[[str], T]) -> T:
    """What `read` makes of the text of a file. Raises InputError where it makes nothing."""
    try:
        return read(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("file not found", where=str(path)) from None
    except KeyError as error:
        raise InputError("an entry is missing", where=str(path), expected=str(error)) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError("file cannot be read", where=str(path), got=str(error)) from None
