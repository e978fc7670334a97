"""A class program as the three files that `verify` and `repair` read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shardproof.compat.program import Program
from shardproof.compat.repairs import lower
from shardproof.compat.sharding import Placement
from shardproof.compat.tensor import TensorState
from shardproof.compat.verdicts import layout_asked, with_outputs
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program as CoreProgram
from shardproof.verifier.text.parser import to_text

NAMES = ("one.txt", "many.txt", "contract.json")


def pair(
    program: Program,
    states: Mapping[str, TensorState],
    reference: Program | None = None,
    expected: Mapping[str, Sequence[Placement]] | None = None,
) -> tuple[CoreProgram, CoreProgram, Contract]:
    """What one device runs, what the ranks run, and how outputs must be: whole where not said.

    Raises:
        ProgramError: the program cannot run, or an output has no one-device value.
    """
    lowered = lower(program, states, reference)
    names = [name for name in program.outputs if lowered.want(name) is not None]
    layouts = {
        name: layout_asked(lowered, name, (expected or {}).get(name, _whole(states)))
        for name in names
    }
    one, many = with_outputs(lowered, names)
    outputs = {f"output:{name}": layout for name, layout in layouts.items()}
    wanted = {f"output:{n}": where for n in names if (where := lowered.asked_on(n))}
    return one, many, replace(lowered.contract, outputs=outputs, wanted=wanted)


def _whole(states: Mapping[str, TensorState]) -> list[Placement]:
    from shardproof.compat.sharding import Replicate

    mesh = next(s.spec.mesh for s in states.values() if s.sharding is not None)
    return [Replicate() for _ in mesh.dim_names]


def write(
    folder: Path,
    program: Program,
    states: Mapping[str, TensorState],
    reference: Program | None = None,
    expected: Mapping[str, Sequence[Placement]] | None = None,
) -> tuple[Path, Path, Path]:
    """Write the three files, ops with their source lines; where they are.

    Raises:
        ProgramError: as `pair`.
        OSError: the folder cannot be written.
    """
    one, many, contract = pair(program, states, reference, expected)
    texts = (to_text(one), to_text(many), json.dumps(contract.to_json(), indent=1) + "\n")
    paths = tuple(folder / name for name in NAMES)
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths[0], paths[1], paths[2]
