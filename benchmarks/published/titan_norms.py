"""`python -m benchmarks.published.titan_norms`: the norm of the gradients of one step, by
torchtitan alone: on one process, and on two by DDP and in a pipeline. The parameters and the batch
are equal.
"""

# pyright: basic

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from shardproof.frameworks.torchtitan_step import one, ranks, train_step, utils

JOB = """
[training]
local_batch_size = {rows}
seq_len = 8
mixed_precision_param = "float32"
[parallelism]
pipeline_parallel_microbatch_size = 1
[activation_checkpoint]
mode = "none"
"""
SHAPE = {"dim": 40, "n_heads": 4, "n_layers": 2, "vocab_size": 56}
ROWS = 4


def step(rank, size, name, folder):
    job = Path(folder) / f"job{rank}.toml"
    job.write_text(JOB.format(rows=ROWS // size if name == "rep" else ROWS))
    given = ("llama3", str(job), SHAPE)
    if size > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=(name,))
    model, trainer = ranks(mesh, *given) if size > 1 else one(*given)
    whole, _ = one(*given)
    torch.manual_seed(0)
    values = {n: 0.02 * torch.randn(p.shape) for n, p in whole.named_parameters()}
    tokens, labels = torch.randint(0, 56, (2, ROWS, 8))
    with torch.no_grad():
        for part in trainer.model_parts:
            for n, p in part.named_parameters():
                p.copy_(values[n.removeprefix("module.")])
    if name == "rep":
        tokens, labels = tokens.chunk(size)[rank], labels.chunk(size)[rank]
    clip = utils.clip_grad_norm_

    def told(*args, **kwargs):
        norm = clip(*args, **kwargs)
        if not rank:
            print(f"{name + '=2' if size > 1 else 'one process':<12} {float(norm):.6f}", flush=True)
        return norm

    utils.clip_grad_norm_ = told
    train_step(model, trainer, tokens, labels)
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        for processes, dim in ((1, "one"), (2, "rep"), (2, "pp")):
            mp.spawn(step, (processes, dim, scratch), processes)
