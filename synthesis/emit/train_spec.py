"""Writes a plan in the words of torchtitan: a `parallelize_fn`, its `TrainSpec`, a job config."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from shardproof.synthesis.emit.attributes import AttributeChange
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.form import PLAIN, Form
from shardproof.synthesis.emit.imports import bound_name, import_lines
from shardproof.synthesis.emit.libraries import Sources
from shardproof.synthesis.emit.library_file import changes_of
from shardproof.synthesis.emit.obligations import obligations
from shardproof.synthesis.emit.parallelize import (
    Change,
    blocks_of,
    changed,
    entries_of,
    held_outside,
    left_whole,
    ties,
    wildcard,
)
from shardproof.synthesis.emit.patch import COMMENT, EmitError, Patch, patch, unsaid
from shardproof.synthesis.emit.snippets import PARALLEL
from shardproof.synthesis.emit.source import SourceText
from shardproof.synthesis.emit.styles import Import
from shardproof.synthesis.frontends.torch.homes import home_of
from shardproof.synthesis.planner.dialects import TORCHTITAN
from shardproof.synthesis.planner.plan import Plan

TEMPLATES = {kind: Path(__file__).with_name(f"train_spec.{kind}.j2") for kind in ("py", "toml")}
DEFINED = {"DEGREES", "Sizes", "build_model", "init_weights", "parallelize"}
BASE: tuple[Import, ...] = (
    ("dataclasses", "dataclass"),
    ("functools", "partial"),
    ("itertools", "chain"),
    ("pathlib", "Path"),
    ("torch", ""),
    ("torch", "nn"),
    ("torch.distributed.device_mesh", "DeviceMesh"),
    ("torch.distributed.tensor", "DTensor"),
    ("torch.distributed.tensor", "distribute_tensor"),
    ("torchtitan.components.loss", "build_cross_entropy_loss"),
    ("torchtitan.components.lr_scheduler", "build_lr_schedulers"),
    ("torchtitan.components.optimizer", "build_optimizers"),
    ("torchtitan.components.tokenizer", "build_hf_tokenizer"),
    ("torchtitan.config", "ConfigManager"),
    ("torchtitan.config", "JobConfig"),
    ("torchtitan.distributed", "ParallelDims"),
    ("torchtitan.distributed", "parallel_dims as titan"),
    ("torchtitan.hf_datasets.text_datasets", "build_text_dataloader"),
    ("torchtitan.protocols.model", "BaseModelArgs"),
    ("torchtitan.protocols.model", "ModelProtocol"),
    ("torchtitan.protocols.train_spec", "TrainSpec"),
    ("torchtitan.protocols.train_spec", "get_train_spec"),
    ("torchtitan.protocols.train_spec", "register_train_spec"),
)


def train_spec_patch(
    facts: ModelFacts, plan: Plan, path: Path, sources: Sources, form: Form = PLAIN
) -> Patch:
    """New files `titan_<model>.py` and `.toml` beside the owner's file, which stays as it is.

    Raises:
        EmitError: what torchtitan has no words for, with module and dialect.
    """
    root = facts.find("")
    ids = root.arguments[0] if root and len(root.arguments) == 1 else None
    if root is None or ids is None or ids.is_float or len(ids.shape) != 2:
        raise _unsaid("", "a forward of anything but one tensor of tokens")
    if root.output != "tensor":
        raise _unsaid("", f"a forward that returns a {root.output} and not logits")
    if not facts.build:
        raise EmitError(f"how {facts.class_name} is built cannot be written as an expression")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", facts.class_name).lower()
    body, imports = _parallelized(facts, plan, changes_of(facts, plan, sources.read), form)
    imports = [*BASE, *imports]
    bound = {bound_name(name, module) for module, name in imports} | DEFINED
    if clash := sorted(bound.intersection(facts.names)):
        raise EmitError(f"{clash[0]}: the file of a plan of torchtitan has something of that name")
    home, stem = home_of(path), f"titan_{name}"
    imports += [(home.name, n) for n in facts.names]
    groups = ["\n".join(lines) for lines in import_lines(imports, width=form.width) if lines]
    sizes, folder = dict(plan.mesh.dims), path.parent.relative_to(sources.root)
    launch = f"torchrun --nproc-per-node {plan.mesh.size} -m torchtitan.train --job.config_file"
    said = {
        "name": name,
        "typed": facts.class_name if facts.class_name in facts.names else "nn.Module",
        "title": facts.class_name,
        "mesh": plan.mesh,
        "launch": f"{launch} {(folder / stem).as_posix()}.toml",
        "stem": stem,
        "module": ".".join([*home.name.split(".")[:-1], stem]),
        "build": facts.build,
        "imports": "\n\n".join(groups),
        "body": body,
        "comment": COMMENT,
        "ties": [
            f"    model{facts.code(path)} = model{facts.code(paths[0])}"
            for paths in facts.tied
            for path in paths[1:]
        ],
        "degrees": {
            "dp_replicate": sizes.get(plan.replicate or "", 1),
            "dp_shard": sizes.get(plan.dp or "", 1),
            "cp": 1,
            "tp": plan.tp_size,
            "pp": 1,
            "ep": 1,
            "etp": 1,
        },
        "rows": ids.shape[0] // plan.batch_ranks or 1,
        "tokens": ids.shape[1],
    }
    made = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    texts = {
        kind: made.from_string(file.read_text(encoding="utf-8")).render(said)
        for kind, file in TEMPLATES.items()
    }
    SourceText(f"{stem}.py", texts["py"])
    files = {(folder / f"{stem}.{kind}").as_posix(): (None, t) for kind, t in texts.items()}
    return patch(files, obligations(plan, facts), f"{said['launch']}\n")


def _parallelized(
    facts: ModelFacts, plan: Plan, changes: Sequence[Change], form: Form
) -> tuple[list[str], list[Import]]:
    """Lines that parallelize `model`, and what they import."""
    if plan.cp or plan.stages or plan.loss_parallel:
        raise _unsaid("", "what splits the sequence of attention, stages or the loss")
    if plan.recompute != "none":
        raise _unsaid("", f"recompute {plan.recompute}")
    norm = next((f.path for f in facts.modules if f.base == "BatchNorm"), "")
    if norm and plan.batch_ranks > 1:
        raise _unsaid(norm, "statistics of a batch that ranks share")
    lines: list[str] = []
    imports: list[Import] = []
    if plan.tp_size > 1 and plan.modules:
        lines, imports = _split(facts, plan, changes, form)
    data, more = _sharded(facts, plan)
    return [*lines, *data], [*imports, *more]


def _split(
    facts: ModelFacts, plan: Plan, changes: Sequence[Change], form: Form
) -> tuple[list[str], list[Import]]:
    """Over `tp`."""
    entries, needs, imports = entries_of(plan, facts, form.width)
    outside = [(path, m.style) for path, m in held_outside(facts, plan).items()]
    for path, what in [*outside, *((path, style.name) for path, style in needs)]:
        raise _unsaid(path, what)
    for change in changes:
        if not isinstance(change, AttributeChange) or (change.replaced and change.divisor):
            raise _unsaid(change.path, "code that holds extents of one device")
    planned = [m.path for m in plan.modules]
    whole = dict.fromkeys(
        wildcard(path, planned) for path in _whole_modules(facts, left_whole(facts, plan))
    )
    entries += [f'        "{path}": NoParallel(),' for path in whole]
    imports += [("torchtitan.distributed", "NoParallel")] if whole else []
    lines = ['    tp = parallel_dims.get_mesh("tp")']
    if entries:
        lines += ["    plan = {", *entries, "    }", "    parallelize_module(model, tp, plan)"]
        imports.append((PARALLEL, "parallelize_module"))
    return [*lines, *ties(facts, plan), *changed(facts, changes, form.width)], imports


def _whole_modules(facts: ModelFacts, params: Iterable[str]) -> Iterable[str]:
    """Paths of the modules whose parameters stay whole on DTensors."""
    for param in params:
        path, _, name = param.rpartition(".")
        fact = facts.find(path)
        calm = fact is not None and not fact.children and fact.output == "tensor"
        if fact is None or not calm or (len(fact.arguments), fact.positional) != (1, 1):
            raise _unsaid(path, f"a parameter {name} that code around modules uses")
        yield path


def _sharded(facts: ModelFacts, plan: Plan) -> tuple[list[str], list[Import]]:
    """Over `dp`, in groups where there are any."""
    if plan.data_size == 1:
        return [], []
    (along,) = plan.shard_dims
    for path, placed in plan.params.items():
        if placed.get(along, "R") != "S(0)":
            raise _unsaid(path, f"a parameter whose rows {along} does not divide")
    names = ["dp_replicate", "fsdp"] if plan.replicate else ["fsdp"]
    given = "mesh=mesh, mp_policy=policy" + ", reshard_after_forward=False" * (plan.zero == 2)
    lines = [
        f"    mesh = parallel_dims.get_mesh({json.dumps(names if plan.replicate else names[0])})",
        "    training = job_config.training",
        "    kept, added = (",
        "        None if dtype == training.dtype else TORCH_DTYPE_MAP[dtype]",
        "        for dtype in (training.mixed_precision_param, training.mixed_precision_reduce)",
        "    )",
        "    policy = MixedPrecisionPolicy(param_dtype=kept, reduce_dtype=added)",
    ]
    for path in blocks_of(plan, facts):
        lines += [facts.each_block(path), f"        fully_shard(block, {given})"]
    lines += [
        f"    fully_shard(model, {given})",
        "    for module in model.modules():",
        "        if isinstance(module, FSDPModule):  # the trainer divides by the tokens of all",
        "            module.set_gradient_divide_factor(1.0)",
        "            module.set_force_sum_reduction_for_comms(True)",
    ]
    fsdp = ("FSDPModule", "MixedPrecisionPolicy", "fully_shard")
    imports = [("torch.distributed.fsdp", name) for name in fsdp]
    return lines, [*imports, ("torchtitan.config", "TORCH_DTYPE_MAP")]


def _unsaid(path: str, what: str) -> EmitError:
    return unsaid(TORCHTITAN.name, path, what)
