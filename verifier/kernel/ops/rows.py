"""Ops on whole lines along a dim: running sums, and the largest entries."""

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.traits import Traits
from shardproof.verifier.kernel.program.types import TensorType


def _running(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    if not 0 <= site.attrs["dim"] < len(x.shape):
        raise site.fail(f"a running sum along dim {site.attrs['dim']}")
    return (TensorType(x.shape, x.dtype if x.is_float else "i64"),)


def _largest(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dim, k = site.attrs["dim"], site.attrs["k"]
    if not x.is_float or not 0 <= dim < len(x.shape):
        raise site.fail(f"the largest floats along dim {dim}")
    if not 1 <= k <= x.shape[dim]:
        raise site.fail(f"the {k} largest of {x.shape[dim]}")
    return (x,)


def _places(site: Site) -> tuple[TensorType, ...]:
    (x,) = _largest(site)
    dim = site.attrs["dim"]
    return (TensorType((*x.shape[:dim], site.attrs["k"], *x.shape[dim + 1 :]), "i64"),)


cumsum = register(
    Op(
        "cumsum",
        "rows",
        "... [dim] -> ... [dim]",
        _running,
        linear=(frozenset({0}),),
        attrs={"dim": REQUIRED, "exclusive": False},
        traits=Traits(keeps=0),
    )
)
topk_mask = register(
    Op(
        "topk_mask",
        "rows",
        "... [dim] -> ... [dim]",
        _largest,
        attrs={"k": REQUIRED, "dim": REQUIRED},
        traits=Traits(sign=0),
    )
)
topk_index = register(
    Op(
        "topk_index",
        "rows",
        "... [dim] -> ... [k]",
        _places,
        attrs={"k": REQUIRED, "dim": REQUIRED},
    )
)
