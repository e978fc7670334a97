"""Reductions over dims."""

from functools import partial

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType


def _types(site: Site, empty: bool) -> tuple[TensorType, ...]:
    (x,) = site.types
    dims: tuple[int, ...] = tuple(site.attrs["dims"])
    if not all(0 <= d < len(x.shape) for d in dims) or len(set(dims)) != len(dims):
        raise site.fail(f"dims {tuple(dims)} on a tensor of {len(x.shape)} dims")
    if site.attrs["keepdim"]:
        shape = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    else:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in dims)
    dtype = "i64" if not x.is_float else x.dtype
    if not empty and any(x.shape[d] == 0 for d in dims):
        raise site.fail("one of no entries")
    return (TensorType(shape, dtype),)


def reduction(
    name: str, traits: Traits, *, linear: tuple[frozenset[int], ...] = (), checked: str = ""
) -> Op:
    """Declare a reduction over dims. One that is not linear takes an entry or more."""
    attrs = {"dims": REQUIRED, "keepdim": False}
    types = partial(_types, empty=bool(linear))
    made = Op(name, "reduce", "... [dims] -> ...", types, linear, attrs, traits, checked=checked)
    return register(made)


sum_ = reduction("sum", Traits(strict=True, keeps=1), linear=(frozenset({0}),))
amax = reduction("amax", Traits(keeps=1))
