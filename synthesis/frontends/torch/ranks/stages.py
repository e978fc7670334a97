"""The stages of a rank in a pipeline of `torch.distributed.pipelining` as one module.

The processes of a run read this file too: it imports nothing of shardproof.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import schedules as _schedules
from torch.utils import _pytree as pytree

SCHEDULE: Any = _schedules._PipelineSchedule


class Stages(nn.Module):
    """The stages of a rank; its forward is a step of their schedule."""

    def __init__(self, schedule: Any) -> None:
        super().__init__()
        several = isinstance(schedule, _schedules.PipelineScheduleMulti)
        held = schedule._stages if several else [schedule._stage]
        for stage in held:
            self.add_module(f"stage{stage.stage_index}", stage.submod)
        self.schedule, self.held = schedule, held
        self.results: tuple[tuple[str, bool], ...] = ()
        """Names of what the model returns, and whether each is its loss."""

    def names(self, results: Iterable[tuple[str, bool]]) -> None:
        """What the model returns is called so from now on."""
        self.results = tuple(results)

    @property
    def ends(self) -> bool:
        """Whether this rank has the last stage, and so the results."""
        return any(stage.is_last for stage in self.held)

    @property
    def evaluates(self) -> bool:
        """Whether PyTorch can run its schedule without a backward: not where a rank has two stages
        in a row, and hands on what it computed by what the backward needs."""
        ranks = getattr(self.schedule, "stage_index_to_group_rank", {})
        return not any(ranks[i] == ranks.get(i + 1) for i in ranks)

    def problem(self, message: str, hint: str) -> Exception:
        """What is raised where the model and the schedule do not fit."""
        return RuntimeError(f"{message}; {hint}")

    def parts(self, names: list[str]) -> tuple[str, list[str], str]:
        """The input of the first stage, what stages take by name, and the target of the loss: the
        last input."""
        target = names.pop() if self.schedule._loss_fn is not None else ""
        if not names:
            raise self.problem(
                f"the model has the input {target} alone, of which the first stage and the loss "
                "would each need one",
                "let the model take the target as its last argument",
            )
        taken = [set(inspect.signature(s.submod.forward).parameters) for s in self.held]
        return names[0], [n for n in names[1:] if all(n in t for t in taken)], target

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        first, more, target = self.parts(list(inputs))
        losses: list[torch.Tensor] = []
        given: dict[str, Any] = {name: inputs[name] for name in more}
        if target and self.ends:
            given |= {"target": inputs[target], "losses": losses}
        args = [inputs[first]] if any(stage.is_first for stage in self.held) else []
        step = self.schedule.step if torch.is_grad_enabled() else self.schedule.eval
        merged = step(*args, **given)
        if not self.ends:
            return {}
        outputs = [t.detach() for t in pytree.tree_leaves(merged) if isinstance(t, torch.Tensor)]
        names = [name for name, is_loss in self.results if not is_loss]
        if names and len(names) != len(outputs):
            raise self.problem(
                f"the last stage returns {len(outputs)} tensors, the model {len(names)}"
                f"{' beside its loss' if len(names) < len(self.results) else ''}",
                "let both return the same",
            )
        found = dict(zip(names, outputs, strict=False))
        if losses:
            loss = losses[0].detach()
            for other in losses[1:]:
                loss = loss + other.detach()
            loss = loss / len(losses) if self.schedule.scale_grads else loss
            found |= {name: loss for name, is_loss in self.results if is_loss}
        return {name: found[name] for name, _ in self.results}
