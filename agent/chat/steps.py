"""A counterexample as steps: the finding first, then what every rank holds, in rank order."""

from typing import Any

import numpy as np

from shardproof.agent.chat.workspace import Pair
from shardproof.agent.verdict import verdicts
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import piece, scatter
from shardproof.verifier.refute.search import refute, too_large
from shardproof.verifier.verdict import Counterexample, Trace, Witness

SHOWN = 8
"""Numbers of a tensor that are written out."""
MOST = 16
"""Numbers of an operand's tensor up to which all of them are written out."""


def of(pair: Pair, verdict: Counterexample) -> list[str]:
    """The steps; never empty."""
    place = verdicts.place(verdict)
    first = verdicts.message(verdict) + (f"\nat {place}" if place else "")
    match verdict.witness:
        case Trace(check=check, message=message, steps=steps):
            return [f"{check}: {message}", *steps]
        case Witness() as witness:
            return [first, *_ranks(pair, verdict, witness)]


def _ranks(pair: Pair, verdict: Counterexample, witness: Witness) -> list[str]:
    one, many, mesh = pair.sequential, pair.distributed, pair.distributed.mesh
    if witness.sizes or too_large(one, many):
        return ["the programs are too large to be replayed here rank by rank"]
    again = refute(pair)
    if again is None or again.witness.output != witness.output:
        return ["the difference does not show again on the same numbers"]
    given = {n: np.asarray(a) for n, a in again.inputs.items()}
    floats, rng = Floats(), np.random.default_rng(0)
    pieces = {
        i.name: scatter(given[i.name], pair.contract.inputs[i.name], mesh, floats, rng)
        for i in many.inputs
    }
    with np.errstate(all="ignore"):
        whole = evaluate(one, given, floats)
        held = simulate(many, [{n: p[r] for n, p in pieces.items()} for r in range(mesh.size)])
    out = next(o for o in many.outputs if output_key(o) == witness.output)
    want = next(whole[o.value] for o in one.outputs if output_key(o) == witness.output)
    layout = pair.contract.outputs[witness.output]
    node = _blamed(pair, verdict)
    lines: list[str] = []
    for rank, coords in enumerate(mesh.coords()):
        at = ", ".join(f"{name}={n}" for name, n in coords.items()) or "0"
        rows = [f"rank {at}"]
        rows += [f"  has %{n} = {_array(p[rank])}" for n, p in pieces.items()]
        if node is not None:
            rows.append(f"  runs {_shown(node)}")
            rows += [f"    %{v} = {_array(held[rank][v])}" for v in node.inputs if v in held[rank]]
            rows += [
                f"    gives %{v} = {_array(held[rank][v])}" for v in node.outputs if v in held[rank]
            ]
        got = held[rank].get(out.value)
        expected = piece(np.asarray(want), layout, coords)
        if got is None:
            rows.append(f"  holds no {witness.output}")
        elif layout.partial or got.shape != expected.shape:
            rows.append(f"  {witness.output} = {_array(got)}")
        else:
            rows += _compared(witness.output, got, expected)
        lines.append("\n".join(rows))
    return lines


def _compared(name: str, got: Any, expected: Any) -> list[str]:
    a, b = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    gap = np.abs(a - b)
    wrong = gap > 1e-9 * max(1.0, float(np.max(np.abs(b), initial=0.0)))
    if not wrong.any():
        return [f"  {name} is right: {_array(a)}"]
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    index = ", ".join(map(str, at))
    return [
        f"  {name} = {_array(a)}",
        f"  one device has  {_array(b)}",
        f"  {int(wrong.sum())} of {wrong.size} differ, most at [{index}]: "
        f"{a[at]:.6g}, expected {b[at]:.6g}",
    ]


def _blamed(pair: Pair, verdict: Counterexample) -> Node | None:
    """The op that the verdict names, where it stands in the program itself."""
    if verdict.location is None:
        return None
    made = inline(pair.distributed).producers()
    text = verdict.location.text
    name = text.split(" = ")[0].split(",")[0].strip().removeprefix("%")
    return made.get(name)


def _shown(node: Node) -> str:
    attrs = ", ".join(f"{k}={v}" for k, v in node.attrs.items())
    left = ", ".join(f"%{v}" for v in node.outputs)
    right = ", ".join(f"%{v}" for v in node.inputs)
    text = f"{left} = {node.op} {right}" + (f" {{{attrs}}}" if attrs else "")
    return text if len(text) <= verdicts.WIDE else text[: verdicts.WIDE - 4] + " ..."


def _array(array: Any) -> str:
    """A tensor in one line: all of a small one, the first entries and the shape of another."""
    flat = np.asarray(array)
    shape = "x".join(map(str, flat.shape)) or "scalar"
    numbers = flat.reshape(-1)
    most = MOST if numbers.size <= MOST else SHOWN
    shown = " ".join(f"{float(x):.4g}" for x in numbers[:most])
    return f"[{shown}{' ...' if numbers.size > most else ''}] ({shape})"
