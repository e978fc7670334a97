"""Rules for ops on whole rows and for random masks."""

from shardproof.verifier.checker.claims import need
from shardproof.verifier.checker.step import Made, Step, others, same_partial, sums
from shardproof.verifier.kernel.layout import Dim, bound, global_extent
from shardproof.verifier.kernel.ops.create import strides_of
from shardproof.verifier.kernel.program.types import Affine


def _same(step: Step) -> None:
    need(step.layout.dims == step.first.dims, "the result is split otherwise")
    need(not bound(step.first.dims[step.at("dim")]), "the rows are split")


def cumsum(step: Step) -> Made:
    _same(step)
    sums(step.first)
    same_partial(step)
    return step.term()


def whole(step: Step) -> Made:
    """Whole rows along `dim`, of which nothing is pending; every line is treated alike."""
    _same(step)
    need(len(step.args) == 1, "rows of several operands")
    need(not step.first.partial and not step.layout.partial, "the rows are pending")
    return step.term()


def topk_index(step: Step) -> Made:
    """Where the largest are: of whole rows, and whole itself along them."""
    dim = step.at("dim")
    need(not bound(step.first.dims[dim]), "the rows are split")
    need(not bound(step.layout.dims[dim]), "the found indices are split")
    need(global_extent(step.layout.dims[dim]) == step.at("k"), "another number of indices")
    others(step, dim)
    need(not step.first.partial and not step.layout.partial, "the rows are pending")
    return step.term()


def dropout_mask(step: Step) -> Made:
    """A step of one along any free or bound digit of the layout moves the index alike."""
    need(not step.first.partial and not step.layout.partial, "no share of a sum")
    need(not step.first.dims, "the seed is one number")
    local = strides_of(step.ints("shape"), step.ints("strides"))
    offset = step.attrs["offset"]
    affine = offset if isinstance(offset, Affine) else Affine.of(offset)
    moves = {n: c for n, c in affine.terms if step.mesh[n] > 1}
    names = [n for dim in step.layout.dims for n in bound(dim)]
    need(set(moves) == set(names), "the offset moves along other mesh dims than the layout")
    strides = tuple(
        _stride(dim, own, moves) for dim, own in zip(step.layout.dims, local, strict=True)
    )
    return step.term(shape=step.layout.global_shape, strides=strides, offset=affine.const)


def _stride(dim: Dim, own: int, moves: dict[str, int]) -> int:
    """The index step of a global dim, whose every digit must move the index by its place value."""
    free = [atom for atom in dim if atom.mesh_dim is None]
    need(len(free) <= 1, "the part on a rank is in pieces")
    stride = value = 0
    for at, atom in enumerate(reversed(dim)):
        moved = own if atom.mesh_dim is None else moves[atom.mesh_dim]
        stride, value = (moved, moved) if at == 0 else (stride, value)
        need(moved == value, "the parts are not those of one mask")
        value *= atom.size
    return stride
