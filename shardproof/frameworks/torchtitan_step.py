"""A training step of torchtitan, of its own parts: the model, what parallelizes it, the pipeline,
the loss, the optimizer, the schedule of the rate, and `Trainer.train_step`.
"""

# pyright: basic, reportMissingImports=false

from contextlib import nullcontext
from copy import deepcopy
from importlib import import_module
from types import SimpleNamespace

import torch
import torchtitan.distributed.parallel_dims as parallel_dims
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims, utils
from torchtitan.protocols.train_spec import get_train_spec
from torchtitan.train import Trainer

parallel_dims.device_type = utils.device_type = "cpu"
SHARDPROOF_TAKEN_FOR_GRANTED = (
    "Of torchtitan's trainer these are left out: the data loader, whose batch is an input of the "
    "step, and what it does to a batch; autocast; compilation; the initial weights; converters of "
    "the model, such as float8; metrics and checkpoints.",
)
DEGREES = {"rep": "dp_replicate", "dp": "dp_shard", "cp": "cp", "tp": "tp", "pp": "pp", "ep": "ep"}
"""What torchtitan calls the dims of a mesh."""
WORLD = ("dp_replicate", "dp_shard", "cp", "tp", "pp")
ASKED = {
    "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree",
    "cp": "context_parallel_degree",
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "ep": "expert_parallel_degree",
}
"""What a job config calls their sizes; 1 and -1 are what it says by itself."""


class OneDevice(ParallelDims):
    """Of one process, which makes no mesh."""

    def get_optional_mesh(self, dims):
        return None


def one(model, job_config, changes):
    return _trained(model, job_config, changes, {})


def ranks(mesh, model, job_config, changes):
    names = mesh.mesh_dim_names
    return _trained(model, job_config, changes, {DEGREES[n]: mesh[n].size() for n in names})


def train_step(_model, trainer, tokens, labels):
    trainer.train_step(iter([({"input": tokens}, labels)]))
    return {}


def _trained(name, job_config, changes, degrees):
    """The model, or the schedule of its stages, and a trainer with what `train_step` reads."""
    config = ConfigManager().parse_args([f"--job.config_file={job_config}"] if job_config else [])
    config.compile.enable = False
    if config.experimental.custom_import:
        import_module(config.experimental.custom_import)
    spec = get_train_spec(name)
    args = deepcopy(spec.model_args[config.model.flavor])
    args.update_from_config(config)
    vars(args).update(changes)
    every = dict.fromkeys((*WORLD, "ep", "etp"), 1) | degrees
    size = 1
    for degree in WORLD:
        size *= every[degree]
    for degree, field in ASKED.items():
        if size > 1 and getattr(config.parallelism, field) not in (1, -1, every[degree]):
            raise ValueError(f"{field} of the job config is not that of the mesh")
    rows = config.training.local_batch_size * every["dp_replicate"] * every["dp_shard"]
    if size > 1 and config.training.global_batch_size not in (-1, rows):
        raise ValueError(f"global_batch_size is not {rows}: a step of one batch is compared")
    dims = (ParallelDims if size > 1 else OneDevice)(**every, world_size=size)
    trainer = Trainer.__new__(Trainer)
    trainer.job_config, trainer.parallel_dims, trainer.model_args = config, dims, args
    trainer.train_spec, trainer.device = spec, torch.device("cpu")
    trainer.loss_fn = spec.build_loss_fn(config, parallel_dims=dims)
    model = spec.model_cls(args)
    trainer.model_parts = [model]
    if dims.pp_enabled:
        piped = spec.pipelining_fn(
            *(model, dims, config, trainer.device, args, spec.parallelize_fn, trainer.loss_fn)
        )
        trainer.pp_schedule, trainer.model_parts = piped[:2]
        trainer.pp_has_first_stage, trainer.pp_has_last_stage = piped[2:]
        model = trainer.pp_schedule
    elif size > 1:
        spec.parallelize_fn(model, dims, config)
    for part in trainer.model_parts:
        if getattr(part, "enable_weight_tying", False):  # as `init_weights` ties them again
            part.tok_embeddings.weight = part.output.weight
    trainer.optimizers = spec.build_optimizers_fn(trainer.model_parts, config.optimizer, dims)
    trainer.lr_schedulers = spec.build_lr_schedulers_fn(
        trainer.optimizers, config.lr_scheduler, config.training.steps
    )
    split = dims.tp_enabled and not config.parallelism.disable_loss_parallel
    trainer.train_context = utils.get_train_context(split)
    trainer.maybe_enable_amp = nullcontext()
    trainer.gradient_accumulation_steps, trainer.step = 1, 1
    trainer.checkpointer = SimpleNamespace(maybe_wait_for_staging=lambda: None)
    trainer.metrics_processor = SimpleNamespace(should_log=lambda _: False)
    return model, trainer
