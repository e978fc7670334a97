"""Which state of ranks is which of the model's step, where names do not say: a list of momenta that
a loop keeps by hand, and what an optimizer of PyTorch keeps for each parameter."""

import re
from collections.abc import Collection, Mapping, Sequence

Family = dict[str, str]
"""Names of one kind of state, such as `bufs[*]`, by the parameter of the model's."""
_NAMED = r"(?<![\w.]){}(?!\w)"


def pair_families(
    own: Sequence[str], wanted: Sequence[str], params: Mapping[str, str]
) -> dict[str, str]:
    """For each state of a rank, that of the model: kinds in the order in which they are kept, and
    of each kind by the parameter. Empty where kinds or parameters differ.

    Args:
        own: names of the rank.
        wanted: names of the model.
        params: parameters of the rank in order, with what the model calls them.
    """
    theirs = {name: name for name in params.values()}
    mine, others = families(own, params), families(wanted, theirs)
    alike = len(mine) == len(others) and all(
        a.keys() == b.keys() for a, b in zip(mine, others, strict=True)
    )
    if not alike:
        return {}
    return {a[p]: b[p] for a, b in zip(mine, others, strict=True) for p in a}


def families(names: Collection[str], params: Mapping[str, str]) -> list[Family]:
    """The kinds of state among names. A name holds that of its parameter; or else it is a number
    of a list, of as many as there are parameters."""
    found: dict[str, Family] = {}
    numbered: dict[str, dict[int, str]] = {}
    longest = sorted(params, key=len, reverse=True)
    for name in names:
        inside = ((p, f) for p in longest if (f := re.search(_NAMED.format(re.escape(p)), name)))
        number = re.search(r"\[(\d+)\](?!.*\[\d+\])", name)
        if (held := next(inside, None)) is not None:
            param, at = held
            kind = f"{name[: at.start()]}*{name[at.end() :]}"
            found.setdefault(kind, {})[params[param]] = name
        elif number is not None:
            kind = f"{name[: number.start()]}[*]{name[number.end() :]}"
            numbered.setdefault(kind, {})[int(number[1])] = name
            found.setdefault(kind, {})
        else:
            found.setdefault(name, {})[""] = name
    for kind, members in numbered.items():
        whole = members.keys() == set(range(len(params)))
        keys = list(params.values()) if whole else [f"[{i}]" for i in members]
        found[kind] = dict(zip(keys, (members[i] for i in sorted(members)), strict=True))
    return list(found.values())
