"""Which parameter and which output of a rank is which of the one-device model: by name. Draws of
dropout too, or else in order."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.synthesis.frontends.torch.errors import CaptureError

LISTED = 6
GRAD_OF_INPUT = "input:"
"""Before the name of an input, in the path of its gradient."""
STATE = "state:"
"""Before the name of a buffer that a call changes, in the path of what it holds then."""
Out = tuple[str, str]
"""Role and name of an output."""


def pair_names_of_arguments(
    given: Sequence[str], accepted: Sequence[str], any_names: bool, kind: str
) -> dict[str, str]:
    """For each input of the model, the argument of the parallel module, a `kind`, that it is given
    as. `accepted`: what its forward takes by name; `any_names`: whether it takes any.

    Raises:
        CaptureError: other names, and another number of them.
    """
    heads = {n: n.partition(".")[0] for n in given}
    wanted = list(dict.fromkeys(heads.values()))
    if set(wanted) <= set(accepted) or (any_names and not accepted):
        return {n: n for n in given}
    if len(wanted) == len(accepted):
        taken = dict(zip(wanted, accepted, strict=True))
        return {n: taken[head] + n.removeprefix(head) for n, head in heads.items()}
    raise CaptureError(
        f"{kind}.forward takes {', '.join(accepted) or 'nothing'}, the model takes "
        f"{', '.join(wanted)}",
        hint="give both the same arguments",
    )


def pair_names(
    own: Sequence[str],
    wanted: Sequence[str],
    stated: Sequence[tuple[str, str]],
    ties: Mapping[str, str] | None = None,
    inside: Sequence[str] = (),
    at: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """For each parameter of a rank, the one of the model that it is a piece of.

    A stated pair may hold `*` on both sides, which stand for the same text, and a number `#`, of
    which the model's is a sum of products: `local.#.*=experts.{2*ep+#}.*`.

    Args:
        own: names of the rank.
        wanted: names of the model.
        stated: pairs of both.
        ties: other names of the model's, each with the one that is wanted.
        inside: what stands before the names of modules that are wrapped.
        at: the coordinate of the rank along each mesh dim.

    Raises:
        CaptureError: a parameter that the model does not have, or two with the same.
    """
    wrapped = {_WRAPPERS.sub("", name): name for name in (*(ties or ()), *wanted)}
    out: dict[str, str] = {}
    for name in own:
        short = name.removeprefix(next((p for p in inside if name.startswith(p)), ""))
        short = _WRAPPERS.sub("", short)
        said = _stated(name, stated, at or {}) or _stated(short, stated, at or {})
        said = said or wrapped.get(short, short)
        out[name] = (ties or {}).get(said, said)
    for name, target in out.items():
        if target not in wanted:
            raise CaptureError(
                f"the parallel module has a parameter {name}, which the model does not have",
                hint=_try(name, wanted, out.values()),
            )
    for target in wanted:
        holders = [n for n, t in out.items() if t == target]
        if len(holders) > 1:
            raise CaptureError(f"{' and '.join(holders)} are both said to be {target}")
    return out


def before_names(names: Sequence[str], wanted: Collection[str]) -> list[str]:
    """What stands before the `wanted` names in those of a module that wraps the model's."""
    first = names[0].split(".")[:-1] if names else []
    for prefix in ("", *accumulate(f"{part}." for part in first)):
        if not all(n.startswith(prefix) for n in names):
            break
        if any(n.removeprefix(prefix) in wanted for n in names):
            return [prefix]
    return []


def pair_kept(
    own: Sequence[str],
    wanted: Sequence[str],
    stated: Sequence[tuple[str, str]],
    inside: Sequence[str],
    at: Mapping[str, int],
) -> dict[str, str]:
    """For each buffer that a rank changes, the one of the model, as `pair_names`; what the model
    does not have is left out."""
    out: dict[str, str] = {}
    for name in own:
        with suppress(CaptureError):
            out |= pair_names([name], wanted, stated, inside=inside, at=at)
    return out


_WRAPPERS = re.compile(r"\b(_checkpoint_wrapped_module|_fsdp_wrapped_module|_orig_mod)\.")
"""What PyTorch puts into the names of what it wraps."""


def _stated(name: str, stated: Sequence[tuple[str, str]], at: Mapping[str, int]) -> str:
    for pattern, target in stated:
        parts = [re.escape(p) for p in pattern.split("*")]
        found = re.fullmatch("(.*)".join(parts).replace(r"\#", r"(?P<number>\d+)", 1), name)
        if found is not None:
            option, known = f"--param {pattern}={target}", dict(at)
            if "number" in found.re.groupindex:
                known["#"] = int(found["number"])
            pieces = _BRACES.sub(partial(_sum, known, option), target).split("*")
            if len(pieces) != len(parts):
                raise CaptureError(f"{option}: both sides need as many *")
            places = found.re.groupindex.values()
            starred = [g for i, g in enumerate(found.groups(), 1) if i not in places]
            return "".join(p + g for p, g in zip(pieces, (*starred, ""), strict=True))
    return ""


_BRACES = re.compile(r"\{([^}]*)\}")


def _sum(known: Mapping[str, int], option: str, found: re.Match[str]) -> str:
    """`{2*ep+#}` as a number. Raises CaptureError for a word that is not known."""
    total = 0
    for term in found[1].split("+"):
        factors = [f.strip() for f in term.split("*")]
        for factor in factors:
            if factor not in known and not factor.isdigit():
                raise CaptureError(
                    f"{option}: {factor!r} is not known",
                    hint=f"write {', '.join(known)} or a number",
                )
        total += prod(known[f] if f in known else int(f) for f in factors)
    return str(total)


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


def pair_draws(drawn: Sequence[Draw], wanted: Sequence[Draw]) -> list[Draw]:
    """The draws of a rank under the names of the model's: by name, or else in order.

    Draws are independent of each other, so any pairing of those of one law is right.

    Raises:
        CaptureError: one that the model does not have, or of another law; one too few.
    """
    names = {d.name: d for d in wanted}
    if {d.name for d in drawn} == set(names):
        pairs = [(d, names[d.name]) for d in drawn]
    elif len(drawn) == len(wanted):
        pairs = list(zip(drawn, wanted, strict=True))
    else:
        more, fewer = (drawn, wanted) if len(drawn) > len(wanted) else (wanted, drawn)
        who = ("the parallel module", "the model") if more is drawn else ("the model", "a rank")
        lines = {(d.file, d.line) for d in fewer}
        odd = next((d for d in more if (d.file, d.line) not in lines), more[-1])
        raise CaptureError(
            f"{who[0]} draws random numbers {len(more)} times, {who[1]} {len(fewer)} times",
            file=odd.file,
            line=odd.line,
            text=odd.text,
            hint="drop the same values in both",
        )
    for mine, theirs in pairs:
        if mine.law != theirs.law or len(mine.shape) != len(theirs.shape):
            raise CaptureError(
                f"{list(mine.shape)} entries are {mine.law} here, {list(theirs.shape)} are "
                f"{theirs.law} at {theirs}",
                file=mine.file,
                line=mine.line,
                text=mine.text,
                hint="draw the same in both: drop with one p",
            )
    return [replace(mine, name=theirs.name) for mine, theirs in pairs]
