"""torchtitan's entry point on CPUs, on batches that all numbers of ranks have in common.

    LOSSES=losses.jsonl torchrun --nproc-per-node 4 titan_cpu.py --job.config_file titan_tiny.toml

Its trainer, its config and the `TrainSpec` of the job are as they are. It is told of a device with
gloo, given a loader that deals out rows of one batch, and asked for losses in full.
"""

# pyright: basic, reportMissingImports=false

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torchtitan import train
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.components.metrics import MetricsProcessor

DEVICE = SimpleNamespace(
    set_device=lambda _: None,
    current_device=lambda: 0,
    synchronize=lambda: None,
    get_device_name=lambda _: "CPU",
    get_device_properties=lambda _: SimpleNamespace(total_memory=1 << 30),
    reset_peak_memory_stats=lambda: None,
    empty_cache=lambda: None,
    memory_stats=lambda _: {},
)
for module in [m for name, m in sys.modules.items() if name.startswith("torchtitan.")]:
    if hasattr(module, "device_type"):
        module.device_type, module.device_module = "cpu", DEVICE

ROWS, TOKENS = 4, 32
"""Of a batch over all ranks; numbers below which its tokens are drawn."""


class Rows(BaseDataLoader):
    """The rows of a rank, of batches that are drawn alike on all."""

    def __init__(self, dp_world_size, dp_rank, tokenizer, job_config):
        self.ranks, self.rank, self.seq = dp_world_size, dp_rank, job_config.training.seq_len
        assert job_config.training.local_batch_size * dp_world_size == ROWS

    def __iter__(self):
        drawn = torch.Generator().manual_seed(0)
        while True:
            batch = torch.randint(0, TOKENS, (ROWS, self.seq + 1), generator=drawn)
            labels = batch[:, 1:].clone()
            labels[0, :3] = IGNORE_INDEX  # ranks have more labels or fewer
            yield (
                {"input": batch[:, :-1].chunk(self.ranks)[self.rank]},
                labels.chunk(self.ranks)[self.rank],
            )

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


class Losses(MetricsProcessor):
    """Writes what a step ends in."""

    def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
        if torch.distributed.get_rank() == 0:
            with Path(os.environ["LOSSES"]).open("a") as out:
                out.write(json.dumps([step, float(global_avg_loss), float(grad_norm)]) + "\n")


class Trainer(train.Trainer):
    def __init__(self, job_config):
        found = train.train_spec_module.get_train_spec

        def with_rows(name):
            spec = found(name)
            spec.build_dataloader_fn, spec.build_tokenizer_fn = Rows, None
            spec.build_metrics_processor_fn = lambda config, dims, _: Losses(config, dims)
            return spec

        train.train_spec_module.get_train_spec = with_rows
        super().__init__(job_config)


if __name__ == "__main__":
    train.main(Trainer)
