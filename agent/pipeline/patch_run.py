"""Runs a patch on local processes, as its owner would, and compares it with one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from shardproof.agent.check.pieces import Pieces, Said, cut_out
from shardproof.synthesis.emit import Patch
from shardproof.synthesis.execute.job import patched_folder, place_of
from shardproof.synthesis.execute.run.running import (
    SECONDS,
    SEEDS,
    Order,
    Ran,
    Side,
    of_file,
    run as run_all,
)
from shardproof.synthesis.frontends.torch.homes import Moved
from shardproof.synthesis.frontends.torch.request import (
    EXPERTS,
    NOT_CONFIG,
    CaptureRequest,
    InputSpec,
    is_library,
    read_config_file,
    split_target,
)
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.types import Mesh


@dataclass
class PatchPieces(Pieces):
    """Pieces of a patched model: rows of the batch over dp, and what stays split over tp."""

    plan: Plan = field(default_factory=lambda: Plan(Mesh()))

    @property
    def data_dims(self) -> frozenset[str]:
        return super().data_dims.union(self.plan.data_dims)

    def laid_out(self, inputs: Sequence[Said]) -> dict[str, Layout]:
        """Inputs whose first dim is that of the first are rows of the batch."""
        batch = inputs[0]["shape"][:1]
        out: dict[str, Layout] = {}
        for item in inputs:
            shape = tuple(item["shape"])
            rows = self.plan.batch_dims if shape and list(shape[:1]) == list(batch) else ()
            words = [(name, self.plan.mesh[name], "S(0)") for name in rows]
            out[item["name"]] = from_placements(shape, words)
        return out

    def output(
        self, name: str, whole: tuple[int, ...], local: tuple[int, ...], at: Mapping[str, int]
    ) -> Said | None:
        words: list[tuple[str, int, str]] = []
        mesh, cp, tp = self.plan.mesh, self.plan.cp, self.plan.tp
        over = (tp,) if tp else ()
        first = {0: self.plan.batch_dims, 1: (cp,) if cp else ()}
        for dim, (extent, whole_extent) in enumerate(zip(local, whole, strict=True)):
            for names in (first.get(dim, over), over):
                if extent != whole_extent == extent * prod(mesh[n] for n in names):
                    words += [(n, mesh[n], f"S({dim})") for n in names]
                    break
        return cut_out(from_placements(whole, words), at)


def execute(
    request: CaptureRequest,
    patch: Patch,
    plan: Plan,
    inputs: Sequence[InputSpec] = (),
    train: bool = False,
    seconds: float = SECONDS,
    parameters: int = 0,
    seeds: tuple[int, ...] = SEEDS,
) -> Ran:
    """Apply the patch with git in a scratch folder, and run it on `plan.mesh.size` processes.

    Args:
        inputs: of a class of transformers, what it is given.
        train: whether it is train mode alone that was captured.
        parameters: how many there are.

    Raises:
        EmitError: git refuses the patch.
        LaunchError: no processes could be started.
    """
    file, root = place_of(request, patch)
    with patched_folder(patch, root) as folder:
        order = Order(
            *_sides(request, patch, file, root, folder / "tree"),
            plan.mesh,
            tuple(map(_input, _resized(request, inputs))) or None,
            {k: v for k, v in (("batch", request.batch), ("seq", request.seq)) if v is not None},
            request.gradients,
            share=float(plan.data_size) if plan.loss != "sum" else 1.0,
            placed_by_code=True,
            modes=("train",) if train else ("train", "eval"),
            seeds=seeds,
            seconds=seconds,
            env=request.env,
        )
        pieces = PatchPieces(plan.mesh, summed=plan.loss == "sum", plan=plan)
        return run_all(order, pieces.given, pieces.outputs, parameters)


def _sides(
    request: CaptureRequest, patch: Patch, file: str, root: Path | None, tree: Path
) -> tuple[Side, Side]:
    """The model as it is, and as the patch has it in `tree`, a copy of `root`."""
    kind, name = split_target(request.target)
    fields = read_config_file(request.config_file) if request.config_file else {}
    fields = {**fields, **request.config}
    if root is None and kind != "hf":
        built = of_file("build_model", tree / file, {})
        return built, of_file(patch.function, tree / file, {}, None, built)
    if root is None:
        fixed = {"use_cache": False, "attn_implementation": request.attention, **EXPERTS}
        whole = {k: v for k, v in fields.items() if k not in NOT_CONFIG} | fixed
        built = of_file("build_model", tree / file, fixed)
        return Side("hf", name, config=whole), of_file(patch.function, tree / file, {}, None, built)
    moved = Moved(root, tree.resolve())
    new = patch.files[file][0] is None
    built = of_file(
        *(("build_model", tree / file, {}) if new else (name, tree / file, fields)), moved
    )
    return of_file(name, Path(kind), fields), of_file(patch.function, tree / file, {}, moved, built)


def _resized(request: CaptureRequest, inputs: Sequence[InputSpec]) -> Sequence[InputSpec]:
    """Inputs that are ordered; of a user's file, none: it has examples."""
    if request.inputs:
        return request.inputs
    if not is_library(request.target) or not inputs:
        return ()
    rows, batch = inputs[0].shape[0], request.batch or inputs[0].shape[0]
    return [
        replace(s, shape=(batch, *s.shape[1:])) if s.shape[:1] == (rows,) else s for s in inputs
    ]


def _input(spec: InputSpec) -> dict[str, Any]:
    return {k: getattr(spec, k) for k in ("name", "shape", "dtype", "below")}
