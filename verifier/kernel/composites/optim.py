"""Optimizer steps, element by element, and clipping by the global norm.

Formulas and the order of their terms are PyTorch's (`torch.optim`, `clip_grad_norm_`).
"""

from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import composite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import REQUIRED


def _scaled(b: Builder, x: str, value: Fraction) -> str:
    return b.add("mul_scalar", x, value=value)


@composite(
    "..., ..., ... -> ..., ...",
    lr=REQUIRED,
    momentum=Fraction(0),
    weight_decay=Fraction(0),
    nesterov=False,
)
def sgd_update(
    b: Builder,
    param: str,
    grad: str,
    buffer: str,
    lr: Fraction,
    momentum: Fraction,
    weight_decay: Fraction,
    nesterov: bool,
) -> tuple[str, str]:
    """The new parameter and momentum buffer of one step of SGD (Sutskever et al. 2013)."""
    if weight_decay:
        grad = b.add("add", grad, _scaled(b, param, weight_decay))
    buffer = b.add("add", _scaled(b, buffer, momentum), grad)
    step = b.add("add", grad, _scaled(b, buffer, momentum)) if nesterov else buffer
    return b.add("sub", param, _scaled(b, step, lr)), buffer


@composite(
    "..., ..., ..., ..., -> ..., ..., ...",
    lr=REQUIRED,
    beta1=Fraction(9, 10),
    beta2=Fraction(999, 1000),
    eps=Fraction(1, 10**8),
    weight_decay=Fraction(1, 100),
)
def adamw_update(
    b: Builder,
    param: str,
    grad: str,
    mean: str,
    square: str,
    step: str,
    lr: Fraction,
    beta1: Fraction,
    beta2: Fraction,
    eps: Fraction,
    weight_decay: Fraction,
) -> tuple[str, str, str]:
    """The new parameter and both moments of one step of AdamW (Loshchilov, Hutter 2019).

    `step` is the number of this step as a float scalar, 1 for the first.
    """
    mean = b.add("add", _scaled(b, mean, beta1), _scaled(b, grad, 1 - beta1))
    squared = b.add("mul", grad, grad)
    square = b.add("add", _scaled(b, square, beta2), _scaled(b, squared, 1 - beta2))
    root = b.add("sqrt", b.add("div", square, _correction(b, step, beta2)))
    change = b.add(
        "div",
        b.add("div", mean, _correction(b, step, beta1)),
        b.add("add_scalar", root, value=eps),
    )
    kept = _scaled(b, param, 1 - lr * weight_decay)
    return b.add("sub", kept, _scaled(b, change, lr)), mean, square


def _correction(b: Builder, step: str, beta: Fraction) -> str:
    """`1 - beta ** step`."""
    rate = b.add("log", b.add("full", shape=(), value=beta, dtype=b.types[step].dtype))
    power = b.add("exp", b.add("mul", step, rate))
    return b.add("add_scalar", b.add("neg", power), value=Fraction(1))


@composite("... -> ")
def square_norm(b: Builder, x: str) -> str:
    """The sum of squares of all entries. Split dims leave a pending sum."""
    return b.add("sum", b.add("mul", x, x), dims=tuple(range(len(b.types[x].shape))))


@composite("..., -> ...", max_norm=REQUIRED, eps=Fraction(1, 10**6))
def clip_by_norm(b: Builder, grad: str, norm: str, max_norm: Fraction, eps: Fraction) -> str:
    """`grad * min(1, max_norm / (norm + eps))`, with the norm of all gradients."""
    one = b.add("full", shape=(), value=Fraction(1), dtype=b.types[norm].dtype)
    over = b.add("reciprocal", b.add("add_scalar", norm, value=eps))
    return b.add("mul", grad, b.add("minimum", one, _scaled(b, over, max_norm)))
