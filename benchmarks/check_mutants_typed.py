"""`python -m benchmarks.check_mutants_typed`: what spmd_types finds of the same mutants.

It is given types as its documentation asks: for parameters, inputs and outputs, and a typing rule
(`spmd_typecheck`) for every autograd function, which the checker believes, whatever the function
does. What is split is Varying. What is not is Invariant, with whole gradients; where inputs are
split it is Replicate, with gradients that are summed afterwards. `--package` is the folder of the
installed package, which no environment of ours has.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from benchmarks.check_mutants import BASES, RESULTS, Base, copy_of, mutants
from benchmarks.gloo_truth import draws_of, run
from shardproof.synthesis.frontends.torch.ranks.stated import layout_for, read_lines

MODES = ("strict", "permissive")
ENTERED = {"Copy", "Copied"}
"""Autograd functions that hand a value to all ranks, whose gradient they sum."""
LEFT = {"Reduce", "Reduced", "_Reduce", "_InTwo", "Joined"}
"""Those that sum."""


def _ruled(module: Any, spmd: Any) -> None:
    """Give the autograd functions of a file, and of what it imports, their typing rules."""
    rules, kinds = spmd.rules, (spmd.V, spmd.I, spmd.R)
    varying, invariant, replicate = kinds
    rows, columns = spmd.Shard(0), spmd.Shard(1)

    def entered(*, x: Any, group: Any) -> Any:
        return rules.convert(x, group, src=invariant, dst=replicate)

    def left(*, x: Any, group: Any) -> Any:
        return rules.all_reduce(x, group, src=varying, dst=invariant)

    def joined(*, part: Any, group: Any) -> Any:
        return left(x=part, group=group)

    def in_two(*, y: Any, group: Any) -> Any:
        return left(x=y, group=group)

    def gathered(*, x: Any, group: Any) -> Any:
        return rules.all_gather(x, group, src=rows, dst=replicate)

    def scattered(*, x: Any, group: Any) -> Any:
        return rules.reduce_scatter(x, group, src=varying, dst=rows)

    def every_row(*, part: Any, group: Any) -> Any:
        return rules.all_gather(part, group, src=columns, dst=replicate)

    def everywhere(*, x: Any, group: Any) -> Any:
        return rules.all_reduce(x, group, src=varying, dst=replicate)

    def either(*, x: Any, group: Any, ahead: Any) -> Any:
        return left(x=x, group=group) if ahead else entered(x=x, group=group)

    def ends(*, x: Any, group: Any, out: Any) -> Any:
        return either(x=x, group=group, ahead=out)

    def all_to_all(*, x: Any, group: Any) -> Any:
        return rules.all_to_all(x, group, src=varying, dst=varying)

    def entropy(outputs: Any, *, logits: Any, words: Any, group: Any) -> None:
        rules.ignore(words)
        spmd.assert_type(logits, {group: varying})
        spmd.assert_type(outputs, {group: invariant})

    def edges(outputs: Any, *, x: Any, group: Any) -> None:
        spmd.assert_type(x, {group: varying})
        spmd.assert_type(outputs, {group: varying})

    made = {"Gather": gathered, "Scatter": scattered, "EveryRow": every_row, "Summed": either}
    made |= {"Everywhere": everywhere, "AllToAll": all_to_all, "CrossEntropy": entropy}
    made |= {"Edges": edges, "Ends": ends, "Joined": joined, "_InTwo": in_two}
    made |= dict.fromkeys(ENTERED, entered) | dict.fromkeys(LEFT - set(made), left)
    for held in [
        module,
        *(m for m in sys.modules.values() if getattr(m, "__name__", "") == "regions"),
    ]:
        for name, rule in made.items():
            if hasattr(held, name):
                getattr(held, name).spmd_typecheck = staticmethod(rule)


def typed(base: Base, folder: Path, mode: str) -> str:
    """Why the types of rank 0 do not fit; empty where they do."""
    with tempfile.TemporaryDirectory() as scratch:
        return run([lambda: _forward(base, folder, mode)], Path(scratch))


def _forward(base: Base, folder: Path, mode: str) -> None:
    import inspect

    import spmd_types as spmd  # pyright: ignore[reportMissingImports]
    import spmd_types.checker  # pyright: ignore[reportMissingImports]
    import torch

    from shardproof.synthesis.frontends.torch.ranks.build import join_world
    from shardproof.synthesis.frontends.torch.target import import_file

    offered = join_world(base.mesh, 0)
    device = offered["mesh"]
    model_file, _, model_name = base.against.partition(":")
    whole = getattr(import_file(folder / model_file), model_name)()
    shapes = {n: tuple(p.shape) for n, p in whole.named_parameters()}
    module = import_file(folder / base.file)
    _ruled(module, spmd)
    make = getattr(module, base.name)
    model = make(**{k: v for k, v in offered.items() if k in inspect.signature(make).parameters})
    groups = {n: device.get_group(n) for n in base.mesh.names}
    rows = read_lines(base.rows, "--input-layout")
    last = list(groups)[-1]
    over = {n for line in rows for n in base.mesh.names if f"@{n}" in line.text}
    whole_kind = {n: spmd.R if n in over else spmd.I for n in groups}
    made: dict[str, tuple[Any, dict[str, Any]]] = {}
    for key, value in draws_of(base)[0].items():
        layout = layout_for(rows, key, value.shape, base.mesh)
        shape, split = (layout.local_shape, layout.sharded) if layout else (value.shape, ())
        x = torch.from_numpy(value[tuple(slice(0, s) for s in shape)].copy())
        data = key in base.no_grad or not x.is_floating_point()
        x = x if data else x.float().requires_grad_()
        kind = spmd.R if data else spmd.I
        made[key] = (
            x.float() if x.is_floating_point() else x,
            {n: spmd.Shard(0) if n in split else kind for n in groups},
        )
    with spmd.set_current_mesh(device), spmd.checker.typecheck(mode):
        for name, p in model.named_parameters():
            split = tuple(p.shape) != shapes[name.removeprefix("module.")]
            kinds = {n: spmd.V if split and n == last else whole_kind[n] for n in groups}
            spmd.assert_type(p, {groups[n]: kind for n, kind in kinds.items()})
        held = [b for m in model.modules() for b in vars(m).values()]
        for table in (b for b in held if isinstance(b, torch.Tensor)):
            spmd.assert_type(table, dict.fromkeys(groups.values(), spmd.R))
        for x, kinds in made.values():
            spmd.assert_type(x, {groups[n]: kind for n, kind in kinds.items()})
        given = {key: x for key, (x, _) in made.items()}
        takes = [p.kind for p in inspect.signature(model.forward).parameters.values()]
        y = model(*given.values()) if inspect.Parameter.VAR_POSITIONAL in takes else model(**given)
        for value in y.values() if isinstance(y, dict) else [y]:
            kinds = {n: spmd.V if n in over else spmd.I for n in groups}
            spmd.assert_type(value, {groups[n]: kind for n, kind in kinds.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS.with_name("check_mutants_typed.json"))
    given = parser.parse_args()
    sys.path.insert(0, given.package)
    warnings.simplefilter("ignore")
    import spmd_types.checker  # noqa: F401  # pyright: ignore[reportMissingImports]

    rows = {}
    if given.results.is_file():
        rows = {r["key"]: r for r in map(json.loads, given.results.read_text().splitlines())}
    ends: dict[str, dict[str, str]] = {}
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
                    ends.setdefault(row["key"], {})[mode] = end
                path.write_text(before)
    given.out.write_text(json.dumps(ends, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
