"""Random numbers that a module draws: dropout keeps an entry or not, and which is an input.

A draw is known by the state that the random generator is in. So what is computed again in a
backward, from a state that was kept, draws what it drew before; and ranks draw the same where they
start from the same state and have drawn alike so far.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch.utils._python_dispatch import _disable_current_modes

from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.result import Draw
from shardproof.verifier.kernel.program.types import TensorType

DRAW = "shardproof_frontend::draw"
PREFIX = "dropout."
"""Before the names of inputs that say what is kept."""


@torch.library.custom_op(DRAW, mutates_args=())
def _draw(like: torch.Tensor, number: int, keep: float) -> torch.Tensor:
    raise CaptureError("what is drawn holds no value")


@_draw.register_fake
def _(like: torch.Tensor, number: int, keep: float) -> torch.Tensor:
    return torch.empty_like(like)


class Draws:
    """What is drawn in one call, in order, from the state that the generator has now."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.made: list[Draw] = []
        self.other: CaptureError | None = None
        """The first draw that is not followed; what is drawn after it is not known either."""
        self._taken = set(taken)
        self._states = {_state(): 0}

    def number(
        self, shape: tuple[int, ...], keep: float, module: str, place: tuple[str, int, str]
    ) -> int:
        """Which draw comes from the state that the generator is in; it goes on to the next.

        Raises:
            CaptureError: the code set the state itself, draws another tensor from one state, or
                drew before what is not followed.
        """
        if self.other is not None:
            raise self.other
        file, line, text = place
        number = self._states.get(_state())
        if number is None:
            raise CaptureError(
                "random numbers are drawn from a state that forward sets itself, which is not "
                "followed",
                file=file,
                line=line,
                text=text,
                hint="leave the seed to the caller",
            )
        if number < len(self.made):
            made = self.made[number]
            if (made.shape, made.keep) != (shape, keep):
                raise CaptureError(
                    f"random numbers are drawn again from the state of {made}, for another tensor",
                    file=file,
                    line=line,
                    text=text,
                )
        else:
            self.made.append(Draw(self._name(module), shape, keep, file, line, text))
        with _disable_current_modes():
            torch.rand(1)
        self._states.setdefault(_state(), number + 1)
        return number

    def _name(self, module: str) -> str:
        place = f"{PREFIX}{module}." if module else PREFIX
        count = 0
        while f"{place}{count}" in self._taken:
            count += 1
        self._taken.add(f"{place}{count}")
        return f"{place}{count}"


def _state() -> str:
    with _disable_current_modes():
        return blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=16).hexdigest()


def drawn_inputs(draws: Sequence[Draw]) -> None:
    """From now on, the op that stands for a draw is an input with the name of the draw."""

    def rule(e: Emit, like: str, number: int, keep: float) -> str:
        made = draws[number]
        if made.name not in e.b.types:
            e.b.input(made.name, TensorType(made.shape, "bool"), "input", made.name)
        return e.cast(made.name, e.type(like).dtype)

    TABLE[f"{DRAW}.default"] = rule
