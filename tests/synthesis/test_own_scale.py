"""A module with parts inside that holds a scale, which its caller takes what it gives by."""

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.planner.plan import LocalExtent
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh
from tests.synthesis import decoder
from tests.synthesis.decoder import f64, linear, place


def scaled() -> Program:
    """Products of heads between a pair of linears, and a scale behind them."""
    b = Builder("scaled")
    x = b.input("x", f64(2, 4, 8))
    h = linear(b, x, b.param("part.up.weight", f64(32, 8)), "part.up")
    with b.at(place("part", 5)):
        h = b.add("reshape", h, shape=(2, 4, 4, 8))
        h = b.add("reshape", b.add("mul", h, h), shape=(2, 4, 32))
    y = linear(b, h, b.param("part.down.weight", f64(8, 32)), "part.down")
    with b.at(place("", 9)):
        y = b.add("mul", y, b.param("part.scale", f64(8)))
        b.output(b.add("sum", y, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    return live(inline(grad(b.build())))


def test_only_its_parts_are_placed_and_what_it_reshapes_is_made_local() -> None:
    kinds = {"part": "Part", "part.up": "Linear", "part.down": "Linear"}
    plan = synthesize(Asked(scaled(), Mesh.of(tp=2), decoder.CLUSTER, kinds)).plan
    assert {m.path: m.style for m in plan.modules} == {"part.up": "column", "part.down": "row"}
    heads = LocalExtent("toy.py", 5, "reshape", "part", (2, 4, 4, 8), (2, 4, 2, 8), (2, 4, 32))
    assert heads in plan.local_extents
