"""Reads a patched model: what each rank of the mesh runs, as one program.

The patched source is imported and built without memory, parallelized by its own function under a
process group whose other ranks are not there, and traced forward and backward on tensors of the
local shapes. Runs in the worker: the user's code is imported here.
"""

import gc
import hashlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from shardproof.runtime import source as runtime
from shardproof.synthesis.execute.child import fork, wait
from shardproof.synthesis.execute.job import Job
from shardproof.synthesis.execute.load import open_target, patched_model
from shardproof.synthesis.execute.reading import Order
from shardproof.synthesis.frontends.torch import depth as depths
from shardproof.synthesis.frontends.torch.asked.sources import watch_sources
from shardproof.synthesis.frontends.torch.asserts import leave_out_again
from shardproof.synthesis.frontends.torch.buffers import filled, persistent
from shardproof.synthesis.frontends.torch.chosen import read_whole
from shardproof.synthesis.frontends.torch.constants import Constant
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.fused import separate_products
from shardproof.synthesis.frontends.torch.homes import Moved, home_of, imported, ways
from shardproof.synthesis.frontends.torch.inputs import torch_types
from shardproof.synthesis.frontends.torch.known_ops import known_ops
from shardproof.synthesis.frontends.torch.masked_gather import read_windows
from shardproof.synthesis.frontends.torch.materialize import (
    fake_inputs,
    fake_mode,
    parameters_on_meta,
    take_buffers,
    to_fake,
)
from shardproof.synthesis.frontends.torch.modes import mode_of
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.ranks.arguments import nested
from shardproof.synthesis.frontends.torch.ranks.build import join_world
from shardproof.synthesis.frontends.torch.ranks.collectives import Seen, Watch
from shardproof.synthesis.frontends.torch.ranks.draws import Draws, drawn_inputs, ranges, reaching
from shardproof.synthesis.frontends.torch.ranks.dtensors import layout_of, real_meshes
from shardproof.synthesis.frontends.torch.ranks.few import waves
from shardproof.synthesis.frontends.torch.ranks.join import (
    FewRanksError,
    RankError,
    join,
)
from shardproof.synthesis.frontends.torch.ranks.lowering import lower_rank
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.placing import Placing
from shardproof.synthesis.frontends.torch.ranks.sharded import refuse_uncovered
from shardproof.synthesis.frontends.torch.ranks.tables import common, pieces
from shardproof.synthesis.frontends.torch.ranks.together import ordinary
from shardproof.synthesis.frontends.torch.ranks.tracing import (
    Order as Trace,
    cotangents,
    follow,
    known_groups,
)
from shardproof.synthesis.frontends.torch.request import ignored_in, is_library
from shardproof.synthesis.frontends.torch.rolling.depth import Depth
from shardproof.synthesis.frontends.torch.rolling.owned import MOVED, rolled
from shardproof.synthesis.frontends.torch.session import block_lists
from shardproof.synthesis.frontends.torch.switching import in_mode
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES
from shardproof.synthesis.frontends.torch.torch_api import plain_kernels
from shardproof.synthesis.frontends.torch.uninitialized_reads import refuse_unwritten
from shardproof.synthesis.frontends.torch.worker import explain
from shardproof.verifier.kernel.contract import layout_to_json, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.jsonio import dumps

ALL_OF = 4
"""Every rank of a mesh of up to so many is traced."""
AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
"""Ranks that are traced side by side: two threads of one core are no faster than one."""
CONSTANTS = "rank-0.constants.pickle"
BACKWARD = "back."
"""Before the names of values that the backward makes."""


@dataclass(frozen=True)
class _Rank:
    """What was read of one rank."""

    program: Program
    facts: Mapping[str, Any]


def save_patched(job: Job, folder: Path) -> None:
    """Write `distributed.json` and `layouts.json`: the program of the ranks, and how each
    parameter is laid out.

    The patched tree is `folder / "tree"`, what to read stands in `order.json`.

    Raises:
        CaptureError: the patched code cannot be traced, with its line.
        RankError: no one program stands for the ranks.
    """
    torch.set_num_threads(1)
    plain_kernels()
    watch_sources()
    order = TypeAdapter(Order).validate_json((folder / "order.json").read_text())
    if is_library(job.request.target):
        open_target(job.request)  # imported once for all ranks, and knows of none
    read, joined = _read(job, folder, order)
    facts = read[0].facts
    for rank, other in read.items():
        if other.facts["layouts"] != facts["layouts"]:
            raise RankError(f"ranks 0 and {rank} lay parameters out in different ways")
    tables = common(job.plan.mesh, [rank.facts["tables"] for rank in read.values()])
    reached = _reached(separate_products(ordinary(joined)), order.untrained)
    program = live(inline(_rolled(reached, facts, order)))
    (folder / "distributed.json").write_text(dumps(program))
    (folder / "layouts.json").write_text(
        json.dumps({"ranks": list(read), "params": facts["layouts"], "tables": tables})
    )


def _read(job: Job, folder: Path, order: Order) -> tuple[dict[int, _Rank], Program]:
    """Ranks, and the program that all are joined to: of a large mesh as few as tell what it is."""
    mesh = job.plan.mesh
    read: dict[int, _Rank] = {}
    left: FewRanksError | None = None
    for ranks in waves(mesh, ALL_OF):
        more = _trace(job, folder, order, [r for r in ranks if r not in read])
        read = dict(sorted((read | more).items()))
        try:
            return read, _joined(mesh, read)
        except FewRanksError as problem:
            left = problem
    assert left is not None
    raise left


def _trace(job: Job, folder: Path, order: Order, ranks: list[int]) -> dict[int, _Rank]:
    """Each rank in a process of its own: DTensor remembers coordinates of the mesh."""
    gc.freeze()  # what is shared is not gone through in each of them
    for at in range(0, len(ranks), AT_ONCE):
        batch = ranks[at : at + AT_ONCE]
        wait([fork(partial(_save_rank, job, folder, order, rank)) for rank in batch])
        for rank in batch:
            problem = folder / f"rank-{rank}.error.json"
            if problem.is_file():
                raise CaptureError(**json.loads(problem.read_text()))
    return {r: pickle.loads((folder / f"rank-{r}.pickle").read_bytes()) for r in ranks}


def _joined(mesh: Mesh, read: Mapping[int, _Rank]) -> Program:
    programs = [rank.program for rank in read.values()]
    if all(program == programs[0] for program in programs):
        return programs[0]
    coords = mesh.coords()
    return join([(coords[r], rank.program) for r, rank in read.items()])


def _save_rank(job: Job, folder: Path, order: Order, rank: int) -> None:
    try:
        with ExitStack() as stack:
            for place in dict.fromkeys((Path(job.known_ops or folder), folder)):
                stack.enter_context(known_ops(place))
            _read_rank(job, folder, order, rank)
    except Exception as problem:  # noqa: BLE001  (the user's code)
        found = explain(problem, str(folder / "tree"))
        (folder / f"rank-{rank}.error.json").write_text(json.dumps(found))


def _read_rank(job: Job, folder: Path, order: Order, rank: int) -> None:
    tree = folder / "tree"
    mesh = job.plan.mesh
    offered = join_world(mesh, rank)
    depth = _depth(order)
    library = open_target(job.request)[0] if is_library(job.request.target) else None
    shorter = depths.shorter_config(library.hf_config, depth) if library and depth else {}
    with parameters_on_meta():
        dropped = dict.fromkeys(library.dropout, 0.0) if library else {}
        model, parallelize = patched_model(job, tree, {**dropped, **shorter})
    _refuse_other_runtime(tree, job)
    leave_out_again(order.asserts, model)
    if order.whole:
        read_whole()
    model = model.to(TORCH_DTYPES[job.request.dtype])
    buffers, kept, lists = take_buffers(model), persistent(model), block_lists(model)
    draws = Draws([n for n, _ in model.named_parameters()])
    watch = Watch(rank, mesh, Places(str(tree)), Seen(), draws)
    in_mode(model, job.train)
    with fake_mode(), real_meshes():
        to_fake(model)
        placing = Placing(model, watch.places)
        with placing:
            model = parallelize(model, offered["mesh"])
        placing.refuse_changed(model, job.patched_file)
        refuse_uncovered(model, job.patched_file)
        inputs = fake_inputs(torch_types(order.inputs))
        names = tuple(inputs)
        with mode_of(model, job.train):
            found = follow(
                Trace(
                    model,
                    lambda v: model(**nested(model.__class__.forward, v)),
                    inputs,
                    order.returned,
                    watch,
                    True,
                    names,
                    state=True,
                )
            )
    _refuse_other_files(tree, job, order)
    cotangents(found.outputs)
    places = Provenance(str(tree))
    known_groups(found.traced.graph, watch, places)
    refuse_unwritten(found.traced, places)
    canonical = {name: group[0] for group in order.tied for name in group}
    drawn = reaching(draws.made, found.traced)
    if {d.name: d.law for d in drawn.values()} != order.drawn:
        raise CaptureError(
            "the patched code draws other random numbers than the model", file=job.patched_file
        )
    drawn_inputs(drawn)
    known, held = _known(folder), filled(found.traced, buffers, kept, True)
    lowered = lower_rank(
        found.traced,
        held.values,
        places,
        canonical,
        "patched",
        mesh,
        watch.seen.groups,
        False,
        known,
        held.names,
        {i.name: i.limit for i in order.inputs} | ranges(drawn),
        ignored_in(order.inputs),
    )
    if rank == 0:
        draft = folder / f"{CONSTANTS}.draft"
        draft.write_bytes(pickle.dumps(known))
        draft.replace(folder / CONSTANTS)
    with np.load(folder / "consts.npz", allow_pickle=False) as arrays:
        whole = {k: arrays[k] for k in arrays.files}
    marked = _marked(live(lowered.program), lowered.backward)
    for name in sorted(found.traced.state):
        if name in whole and not np.array_equal(lowered.consts[name], whole[name]):
            raise CaptureError(f"the patched code gives the buffer {name} another value at first")
    program, tables = pieces(read_windows(marked), lowered.consts, whole, mesh, rank)
    named: Callable[[str], str] = depth.whole_path if depth else str
    facts = {
        "lists": lists,
        "tables": tables,
        "layouts": {
            named(str(canonical.get(name, name))): layout_to_json(layout_of(p, mesh, rank, name))
            for name, p in model.named_parameters()
        },
    }
    (folder / f"rank-{rank}.pickle").write_bytes(pickle.dumps(_Rank(program, facts)))


def _refuse_other_runtime(tree: Path, job: Job) -> None:
    """Raise CaptureError where a file of the owner's hides the package that the patch imports: what
    is traced here would not be what runs there."""
    ours = runtime.FILE.parents[1]
    file = tree / job.patched_file
    folders = [file.parent]
    if job.patched_root:
        first, _ = ways(home_of(file), Moved(Path(job.patched_root), tree))
        folders = [*map(Path, first), file.parent]
    for found in [folder / "shardproof" for folder in folders]:
        package = found / "__init__.py" if found.parent != file.parent else found
        hiding = package.exists() and found.resolve() != ours.resolve()
        if hiding or found.with_suffix(".py").exists():
            name = job.request.target.rpartition(":")[2]
            raise CaptureError(
                f"{found.name} beside {name} hides the package shardproof, which the patch imports",
                file=job.patched_file,
                hint="rename it, or plan with --inline",
            )
    module = sys.modules.get("shardproof.runtime.placement")
    if module is not None and Path(str(module.__file__)).resolve() != runtime.FILE.resolve():
        raise CaptureError("shardproof.runtime is not the installed one", file=job.patched_file)


def _refuse_other_files(tree: Path, job: Job, order: Order) -> None:
    """Raise CaptureError where the patched code imports a file of the owner's that is not patched,
    and that was not captured as it is now: what is read here is to differ by the patch alone."""
    if not order.files:
        return
    back = Moved(tree, Path(job.patched_root))
    for file in imported(str(tree)):
        place = back(Path(file))
        if place.as_posix() in order.patched:
            continue
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        if order.files.get(str(place.resolve())) != digest:
            raise CaptureError(
                f"the patched code imports {place}, which the model did not as it was captured",
                file=job.patched_file,
            )


def _known(folder: Path) -> dict[str, Constant]:
    """Constants of the first rank, where it was read before."""
    held = folder / CONSTANTS
    return pickle.loads(held.read_bytes()) if held.is_file() else {}


def _reached(program: Program, untrained: Sequence[str]) -> Program:
    """The program without the gradients of parameters that none reaches, where these are zeros:
    layers have such a value in common."""
    zeros = set[str]()
    for node in program.nodes:
        full = node.op == "full" and node.attrs["value"] == 0
        if full or (node.op in (*MOVED, "expand") and zeros.issuperset(node.inputs)):
            zeros.update(node.outputs)
    spare = {f"grad:{path}" for path in untrained}
    kept = tuple(o for o in program.outputs if output_key(o) not in spare or o.value not in zeros)
    return replace(program, outputs=kept)


def _marked(program: Program, backward: frozenset[str]) -> Program:
    """The program with values of the backward named as such: what comes after the first is one."""
    known = next((i for i, n in enumerate(program.nodes) if set(n.outputs) & backward), None)
    nodes = program.nodes[known:] if known is not None else ()
    return program.renamed({v: f"{BACKWARD}{v}" for n in nodes for v in n.outputs})


def _depth(order: Order) -> Depth | None:
    """The layers that capture traced, where it did not trace all."""
    short = [g for g in order.groups if g.traced < g.count]
    if not short:
        return None
    g = short[0]
    tail = g.total - g.start - g.period * g.count
    prefixes = tuple(group.prefix for group in short)
    return Depth(prefixes, g.start, g.period, g.traced, g.count, tail)


def _rolled(program: Program, facts: Mapping[str, Any], order: Order) -> Program:
    """Layers as one scan where capture found them alike. What follows the first op of the backward
    is backward."""
    found = {group.prefix for group in order.groups}
    lists = [prefix for prefix in facts["lists"] if prefix in found]
    made = [n.outputs[0].startswith(BACKWARD) for n in program.nodes]
    at = made.index(True) if any(made) else len(made)
    return rolled(program, at, lists, _depth(order)).program
