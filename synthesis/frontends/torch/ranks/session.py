"""Captures one device and every rank, each in a forked process of its own. Runs in the worker.

What the model's code imports of PyTorch is imported once, before the ranks are forked; what is not
PyTorch's may ask at import which rank it is on, and each rank imports it.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # tracing asks for it: once, before processes are forked
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from shardproof.synthesis.frontends.torch import compiled, sparse_buffers
from shardproof.synthesis.frontends.torch.asked.sources import watch_sources
from shardproof.synthesis.frontends.torch.asserts import leave_out_again, left_out
from shardproof.synthesis.frontends.torch.aten.table import MASKS
from shardproof.synthesis.frontends.torch.buffers import (
    Filled,
    as_numbers,
    filled,
    persistent,
    pieces_filled,
)
from shardproof.synthesis.frontends.torch.cancelled import TALKING, without_cancelled
from shardproof.synthesis.frontends.torch.captured import dump, load
from shardproof.synthesis.frontends.torch.chosen import read_whole, reads_whole
from shardproof.synthesis.frontends.torch.decompose import decompositions
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.fused import separate_products
from shardproof.synthesis.frontends.torch.homes import root_of
from shardproof.synthesis.frontends.torch.inputs import find_inputs, from_tables, torch_types
from shardproof.synthesis.frontends.torch.known_ops import known_ops
from shardproof.synthesis.frontends.torch.lower import DTYPES, type_of
from shardproof.synthesis.frontends.torch.masked_gather import read_windows
from shardproof.synthesis.frontends.torch.materialize import fake_inputs, take_buffers, tied_groups
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.prune import refuse_constant
from shardproof.synthesis.frontends.torch.put_sums import ranges_of, sums_of_puts
from shardproof.synthesis.frontends.torch.range_fold import in_declared_range
from shardproof.synthesis.frontends.torch.ranks import (
    averaging,
    build as building,
    few,
    layers,
    modes,
)
from shardproof.synthesis.frontends.torch.ranks.arguments import (
    argument_names,
    by_position,
    takes_any,
)
from shardproof.synthesis.frontends.torch.ranks.buckets import one_by_one
from shardproof.synthesis.frontends.torch.ranks.collectives import Seen, Watch
from shardproof.synthesis.frontends.torch.ranks.device_free import answer_by_cpu
from shardproof.synthesis.frontends.torch.ranks.drawn_rows import in_rows
from shardproof.synthesis.frontends.torch.ranks.draws import Draws, drawn_inputs, ranges, reaching
from shardproof.synthesis.frontends.torch.ranks.dtensors import layout_of, local, real_meshes
from shardproof.synthesis.frontends.torch.ranks.few import STAGED, EveryRankError
from shardproof.synthesis.frontends.torch.ranks.join import FewRanksError, RankError
from shardproof.synthesis.frontends.torch.ranks.loading import load_one, load_rank
from shardproof.synthesis.frontends.torch.ranks.lowering import joined_form, lower_rank
from shardproof.synthesis.frontends.torch.ranks.meanings import Meaning
from shardproof.synthesis.frontends.torch.ranks.pads import as_pads
from shardproof.synthesis.frontends.torch.ranks.pairing import (
    LISTED,
    before_names,
    pair_draws,
    pair_kept,
    pair_names,
    pair_names_of_arguments,
    pair_outputs,
)
from shardproof.synthesis.frontends.torch.ranks.pipelines import MISSED, Mail, Pipeline
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.request import (
    FORWARD,
    MOST_RANKS,
    SAID,
    TRAIN,
    UNRECORDED,
    UNSTEPPED,
    RanksRequest,
)
from shardproof.synthesis.frontends.torch.ranks.result import Doubt, Draw, Loaded, Rank, Side, Told
from shardproof.synthesis.frontends.torch.ranks.same_states import pair_families
from shardproof.synthesis.frontends.torch.ranks.sharded import precisions
from shardproof.synthesis.frontends.torch.ranks.stated import filled_buffers, layout_for, ordered
from shardproof.synthesis.frontends.torch.ranks.states import (
    KeptError,
    as_buffer,
    as_weights,
    name_states,
    refuse_shared,
    zeroed,
)
from shardproof.synthesis.frontends.torch.ranks.steps import Step, together_names
from shardproof.synthesis.frontends.torch.ranks.tables import pieces
from shardproof.synthesis.frontends.torch.ranks.tracing import (
    Order,
    cotangents,
    cut_in,
    known_groups,
)
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    Progress,
    ignored_in,
)
from shardproof.synthesis.frontends.torch.results import returned_losses
from shardproof.synthesis.frontends.torch.rolling.depth import Depth
from shardproof.synthesis.frontends.torch.roots import without_roots
from shardproof.synthesis.frontends.torch.session import block_lists
from shardproof.synthesis.frontends.torch.surroundings import Surroundings
from shardproof.synthesis.frontends.torch.switching import in_mode
from shardproof.synthesis.frontends.torch.torch_api import plain_kernels
from shardproof.synthesis.frontends.torch.uninitialized_reads import unwritten_read
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import NO_MESH, Mesh, TensorType

AT_ONCE = 2
"""Ranks that are traced side by side."""
ONE = "one"
BEGINS = "Before any step, what ranks keep is the piece of what the model's step keeps: {names}."
SHORT = "short"
"""Is there where few layers are traced."""
TRACED = "traced.json"
"""Which ranks were traced."""
Said = tuple[list[str], list[str]]
"""Fields of the config that a trace used, and modes that are like it."""
Rates = Mapping[str, tuple[float, float]]
Work = Sequence[tuple[str, Callable[[Any], Side | Loaded]]]
"""Names with what makes each, given the semaphore of those that work."""


def save_ranks(data: dict[str, Any], folder: Path, progress: Progress) -> None:
    """Write `modes.json`, which modes are judged as one, and for each of these a folder, named
    after the first: `one.json`, `traced.json`, which ranks were traced, for each `rank-N.json`.

    Raises:
        CaptureError: whatever the code of one device or of a rank ended in.
    """
    request = RanksRequest.from_json(data)
    torch.set_num_threads(1)
    plain_kernels()
    decompositions()  # once, before processes are forked
    if not request.device_free:
        _import_library((request.against, request.target))

    def trace(mode: str, others: Sequence[str]) -> list[str]:
        own = folder / mode
        own.mkdir()
        return _save(request, own, mode, others, progress)

    judged = modes.rounds(modes.wanted(request.modes, request.gradients), trace)
    (folder / "modes.json").write_text(json.dumps(judged))
    if request.load:
        _save_loads(request, folder / "load", progress)


def _save_loads(request: RanksRequest, folder: Path, progress: Progress) -> None:
    """Load one device and every rank; `error.json` says what went wrong, if anything did."""
    progress("load a checkpoint on one device and on every rank")
    folder.mkdir()
    root = _root(request.target)
    one: Work = [(ONE, lambda _: load_one(request, folder, Places(root)))]
    ranks: Work = [
        (f"rank-{r}", lambda _, r=r: load_rank(request, folder, r, Places(root)))
        for r in range(request.mesh.size)
    ]
    error = None
    for work, where in ((one, "one device"), (ranks, "a rank")):
        try:
            _all(folder, work, root)
        except CaptureError as problem:
            error = {k: getattr(problem, k) for k in ("file", "line", "text", "hint")}
            error["message"] = f"while {where} is loaded: {problem.message}"
            break
    (folder / "error.json").write_text(json.dumps(error))


def _save(
    request: RanksRequest, folder: Path, mode: str, others: Sequence[str], progress: Progress
) -> list[str]:
    """Trace one device and every rank in a mode; those of the others that are like it. A buffer
    that no rank has as the model has it is in a second trace what the constructor gives it."""
    fixed = frozenset[str]()
    while True:
        try:
            alike = _save_once(request, folder, mode, others, progress, fixed)
            alone = _held_alone(folder)
            if not alone:
                return alike
            fixed |= alone
        except CaptureError as problem:
            if not (folder / SHORT).exists():
                raise
            progress(f"all layers are traced: {problem}")
            request = replace(request, full_depth=True)
        shutil.rmtree(folder)
        folder.mkdir()


def _held_alone(folder: Path) -> frozenset[str]:
    """Buffers of any value of the model's that no rank has, or some rank has otherwise."""
    filled: Mapping[str, Any] = json.loads((folder / f"{ONE}.json").read_text())["filled"]
    if not filled:
        return frozenset()
    traced: list[int] = json.loads((folder / TRACED).read_text())
    files = [folder / f"rank-{rank}.json" for rank in traced]
    pieces = [json.loads(file.read_text())["pieces"] for file in files]
    placed = {n: [p[n] for p in pieces if n in p] for n in filled}
    return frozenset(n for n, found in placed.items() if not found or not all(found))


def _save_once(
    request: RanksRequest,
    folder: Path,
    mode: str,
    others: Sequence[str],
    progress: Progress,
    fixed: frozenset[str],
) -> list[str]:
    """As `_save`, with buffers that are `fixed` as the constructor has them."""
    progress(f"trace one device, {SAID[mode]}")
    work: Work = [(ONE, lambda _: _one(request, folder, mode, others, fixed))]
    said = _all(folder, work, _root(request.against))
    if not request.device_free:
        _import(json.loads((folder / f"{ONE}.json").read_text())["imported"])
    ranks, found = _ranks(request, folder, mode, others, progress)
    (folder / TRACED).write_text(json.dumps(ranks))
    said += found
    left = sorted(set(request.config).difference(*(used for used, _ in said)))
    if left:
        raise CaptureError(
            f"neither module takes {left[0]!r}",
            hint="--config gives arguments of their constructors, or of a config object that they "
            "take",
        )
    return [other for other in others if all(other in alike for _, alike in said)]


def _ranks(
    request: RanksRequest, folder: Path, mode: str, others: Sequence[str], progress: Progress
) -> tuple[list[int], list[Said]]:
    """Trace ranks, all or as many as tell what all run: which, and what each of them says."""
    size = request.mesh.size

    def trace(ranks: Sequence[int], every: bool) -> list[Said]:
        progress(f"trace {len(ranks)} of {size} ranks, {SAID[mode]}")
        work = [
            (f"rank-{r}", lambda slots, r=r: _rank(request, folder, r, mode, others, slots, every))
            for r in ranks
        ]
        return _all(folder, work, _root(request.target))

    most = size if request.load else MOST_RANKS
    traced: dict[int, Said] = {}
    reason: RankError | CaptureError | None = None
    for ranks in few.waves(request.mesh, most):
        more = [r for r in ranks if r not in traced]
        try:
            traced |= dict(zip(more, trace(more, len(ranks) == size), strict=True))
            if len(traced) < size:
                files = {r: folder / f"rank-{r}.json" for r in sorted(traced)}
                sides = {r: load(Rank, file.read_text()) for r, file in files.items()}
                few.refuse_unlike(sides, request.mesh)
            return sorted(traced), [traced[r] for r in sorted(traced)]
        except FewRanksError as problem:
            reason = problem
        except EveryRankError as problem:
            reason = problem
            break
    if size > MOST_RANKS:
        raise CaptureError(
            f"the mesh {request.mesh} has {size} ranks, at most {MOST_RANKS} are traced where a "
            f"few do not tell what all run: {reason}",
            hint="check the code on a smaller mesh with the same dims",
        )
    progress(f"all ranks are traced: {reason}")
    for file in (folder / "failed", *folder.glob("rank-*.json")):
        file.unlink(missing_ok=True)
    return list(range(size)), trace(range(size), True)


def _import_library(targets: Sequence[str]) -> None:
    """Import classes of the library once, before processes are forked."""
    for name in (t.removeprefix("hf:") for t in targets if t.startswith("hf:")):
        with contextlib.suppress(Exception):  # what opens the target raises it again
            getattr(importlib.import_module("transformers"), name)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # what imports it raises it again
            importlib.import_module(name)


def _root(target: str) -> str:
    """The folder whose lines are told of: the user's, or for a class of the library its own."""
    if target.startswith("hf:"):
        import transformers

        return str(Path(transformers.__file__).parent)
    return root_of(target)


def _all(folder: Path, work: Work, root: str) -> list[Said]:
    """Do each in a process of its own, `AT_ONCE` side by side; what it gives is `NAME.json`, of
    which this returns `used` and `alike`. After an error no other is begun."""
    slots = multiprocessing.get_context("fork").Semaphore(AT_ONCE)
    gc.freeze()  # what is shared is not gone through in each of them
    files = [folder / f"{name}.json" for name, _ in work]
    running = {
        _fork(file, do, root, slots): file for file, (_, do) in zip(files, work, strict=True)
    }
    problem: CaptureError | None = None
    try:
        while running:
            pid, status = os.waitpid(-1, 0)
            file = running.pop(pid, None)
            if file is not None and status:
                slots.release()
                code = os.waitstatus_to_exitcode(status)
                said = f"the process of {file.stem} ended with code {code} before it was done"
                problem = problem or CaptureError(said)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    found = [json.loads(file.read_text()) for file in files if file.is_file()]
    errors = [CaptureError(**f["error"]) for f in found if "error" in f]
    for error in sorted(errors, key=lambda e: e.message.startswith(MISSED)):
        raise EveryRankError(error.message) if error.message == STAGED else error
    if problem is not None:
        raise problem
    return [(f.get("used", []), f.get("alike", [])) for f in found]


def _fork(path: Path, do: Callable[[Any], Side | Loaded], root: str, slots: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has threads, none of which the child needs
        pid = os.fork()
    if pid:
        return pid
    from shardproof.synthesis.frontends.torch.worker import explain

    try:
        slots.acquire()
        watch_sources()
        failed = path.parent / "failed"
        if not failed.exists():
            try:
                _own_numbers()
                with known_ops(path.parent):
                    side = do(slots)
                found = dump(type(side), side)
            except BaseException as problem:  # noqa: BLE001  (the user's code)
                found = json.dumps({"error": explain(problem, root)})
                failed.touch()
            draft = path.with_suffix(".draft")
            draft.write_text(found)
            draft.replace(path)
        slots.release()
    finally:
        os._exit(0)


def _own_numbers() -> None:
    """What is drawn differs between processes, as it does between those of a real run."""
    seed = int.from_bytes(os.urandom(4), "little")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _one(
    request: RanksRequest, folder: Path, mode: str, others: Sequence[str], fixed: frozenset[str]
) -> Side:
    """The model on one device."""
    before = set(sys.modules)
    places = Places(_root(request.against))
    answered = answer_by_cpu() if request.device_free else {}
    alone = Mesh(tuple((n, 1) for n in request.mesh.names))
    offered = building.join_world(alone, 0) if request.alone else {}
    read = modes.surroundings(places)
    with read.watched():
        # A class that ranks build themselves runs the attention that the library chooses.
        attention = "eager" if request.target.startswith("hf:") else ""
        stated = bool(request.filled)
        built = building.build(
            request.against,
            request.config,
            offered,
            places,
            attention=attention,
            filled=stated,
            step=request.step_of_one or request.step,
        )
    model = built.model
    every = request.full_depth or request.load or request.step
    depth = None if every else layers.chosen(model)
    if depth is not None:
        (folder / SHORT).touch()
        layers.shorten(model, depth)
    floats = [n for n, b in model.named_buffers() if b.is_floating_point()]
    params = [n for n, _ in model.named_parameters()]
    mine = filled_buffers(request.filled, floats, params)
    own_file = Path(request.against.rpartition(":")[0]).name
    building.refuse_unknown(building.unknown(model), own_file, mine)
    asked = CaptureRequest(
        request.against, inputs=request.inputs, batch=request.batch, seq=request.seq
    )
    specs = find_inputs(asked, _with_examples(request, built.target), model)
    for name in request.no_grad:
        if name not in {s.name for s in specs}:
            raise CaptureError(
                f"--no-grad {name}: the model has no such input",
                hint=f"it has {', '.join(s.name for s in specs)}",
            )
    names = argument_names(built.target.cls.forward)
    given = {n: n for n in (*names, *(s.name for s in specs))}
    if request.alone:
        wanted = [s.name for s in specs]
        forward = built.target.cls.forward
        given = pair_names_of_arguments(wanted, names, takes_any(forward), type(model).__name__)
    side = _Module(
        request, built, specs, 0, NO_MESH, places, given, answered=answered, read=read, depth=depth
    )
    kept = {n: first for n, first in persistent(model).items() if n not in fixed}
    twice, buffers = _followed(side, mode, others)
    canonical = _ties(model)
    traced = twice.followed.traced
    side = replace(side, specs=from_tables(traced, specs))
    name_states(traced, {n: n for n in traced.state})
    traced.given = ({*mine} | traced.given) - traced.state
    draws = reaching(twice.order.watch.draws.made, traced)
    held = filled(traced, buffers, kept)
    found = _lowered(side, twice, buffers, canonical, draws, held)
    new = (n for n in sys.modules if n not in before and n.startswith("torch."))
    return replace(found, imported=tuple(new))


def _ties(model: Any) -> dict[str, str]:
    """Names of parameters that have several, each with the first."""
    return {n: g[0] for g in tied_groups(model) for n in g}


def _with_examples(request: RanksRequest, target: Any) -> Any:
    """The model's own file says what its inputs are like; else the file of the ranks may."""
    if request.inputs or target.module is None or hasattr(target.module, "example_inputs"):
        return target
    raise CaptureError(
        "no example inputs",
        hint="give --input name=dtype[extents] for each argument of forward, or define "
        f"example_inputs() in {Path(request.against.rpartition(':')[0]).name}",
    )


def _joins(pipeline: Pipeline, request: RanksRequest, file: Path) -> None:
    """A pipeline is told what the model returns; without gradients, a scalar is its loss.

    Raises:
        CaptureError: only one of them has a loss.
    """
    program = load(Side, file.read_text()).program
    found = [o for o in program.outputs if o.role != "grad"]
    scalars = [o for o in found if program.types[o.value].shape == ()]
    loss = next((o for o in found if o.role == "loss"), scalars[0] if scalars else None)
    pipeline.results = tuple((o.path, o is loss) for o in found)
    pipeline.refuse_unlike(request.gradients)


def _rank(
    request: RanksRequest,
    folder: Path,
    rank: int,
    mode: str,
    others: Sequence[str],
    slots: Any,
    every: bool,
) -> Rank:
    """The parallel module on one rank; `every`: of all that are traced side by side."""
    one = load(Told, (folder / f"{ONE}.json").read_text())
    mesh = request.mesh
    places = Places(_root(request.target))
    answered = answer_by_cpu() if request.device_free else {}
    offered = building.join_world(mesh, rank)
    asking = None if every else few.Asking(places)
    whole = "" if request.alone else request.against
    read = modes.surroundings(places)
    with read.watched():
        built = building.build(
            request.target,
            request.config,
            offered,
            places,
            request.tp_plan,
            whole,
            filled=bool(request.filled),
            step=request.step,
        )
    model = built.model
    if one.depth is not None:
        layers.shorten(model, one.depth)
    unknown = building.unknown(model)
    leave_out_again(one.asserts, model)  # a call that stops may leave more behind than it found
    if one.whole:
        read_whole()
    pipeline = model if isinstance(model, Pipeline) else None
    if asking is not None:
        asking.given(built.offered, Path(request.target.rpartition(":")[0]).name)
        if pipeline is not None:
            raise CaptureError(STAGED)
    if pipeline is not None:
        pipeline.mail = Mail(folder, rank, slots)
        pipeline.mode, places.home = built.mode, pipeline.frame
        if built.step is None:
            _joins(pipeline, request, folder / f"{ONE}.json")
    specs: list[InputSpec] = []
    for item in one.inputs:
        layout = layout_for(request.input_layouts, item.name, item.shape, mesh)
        specs.append(item if layout is None else replace(item, shape=layout.local_shape))
    theirs = [s.name for s in specs]
    forward = built.target.cls.forward
    arguments = pair_names_of_arguments(
        theirs, argument_names(forward), takes_any(forward), type(model).__name__
    )
    after = None
    if request.after_backward:
        after = getattr(built.target.module, request.after_backward, None)
        if not callable(after):
            raise CaptureError(
                f"{Path(request.target.rpartition(':')[0]).name} has no function "
                f"{request.after_backward}",
                hint="--after-backward names a function of the parallel module's file that takes "
                "the module",
            )
    said = {
        m.op: (m, offered.get(f"{m.mesh_dim}_group")) for m in map(Meaning.read, request.meanings)
    }
    own = [n for n, _ in model.named_parameters()]
    at = mesh.coords()[rank]
    prefixes = [f"{n}." for n, _ in model.named_children()] if pipeline is not None else None
    wrapped = prefixes or before_names(own, one.ties.keys() | set(one.params))

    names = (*request.names, *together_names(model))

    def paired() -> dict[str, str]:
        return pair_names(own, list(one.params), names, one.ties, wrapped, at)

    side = _Module(
        *(request, built, tuple(specs), rank, mesh, places, arguments, after, answered, said, read),
        names=paired() if built.step is not None else {},
    )
    mine = persistent(model)
    try:
        twice, buffers = _followed(side, mode, others)
    except (AssertionError, AttributeError, RuntimeError, TypeError) as problem:
        if pipeline is None or mode != FORWARD:
            raise
        raise CaptureError(UNSTEPPED) from problem
    own_file = Path(request.target.rpartition(":")[0]).name
    shared = averaging.meets(model, buffers, own_file)
    _all_met(said, twice.order.watch.seen)
    followed = twice.followed
    ties = _ties(model)
    renamed = paired()
    states = followed.traced.state
    if pipeline is not None:
        pipeline.refuse_changed(states)
    mine_too = {} if built.step is None else built.step.state()
    changed = {n: renamed[n] for n in states & renamed.keys()}
    states = states - changed.keys()
    kept = changed | pair_kept(sorted(states), list(one.states), names, wrapped, at)
    doubted: Doubt | None = None
    guessed, more, lacking = dict[str, str](), list[str](), list[str]()
    if built.step is not None:
        owners = built.step.gradients(own, renamed)
        states = states - zeroed(followed.traced, states - kept.keys() & owners.keys())
        left = as_weights(
            followed.traced, {n: owners[n] for n in states - kept.keys() if n in owners}
        )
        states = states.difference(left)
        spare = states - kept.keys() - owners.keys()
        more = [n for n, t in mine_too.items() if n in spare and t.ndim]
        lacking = [n for n, t in one.states.items() if n not in kept.values() and t.shape]
        lacking = [n for n in lacking if n not in owners]
        guessed = pair_families(more, lacking, renamed)
        kept |= guessed
        begins = _begins_otherwise(one.rates, built.step.rates)
        begins = begins or _held_otherwise(one.begins, built.step, kept)
        doubted = Doubt(asdict(_uncleared(left[0])), ("", 0, "")) if left else begins
    also = pair_kept(sorted(states - kept.keys()), list(one.every), names, wrapped, at)
    for name in sorted(also.values()):
        if built.step is not None and name in mine_too:
            if built.step.is_gradient(name):
                raise _uncleared(name)
            raise CaptureError(
                f"a step of the ranks changes {name}, which a step of the model does not"
            )
        raise CaptureError(
            f"the module changes its buffer {name}, which the model leaves as it is",
            hint="a later call, or another mode, would read what it left there: change it in the "
            "model too, or keep it under another name",
        )
    if built.step is not None:
        built.step.refuse_scale(states - kept.keys())
    name_states(followed.traced, kept)
    floats = [n for n, b in model.named_buffers() if b.is_floating_point()]
    floats += [*mine_too]
    filled_too = pair_kept(sorted(floats), list(one.given), names, wrapped, at)
    followed.traced.given = set(filled_too) - followed.traced.state
    building.refuse_unknown(unknown, own_file, {*kept, *filled_too})
    renamed |= kept | filled_too
    canonical = renamed | {n: renamed[first] for n, first in ties.items()}
    if pipeline is None or pipeline.ends or followed.outputs:
        followed.traced.outputs = pair_outputs(
            followed.traced.outputs, followed.outputs, list(one.outputs)
        )
        followed.outputs = list(one.outputs)
    draws = reaching(twice.order.watch.draws.made, followed.traced)
    theirs = pair_kept(sorted(mine), list(one.filled), names, wrapped, at)
    held, pieces_of = pieces_filled(followed.traced, buffers, theirs, one.filled, mesh, at)
    found = _lowered(side, twice, buffers, canonical, draws, held, one)
    placed = {f"parameter {canonical[n]}": p for n, p in model.named_parameters()}
    apart = {f"parameter {canonical[n]}" for n in cut_in(twice.order)}
    results = (f"output {name}" for _, name in followed.outputs)
    placed |= dict(zip(results, followed.placed, strict=True))
    placed |= {f"buffer {name}": t for name, t in mine_too.items()}
    left = {f"buffer {n}" for n in mine_too if built.step and built.step.is_gradient(n)}
    found = found if found.doubt is not None else replace(found, doubt=doubted)
    return Rank(
        **vars(found),
        compared=joined_form(_with_windows(found.program), specs, built.step is not None),
        layouts={
            name: layout_of(p, mesh, rank, name, sums=name in left)
            for name, p in placed.items()
            if isinstance(p, DTensor) and name not in apart
        },
        events=(*twice.order.watch.seen.events, *shared),
        pieces=pieces_of,
        averaged=averaging.mesh_dims(model, rank, mesh),
        asked="" if asking is None else asking.line,
        renamed={k: v for k, v in renamed.items() if k != v},
        paired_by_kind=guessed,
        unpaired=(more[0], lacking[0]) if more and lacking and not guessed else None,
        renamed_arguments={k: v for k, v in arguments.items() if k != v},
    )


def _uncleared(name: str) -> CaptureError:
    """What there is to say of a gradient that the ranks alone read before they clear it."""
    return CaptureError(
        f"a step of the ranks reads what the step before left in {name}, a step of the model "
        "does not",
        hint="clear it in every step, as the model does",
    )


def _begins_otherwise(one: Rates, ranks: Rates) -> Doubt | None:
    """What there is to say of a number of optimizers that differs in the first step alone."""
    for name in sorted(one.keys() & ranks.keys()):
        (first, then), (mine, mine_then) = one[name], ranks[name]
        if then == mine_then and first != mine:
            text = f"the first step has {name} = {mine:g}, that of the model {first:g}"
            said = CaptureError(f"{text}; later steps have the same", hint="begin with the same")
            return Doubt(asdict(said), ("", 0, ""))
    return None


def _held_otherwise(
    one: Mapping[str, float | None], step: Step, kept: Mapping[str, str]
) -> Doubt | None:
    """What there is to say of state that begins with another number than the model's."""
    unknown: list[str] = []
    for name, theirs in kept.items():
        if name not in step.begins and theirs not in one:
            continue
        # What an optimizer makes in its first step begins as nothing.
        mine, wanted = step.begins.get(name, 0.0), one.get(theirs, 0.0)
        if mine is None or wanted is None:
            unknown.append(name)
        elif mine != wanted:
            said = f"before any step {name} is {mine:g}, {theirs} of the model {wanted:g}"
            return Doubt(asdict(CaptureError(said, hint="begin with the same")), ("", 0, ""))
    if unknown:
        more = f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
        step.notes[BEGINS.format(names=", ".join(unknown[:LISTED]) + more)] = None
    return None


def _all_met(said: Mapping[str, tuple[Meaning, Any]], seen: Seen) -> None:
    """Raises CaptureError for a meaning of an op that nobody calls, or that has a body."""
    for name, (meaning, group) in said.items():
        if group is None:
            raise CaptureError(f"--op {name}: the mesh has no dim {meaning.mesh_dim}")
        if name.replace(".", "::") in seen.opened:
            raise CaptureError(
                f"--op {name}: it has a body in Python, which is what it does",
                hint="leave --op out",
            )
        if name not in seen.trusted:
            raise CaptureError(f"--op {name}: no op of this name is called")


@dataclass(frozen=True)
class _Module:
    """A module with what it is traced on: the model on one device, or a rank of the other."""

    request: RanksRequest
    built: building.Built
    specs: tuple[InputSpec, ...]
    rank: int
    mesh: Mesh
    places: Places
    arguments: dict[str, str]
    after: Any = None
    answered: Mapping[str, None] = field(default_factory=dict[str, None])
    """Calls for a device that the CPU answered."""
    meanings: Mapping[str, tuple[Meaning, Any]] = field(
        default_factory=dict[str, tuple[Meaning, Any]]
    )
    """By the name of an op: the collective that it is said to be, and its group."""
    read: Surroundings = field(default_factory=lambda: Surroundings(Places("")))
    """What was read while it was built."""
    depth: Depth | None = None
    """The layers that are traced, where they are not all."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The model's names of parameters that the module calls otherwise."""


def _followed(
    side: _Module, mode: str, others: Sequence[str]
) -> tuple[modes.Twice, dict[str, torch.Tensor]]:
    """The module traced in a mode, and the values of its buffers. A tensor that it keeps as a
    plain attribute and writes into becomes one of these."""
    buffers = {name: local(b) for name, b in take_buffers(side.built.model).items()}
    while True:
        try:
            twice = _twice(side, mode, others)
        except KeptError as found:
            buffers[found.name] = as_buffer(side.built.model, found.name).detach()
            for p in side.built.model.parameters():
                p.grad = None
            continue
        if (step := side.built.step) is not None:
            buffers |= step.counters() | step.fixed
        changed = twice.followed.traced.state  # room to work in too, which is left out later
        refuse_shared(buffers, twice.order.watch.attributes, changed)
        return twice, buffers


def _twice(side: _Module, mode: str, others: Sequence[str]) -> modes.Twice:
    built, request = side.built, side.request
    model = built.model
    taken = [n for n, _ in model.named_parameters()] + [s.name for s in side.specs]

    def call(values: dict[str, torch.Tensor]) -> Any:
        given = {side.arguments[s.name]: values[s.name] for s in side.specs}
        places, named = by_position(side.built.target.cls.forward, given)
        return (built.step or model)(*places, **named)

    with side.built.mode, real_meshes():
        moved = (*built.moved, *building.without_memory(model, built.step))
        if built.step is not None:
            built.step.named(model, side.names)
        if built.step is not None or side.after is not None:
            building.refuse_held(model, moved)
        inputs = fake_inputs(torch_types(side.specs))

        def make(mode: str) -> Order:
            seen = Seen(events=list(side.built.groups))
            return Order(
                in_mode(model, mode in (TRAIN, FORWARD)),
                call,
                inputs,
                side.built.target.result_names,
                Watch(side.rank, side.mesh, side.places, seen, Draws(taken), side.meanings),
                request.gradients and mode not in UNRECORDED,
                tuple(inputs) if isinstance(model, Pipeline) else request.no_grad,
                side.after,
                mode not in UNRECORDED,
                built.step is not None or not isinstance(model, Pipeline),
                step=built.step,
            )

        return modes.follow_twice(make, mode, others, side.built.target.module)


def _lowered(
    side: _Module,
    twice: modes.Twice,
    buffers: dict[str, torch.Tensor],
    canonical: dict[str, str],
    draws: Mapping[int, Draw],
    held: Filled,
    one: Told | None = None,
) -> Side:
    """The program, with what else is known. `held`: what buffers are taken to hold; `one`: on a
    rank, what one device says."""
    followed, watch, model = twice.followed, twice.order.watch, side.built.model
    step = side.built.step
    kept = followed.traced.state
    held_by = {n: t for t, n in followed.traced.buffers.items()}
    states = {canonical.get(n, n): t for n, t in held_by.items() if n in kept}
    given = {canonical.get(n, n): t for n, t in held_by.items() if n in followed.traced.given}
    cotangents(followed.outputs)
    drawn_inputs(draws)
    provenance = Provenance(watch.places.root)
    known_groups(followed.traced.graph, watch, provenance)
    unwritten = unwritten_read(followed.traced, provenance)
    doubts = [Doubt(asdict(d), at) for d, at in watch.seen.doubts]
    if unwritten is not None:
        refusal, made = unwritten
        doubts.append(Doubt(asdict(refusal), (made.file, made.line, made.text)))
    if doubts and one is None:
        raise doubts[0].refusal
    below = {s.name: s.limit for s in side.specs} | ranges(draws)
    reordered = any(map(ordered, side.request.input_layouts))
    lowered = lower_rank(
        followed.traced,
        held.values,
        provenance,
        canonical,
        type(model).__name__ if one is None else "ranks",
        side.mesh,
        watch.seen.groups,
        filled=held.names,
        below=below,
        ignored=ignored_in(side.specs),
        tables=reordered,
    )
    program, placed = lowered.program, {}
    program, drawn = in_rows(program, tuple(draws.values()))
    if one is None:
        if step is not None:
            program = sums_of_puts(program, ranges_of(side.specs))
        program = separate_products(live(as_pads(one_by_one(program))))
        program = without_roots(
            without_cancelled(in_declared_range(program, below), below), step is not None
        )
        refuse_constant(program, type(model).__name__, step is not None)
    else:
        paired = pair_draws(drawn, one.draws)
        program = _called(program, {d.name: p.name for d, p in zip(drawn, paired, strict=True)})
        if not reordered:  # else tables are compared with those in the order of the ranks
            tables = lowered.consts, one.consts
            program, placed = pieces(program, *tables, side.mesh, side.rank)
        drawn = tuple(paired)
    read = {i.name for i in program.inputs if i.role == "const"}
    notes = [*lowered.notes, *dict.fromkeys((*side.read.read, *twice.notes))]
    notes += step.notes if step is not None else ()
    if side.built.target.dropout:
        notes.append(f"Dropout of the config is set to 0: {', '.join(side.built.target.dropout)}.")
    notes += side.built.told(side.request.target) if one is not None else ()
    if isinstance(model, DistributedDataParallel):
        notes.append("DistributedDataParallel is taken to average the gradients over its group.")
    if isinstance(model, Pipeline) and step is None:
        notes.append(model.told([s.name for s in side.specs]))
    notes += (*precisions(model), *sparse_buffers.told(model), *compiled.told())
    cut = cut_in(twice.order)
    if cut:
        notes.append(f"Ranks hold uneven rows of {', '.join(cut)}, traced as cut from the whole.")
    for name in watch.seen.opened:
        notes.append(f"The custom op {name} computes what its body in Python does.")
    for name in watch.seen.trusted:
        notes.append(f"The custom op {name} is taken to be {side.meanings[name][0]}.")
    if side.answered:
        notes.append(f"Answered by the CPU: {', '.join(sorted(side.answered))}.")
    if side.request.alone and one is None:
        notes.append("The model is the parallel module itself, on one rank.")
    if lowered.infinite:
        notes.append(MASKS)
    params = {canonical.get(n, n): p for n, p in model.named_parameters()}
    whole = params | {canonical.get(n, n): t for n, t in cut.items()}
    return Side(
        inputs=side.specs,
        params={n: TensorType(tuple(local(t).shape), DTYPES[t.dtype]) for n, t in whole.items()},
        states={n: type_of(t.meta["val"]) for n, t in states.items()},
        given={n: type_of(t.meta["val"]) for n, t in given.items()},
        outputs=tuple(followed.outputs),
        draws=drawn,
        consts={k: v for k, v in lowered.consts.items() if k in read},
        program=program,
        name=type(model).__name__,
        frozen=tuple(n for n, p in params.items() if not p.requires_grad),
        unreached=tuple(canonical.get(n, n) for n in followed.unreached),
        doubt=next(iter(doubts), None),
        raw=tuple((file, line, what) for (file, line), what in watch.seen.raw.items()),
        buffers=tuple(sorted(lowered.buffers)),
        notes=tuple(notes),
        used=side.built.used,
        imported=(),
        alike=tuple(twice.alike),
        tables={name: first for name, (first, *_) in placed.items()},
        ties=canonical if one is None else {},
        filled={n: as_numbers(buffers[n]) for n in sorted(lowered.filled)},
        rates=step.rates if step is not None else {},
        begins=step.begins if step is not None else {},
        losses=returned_losses(step.function) if step is not None else (),
        every=(*dict(model.named_buffers()), *(step.state() if step is not None else ())),
        depth=side.depth,
        lists=tuple(block_lists(model)),
        asserts=left_out(),
        whole=reads_whole(),
    )


def _called(program: Program, names: Mapping[str, str]) -> Program:
    """The program with other names for inputs, which are their paths too."""
    inputs = (replace(i, path=names.get(i.name, i.path)) for i in program.inputs)
    return replace(program, inputs=tuple(inputs)).renamed(names)


def _with_windows(program: Program) -> Program:
    """The program with its masked lookups written as such, if every collective stays: one whose
    result nobody reads is waited for by other ranks."""
    found = read_windows(program)
    return found if _exchanged(found) == _exchanged(program) else program


def _exchanged(program: Program) -> list[str]:
    return [n.op for _, n in program.walk() if lookup(n.op).kind in TALKING]
