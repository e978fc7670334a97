"""Cuts and joins along one dim: slice, concat, pad, flip."""

from dataclasses import replace

from shardproof.verifier.kernel.ops.map import promote
from shardproof.verifier.kernel.ops.views import MOVES, view
from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.types import TensorType


def _slice_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dim: int = site.attrs["dim"]
    start: int = site.attrs["start"]
    stop: int = site.attrs["stop"]
    step: int = site.attrs["step"]
    if not 0 <= dim < len(x.shape) or not 0 <= start <= stop <= x.shape[dim] or step < 1:
        raise site.fail(f"slice [{start}:{stop}:{step}] of dim {dim}")
    shape = list(x.shape)
    shape[dim] = len(range(start, stop, step))
    return (TensorType(tuple(shape), x.dtype),)


def _concat_types(site: Site) -> tuple[TensorType, ...]:
    dim: int = site.attrs["dim"]
    first = site.types[0] if site.types else None
    if first is None or not 0 <= dim < len(first.shape):
        raise site.fail(f"concat along dim {dim}")
    for other in site.types:
        same = (*other.shape[:dim], *other.shape[dim + 1 :])
        if same != (*first.shape[:dim], *first.shape[dim + 1 :]) or len(other.shape) != len(
            first.shape
        ):
            raise site.fail(f"operands differ outside dim {dim}")
        if other.kind != first.kind:
            raise site.fail("operands hold numbers of different kinds; cast them first")
    shape = (*first.shape[:dim], sum(t.shape[dim] for t in site.types), *first.shape[dim + 1 :])
    return (TensorType(shape, promote(site, site.types)),)


def _pad_types(site: Site) -> tuple[TensorType, ...]:
    (x,) = site.types
    dim: int = site.attrs["dim"]
    lo: int = site.attrs["lo"]
    hi: int = site.attrs["hi"]
    if not 0 <= dim < len(x.shape) or lo < 0 or hi < 0:
        raise site.fail(f"pad dim {dim} by {lo} and {hi}")
    return (TensorType((*x.shape[:dim], x.shape[dim] + lo + hi, *x.shape[dim + 1 :]), x.dtype),)


def _same_types(site: Site) -> tuple[TensorType, ...]:
    if not 0 <= site.attrs["dim"] < len(site.types[0].shape):
        raise site.fail(f"flip of dim {site.attrs['dim']}")
    return (site.types[0],)


slice_ = view(
    "slice",
    _slice_types,
    {"dim": REQUIRED, "start": REQUIRED, "stop": REQUIRED, "step": 1},
    replace(MOVES, strict=False),
)
concat = register(
    Op("concat", "view", "*... -> ...", _concat_types, attrs={"dim": REQUIRED}, traits=MOVES)
)
pad = view(
    "pad",
    _pad_types,
    {"dim": REQUIRED, "lo": REQUIRED, "hi": REQUIRED},
    replace(MOVES, keeps=0),
)
flip = view("flip", _same_types, {"dim": REQUIRED})
