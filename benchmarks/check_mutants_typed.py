"""`python -m benchmarks.check_mutants_typed`: what spmd_types finds of the same mutants.

It is given what `check` is given: how parameters, inputs and outputs are laid out. Modules are as
they are, so autograd functions have no typing rules of their own; modules that hold DTensors are
left out. `--package` is the folder of the installed package, which no environment of ours has.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.check_mutants import BASES, RESULTS, Base, copy_of, mutants
from benchmarks.gloo_truth import _given, run
from synthesis.frontends.torch.ranks.stated import layout_for, read_lines

MODES = ("strict", "permissive")


def typed(base: Base, folder: Path, mode: str) -> str:
    """Why the types of rank 0 do not fit; empty where they do."""
    with tempfile.TemporaryDirectory() as scratch:
        return run([lambda: _forward(base, folder, mode)], Path(scratch))


def _forward(base: Base, folder: Path, mode: str) -> None:
    import inspect

    import spmd_types as spmd  # pyright: ignore[reportMissingImports]
    import spmd_types.checker  # pyright: ignore[reportMissingImports]
    import torch

    from synthesis.frontends.torch.ranks.build import join_world
    from synthesis.frontends.torch.target import import_file

    offered = join_world(base.mesh, 0)
    device = offered["mesh"]
    model_file, _, model_name = base.against.partition(":")
    whole = getattr(import_file(folder / model_file), model_name)()
    shapes = {n: tuple(p.shape) for n, p in whole.named_parameters()}
    make = getattr(import_file(folder / base.file), base.name)
    model = make(**{k: v for k, v in offered.items() if k in inspect.signature(make).parameters})
    groups = {n: device.get_group(n) for n in base.mesh.names}
    rows = read_lines(base.rows, "--input-layout")
    last = list(groups)[-1]
    with spmd.set_current_mesh(device), spmd.checker.typecheck(mode):
        for name, p in model.named_parameters():
            split = tuple(p.shape) != shapes[name.removeprefix("module.")]
            kinds = {n: spmd.V if split and n == last else spmd.R for n in groups}
            spmd.assert_type(p, {groups[n]: kind for n, kind in kinds.items()})
        given: dict[str, Any] = {}
        for key, value in _given(base).items():
            layout = layout_for(rows, key, value.shape, base.mesh)
            shape = layout.local_shape if layout else value.shape
            x = torch.from_numpy(value)[tuple(slice(0, s) for s in shape)].clone()
            x = x.float().requires_grad_() if x.is_floating_point() else x
            split = layout.sharded if layout else ()
            spmd.assert_type(x, {g: spmd.V if n in split else spmd.R for n, g in groups.items()})
            given[key] = x
        takes = [p.kind for p in inspect.signature(model.forward).parameters.values()]
        y = model(*given.values()) if inspect.Parameter.VAR_POSITIONAL in takes else model(**given)
        for value in y.values() if isinstance(y, dict) else [y]:
            split = {n for line in rows for n in base.mesh.names if f"@{n}" in line.text}
            kinds = {n: spmd.V if n in split else spmd.R for n in groups}
            spmd.assert_type(value, {groups[n]: kind for n, kind in kinds.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    sys.path.insert(0, given.package)
    warnings.simplefilter("ignore")
    import spmd_types.checker  # noqa: F401  # pyright: ignore[reportMissingImports]

    rows = {}
    if given.results.is_file():
        rows = {r["key"]: r for r in map(json.loads, given.results.read_text().splitlines())}
    counted: Counter[tuple[str, str, str]] = Counter()
    for base in BASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            copy_of(folder)
            whole = {m: typed(base, folder, m) for m in MODES}
            said = {m: text[:90] or "ok" for m, text in whole.items()}
            print(f"{base.label:34}", said, flush=True)
            for mutant in mutants(base, folder):
                row = rows.get(mutant.key(base))
                if row is None:
                    continue
                path = folder / mutant.file
                before = path.read_text()
                path.write_text(mutant.text)
                for mode in MODES:
                    if whole[mode]:
                        end = "right module refused"
                    else:
                        end = "error" if typed(base, folder, mode) else "nothing found"
                    counted[mode, row["truth"], end] += 1
                path.write_text(before)
    for (mode, truth, end), n in sorted(counted.items()):
        print(f"{mode:12} {truth:8} {end:22} {n}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
