"""Captures one device and every rank, each in a forked process of its own. Runs in the worker."""

# pyright: basic
# (PyTorch has no types for what is used here.)

import json
import os
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # tracing asks for it: once, before processes are forked
from pydantic import TypeAdapter
from torch import nn

from synthesis.frontends.rank_programs.form import header
from synthesis.frontends.rank_programs.write import rank_texts
from synthesis.frontends.torch.errors import CaptureError
from synthesis.frontends.torch.inputs import find_inputs, torch_types
from synthesis.frontends.torch.lower import DTYPES
from synthesis.frontends.torch.materialize import fake_inputs, fake_mode, take_buffers, tied_groups
from synthesis.frontends.torch.provenance import Provenance
from synthesis.frontends.torch.range_fold import in_declared_range
from synthesis.frontends.torch.ranks import build as building
from synthesis.frontends.torch.ranks import modes
from synthesis.frontends.torch.ranks.collectives import Seen, Watch
from synthesis.frontends.torch.ranks.draws import Draws, drawn_inputs
from synthesis.frontends.torch.ranks.lowering import joined_form, lower_rank
from synthesis.frontends.torch.ranks.pairing import (
    argument_names,
    pair_draws,
    pair_names,
    pair_outputs,
)
from synthesis.frontends.torch.ranks.places import Places
from synthesis.frontends.torch.ranks.request import INFERENCE, MOST_RANKS, SAID, TRAIN, RanksRequest
from synthesis.frontends.torch.ranks.result import Draw
from synthesis.frontends.torch.ranks.stated import layout_for
from synthesis.frontends.torch.ranks.tables import pieces
from synthesis.frontends.torch.ranks.tracing import Order, cotangents, known_groups
from synthesis.frontends.torch.request import CaptureRequest, InputSpec, Progress
from synthesis.frontends.torch.uninitialized_reads import refuse_unwritten
from verifier.kernel.program.types import NO_MESH, Mesh
from verifier.text.digest import to_json

AT_ONCE = 2
"""Ranks that are traced side by side."""
ONE = "one"


def save_ranks(data: dict[str, Any], folder: Path, progress: Progress) -> None:
    """Write `modes.json`, which modes are judged as one, and for each of these a folder, named
    after the first: `one.json`, `one.npz`, for each rank `rank-N.json`, `rank-N.npz` and its
    program in `ranks/`.

    Raises:
        CaptureError: whatever the code of one device or of a rank ended in.
    """
    request = RanksRequest.from_json(data)
    if request.mesh.size > MOST_RANKS:
        raise CaptureError(
            f"the mesh {request.mesh} has {request.mesh.size} ranks, at most {MOST_RANKS} are "
            "traced",
            hint="check the code on a smaller mesh with the same dims",
        )
    torch.set_num_threads(1)

    def trace(mode: str, others: Sequence[str]) -> list[str]:
        own = folder / mode
        own.mkdir()
        return _save(request, own, mode, others, progress)

    judged = modes.rounds(modes.wanted(request.modes, request.gradients), trace)
    (folder / "modes.json").write_text(json.dumps(judged))


def _save(
    request: RanksRequest, folder: Path, mode: str, others: Sequence[str], progress: Progress
) -> list[str]:
    """Trace one device and every rank in a mode; those of the others that are like it."""
    progress(f"trace one device, {SAID[mode]}")
    _all(folder, [(ONE, lambda: _one(request, folder, mode, others))], _root(request.against))
    (folder / "ranks").mkdir()
    text = header("ranks", request.mesh)
    (folder / "ranks" / "mesh.sp").write_text(f"{text}\n", encoding="utf-8")
    size = request.mesh.size
    for first in range(0, size, AT_ONCE):
        progress(f"trace ranks, {SAID[mode]}, {first} of {size} done")
        batch = range(first, min(first + AT_ONCE, size))
        work = [(f"rank-{r}", lambda r=r: _rank(request, folder, r, mode, others)) for r in batch]
        _all(folder, work, _root(request.target))
    _fields_used(request, folder)
    sides = (ONE, *(f"rank-{r}" for r in range(size)))
    alike = [json.loads((folder / f"{side}.json").read_text())["alike"] for side in sides]
    return [other for other in others if all(other in found for found in alike)]


def _root(target: str) -> str:
    return str(Path(target.rpartition(":")[0]).resolve().parent)


def _all(folder: Path, work: Sequence[tuple[str, Callable[[], dict[str, Any]]]], root: str) -> None:
    """Do each in a process of its own; what it gives is `NAME.json`."""
    children = [(name, _fork(folder / f"{name}.json", do, root)) for name, do in work]
    ended = {name: os.waitpid(pid, 0)[1] for name, pid in children}
    for name, status in ended.items():
        path = folder / f"{name}.json"
        if not path.is_file():
            code = os.waitstatus_to_exitcode(status)
            raise CaptureError(f"the process of {name} ended with code {code} before it was done")
        found = json.loads(path.read_text())
        if "error" in found:
            raise CaptureError(**found["error"])


def _fork(path: Path, do: Callable[[], dict[str, Any]], root: str) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has threads, none of which the child needs
        pid = os.fork()
    if pid:
        return pid
    from synthesis.frontends.torch.worker import explain

    try:
        _own_numbers()
        found = do()
    except BaseException as problem:  # noqa: BLE001  (the user's code)
        found = {"error": explain(problem, root)}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(found))
    draft.replace(path)
    os._exit(0)


def _own_numbers() -> None:
    """What is drawn differs between processes, as it does between those of a real run."""
    seed = int.from_bytes(os.urandom(4), "little")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _one(request: RanksRequest, folder: Path, mode: str, others: Sequence[str]) -> dict[str, Any]:
    """The model on one device."""
    places = Places(_root(request.against))
    built = building.build(request.against, request.config, {}, places)
    model = built.model
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
    names = argument_names(type(model).forward)
    side = _Side(request, built, specs, 0, NO_MESH, places, {n: n for n in names})
    twice, buffers = _followed(side, mode, others)
    canonical = {n: g[0] for g in tied_groups(model) for n in g}
    draws = twice.order.watch.draws.made
    facts = _written(side, twice, buffers, canonical, draws, folder / ONE)
    facts["arguments"] = names
    facts["inputs"] = [asdict(s) for s in specs]
    return facts


def _with_examples(request: RanksRequest, target: Any) -> Any:
    """The model's own file says what its inputs are like; else the file of the ranks may."""
    if request.inputs or hasattr(target.module, "example_inputs"):
        return target
    raise CaptureError(
        "no example inputs",
        hint="give --input name=dtype[extents] for each argument of forward, or define "
        f"example_inputs() in {Path(request.against.rpartition(':')[0]).name}",
    )


def _rank(
    request: RanksRequest, folder: Path, rank: int, mode: str, others: Sequence[str]
) -> dict[str, Any]:
    """The parallel module on one rank."""
    one = json.loads((folder / f"{ONE}.json").read_text())
    mesh = request.mesh
    places = Places(_root(request.target))
    offered = building.join_world(mesh, rank)
    built = building.build(request.target, request.config, offered, places)
    model = built.model
    specs: list[InputSpec] = []
    for item in one["inputs"]:
        shape = tuple(item["shape"])
        layout = layout_for(request.input_layouts, item["name"], shape, mesh)
        local = shape if layout is None else layout.local_shape
        specs.append(InputSpec(item["name"], local, item["dtype"], item["below"]))
    theirs = [s.name for s in specs]
    arguments = pair_names_of_arguments(theirs, argument_names(type(model).forward), model)
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
    side = _Side(request, built, tuple(specs), rank, mesh, places, arguments, after)
    twice, buffers = _followed(side, mode, others)
    followed = twice.followed
    ties = {n: g[0] for g in tied_groups(model) for n in g}
    own = [n for n, _ in model.named_parameters()]
    wanted = [p["path"] for p in one["params"]]
    renamed = pair_names(own, wanted, request.names)
    canonical = renamed | {n: renamed[first] for n, first in ties.items()}
    followed.traced.outputs = pair_outputs(
        followed.traced.outputs, followed.outputs, [tuple(o) for o in one["outputs"]]
    )
    followed.outputs = [tuple(o) for o in one["outputs"]]
    drawn = TypeAdapter(list[Draw]).validate_python(one["draws"])
    draws = pair_draws(twice.order.watch.draws.made, drawn)
    facts = _written(side, twice, buffers, canonical, draws, folder / f"rank-{rank}")
    facts["renamed"] = {k: v for k, v in renamed.items() if k != v}
    facts["renamed_arguments"] = {k: v for k, v in arguments.items() if k != v}
    return facts


def pair_names_of_arguments(
    given: list[str], accepted: list[str], model: nn.Module
) -> dict[str, str]:
    """For each input of the model, the argument of the parallel module that it is given as.

    Raises:
        CaptureError: other names, and another number of them.
    """
    if set(given) <= set(accepted):
        return {n: n for n in given}
    if len(given) == len(accepted):
        return dict(zip(given, accepted, strict=True))
    raise CaptureError(
        f"{type(model).__name__}.forward takes {', '.join(accepted) or 'nothing'}, the model takes "
        f"{', '.join(given)}",
        hint="give both the same arguments",
    )


@dataclass(frozen=True)
class _Side:
    """A module with what it is traced on: the model on one device, or a rank of the other."""

    request: RanksRequest
    built: building.Built
    specs: tuple[InputSpec, ...]
    rank: int
    mesh: Mesh
    places: Places
    arguments: dict[str, str]
    after: Any = None


def _followed(
    side: _Side, mode: str, others: Sequence[str]
) -> tuple[modes.Twice, dict[str, torch.Tensor]]:
    """The module traced in a mode, and the values of its buffers."""
    model, request = side.built.model, side.request
    taken = [n for n, _ in model.named_parameters()] + [s.name for s in side.specs]

    def call(values: dict[str, torch.Tensor]) -> Any:
        return model(**{side.arguments[name]: v for name, v in values.items()})

    torch.backends.mha.set_fastpath_enabled(False)  # one fused op, which says nothing of its parts
    buffers = take_buffers(model)
    with fake_mode():
        building.without_memory(model)
        inputs = fake_inputs(torch_types(side.specs))

        def make(mode: str) -> Order:
            return Order(
                model.train(mode == TRAIN),
                call,
                inputs,
                side.built.target.result_names,
                Watch(side.rank, side.mesh, side.places, Seen(), Draws(taken)),
                request.gradients and mode != INFERENCE,
                request.no_grad,
                side.after,
                mode != INFERENCE,
            )

        return modes.follow_twice(make, mode, others, side.built.target.module), buffers


def _written(
    side: _Side,
    twice: modes.Twice,
    buffers: dict[str, torch.Tensor],
    canonical: dict[str, str],
    draws: Sequence[Draw],
    path: Path,
) -> dict[str, Any]:
    """Lower, write the program and its constants, and say what else is known."""
    followed, watch, mesh = twice.followed, twice.order.watch, side.mesh
    below = {s.name: s.below for s in side.specs}
    cotangents(followed.outputs)
    drawn_inputs(draws)
    provenance = Provenance(watch.places.root)
    known_groups(followed.traced.graph, watch, provenance)
    refuse_unwritten(followed.traced.graph, provenance)
    lowered = lower_rank(
        followed.traced,
        buffers,
        provenance,
        canonical,
        "ranks" if mesh.dims else type(side.built.model).__name__,
        mesh,
        watch.seen.groups,
    )
    program, placed = lowered.program, {}
    if not mesh.dims:
        program = in_declared_range(program, below)
    else:
        with np.load(path.with_name(f"{ONE}.npz"), allow_pickle=False) as arrays:
            whole = {k: arrays[k] for k in arrays.files}
        program, placed = pieces(program, lowered.consts, whole, mesh, side.rank)
    held = {i.name for i in program.inputs if i.role == "const"}
    np.savez(path.with_suffix(".npz"), **{k: v for k, v in lowered.consts.items() if k in held})
    if mesh.dims:
        text = next(t for r, t in rank_texts(joined_form(program, below)) if r == side.rank)
        (path.parent / "ranks" / f"rank-{side.rank:05d}.sp").write_bytes(text)
    notes = [*lowered.notes, *twice.notes]
    if lowered.infinite:
        notes.append("Infinite constants (masks) are written as plus or minus 2^200.")
    model = side.built.model
    return {
        "program": to_json(program),
        "class": type(model).__name__,
        "params": [
            {"path": canonical.get(n, n), "shape": list(p.shape), "dtype": DTYPES[p.dtype]}
            for n, p in model.named_parameters()
        ],
        "frozen": [canonical.get(n, n) for n, p in model.named_parameters() if not p.requires_grad],
        "outputs": followed.outputs,
        "unreached": [canonical.get(n, n) for n in followed.unreached],
        "raw": [[file, line, what] for (file, line), what in watch.seen.raw.items()],
        "buffers": sorted(lowered.buffers),
        "notes": notes,
        "used": list(side.built.used),
        "tables": placed,
        "draws": [asdict(d) for d in draws],
        "alike": twice.alike,
    }


def _fields_used(request: RanksRequest, folder: Path) -> None:
    """Raises CaptureError for a field of the config that neither module takes."""
    used: set[str] = set()
    for name in (ONE, "rank-0"):
        used |= set(json.loads((folder / f"{name}.json").read_text())["used"])
    left = sorted(set(request.config) - used)
    if left:
        raise CaptureError(
            f"neither module takes {left[0]!r}",
            hint="--config gives arguments of their constructors, or of a config object that they "
            "take",
        )
