"""What an out-directory says of its patch: the files it was made for, and how far to trust it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from shardproof.agent.run import outdir
from shardproof.agent.run.errors import InputError

NAME = "patch.diff"
Applicability = Literal["safe", "unsafe", "display-only"]
"""safe: proved, and the program that was proved was captured from the code. unsafe: proved, but
the program was written from the code by other means and compared with it on trial inputs alone.
display-only: not proved, or nothing binds the program to the code."""
Origin = Literal["captured", "tried", "unbound"]
LEVELS: tuple[Applicability, ...] = ("safe", "unsafe", "display-only")

PROVED = re.compile(r"^\+# Proved:.*$", re.MULTILINE)
NOT_PROVED = "# Not proved: this is not the text that was read and proved."
Digest = str | None
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Hashes(BaseModel, frozen=True, strict=True):
    """SHA-256 of a file before and after; None where there is none before."""

    before: Sha256 | None
    after: Sha256


class Noted(BaseModel, frozen=True, strict=True):
    """What a manifest records of a patch."""

    applicability: str
    because: list[str]
    proved: Sha256 | None
    """SHA-256 of the diff that was read and proved; None where none was."""
    function: Annotated[str, Field(pattern=r"^[^\W\d]\w*$")]
    files: Annotated[dict[str, Hashes], Field(min_length=1)]
    sources: dict[str, Sha256]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The patch of an out-directory, with the hashes of its files."""

    path: Path
    diff: bytes
    files: Mapping[str, tuple[Digest, str]]
    """{path: (SHA-256 before or None, SHA-256 after)}"""
    sources: Mapping[str, str]
    """Other files that the model was captured from, with their SHA-256."""
    applicability: Applicability
    because: tuple[str, ...]
    proved: Digest = None
    """SHA-256 of the diff that the run that wrote the directory says it read and proved; None where
    it proved none. A record, and no proof of anything."""
    function: str = "parallelize"
    """What the patch calls the function that parallelizes a model."""

    @property
    def read(self) -> bool:
        """Whether this diff is the one that was read and proved."""
        return self.proved == sha256(self.diff)

    @property
    def shown(self) -> str:
        """The diff as text, `# Proved` only where it is the one that was proved."""
        text = self.diff.decode("utf-8")
        return text if self.read else PROVED.sub(f"+{NOT_PROVED}", text)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unlike(diff: bytes, proved: Digest) -> str:
    """Why a diff is not the one that was proved; empty where it is, or claims nothing."""
    if proved is None:
        claims = PROVED.search(diff.decode("utf-8", "replace"))
        return f"it says {claims[0][1:]!r}, and no run records that" if claims else ""
    if sha256(diff) == proved:
        return ""
    return (
        f"its bytes are not those that were read and proved: expected SHA-256 {proved[:12]}, "
        f"got {sha256(diff)[:12]}"
    )


def judge(proved: bool, origin: Origin) -> tuple[Applicability, tuple[str, ...]]:
    """How far a patch may be trusted, and what speaks against it."""
    if not proved:
        return "display-only", ("the plan is not proved",)
    if origin == "unbound":
        return "display-only", ("nothing binds the program that was proved to the code",)
    if origin == "tried":
        why = "the program that was proved was compared with the code on trial inputs alone"
        return "unsafe", (why,)
    return "safe", ()


def describe(
    files: Mapping[str, tuple[str | None, str]],
    sources: Mapping[str, str],
    proved: bool,
    origin: Origin = "captured",
    *,
    read: str = "",
    function: str = "parallelize",
) -> dict[str, Any]:
    """What a manifest records of a patch. `files`: {path: (text before or None, text after)}.

    `read`: the diff whose source was read again and proved; empty where none was.
    """
    level, because = judge(proved, origin)
    hashes = {
        path: Hashes(
            before=None if old is None else sha256(old.encode()), after=sha256(new.encode())
        )
        for path, (old, new) in files.items()
    }
    return Noted(
        applicability=level,
        because=list(because),
        proved=sha256(read.encode()) if read else None,
        function=function,
        files=hashes,
        sources={path: digest for path, digest in sources.items() if path not in files},
    ).model_dump()


def read(patch: Path) -> Recorded:
    """The patch of an out-directory; `patch` is the directory or the diff in it.

    Raises:
        InputError: no out-directory, one without a patch, one that changed since it was written,
            or one that records no hashes.
    """
    folder = patch if patch.is_dir() else patch.parent
    if patch != folder and patch.name != NAME:
        raise InputError(
            "not a patch of shardproof",
            where=str(patch),
            expected=f"an out-directory, or the {NAME} in it",
            hint="another patch is applied with git apply; nothing here has proved it",
        )
    stated = outdir.manifest(folder)
    strangers = sorted(outdir.changed(folder))
    if strangers:
        raise InputError(
            "the out-directory changed since it was written",
            where=str(folder),
            got=", ".join(strangers[:5]),
            hint="run parallelize again",
        )
    verdict = str(stated.get("verdict", "unknown"))
    if NAME not in stated["files"]:
        raise InputError(
            "the out-directory holds no patch",
            where=str(folder),
            got=f"verdict {verdict}",
            hint="report.md says why",
        )
    noted = stated.get("patch")
    if not isinstance(noted, dict):
        raise InputError(
            "the out-directory does not record which files its patch is for",
            where=str(folder),
            hint="an earlier shardproof wrote it; run parallelize again",
        )
    try:
        facts = Noted.model_validate(noted)
    except ValidationError as error:
        raise InputError(
            "the record of the patch cannot be read",
            where=str(folder / outdir.MANIFEST),
            got=" ".join(str(error).split()),
        ) from None
    level, because = facts.applicability, facts.because
    if level not in LEVELS or verdict != "proved":
        level, because = "display-only", [*because, f"the verdict is {verdict}"]
    diff = (folder / NAME).read_bytes()
    if wrong := unlike(diff, facts.proved):
        level, because = "display-only", [*because, wrong]
    return Recorded(
        folder / NAME,
        diff,
        {path: (hashes.before, hashes.after) for path, hashes in facts.files.items()},
        facts.sources,
        level,
        tuple(because),
        facts.proved,
        facts.function,
    )
