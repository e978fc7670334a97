"""`scan`: repeated blocks, described once.

Operands are carries, then xs (one slice per step along a leading dim of extent `length`), then
consts; the body maps (carries, slices, consts) to (carries, ys). `reverse` runs from the last
slice to the first; ys keep the index of their slice.
"""

from typing import Any

from shardproof.verifier.kernel.program.registry import REQUIRED, Op, Site, register
from shardproof.verifier.kernel.program.types import TensorType


def scan_parts(attrs: Any, count: int) -> tuple[slice, slice, slice]:
    """Index ranges of carries, xs and consts among `count` operands."""
    carry, xs = attrs["carry"], attrs["xs"]
    return slice(0, carry), slice(carry, carry + xs), slice(carry + xs, count)


def _types(site: Site) -> tuple[TensorType, ...]:
    body, length = site.body, site.attrs["length"]
    if body is None:
        raise site.fail("has no body")
    carries, xs, consts = scan_parts(site.attrs, len(site.types))
    if length < 1 or site.attrs["carry"] + site.attrs["xs"] > len(site.types):
        raise site.fail("takes one step or more, and as many operands as it has carries and xs")
    expected = [*site.types[carries]]
    for x in site.types[xs]:
        if not x.shape or x.shape[0] != length:
            raise site.fail(f"each xs needs a leading dim of {length}, got {x}")
        expected.append(TensorType(x.shape[1:], x.dtype))
    expected += site.types[consts]
    if [i.type for i in body.inputs] != expected:
        pairs = zip([i.type for i in body.inputs], expected, strict=False)
        wrong = next((f"{got} where {want} is passed" for got, want in pairs if got != want), "")
        raise site.fail(
            f"the body takes {len(body.inputs)} inputs, {len(expected)} passed; {wrong}"
        )
    results = [body.types[o.value] for o in body.outputs]
    if not results:
        raise site.fail("the body returns nothing")
    if results[: site.attrs["carry"]] != expected[: site.attrs["carry"]]:
        raise site.fail("a carry changes its type in the body")
    ys = [TensorType((length, *t.shape), t.dtype) for t in results[site.attrs["carry"] :]]
    return (*results[: site.attrs["carry"]], *ys)


scan = register(
    Op(
        "scan",
        "control",
        "carry, xs, const -> carry, ys",
        _types,
        attrs={"length": REQUIRED, "carry": REQUIRED, "xs": REQUIRED, "reverse": False},
    )
)
