"""Pipelines of `torch.distributed.pipelining`: a rank holds stages, and a schedule that runs them.

The schedule's own step is run. What PyTorch sends beside tensors before the first step, which are
the shapes that stages pass on, goes between the processes of the ranks.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import pickle
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._utils import InferenceMode, _make_tensor_from_meta
from torch.utils._python_dispatch import _disable_current_modes

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import UNSTEPPED
from shardproof.synthesis.frontends.torch.ranks.stages import SCHEDULE, Stages

MISSED = "the pipeline cannot start: "
"""What a rank says that waits for one that has failed."""
LONGEST = 120.0
"""Seconds that a rank waits for what another sends."""
_MADE_AT = "_shardproof_made_at"


class MissedError(CaptureError):
    """Another rank has failed before it sent what this one waits for."""


@dataclass
class Mail:
    """Objects that ranks send each other while they are traced, each in a process of its own."""

    folder: Path
    rank: int
    slots: Any
    """A semaphore for the processes that work: one that waits gives its place to others."""
    count: dict[str, int] = field(default_factory=dict[str, int])

    def _file(self, step: str, sender: int, receiver: int) -> Path:
        channel = f"{step}-{sender}-{receiver}"
        self.count[channel] = self.count.get(channel, 0) + 1
        return self.folder / f"mail-{channel}-{self.count[channel]}"

    def send(self, step: str, to: int, what: Any) -> None:
        path = self._file(step, self.rank, to)
        draft = path.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(what))
        draft.replace(path)

    def failed(self, step: str) -> None:
        """Tell all ranks that no more comes from this one."""
        (self.folder / f"failed-{step}-{self.rank}").touch()

    def receive(self, step: str, by: int) -> Any:
        """Raises CaptureError where it does not come."""
        path, end = self._file(step, by, self.rank), time.monotonic() + LONGEST
        over = (self.folder / f"failed-{step}-{by}", self.folder / f"rank-{by}.json")
        self.slots.release()
        try:
            while not path.exists():
                if any(mark.exists() for mark in over) and not path.exists():
                    raise MissedError(f"{MISSED}rank {by} failed")
                if time.monotonic() > end:
                    raise CaptureError(
                        f"rank {self.rank} waits for the shapes that rank {by} passes on, which "
                        "never come",
                        hint="look at the stage indices of these ranks",
                    )
                time.sleep(0.002)
        finally:
            self.slots.acquire()
        return pickle.loads(path.read_bytes())


def note_schedules() -> None:
    """From now on, a schedule knows the line that made it."""
    original = SCHEDULE.__init__
    own = str(Path(torch.__file__).parent)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
            frame = frame.f_back
        at = SimpleNamespace(f_code=frame.f_code, f_lineno=frame.f_lineno)
        setattr(self, _MADE_AT, at)
        original(self, *args, **kwargs)

    SCHEDULE.__init__ = init


class Pipeline(Stages):
    """The stages of a rank, traced."""

    def __init__(self, schedule: Any) -> None:
        super().__init__(schedule)
        self.frame = getattr(schedule, _MADE_AT)
        self.mail: Mail | None = None
        self.mode: Any = None
        schedule._initialize_pp_stages = self._initialize
        schedule._warmup_p2p = self._agree
        schedule.step = partial(self._stepped, schedule.step)
        schedule.eval = partial(self._stepped, schedule.eval)
        for stage in self.held:
            self._post_shapes(stage)

    def refuse_unlike(self, gradients: bool) -> None:
        """Raises CaptureError where schedule and model do not both have a loss."""
        loss = self.schedule._loss_fn is not None
        if loss and not any(is_loss for _, is_loss in self.results):
            raise self.problem(
                "the schedule has a loss function, the model returns no loss",
                "let the model return it: loss_fn(output, target)",
            )
        if gradients and not loss:
            raise self.problem(
                "the schedule has no loss function, so it runs no backward",
                "give it loss_fn=..., or compare outputs alone: --no-gradients",
            )

    def refuse_changed(self, states: Iterable[str]) -> None:
        """Raises CaptureError for a buffer that a stage changes: PyTorch runs stages before the
        first step too, on memory that nothing was written to."""
        for name in sorted({n for n, _ in self.named_buffers()}.intersection(states)):
            raise self.problem(
                f"a stage changes its buffer {name}, also where PyTorch runs it to learn shapes",
                "keep counts and statistics out of stages",
            )

    def problem(self, message: str, hint: str) -> CaptureError:
        code, line = self.frame.f_code, self.frame.f_lineno
        return CaptureError(message, file=Path(code.co_filename).name, line=line, hint=hint)

    def told(self, inputs: Sequence[str]) -> str:
        """How a step of the schedule is called where no step of the owner's calls it, in words."""
        first, more, target = self.parts(list(inputs))
        said = [first, *(f"{n}={n}" for n in more)]
        said += [f"target={target}"] if target else []
        fold = "mean" if self.schedule.scale_grads else "sum"
        end = f"; its loss is the {fold} of those of its micro-batches" if target else ""
        name = type(self.schedule).__name__
        count = self.schedule._n_microbatches
        return f"{name}.step({', '.join(said)}) runs {count} micro-batches{end}."

    def _stepped(self, step: Callable[..., Any], *args: Any, **given: Any) -> Any:
        if not (torch.is_grad_enabled() or self.evaluates):
            raise self.problem(UNSTEPPED, "check what trains alone: --mode train")
        ended = False
        try:
            merged = step(*args, **given)
            ended = True
        except RuntimeError as problem:
            raise (problem.__cause__ or problem) from None  # a stage tells of its shapes instead
        finally:
            if not ended and self.mail is not None:
                self.mail.failed(self._step())
        return merged

    def _step(self) -> str:
        """What kind of step it is: ranks exchange shapes for each."""
        return f"{self.training}-{torch.is_grad_enabled()}-{self.schedule._has_backward}"

    def _initialize(self, stages: Any, *args: Any, **kwargs: Any) -> Any:
        """PyTorch's own, once a mode; it is no part of a step. What is received goes into tensors
        that are new in each step."""
        with _disable_current_modes(), self.mode:
            done = SCHEDULE._initialize_pp_stages(self.schedule, stages, *args, **kwargs)
        for stage in stages:
            self._refuse_drawn(stage)
            for info in chain(*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
                if info.buffer is not None:
                    info.buffer = _make_tensor_from_meta(info.tensor_meta, stage.device)
        return done

    def _refuse_drawn(self, stage: Any) -> None:
        """Refuse integers that a stage is given where PyTorch first runs it to learn shapes: on
        memory that nothing was written to, so that a lookup leaves its table."""
        if stage.is_first or stage._inference_mode != InferenceMode.DYNAMIC:
            return
        given = chain(*stage.args_recv_info.values())
        metas = [m for m in (getattr(info, "tensor_meta", None) for info in given) if m is not None]
        if any(not m.dtype.is_floating_point and not m.dtype.is_complex for m in metas):
            raise self.problem(
                f"stage {stage.stage_index} is given integers by another stage; PyTorch runs it "
                "before the first step on memory that nothing was written to",
                "give every stage its input_args and output_args, so that shapes are known",
            )

    def _agree(self, stages: Any, has_backward: bool, p2p_done: bool) -> None:
        """Stages pass shapes on while they run, unless each of them knows its own."""
        if not all(isinstance(stage, PipelineStage) for stage in stages):
            return
        known = not any(InferenceMode.needs_dynamic(s._user_meta, has_backward) for s in stages)
        group = dist.get_process_group_ranks(stages[0].group or dist.group.WORLD)
        assert self.mail is not None
        step = f"{self._step()}-vote"
        others = [rank for rank in group if rank != self.mail.rank]
        for rank in others:
            self.mail.send(step, rank, known)
        said = [self.mail.receive(step, rank) for rank in others]
        known = known and all(said)
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC if known else InferenceMode.DYNAMIC

    def _post_shapes(self, stage: Any) -> None:
        """What a stage sends others of shapes goes by mail."""

        def send(meta: Any, to: int) -> None:
            assert self.mail is not None
            self.mail.send(self._step(), stage._resolve_peer_global_rank(to), meta)

        def receive(by: int) -> Any:
            assert self.mail is not None
            return self.mail.receive(self._step(), stage._resolve_peer_global_rank(by))

        stage._send_meta, stage._recv_meta = send, receive
