"""torchtitan's step with what it lacks: gradients of pipelines are divided by the number of tokens,
and those that DDP averages are sums again, as the loss is divided by the tokens of all ranks."""

# pyright: basic

from torchtitan.train import Trainer

from shardproof.frameworks.torchtitan_step import one, ranks as as_it_is, train_step

__all__ = ["one", "ranks", "train_step"]


class Mended(Trainer):
    def forward_backward_step(self, **batch):
        loss = super().forward_backward_step(**batch)
        dims = self.parallel_dims
        for p in (p for part in self.model_parts for p in part.parameters()):
            if p.grad is not None and dims.pp_enabled:
                p.grad.div_(batch["global_valid_tokens"])
            elif p.grad is not None and not dims.fsdp_enabled:
                p.grad.mul_(dims.dp_replicate)
        return loss


def ranks(mesh, model, job_config, changes):
    model, trainer = as_it_is(mesh, model, job_config, changes)
    trainer.__class__ = Mended
    return model, trainer
