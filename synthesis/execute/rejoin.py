"""From a patch to the two programs that are compared once more: the model as it is, and the
patched model as its ranks run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from synthesis.execute.child import fork, wait
from synthesis.execute.job import Job
from synthesis.execute.recapture import capture_rank
from synthesis.plan import Plan
from verifier.contract import Contract, output_key
from verifier.entropy import open_entropy
from verifier.frontend.lower import lower
from verifier.frontend.provenance import Provenance
from verifier.frontend.prune import prune
from verifier.frontend.session import capture_flat
from verifier.inline import inline, live
from verifier.ir.jsonio import dumps, loads
from verifier.ir.program import Program
from verifier.layout import Atom, Layout, from_placements
from verifier.ranks import gathers_by_dim, join
from verifier.windows import read_windows


def save_programs(job: Job, folder: Path) -> None:
    """Capture both and write `sequential.json`, `distributed.json`, `contract.json`, `consts.npz`.

    The patched tree is `folder / "tree"`.
    """
    torch.set_num_threads(1)
    flat, facts = capture_flat(job.request)
    sequential = live(inline(flat.program))
    assumed: tuple[str, ...] = ()
    if job.plan.loss_parallel:
        sequential, assumed = open_entropy(sequential)
    canonical = {name: group[0] for group in facts.tied for name in group}
    size = job.plan.tp_size
    wait([fork(lambda rank=rank: _save_rank(job, folder, rank, canonical)) for rank in range(size)])
    texts = [(folder / f"rank{rank}.json").read_text() for rank in range(size)]
    distributed = gathers_by_dim(join([loads(text) for text in texts], job.plan.tp or "tp"))
    placements = json.loads((folder / "placements.json").read_text())
    contract = contract_of(sequential, placements, job.plan, assumed)
    (folder / "sequential.json").write_text(dumps(sequential))
    (folder / "distributed.json").write_text(dumps(distributed))
    (folder / "contract.json").write_text(json.dumps(contract.to_json()))
    used = {i.name for i in (*sequential.inputs, *distributed.inputs)}
    held = {k: v for k, v in flat.consts.items() if k in used}
    np.savez(folder / "consts.npz", **held)


def _save_rank(job: Job, folder: Path, rank: int, canonical: dict[str, str]) -> None:
    """A rank has a process of its own: DTensor remembers coordinates of the mesh."""
    tree = folder / "tree"
    graph = capture_rank(job, tree, rank)
    places = Provenance(str(tree))
    lowered = lower(
        graph.traced, graph.buffers, places, canonical, "patched", graph.mesh, graph.groups
    )
    program = read_windows(inline(prune(lowered.program)))
    if rank == 0:
        placements = {canonical.get(k, k): v for k, v in graph.placements.items()}
        (folder / "placements.json").write_text(json.dumps(placements))
    (folder / f"rank{rank}.json").write_text(dumps(program))


def contract_of(
    sequential: Program,
    placements: dict[str, list[int] | None],
    plan: Plan,
    assumed: tuple[str, ...],
) -> Contract:
    """Parameters and gradients as DTensor places them, logits as the plan says, all else whole."""
    tp, size = plan.tp or "tp", plan.tp_size
    inputs = {i.name: Layout.replicate(i.type.shape) for i in sequential.inputs}
    for item in sequential.inputs:
        if item.role == "param":
            placed = placements.get(item.path)
            inputs[item.name] = layout_of(item.type.shape, placed, tp, size)
    outputs: dict[str, Layout] = {}
    for out in sequential.outputs:
        shape = sequential.types[out.value].shape
        layout = Layout.replicate(shape)
        if out.role == "grad":
            layout = inputs[out.path]
        elif out.role == "output" and plan.loss_parallel and out.path == "logits":
            layout = from_placements(shape, [(tp, size, "S(-1)")])
        outputs[output_key(out)] = layout
    return Contract(inputs, outputs, (), assumed)


def layout_of(shape: tuple[int, ...], placement: list[int] | None, tp: str, size: int) -> Layout:
    """The layout of a parameter split along (dim, parts): each of `parts` equal blocks of that dim
    is split over the ranks. None: whole on every rank.

    Raises:
        ValueError: an extent that does not divide.
    """
    if placement is None:
        return Layout.replicate(shape)
    dim, parts = placement[0] % len(shape), placement[1]
    if shape[dim] % (parts * size):
        raise ValueError(f"dim {dim} of {list(shape)} does not divide into {parts} x {size}")
    atoms = (Atom(parts), Atom(size, tp), Atom(shape[dim] // parts // size))
    return Layout.replicate(shape).with_dim(dim, atoms)
