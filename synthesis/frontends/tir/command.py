"""`lift FILE` for a command line: words in, an exit code and a text out."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from shardproof.synthesis.frontends.tir.errors import TirError
from shardproof.synthesis.frontends.tir.expressions import Value
from shardproof.synthesis.frontends.tir.lift import Collective, lift_text
from shardproof.synthesis.frontends.tir.sharded import shard
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Proof, Trace, Unknown, Verdict

DONE, NOT_PROVED, BAD_INPUT = 0, 1, 2


def main_lift(
    path: str,
    mesh: str = "",
    *,
    placements: Sequence[str] = (),
    outputs: Sequence[str] = (),
    collectives: Sequence[str] = (),
    extents: Sequence[str] = (),
    inout: Sequence[str] = (),
    func: str | None = None,
    local: str | None = None,
    check: bool = True,
) -> tuple[int, str]:
    """Lift a script and print its program; with a mesh, also decide the sharded kernel.

    Args:
        mesh: `tp=2` or `dp=2,tp=2`; empty to lift only.
        placements: inputs, `A:tp=S(1)` or `A:dp=S(0),tp=S(1)`.
        outputs: the same for outputs.
        collectives: `C:all_reduce(tp)`, `C:all_gather(tp,dim=1)`, `m:all_reduce(tp,reduce=max)`.
        extents: `M=128`, `dtype=float16`.
        local: path of the script that ranks run, where it is another one.

    Returns:
        An exit code (0 lifted, and proved where a mesh is given; 1 refuted or unknown; 2 a script
        or option that is not understood) and what to print.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        other = Path(local).read_text(encoding="utf-8") if local else None
        values = dict(_extent(e) for e in extents)
        if not mesh:
            made = lift_text(text, path, func=func, extents=values, inout=inout, check=check)
            notes = "".join(f"\n# assumes {a}" for a in made.assumptions)
            if made.checked:
                notes += f"\n# agrees with the interpreter at {made.checked}"
            return DONE, to_text(made.program) + notes
        both = shard(
            text,
            _mesh(mesh),
            dict(_placement(p) for p in placements),
            dict(_placement(p) for p in outputs),
            filename=path,
            func=func,
            extents=values,
            inout=inout,
            collectives=[_collective(c) for c in collectives],
            local_text=other,
            check=check,
        )
        verdict = verify(Problem(*both.programs, both.contract), fixes=True)
    except OSError as error:
        return BAD_INPUT, f"{error.filename}: {error.strerror}"
    except UnicodeDecodeError:
        return BAD_INPUT, f"{path}: not a text file in UTF-8"
    except (IRError, ValueError) as error:
        return BAD_INPUT, str(error)
    code = DONE if isinstance(verdict, Proof) else NOT_PROVED
    return code, f"{to_text(both.distributed.program)}\n{describe(verdict)}"


def describe(verdict: Verdict) -> str:
    """A verdict in a few lines."""
    if isinstance(verdict, Proof):
        lines = ["proved", *(f"  {s}" for s in verdict.scope)]
        return "\n".join(lines + [f"  assumes {a}" for a in verdict.assumptions])
    if isinstance(verdict, Unknown):
        lines = [f"unknown  {verdict.reason}"]
    elif isinstance(verdict.witness, Trace):
        lines = [f"refuted  {verdict.witness.message}", *verdict.witness.steps]
    else:
        w = verdict.witness
        rank = ", ".join(f"{k}={v}" for k, v in w.rank.items())
        lines = [
            f"refuted  {w.output}{list(w.index)} on rank {rank}: got {w.got:.6g}, "
            f"one device gives {w.expected:.6g}"
        ]
    if verdict.location is not None:
        place = verdict.location
        lines.append(f"  {place.source}  {place.text or place.op}: {place.reason}")
    if verdict.fixes:
        lines.append("  verified fixes: " + "   |   ".join(verdict.fixes))
    return "\n".join(lines)


def _mesh(text: str) -> Mesh:
    dims: list[tuple[str, int]] = []
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if not name or not size.isdecimal() or int(size) < 1:
            raise _bad("mesh", "tp=2 or dp=2,tp=2", text)
        dims.append((name, int(size)))
    return Mesh(tuple(dims))


def _placement(text: str) -> tuple[str, dict[str, str]]:
    name, _, rest = text.partition(":")
    pairs = [p.partition("=") for p in rest.split(",")]
    if not name or not all(a.strip() and b.strip() for a, _, b in pairs):
        raise _bad("placement", "A:tp=S(1) or A:dp=S(0),tp=R", text)
    return name.strip(), {a.strip(): b.strip() for a, _, b in pairs}


def _collective(text: str) -> Collective:
    found = re.fullmatch(r"\s*([^:\s]+)\s*:\s*(\w+)\(([^()]*)\)\s*", text)
    if not found:
        raise _bad("collective", "C:all_reduce(tp) or C:all_gather(tp,dim=1)", text)
    buffer, op, inside = found.groups()
    names: list[str] = []
    attrs: dict[str, Attr] = {}
    for part in filter(None, (p.strip() for p in inside.split(","))):
        key, equals, value = part.partition("=")
        if equals:
            attrs[key.strip()] = int(value) if value.strip().isdecimal() else value.strip()
        else:
            names.append(part)
    if not names:
        raise _bad("collective", "a mesh dim, as in C:all_reduce(tp)", text)
    attrs["mesh_dim"] = names[0] if len(names) == 1 else tuple(names)
    return Collective(buffer, op, attrs)


def _extent(text: str) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise _bad("extent", "M=128 or dtype=float16", text)
    if value in ("True", "False"):
        return name, value == "True"
    if value.lstrip("-").isdecimal():
        return name, int(value)
    try:
        return name, float(Fraction(value))
    except ValueError:
        return name, value


def _bad(what: str, expected: str, got: str) -> TirError:
    return TirError(f"{what} is not understood", expected=expected, got=repr(got))
