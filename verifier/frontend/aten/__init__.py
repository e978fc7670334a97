"""Aten ops in ops of the language, one small rule each. Importing this package fills the table."""

from verifier.frontend.aten import (
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
from verifier.frontend.aten.table import TABLE, Emit, aten

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
