"""Random numbers that a module draws: which they are is an input of the program.

A draw is known by the state that the random generator is in. So what is computed again in a
backward, from a state that was kept, draws what it drew before; and ranks draw the same where they
start from the same state and have drawn alike so far.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit
from shardproof.synthesis.frontends.torch.captured import Draw
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.lower import DTYPES
from shardproof.synthesis.frontends.torch.trace import Traced
from shardproof.verifier.kernel.program.types import TensorType

DRAW = "shardproof_frontend::draw"
DRAWN = frozenset({"rand", "rand_like", "randn", "randn_like", "randint", "randint_like"})
"""Ops of aten whose law is known; those that write into an operand aside."""
PREFIXES = ("dropout.", "drawn.")
"""Before the names of inputs that are drawn: of what is kept, and of all else."""


@torch.library.custom_op(DRAW, mutates_args=())
def _draw(like: torch.Tensor, number: int) -> torch.Tensor:
    raise CaptureError("what is drawn holds no value")


@_draw.register_fake
def _(like: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty_like(like)


@dataclass(frozen=True)
class Law:
    """What an op draws: entries that are independent of each other."""

    shape: tuple[int, ...]
    words: str
    dtype: torch.dtype
    below: int = 0

    @classmethod
    def of(cls, op: str, given: Mapping[str, Any]) -> "Law | None":
        """The law of an op of aten; None where it is not known, or depends on tensors."""
        target = given.get("self")
        if given.get("generator") is not None:
            return None
        shape = tuple(given.get("size", ()) if target is None else target.shape)
        said = given.get("dtype")
        plain = torch.int64 if op == "randint" else torch.get_default_dtype()
        dtype = said if isinstance(said, torch.dtype) else plain if target is None else target.dtype
        match op, given:
            case "bernoulli_", {"p": float(p)}:
                return cls(shape, f"kept with probability {p:g}", torch.bool)
            case (("rand" | "rand_like"), _):
                return cls(shape, "uniform from 0 to 1", dtype)
            case "uniform_", {"from": float(low), "to": float(high)}:
                return cls(shape, f"uniform from {low:g} to {high:g}", dtype)
            case (("randn" | "randn_like"), _):
                return cls(shape, "normal with mean 0 and deviation 1", dtype)
            case "normal_", {"mean": float(mean), "std": float(std)}:
                return cls(shape, f"normal with mean {mean:g} and deviation {std:g}", dtype)
            case (("randint" | "randint_like"), {"high": int(high)}):
                if dtype.is_floating_point or given.get("low", 0) != 0:
                    return None
                return cls(shape, f"integers from 0 to {high - 1}", dtype, high)
            case _:
                return None


class Draws:
    """What is drawn in one call, in order, from the state that the generator has now."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.made: list[Draw] = []
        self.other: CaptureError | None = None
        """The first draw that is not followed; what is drawn after it is not known either."""
        self._taken = set(taken)
        self._states = {_state(): 0}

    def number(self, law: Law, module: str, place: tuple[str, int, str]) -> int:
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
            if (made.shape, made.law) != (law.shape, law.words):
                raise CaptureError(
                    f"random numbers are drawn again from the state of {made}, for another tensor",
                    file=file,
                    line=line,
                    text=text,
                )
        else:
            name, dtype = self._name(module, law), DTYPES[law.dtype]
            self.made.append(Draw(name, law.shape, law.words, file, line, text, dtype, law.below))
        with _disable_current_modes():
            torch.rand(1)
        self._states.setdefault(_state(), number + 1)
        return number

    def _name(self, module: str, law: Law) -> str:
        prefix = PREFIXES[law.dtype != torch.bool]
        place = f"{prefix}{module}." if module else prefix
        count = 0
        while f"{place}{count}" in self._taken:
            count += 1
        self._taken.add(f"{place}{count}")
        return f"{place}{count}"


def _state() -> str:
    with _disable_current_modes():
        return blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=16).hexdigest()


def reaching(made: Sequence[Draw], traced: Traced) -> dict[int, Draw]:
    """The draws that an output is made of, or what is left in a buffer, by their number."""
    todo, seen = [node for _, _, node in traced.outputs], set[fx.Node]()
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += node.all_input_nodes
    stand_in = f"{DRAW.replace('::', '.')}.default"
    numbers = [n.args[1] for n in seen if str(n.target) == stand_in]
    return {number: draw for number, draw in enumerate(made) if number in numbers}


def ranges(draws: Mapping[int, Draw]) -> dict[str, int]:
    """For each draw, what its integers are below."""
    return {d.name: d.below for d in draws.values()}


def drawn_inputs(draws: Mapping[int, Draw]) -> None:
    """From now on, the op that stands for a draw is an input with the name of the draw; of one that
    reaches no output, any number."""

    def rule(e: Emit, like: str, number: int) -> str:
        made = draws.get(number)
        if made is None:
            return e.full(0, e.shape(like), e.type(like).dtype)
        if made.name not in e.b.types:
            e.b.input(made.name, TensorType(made.shape, made.dtype), "input", made.name)
        return e.cast(made.name, e.type(like).dtype)

    TABLE[f"{DRAW}.default"] = rule
