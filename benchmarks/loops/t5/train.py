import functools

import torch
import torch.distributed as dist
from model import T5Block, T5ForConditionalGeneration
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import StepLR


def single():
    model = T5ForConditionalGeneration()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    return model, optimizer, StepLR(optimizer, step_size=1, gamma=0.85)


def parallel(mesh):
    model = T5ForConditionalGeneration()
    shard = functools.partial(fully_shard, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, T5Block):
            shard(module)
    shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    return model, optimizer, StepLR(optimizer, step_size=1, gamma=0.85)


def train_step(model, optimizer, scheduler, source_ids, source_mask, target_ids):
    model.train()
    fsdp_loss = torch.zeros(2)
    batch = {"source_ids": source_ids, "source_mask": source_mask, "target_ids": target_ids}
    for key in batch.keys():
        batch[key] = batch[key].to("cpu")
    optimizer.zero_grad()
    output = model(
        input_ids=batch["source_ids"],
        attention_mask=batch["source_mask"],
        labels=batch["target_ids"],
    )
    loss = output["loss"]
    loss.backward()
    optimizer.step()
    fsdp_loss[0] += loss.item()
    fsdp_loss[1] += len(batch)
    if dist.is_initialized():
        dist.all_reduce(fsdp_loss, op=dist.ReduceOp.SUM)
    train_accuracy = fsdp_loss[0] / fsdp_loss[1]
    scheduler.step()
    print(f"Train loss: {train_accuracy:.4f}")
