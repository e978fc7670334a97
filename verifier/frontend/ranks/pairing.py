"""Which parameter and which output of a rank is which of the one-device model: by name."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verifier.frontend.errors import CaptureError

LISTED = 6
GRAD_OF_INPUT = "input:"
"""Before the name of an input, in the path of its gradient."""
Out = tuple[str, str]
"""Role and name of an output."""


def argument_names(forward: Any) -> list[str]:
    """Names of the arguments of a `forward`, without `self`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(forward).parameters.values()
    return [p.name for p in found if p.kind in kinds][1:]


def pair_names(
    own: Sequence[str], wanted: Sequence[str], stated: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """For each parameter of a rank, the one of the model that it is a piece of.

    A stated pair may hold `*` on both sides, which stand for the same text.

    Raises:
        CaptureError: a parameter without a counterpart, on either side, or two with the same.
    """
    out: dict[str, str] = {}
    for name in own:
        out[name] = _stated(name, stated) or name
    for name, target in out.items():
        if target not in wanted:
            raise CaptureError(
                f"the parallel module has a parameter {name}, which the model does not have",
                hint=_try(name, wanted, out.values()),
            )
    for target in wanted:
        holders = [n for n, t in out.items() if t == target]
        if not holders:
            raise CaptureError(
                f"the model has a parameter {target}, which the parallel module does not have",
                hint=f"say which it is: --param NAME={target}",
            )
        if len(holders) > 1:
            raise CaptureError(f"{' and '.join(holders)} are both said to be {target}")
    return out


def _stated(name: str, stated: Sequence[tuple[str, str]]) -> str:
    for pattern, target in stated:
        parts = [re.escape(p) for p in pattern.split("*")]
        found = re.fullmatch("(.*)".join(parts), name)
        if found is not None:
            pieces = target.split("*")
            if len(pieces) != len(parts):
                raise CaptureError(
                    f"--param {pattern}={target}: both sides need as many *",
                )
            return "".join(p + g for p, g in zip(pieces, (*found.groups(), ""), strict=True))
    return ""


def _try(name: str, wanted: Sequence[str], taken: Any) -> str:
    free = [w for w in wanted if w not in set(taken)]
    near = difflib.get_close_matches(name, free, 3) or free[:LISTED]
    return f"say which it is: --param {name}=NAME, of {', '.join(near) or 'none that is free'}"


def pair_outputs(
    outputs: Sequence[tuple[str, str, Any]], own: Sequence[Out], wanted: Sequence[Out]
) -> list[tuple[str, str, Any]]:
    """The outputs of a rank under the roles and names that the model gives them, in order.

    Raises:
        CaptureError: another number of outputs, or another loss.
    """
    if len(own) != len(wanted):
        raise CaptureError(
            f"the parallel module returns {len(own)} tensors, the model {len(wanted)}",
            hint="let both return the same",
        )
    ours = {o for o, (role, _) in enumerate(own) if role == "loss"}
    theirs = {o for o, (role, _) in enumerate(wanted) if role == "loss"}
    if ours and ours != theirs:
        at = own[next(iter(ours))][1]
        raise CaptureError(f"the parallel module's loss is {at}, the model's is another output")
    names: Mapping[Out, Out] = dict(zip(own, wanted, strict=True))
    return [(*names.get((role, path), (role, path)), v) for role, path, v in outputs]
