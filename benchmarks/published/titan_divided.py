"""torchtitan's step with what its pipelines lack: gradients divided by the number of tokens."""

# pyright: basic

from torchtitan.train import Trainer

from shardproof.frameworks.torchtitan_step import one, ranks as as_it_is, train_step

__all__ = ["one", "ranks", "train_step"]


class Divided(Trainer):
    def forward_backward_step(self, **batch):
        loss = super().forward_backward_step(**batch)
        for part in self.model_parts:
            for p in part.parameters():
                if p.grad is not None:
                    p.grad.div_(batch["global_valid_tokens"])
        return loss


def ranks(mesh, model, job_config, changes):
    schedule, trainer = as_it_is(mesh, model, job_config, changes)
    trainer.__class__ = Divided
    return schedule, trainer
