"""Programs: a base, a step of a kind, the place it stands at and what hosts it, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.attacks.acts import ACTS, Act
from benchmarks.attacks.around import AROUND
from benchmarks.attacks.bases import (
    ALONE,
    DATA,
    DDP,
    HEAD,
    OWN,
    REGIONS,
    TENSOR,
    Base,
    placed,
    plain,
)
from benchmarks.attacks.steps import ASKED, FLAG, Asked

WRONG = ("v * 1.5", "v + 0.25", "v.flip(-1)", "v.softmax(-1)", "v.clamp(max=0.1)", "-v", "v.abs()")
"""What a step makes of a tensor of the ranks."""
COUPLED = ("v.softmax(-1)", "v - v.mean(-1, keepdim=True)", "v.flip(-1)", "v.cumsum(-1)")
COUPLED_ROWS = ("v - v.mean(0)", "v.cumsum(0)", "v / v.norm()")
"""What a split of columns, and of rows, changes."""
IDENTITY = ("v * 1", "v + 0", "v.clone()", "v.flip(-1).flip(-1)", "v / 1")
QUIET = (
    *("isinstance(v, torch.Tensor)", "v.ndim > 1", "v.shape[-1] > 2", "not v.is_cuda"),
    *(
        "v.is_floating_point()",
        "hasattr(v, 'grad_fn')",
        "v.dtype is not torch.int64",
        "v.numel() > 3",
    ),
    *("real(lambda: v.shape[0])", "real(lambda: v.sum())", "not real(lambda: v.missing)"),
    *("torch.is_tensor(v)", "len(v) > 0", "v.is_contiguous() or True", "v.layout is torch.strided"),
    *("real(lambda: {}['k']) or True", "dist.is_available()", "v.stride(-1) >= 0"),
)
HOSTS = (
    "inline",
    "helper",
    "submodule",
    "hook",
    "pre-hook",
    "function",
    "backward",
    "init",
    "partial",
    "attribute",
)
ADJUST = "class Adjust(nn.Module):\n    def forward(self, v):\n"
HOOK = """self.seam = nn.Identity()
self.seam.register_forward_hook(lambda m, a, o: adjusted(o, m))"""
PRE_HOOK = """self.seam = nn.Identity()
self.seam.register_forward_pre_hook(lambda m, a: (adjusted(a[0], m),))"""
FUNCTION = """

class Adjusted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, self):
        return adjusted(v * 1, self)

    @staticmethod
    def backward(ctx, d):
        return d, None
"""
BACKWARD = """

class Adjusted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, self):
        ctx.self = self
        return v.view_as(v)

    @staticmethod
    def backward(ctx, d):
        return adjusted(d * 1, ctx.self), None
"""
ATTRIBUTE = """

class At:
    def __getattr__(self, name):
        return adjusted


AT = At()
"""


@dataclass(frozen=True)
class Program:
    """A file with M, and P where ranks are given, and how it is judged."""

    key: str
    kind: str
    command: str
    mesh: str
    options: Mapping[str, object]
    text: str
    meant: str
    """`wrong` or `right`, as composed; a run on gloo decides."""


def hosted(host: str, asked: Asked, then: str, after: str = "") -> tuple[str, str, str]:
    """Lines of the file, of `__init__` and of the place, for `if asked: v = then`."""
    body = f"    if {asked.says}:\n        {then}"
    function = f"def adjusted(v, self):\n{body}\n    return v\n"
    top = f"{asked.setup}\n\n{function}"
    match host:
        case "inline":
            return asked.setup, "", f"v = @\nif {asked.says}:\n    {then}\n@ = v"
        case "init":
            taken = f"v = @\nif self.flag:\n    {then}\n@ = v"
            return asked.setup, f"self.flag = bool({asked.says})", taken
        case "submodule":
            lines = f"{body}\n    return v".splitlines()
            module = ADJUST + "".join(f"    {line}\n" for line in lines)
            return f"{asked.setup}\n\n{module}", "self.adjust = Adjust()", "@ = self.adjust(@)"
        case "partial":
            return top, "self.adjust = functools.partial(adjusted, self=self)", "@ = self.adjust(@)"
        case "hook" | "pre-hook":
            return top, HOOK if host == "hook" else PRE_HOOK, "@ = self.seam(@)"
        case "function" | "backward":
            made = FUNCTION if host == "function" else BACKWARD
            return top + made, "", "@ = Adjusted.apply(@, self)"
        case "attribute":
            return top + ATTRIBUTE, "", "@ = AT.step(@, self)"
        case _:
            return top, "", "@ = adjusted(@, self)"


def fits(host: str, asked: Asked) -> bool:
    """Nothing of the tensor, and no mode, is known where the module is built."""
    if host == "init":
        return not any(w in asked.says for w in ("v.", "(v", "self.", " v ", "real(", "v,"))
    return host != "backward" or "v.requires_grad" not in asked.says


def composed(
    base: Base, place: str, step: tuple[str, str, str], both: bool, act: Act | None = None
) -> str:
    """The text of a program; with `both`, the model takes the step too."""
    top, init, call = step
    lines = tuple(init.splitlines())
    reduce = tuple(act.reduce.splitlines()) if act is not None else ()
    if not base.ranks:
        text = HEAD + top + "\n\n" + placed(base.model, place, call, lines, ())
    elif base.ranks == DDP:
        own = placed(base.model, place, call, lines, ())
        own = own.replace("class M(nn.Module):", OWN)
        model = own.replace(OWN, "class M(nn.Module):") if both else plain(base)
        if act is not None and act.own:
            own = "class Own(M):\n" + "\n".join("    " + i for i in act.own.splitlines())
        around = act.around if act is not None and act.around else ""
        wraps = base.ranks.replace("#class", own)
        if around:
            inner = "\n".join("    " + i for i in around.splitlines())
            wraps = wraps.partition("    #around")[0] + inner + "\n"
        text = HEAD + top + "\n\n" + model + "\n" + wraps.replace("    #around\n", "")
    else:
        model = placed(base.model, place, call, lines, ()) if both else plain(base)
        ranks = placed(REGIONS + base.ranks, place, call, lines, reduce)
        text = HEAD + top + "\n\n" + model + ranks
    return f"{text}\n\ndef example_inputs():\n    return {{{base.inputs}}}\n"


def _asking(asked: Asked, draw: random.Random) -> Iterator[Program]:
    """One wrong program and one right twin of a condition."""
    for command, meant in (("check", "wrong"), ("check", "right"), ("parallelize", "wrong")):
        bases = ALONE if command == "parallelize" else (*TENSOR, *TENSOR, *DATA)
        base = draw.choice(bases)
        host = draw.choice([h for h in HOSTS if fits(h, asked)])
        place = draw.choice(base.places)
        both, then, way = False, f"v = {draw.choice(WRONG)}", asked
        if command == "parallelize":
            then = f"v = {draw.choice(COUPLED_ROWS if 'dp' in base.mesh else COUPLED)}"
        if meant == "right":
            if asked.kind == "detectors":
                way = replace(asked, says=draw.choice(QUIET), setup=FLAG, alike=True)
                host = "helper" if not fits(host, way) else host
            if way.alike and draw.random() < 0.7:
                both, place = True, draw.choice(("input", "output"))
            elif way.alike:
                then = f"v = {draw.choice(IDENTITY)}"
            elif host == "init":
                then = "pass"
            else:
                way = replace(way, says="kept", setup=way.setup)
                then, host = "pass", "noted"
        if host == "noted":
            step = (asked.setup, "", f"v = @\nkept = {asked.says}")
        else:
            step = hosted(host, way, then)
        says = asked.says if host == "noted" else way.says
        name = f"{asked.kind}: {says}, {host}, {place} of {base.name}, {then}"
        name += ", both" if both else ""
        text = composed(base, place, step, both)
        options = dict(base.options)
        yield Program(f"{command} {name}", asked.kind, command, base.mesh, options, text, meant)


def _acting(act: Act, draw: random.Random) -> Iterator[Program]:
    bases = TENSOR if act.reduce or act.kind != "wrappers" else DATA
    if act.kind in ("hooks", "memory", "buffers") and draw.random() < 0.25:
        bases = DATA
    if act.only and act.only != ("tp",):
        bases = tuple(b for b in bases if b.name in act.only)
    for base in draw.sample(bases, min(2, len(bases))):
        place = draw.choice(base.places)
        text = composed(base, place, (act.setup, act.init, act.call), False, act)
        at = f", {place}" if act.call else ""
        key = f"check {act.kind}: {act.name}{at} of {base.name}"
        yield Program(key, act.kind, "check", base.mesh, dict(base.options), text, "")


def programs(seed: int = 0) -> Sequence[Program]:
    """All of them, one of each kind in turn: a run that is stopped has some of all."""
    draw = random.Random(seed)
    by: dict[str, list[Program]] = {}
    for asked in ASKED:
        own = random.Random(f"{seed} {asked.says} {asked.setup}")
        for program in _asking(asked, own):
            by.setdefault(program.kind, []).append(program)
    for act in (*ACTS, *AROUND):
        for program in _acting(act, random.Random(f"{seed} {act.kind} {act.name}")):
            by.setdefault(program.kind, []).append(program)
    found: dict[str, Program] = {}
    for made in by.values():
        draw.shuffle(made)
    for at in range(max(map(len, by.values()))):
        for made in by.values():
            if at < len(made):
                found.setdefault(made[at].key, made[at])
    return tuple(found.values())
