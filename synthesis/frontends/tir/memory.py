"""What buffers hold while the stores are turned into ops: boxes of values, the latest on top."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import FLOATS, Attr

Box = tuple[tuple[int, int], ...]
"""Per dim the first index and the one after the last."""
Content = str | Fraction | float
"""A value of the program with the shape of its box, or a constant that fills it."""


class Uninitialised(Exception):  # noqa: N818  (an answer, not a failure)
    """Part of a box was never written."""

    def __init__(self, box: Box) -> None:
        super().__init__(box)
        self.box = box


@dataclass(frozen=True, slots=True)
class Piece:
    box: Box
    content: Content


class Views:
    """Views of values, composed where they follow each other, left out where they do nothing."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.hint = ""
        self.made: dict[str, Node] = {}

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.types[value].shape

    def add(self, op: str, *inputs: str, **attrs: Attr) -> str:
        name = self.b.fresh(self.hint)
        self.b.add_node(op, inputs, attrs, outputs=(name,))
        self.made[name] = self.b.nodes[-1]
        return name

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        while value in self.made and self.made[value].op == "reshape":
            value = self.made[value].inputs[0]
        if self.shape(value) == tuple(shape):
            return value
        if value in self.made and self.made[value].op == "cast":
            inner = self.reshape(self.made[value].inputs[0], shape)
            return self.cast(inner, self.b.types[value].dtype)
        return self.add("reshape", value, shape=tuple(shape))

    def cast(self, value: str, dtype: str) -> str:
        """A cast; of floats to floats, which is the identity over the reals, only the last."""
        node = self.made.get(value)
        if node is not None and node.op == "cast" and dtype in FLOATS:
            inner = node.inputs[0]
            if self.b.types[inner].is_float and self.b.types[value].is_float:
                value = inner
        same = self.b.types[value].dtype == dtype
        return value if same else self.add("cast", value, dtype=dtype)

    def permute(self, value: str, dims: Sequence[int]) -> str:
        dims = tuple(dims)
        while value in self.made and self.made[value].op == "permute":
            inner = self.made[value].attrs["dims"]
            assert isinstance(inner, tuple)
            dims = tuple(int(inner[d]) for d in dims)
            value = self.made[value].inputs[0]
        if dims == tuple(range(len(dims))):
            return value
        if value in self.made and self.made[value].op == "cast":
            inner = self.permute(self.made[value].inputs[0], dims)
            return self.cast(inner, self.b.types[value].dtype)
        return self.add("permute", value, dims=dims)

    def slice(self, value: str, dim: int, start: int, stop: int, step: int = 1) -> str:
        if (start, stop, step) == (0, self.shape(value)[dim], 1):
            return value
        return self.add("slice", value, dim=dim, start=start, stop=stop, step=step)

    def expand(self, value: str, shape: Sequence[int]) -> str:
        if self.shape(value) == tuple(shape):
            return value
        return self.add("expand", value, shape=tuple(shape))

    def full(self, shape: Sequence[int], value: Fraction | float, dtype: str) -> str:
        if isinstance(value, float):
            raise ValueError("an infinity is not a real number")
        return self.add("full", shape=tuple(shape), value=value, dtype=dtype)


class Memory:
    """The pieces of one buffer."""

    def __init__(self, views: Views, shape: tuple[int, ...], dtype: str) -> None:
        self.views, self.shape, self.dtype = views, shape, dtype
        self.pieces: list[Piece] = []

    @property
    def whole(self) -> Box:
        return tuple((0, n) for n in self.shape)

    def write(self, box: Box, content: Content) -> None:
        self.pieces = [p for p in self.pieces if not _contains(box, p.box)]
        self.pieces.append(Piece(box, content))

    def read(self, box: Box) -> Content:
        """What a box holds.

        Raises:
            Uninitialised: nothing was ever written to a part of it.
        """
        for piece in reversed(self.pieces):
            if _contains(piece.box, box):
                return self._cut(piece, box)
            if _meets(piece.box, box):
                return self._parts(piece.box, box)
        raise Uninitialised(box)

    def value(self, content: Content, box: Box) -> str:
        """A content as a value of the program. Raises ValueError for an infinity."""
        if isinstance(content, str):
            return content
        return self.views.full([hi - lo for lo, hi in box], content, self.dtype)

    def _cut(self, piece: Piece, box: Box) -> Content:
        content = piece.content
        if isinstance(content, str):
            for dim, ((lo, hi), (base, _)) in enumerate(zip(box, piece.box, strict=True)):
                content = self.views.slice(content, dim, lo - base, hi - base)
        return content

    def _parts(self, held: Box, box: Box) -> Content:
        """Cut the box where the piece ends, read both parts, join them."""
        for dim, ((lo, hi), (first, last)) in enumerate(zip(box, held, strict=True)):
            for at in (first, last):
                if lo < at < hi:
                    halves = [(*box[:dim], part, *box[dim + 1 :]) for part in ((lo, at), (at, hi))]
                    contents = [self.read(half) for half in halves]
                    if contents[0] == contents[1] and not isinstance(contents[0], str):
                        return contents[0]
                    values = [self.value(c, h) for c, h in zip(contents, halves, strict=True)]
                    return self._concat(values, dim)
        raise AssertionError("a box that meets a piece and is not in it is cut by it")

    def _concat(self, values: list[str], dim: int) -> str:
        flat: list[str] = []
        for value in values:
            node = self.views.made.get(value)
            same = node is not None and node.op == "concat" and node.attrs["dim"] == dim
            flat += list(node.inputs) if same and node is not None else [value]
        return self.views.add("concat", *flat, dim=dim)


def _contains(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


def _meets(a: Box, b: Box) -> bool:
    return all(max(x, u) < min(y, v) for (x, y), (u, v) in zip(a, b, strict=True))
