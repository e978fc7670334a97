"""`--recapture`: the patched source of an out-directory, read again and proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent.errors import InputError
from agent.execution import proved_again
from agent.patching import record, tree
from synthesis.emit import Patch
from synthesis.plan import Plan
from verifier.frontend.request import CaptureRequest, Limits, split_target
from verifier.verdict import Verdict


def patch_again(
    directory: Path, recorded: Mapping[str, Any], plan: Plan, root: Path
) -> tuple[Verdict | None, str]:
    """The verdict on the patch of a directory as its ranks run it, and a sentence on it.

    The owner's files must be as they were when the patch was made. None where the source cannot be
    read: the sentence says why.

    Raises:
        InputError: the files are others, the manifest does not say what was captured, or it names a
            file that the patch does not change.
    """
    request = _request(directory, recorded)
    files = tree.texts(directory, root)
    kind, _ = split_target(request.target)
    changed = [root / path for path, (old, _) in files.items() if old is not None]
    if kind != "hf" and not any(p.is_file() and p.samefile(kind) for p in changed):
        raise InputError(
            "the manifest names a model in a file that the patch does not change",
            where=str(directory),
            expected=", ".join(files),
            got=request.target,
        )
    stated = record.read(directory)
    patch = Patch(files, stated.diff.decode("utf-8"), plan.obligations, "", stated.function)
    return proved_again(request, patch, plan)


def _request(directory: Path, recorded: Mapping[str, Any]) -> CaptureRequest:
    stated = recorded.get("request")
    if not isinstance(stated, dict):
        raise InputError(
            "the manifest does not say what was captured",
            where=str(directory),
            hint="run parallelize again",
        )
    try:
        found = CaptureRequest.from_json(cast("dict[str, Any]", stated))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "the manifest does not say what was captured",
            where=f"{directory}: request",
            got=f"{type(error).__name__}: {error}",
        ) from None
    return replace(found, limits=Limits())
