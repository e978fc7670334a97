"""Writes the cross entropy of one device in the form that a vocabulary-parallel one takes.

Log-softmax and a lookup become a lookup of shifted logits minus the logarithm of a sum, masked at
ignored labels. For labels l that each name a class or are `ignored`, an index outside of the
classes, with v = (l != ignored), s = sum(exp(z)) over the classes:

    take_along(x - log(s), l)           = where(v, take_along(x, l) - log(s), 0)
    put_along(g, l)                     = put_along(where(v, g, 0), l)
    exp(a - log(s)) sum(put_along(g, l)) = exp(a) (where(v, g, 0) / s)

Where ranks keep the log-softmax, as PyTorch's `loss_parallel` does, it stays closed, and only

    take_along(x, l)      = where(v, take_along(x, l), 0)
    sum(put_along(g, l))  = where(v, g, 0)

PyTorch refuses other labels. Of labels that are compared with nothing, each has to name a class,
where the caller is ready to assume so; then v holds everywhere. A lookup outside of the classes
gives 0, see `shardproof.verifier.kernel.ops.indexing`.
"""

from fractions import Fraction
from typing import Literal

from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program

Form = Literal["open", "bare", "closed"]
FORMS: tuple[Form, ...] = ("open", "bare", "closed")


def open_entropy(
    program: Program, form: Form = "open", unmarked: bool = False
) -> tuple[Program, tuple[str, ...]]:
    """The program (in primitives) with its cross entropies in another form, and what that assumes.

    With `unmarked`, those too whose labels are compared with no number. In the `bare` form a shift
    that is the same for all classes, `x = y - m`, is taken out of the lookup too; in the `closed`
    one the log-softmax stays.
    """
    opening = _Opening(program, unmarked, form == "bare")
    patterns: dict[str, Pattern] = {
        "take_along": opening.lookup,
        "put_along": opening.put,
        "mul": opening.softmax_times,
    }
    if form == "closed":
        patterns = {"take_along": opening.masked_lookup, "sum": opening.row_sum}
    return rewrite(program, patterns), tuple(sorted(opening.assumed))


class _Opening:
    def __init__(self, program: Program, unmarked: bool, bare: bool) -> None:
        self.unmarked, self.bare = unmarked, bare
        self.assumed: set[str] = set()
        self.ignored = _ignored(program)
        self.masked: dict[str, str] = {}
        """The masked values that a `put_along` spreads."""

    def _valid(self, r: Rewriting, label: str, classes: int, shape: tuple[int, ...]) -> str | None:
        """The mask of labels that count, with the shape given; notes what it assumes."""
        base = r.through(label, "reshape")
        ignored = self.ignored.get(base)
        if ignored is None or 0 <= ignored < classes:
            return None
        self.assumed.add(f"Every label names a class or is {ignored}.")
        limit = r.add("full", shape=(), value=ignored, dtype=r.type(base).dtype)
        return r.add("ne", r.reshape(base, shape), limit)

    def _masked(
        self, r: Rewriting, value: str, label: str, classes: int, shape: tuple[int, ...]
    ) -> str | None:
        if self.unmarked and r.through(label, "reshape") not in self.ignored:
            self.assumed.add("Every label names a class.")
            return r.reshape(value, shape)
        valid = self._valid(r, label, classes, shape)
        if valid is None:
            return None
        zero = r.add("full", shape=(), value=Fraction(0), dtype=r.type(value).dtype)
        source = r.through(value, "reshape", "expand")
        one = r.type(source).size == 1
        value = r.reshape(source, ()) if one else r.reshape(value, shape)
        return r.add("where", valid, value, zero)

    def lookup(self, r: Rewriting, node: Node) -> str | None:
        value, label = node.inputs
        dim, lines = node.attrs["dim"], r.type(label).shape
        gap = r.made(value, "sub")
        total = _log_sum(r, gap.inputs[1]) if gap is not None else None
        if gap is None or total is None or not isinstance(dim, int) or node.attrs.get("offset", 0):
            return None
        x, e = gap.inputs
        if r.type(e).shape != lines or lines[dim] != 1 or r.type(x) != r.type(value):
            return None
        if total.attrs["dims"] != (dim,):
            return None
        shape = (*lines[:dim], *lines[dim + 1 :])
        shift = r.made(x, "sub") if self.bare else None
        lined = shift is not None and r.type(shift.inputs[1]).shape == lines
        source = shift.inputs[0] if shift is not None and lined else x
        picked = r.reshape(r.add("take_along", source, label, dim=dim), shape)
        e = r.add("log", _bare(r, total))
        opened = r.add("sub", picked, e)
        if shift is not None and lined:
            opened = r.add("sub", opened, r.reshape(shift.inputs[1], shape))
        masked = self._masked(r, opened, label, r.type(x).shape[dim], shape)
        return None if masked is None else r.reshape(masked, lines)

    def masked_lookup(self, r: Rewriting, node: Node) -> str | None:
        value, label = node.inputs
        dim, lines = node.number("dim"), r.type(label).shape
        if lines[dim] != 1 or node.attrs.get("offset", 0):
            return None
        valid = self._valid(r, label, r.type(value).shape[dim], lines)
        if valid is None:
            return None
        zero = r.add("full", shape=(), value=Fraction(0), dtype=r.type(value).dtype)
        return r.add("where", valid, r.add("take_along", value, label, dim=dim), zero)

    def row_sum(self, r: Rewriting, node: Node) -> str | None:
        put = r.made(node.inputs[0], "put_along")
        if put is None or put.attrs.get("offset", 0) or node.attrs["dims"] != (put.attrs["dim"],):
            return None
        g, label = put.inputs
        if r.type(label).shape[put.number("dim")] != 1:
            return None
        kind = r.type(node.outputs[0])
        return self._masked(r, g, label, put.number("size"), kind.shape)

    def put(self, r: Rewriting, node: Node) -> str | None:
        g, label = node.inputs
        dim, size, lines = node.attrs["dim"], node.attrs["size"], r.type(label).shape
        if not isinstance(dim, int) or not isinstance(size, int) or node.attrs.get("offset", 0):
            return None
        if lines[dim] != 1:
            return None
        shape = (*lines[:dim], *lines[dim + 1 :])
        masked = self._masked(r, g, label, size, shape)
        if masked is None:
            return None
        made = r.add("put_along", r.reshape(masked, lines), label, dim=dim, size=size)
        self.masked[made] = masked
        return made

    def softmax_times(self, r: Rewriting, node: Node) -> str | None:
        for a, b in (node.inputs, node.inputs[::-1]):
            exp, added = r.made(a, "exp"), r.made(b, "sum")
            gap = r.made(exp.inputs[0], "sub") if exp is not None else None
            total = _log_sum(r, gap.inputs[1]) if gap is not None else None
            put = r.made(added.inputs[0], "put_along") if added is not None else None
            if gap is None or total is None or put is None or added is None:
                continue
            masked = self.masked.get(put.outputs[0])
            lines = r.type(put.inputs[0]).shape
            if (
                masked is None
                or not added.attrs["dims"] == (put.attrs["dim"],) == total.attrs["dims"]
            ):
                continue
            if r.type(b).shape != lines or r.type(gap.inputs[1]).shape != lines:
                continue
            share = r.add("div", masked, _bare(r, total))
            return r.add("mul", r.add("exp", gap.inputs[0]), r.reshape(share, lines))
        return None


def _ignored(program: Program) -> dict[str, Fraction]:
    """By labels, the one number that they are compared with, or else are joined with."""
    made = {v: n for n in program.nodes for v in n.outputs}

    def base_of(label: str) -> str:
        while label in made and made[label].op == "reshape":
            label = made[label].inputs[0]
        return label

    def number(value: str) -> Fraction | None:
        full = made.get(value)
        found = full.attrs["value"] if full is not None and full.op == "full" else None
        return found if isinstance(found, Fraction) else None

    def joined(value: str) -> set[Fraction]:
        node, known = made.get(value), number(value)
        if known is not None:
            return {known}
        if node is None or node.op not in ("concat", "slice", "reshape"):
            return set()
        return set[Fraction]().union(*map(joined, node.inputs))

    out: dict[str, Fraction] = {}
    for node in program.nodes:
        if node.op in ("take_along", "put_along"):
            base = base_of(node.inputs[1])
            numbers = joined(base)
            if len(numbers) == 1:
                out.setdefault(base, numbers.pop())
        elif node.op == "ne":
            base, value = base_of(node.inputs[0]), number(node.inputs[1])
            if value is not None and not program.types[base].is_float:
                out[base] = value
    return out


def _log_sum(r: Rewriting, name: str) -> Node | None:
    """The sum of exponentials that a value is the logarithm of."""
    log = r.made(name, "log")
    total = r.made(log.inputs[0], "sum") if log is not None else None
    if total is None or r.made(total.inputs[0], "exp") is None:
        return None
    return total


def _bare(r: Rewriting, total: Node) -> str:
    """A sum without the dims it sums over."""
    return r.add("sum", total.inputs[0], dims=total.attrs["dims"], keepdim=False)
