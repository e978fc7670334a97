"""Aten ops in ops of the language, one small rule each. Importing this package fills the table."""

from synthesis.frontends.torch.aten import (
    attention,
    collectives,
    convolution,
    elementwise,
    indexing,
    losses,
    norms,
    products,
    views,
)
from synthesis.frontends.torch.aten.table import TABLE, Emit, aten

__all__ = [
    "TABLE",
    "Emit",
    "aten",
    "attention",
    "collectives",
    "convolution",
    "elementwise",
    "indexing",
    "losses",
    "norms",
    "products",
    "views",
]
