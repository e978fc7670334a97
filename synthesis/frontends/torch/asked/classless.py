"""Classes of what stands in for numbers: which class it has in a run is refused."""

from __future__ import annotations

from collections.abc import Callable

CLASSLESS: dict[type, Callable[[], object]] = {}
"""Each with what refuses."""
