"""One step of AdamW on a tensor, and the factor of clipping by the global norm."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType

SCALARS = ("lr", "bias1", "bias2")
"""Learning rate and `1 / (1 - beta^t)` of this step."""


@dataclass(frozen=True)
class Optimizer:
    """AdamW (Loshchilov, Hutter 2019) after clipping by the global norm of the gradient."""

    beta1: Fraction = Fraction(9, 10)
    beta2: Fraction = Fraction(95, 100)
    eps: Fraction = Fraction(1, 10**8)
    weight_decay: Fraction = Fraction(1, 10)
    max_norm: Fraction = Fraction(1)


@dataclass(frozen=True)
class State:
    """A parameter with its gradient and moments."""

    param: str
    grad: str
    first: str
    second: str


def scalars(b: Builder) -> None:
    """Declare the scalars of this step, the same on every rank."""
    for name in SCALARS:
        b.input(name, TensorType(()), "const")


def total(b: Builder, x: str) -> str:
    """The sum of all entries."""
    return b.add("sum", x, dims=tuple(range(len(b.types[x].shape))), keepdim=False)


def squares(b: Builder, grads: Sequence[str]) -> str:
    """The sum of squares of all entries of all gradients."""
    out = ""
    for grad in grads:
        share = total(b, b.add("mul", grad, grad))
        out = b.add("add", out, share) if out else share
    return out


def clip_factor(b: Builder, norm2: str, optimizer: Optimizer) -> str:
    """`min(1, max_norm / (norm + 1e-6))`, as `torch.nn.utils.clip_grad_norm_`."""
    norm = b.add("add_scalar", b.add("sqrt", norm2), value=Fraction(1, 10**6))
    ratio = b.add("mul_scalar", b.add("reciprocal", norm), value=optimizer.max_norm)
    one = b.add("full", shape=(), value=Fraction(1), dtype=b.types[norm2].dtype)
    return b.add("minimum", ratio, one)


def adamw(
    b: Builder, state: State, factor: str, optimizer: Optimizer, *, decay: bool
) -> tuple[str, str, str]:
    """The new parameter and moments. Works on any piece: every operation is elementwise."""
    o, grad = optimizer, b.add("mul", state.grad, factor)
    first = b.add(
        "add",
        b.add("mul_scalar", state.first, value=o.beta1),
        b.add("mul_scalar", grad, value=1 - o.beta1),
    )
    second = b.add(
        "add",
        b.add("mul_scalar", state.second, value=o.beta2),
        b.add("mul_scalar", b.add("mul", grad, grad), value=1 - o.beta2),
    )
    root = b.add("sqrt", b.add("mul", second, "bias2"))
    under = b.add("add_scalar", root, value=o.eps)
    step = b.add("div", b.add("mul", first, "bias1"), under)
    if decay:
        step = b.add("add", step, b.add("mul_scalar", state.param, value=o.weight_decay))
    param = b.add("sub", state.param, b.add("mul", step, "lr"))
    return param, first, second
