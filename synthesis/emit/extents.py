"""Turns literal extents of one device into local ones in the user's source."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar, cast

from shardproof.synthesis.emit.axes import DOTS, axes_of, over_dims, without_lengths
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.source import Edit, SourceText
from shardproof.synthesis.planner.plan import CUT, LocalExtent

SHAPED = frozenset({"view", "reshape", "expand", "repeat", "unflatten"})
SPLITS = frozenset({"split", "split_with_sizes"})
SIZES = frozenset({"split_size", "split_sizes", "split_size_or_sections"})
"""What a split's sizes are called."""
IN_RATIO = "split_in_ratio"
"""What of the runtime splits a rank's share by the sizes of the whole."""
PRODUCTS = re.compile(r"matmul|einsum|(addb?|badd|b)?mm|scaled_dot_product_attention")
_FREE = ast.UnaryOp(ast.USub(), ast.Constant(1))
_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Site:
    """A call whose arguments are extents."""

    call: ast.Call
    method: str
    extents: tuple[ast.expr, ...]
    """One expression for each dim of the result (or the sizes of a split)."""


def site_of(node: ast.AST) -> Site | None:
    """Read `x.view(a, b)`, `x.view((a, b))`, `torch.reshape(x, (a, b))`, `x.split(n, dim)`, and
    `rearrange(x, "t (h d) -> t h d", h=a)`, in which an axis without a length counts as -1, and an
    ellipsis as several."""
    if not isinstance(node, ast.Call):
        return None
    axes = axes_of(node)
    if axes is not None:
        given = map(axes.given, axes.names)
        written = tuple(k.value if k else _FREE for k in given)
        dots = (i for i, name in enumerate(axes.names) if name == DOTS)
        for at in dots:
            written = (*written[:at], ast.Starred(_FREE, ast.Load()), *written[at + 1 :])
        return Site(node, " ".join(axes.names), written)
    if not isinstance(node.func, ast.Attribute):
        return None
    method = node.func.attr
    if method not in SHAPED | SPLITS:
        return None
    owner = node.func.value
    if isinstance(owner, ast.Name) and owner.id == "self":
        return None  # a method of the module that is called so
    free = isinstance(owner, ast.Name) and owner.id == "torch"
    arguments = node.args[1:] if free else node.args
    if method in SPLITS:
        named = (k.value for k in node.keywords if k.arg in SIZES)
        sizes = next(iter(arguments), None) or next(named, None)
        return None if sizes is None else Site(node, "split", (sizes,))
    if method == "unflatten":
        return _unflattened(node, arguments)
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = arguments[0].elts
    return Site(node, method, tuple(arguments))


def _unflattened(call: ast.Call, arguments: list[ast.expr]) -> Site | None:
    """`x.unflatten(-1, (a, b))`: extents of one dim among others, that stay."""
    given = [*arguments, *(k.value for k in call.keywords)]
    if len(given) != 2 or not isinstance(given[1], ast.Tuple | ast.List):
        return None
    try:
        dim = ast.literal_eval(given[0])
    except ValueError:
        return None
    others, sizes = ast.Starred(_FREE, ast.Load()), given[1].elts
    if not isinstance(dim, int):
        return None
    if dim < 0:
        return Site(call, "unflatten", (others, *sizes, *[_FREE] * (-1 - dim)))
    return Site(call, "unflatten", (*[_FREE] * dim, *sizes, others))


def sites(tree: ast.AST, line: int, rank: int = 0) -> list[Site]:
    """Calls with extents whose text covers `line`; of shapes those with `rank` extents. Where there
    are none, those of a generator in the assignment that begins there: capture names that line.

    A shape given by name (`x.view(shape)`) is looked up where the function assigns it; `*sizes` in
    a shape stands for as many extents as are missing.
    """
    return _among(tree, _covering(tree, line), line, rank) or _among(
        tree, _generated(tree, line), line, rank
    )


def sites_of(tree: ast.AST, extent: LocalExtent) -> list[Site]:
    """The calls that may write an extent. A reshape inside of an operation is none of an `expand`
    that the line gives it."""
    found = sites(tree, extent.line, len(extent.whole))
    return [s for s in found if s.method != "expand" or extent.op != "reshape"]


def _covering(tree: ast.AST, line: int) -> list[ast.Call]:
    return [n for n in of_kind(tree, ast.Call) if n.lineno <= line <= (n.end_lineno or line)]


def _generated(tree: ast.AST, line: int) -> list[ast.Call]:
    """The calls in generators and lists of the assignment that begins on a line."""
    begun = [n for n in of_kind(tree, ast.Assign) if n.lineno == line]
    kinds = ast.GeneratorExp | ast.ListComp
    loops = [g for n in begun for g in ast.walk(n.value) if isinstance(g, kinds)]
    return [c for g in loops for c in ast.walk(g) if isinstance(c, ast.Call)]


def _among(tree: ast.AST, calls: Iterable[ast.Call], line: int, rank: int) -> list[Site]:
    out: list[Site] = []
    for node in calls:
        site = site_of(node)
        if site is None:
            continue
        extents = site.extents
        if len(extents) == 1 and rank > 1:
            only = extents[0].value if isinstance(extents[0], ast.Starred) else extents[0]
            named = _assigned(tree, line, only.id) if isinstance(only, ast.Name) else None
            extents = named or _elements(only) or extents
        stars = [i for i, e in enumerate(extents) if isinstance(e, ast.Starred)]
        if len(stars) == 1 and rank >= len(extents) - 1:
            at, missing = stars[0], rank - len(extents) + 1
            extents = (*extents[:at], *[extents[at]] * missing, *extents[at + 1 :])
        if site.method == "split" or len(extents) == rank:
            out.append(Site(site.call, site.method, extents))
    return out


def _assigned(tree: ast.AST, line: int, name: str) -> tuple[ast.expr, ...] | None:
    """The elements of the tuple last assigned to `name` above `line` in the same function."""
    found: tuple[ast.expr, ...] | None = None
    for node in of_kind(function_at(tree, line) or tree, ast.Assign):
        if node.lineno <= line and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            found = _elements(node.value) or found
    return found


def _elements(node: ast.expr) -> tuple[ast.expr, ...]:
    """Of `(a, b)`, and of `x.shape[:-1] + (a, b)`, whose first part stands for several."""
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (*_elements(node.left), *_elements(node.right))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and reads_shape(node):
        return (ast.Starred(node, ast.Load()),)
    return ()


def _is_minus_one(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and node.operand.value == 1
    )


def _error(extent: LocalExtent, why: str) -> EmitError:
    return EmitError(
        f"{extent.file}:{extent.line}: {extent.op} has extents {list(extent.whole)} on one device "
        f"and needs {list(extent.local)} on a rank: {why}"
    )


def differing(extent: LocalExtent) -> list[int]:
    if len(extent.whole) != len(extent.local):
        raise _error(extent, "the two have different lengths")
    return [i for i, (a, b) in enumerate(zip(extent.whole, extent.local, strict=True)) if a != b]


def _split_edit(source: SourceText, site: Site, extent: LocalExtent) -> list[Edit]:
    """`split(n, dim=d)` into equal parts becomes `chunk(parts, dim=d)`."""
    targets = [
        node.targets[0]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign) and node.value is site.call
    ]
    if not targets or not isinstance(targets[0], ast.Tuple):
        raise _error(extent, "a split can be made local where its parts are unpacked by name")
    sizes = site.extents[0]
    if isinstance(sizes, ast.List | ast.Tuple) and len({source.of(e) for e in sizes.elts}) > 1:
        raise _error(extent, "the parts of the split are not of one written size")
    assert isinstance(site.call.func, ast.Attribute)
    name_end = source.span(site.call.func)[1]
    name_start = name_end - len(site.call.func.attr)
    count = str(len(targets[0].elts))
    named = next((k for k in site.call.keywords if k.value is sizes), None)
    parts = Edit(*source.span(named or sizes), f"chunks={count}" if named else count)
    return [Edit(name_start, name_end, "chunk"), parts]


def _cut_edit(source: SourceText, extent: LocalExtent) -> list[Edit]:
    """`x.split(sizes, dim)` becomes `split_in_ratio(x, sizes, dim)`, whose sizes are shares."""
    calls = [s.call for s in sites(source.tree, extent.line) if s.method == "split"]
    if len(calls) != 1:
        raise _error(extent, "the pieces are not of one split")
    func = calls[0].func
    assert isinstance(func, ast.Attribute)
    owner, (start, end) = _owner(calls[0]), source.span(func)
    kept = tuple(i for i in range(len(extent.whole)) if i not in differing(extent))
    more = [Edit(at := source.span(calls[0])[1] - 1, at, f", kept={kept}")] if kept else []
    if owner is None:
        return [Edit(start, end, IN_RATIO), *more]
    stop = source.text.index("(", end) + 1
    return [Edit(start, start, f"{IN_RATIO}("), Edit(source.span(owner)[1], stop, ", "), *more]


def shape_edit(source: SourceText, site: Site, extent: LocalExtent) -> list[Edit]:
    """The argument of the sharded dim becomes `-1` (or the operand's own extent, where that is the
    same and all behind it are). A -1 before it becomes the operand's own extent where that is the
    same too, or where another argument is written with the same number. In `expand` -1 is the
    operand's own extent."""
    axes = axes_of(site.call)
    if axes is not None:
        over = over_dims(axes.names, len(extent.whole))
        names = [over[i] for i in differing(extent)]
        return without_lengths(source, axes, names, f"{extent.file}:{extent.line}")
    edits: list[Edit] = []
    free = [i for i, e in enumerate(site.extents) if _is_minus_one(e)]
    for index in differing(extent):
        node = site.extents[index]
        if index in free or isinstance(node, ast.Starred) or reads_shape(node):
            continue
        if site.method == "expand" or not free:
            free.append(index)
            edits.append(Edit(*source.span(node), "-1"))
            continue
        owner, before, end = _owner(site.call), extent.before, index - len(site.extents)
        same = before[end:] == extent.whole[end:] or (end == -1 and not before)
        if isinstance(owner, ast.Name) and same:
            edits.append(Edit(*source.span(node), f"{owner.id}.size({end})"))
            continue
        kept = before[: free[0] + 1] == extent.whole[: free[0] + 1]
        if isinstance(owner, ast.Name) and free[0] < index and (kept or _again(node, site)):
            at = free.pop(0)
            edits.append(Edit(*source.span(site.extents[at]), f"{owner.id}.size({at})"))
            edits.append(Edit(*source.span(node), "-1"))
            continue
        raise _error(extent, f"{source.of(node)!r} cannot become -1, another extent is -1 already")
    return edits


def _owner(call: ast.Call) -> ast.expr | None:
    """Whose method is called; None of a function of torch."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return None if isinstance(owner, ast.Name) and owner.id == "torch" else owner


def _again(node: ast.expr, site: Site) -> bool:
    """Whether another extent of a shape is written with what stands for this one."""
    others = (n for e in site.extents if e is not node for n in ast.walk(e))
    return any(ast.dump(n) == ast.dump(node) for n in others)


def edit_extents(source: SourceText, extents: Iterable[LocalExtent]) -> list[Edit]:
    """Edits of the user's file that make its literal extents local; right on one device too.

    An extent whose line writes no shape of that rank comes from inside an operation (a linear
    flattens its input) and needs no edit.

    Raises:
        EmitError: an extent that cannot be made local, with file and line.
    """
    edits: list[Edit] = []
    for extent in extents:
        if extent.op == CUT:
            edits += _cut_edit(source, extent)
            continue
        if not differing(extent) and extent.op not in SPLITS:
            continue
        found = sites_of(source.tree, extent)
        if not found and differing(extent) == [len(extent.whole) - 1]:
            found, extent = _flattened(source.tree, extent)
        splits = [s for s in found if s.method == "split"]
        shaped = [s for s in found if s.method != "split"]
        if splits and (extent.op in ("slice", *SPLITS) or not shaped):
            edits += _split_edit(source, splits[0], extent)
        elif shaped:
            for site in alike(source.tree, shaped[0]):
                edits += shape_edit(source, site, extent)
        elif extent.op in SPLITS:
            raise _error(extent, f"no split is found in {_line(source, extent.line)!r}")
    return list(dict.fromkeys(edits))


def _flattened(tree: ast.AST, extent: LocalExtent) -> tuple[list[Site], LocalExtent]:
    """The shape that a line writes of what it multiplies, where the product merges all dims but the
    last, which differs; and the extent of that shape."""
    products = _covering_products(tree, extent.line)
    inside = {id(n) for p in products for n in ast.walk(p) if n is not p}
    for rank in range(len(extent.whole) + 1, 6):
        found = [s for s in sites(tree, extent.line, rank) if id(s.call) in inside]
        written = found[0].extents[-1] if found and found[0].method != "split" else None
        if isinstance(written, ast.Constant) and written.value != extent.whole[-1]:
            continue
        if written is not None:
            more = (0,) * (rank - 1)
            whole, local = (*more, extent.whole[-1]), (*more, extent.local[-1])
            return found, replace(extent, whole=whole, local=local, before=())
    return [], extent


def _covering_products(tree: ast.AST, line: int) -> list[ast.AST]:
    nodes = [*of_kind(tree, ast.BinOp), *of_kind(tree, ast.Call)]
    here = (n for n in nodes if n.lineno <= line <= (n.end_lineno or line))
    return [n for n in here if _is_product(n)]


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    func = node.func if isinstance(node, ast.Call) else None
    named = isinstance(func, ast.Attribute | ast.Name)
    return named and PRODUCTS.fullmatch(_name(func)) is not None


def parting_edits(source: SourceText, extent: LocalExtent) -> list[Edit]:
    """Where a shape has a -1 that is not the sharded dim's: a call that parts the last dim in two,
    or joins the last two, in its place. It does the same where the other dims stay, which reading
    the patch shows. Empty where the shape says neither."""
    edits: list[Edit] = []
    places, last = differing(extent), len(extent.whole) - 1
    for site in sites(source.tree, extent.line, len(extent.whole)):
        func = site.call.func
        if site.method not in ("view", "reshape") or _owner(site.call) is None:
            continue
        assert isinstance(func, ast.Attribute)
        if places == [last]:
            text = "flatten(-2)"
        elif places == [last - 1] and not _is_minus_one(site.extents[last]):
            text = f"unflatten(-1, (-1, {source.of(site.extents[last])}))"
        else:
            continue
        start = source.span(func)[1] - len(func.attr)
        edits.append(Edit(start, source.span(site.call)[1], text))
    return edits


def is_inner(tree: ast.AST, extent: LocalExtent, others: Iterable[LocalExtent]) -> bool:
    """Whether a product of matrices reshapes an operand to an extent, and the call on its line that
    writes as many dims reshapes the result of that product: to one of the `others`, that come
    later."""
    rank = len(extent.whole)
    later = [
        e
        for e in others
        if (e.file, e.line, e.op, e.module, len(e.whole))
        == (extent.file, extent.line, extent.op, extent.module, rank)
    ]
    found = [s for s in sites(tree, extent.line, rank) if s.method != "split"] if later else []
    return len(found) == 1 and _holds_product(found[0].call)


def _holds_product(call: ast.Call) -> bool:
    """Whether what a call reshapes multiplies matrices."""
    return any(map(_is_product, ast.walk(call)))


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def alike(tree: ast.AST, site: Site) -> list[Site]:
    """`site`, and the calls of its function that write the same method and extents.

    Capture merges a reshape with the next one, so not every place is seen on its own.
    """
    written = list(map(ast.dump, site.extents))
    out = [site]
    for node in ast.walk(function_at(tree, site.call.lineno) or tree):
        other = site_of(node)
        if (
            other is not None
            and other.call is not site.call
            and other.method == site.method
            and list(map(ast.dump, other.extents)) == written
        ):
            out.append(other)
    return out


def _line(source: SourceText, number: int) -> str:
    return source.text.split("\n")[number - 1].strip()


def reads_shape(node: ast.expr) -> bool:
    """`x.size(-1)`, `x.shape[2]`: the extent of a tensor at hand, local where the tensor is."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("size", "shape") for n in ast.walk(node))


def function_at(tree: ast.AST, line: int) -> ast.FunctionDef | None:
    found: ast.FunctionDef | None = None
    for node in of_kind(tree, ast.FunctionDef):
        if node.lineno <= line <= (node.end_lineno or line):
            found = node
    return found


def of_kind(tree: ast.AST, kind: type[_Node]) -> list[_Node]:
    """The nodes of a class in a tree that nobody changes."""
    return cast(list[_Node], _by_kind(tree).get(kind, []))


@lru_cache(256)
def _by_kind(tree: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for node in ast.walk(tree):
        found.setdefault(type(node), []).append(node)
    return found
