"""Which `ParallelStyle` expression stands for each (style, module class)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.snippets import PARALLEL, SNIPPETS, TENSOR, Snippet
from shardproof.synthesis.planner.plan import ModulePlan
from shardproof.synthesis.planner.roles import GATES

Import = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Style:
    """A constructor call: name, arguments, where the name comes from."""

    name: str
    arguments: tuple[str, ...]

    @property
    def snippet(self) -> Snippet | None:
        """Its definition, where PyTorch has none."""
        return SNIPPETS.get(self.name)

    @property
    def imports(self) -> tuple[Import, ...]:
        own = () if self.snippet else ((PARALLEL, self.name),)
        text = " ".join(self.arguments)
        placements = ("Replicate", "Shard")
        return (*own, *((TENSOR, name) for name in placements if f"{name}(" in text))


def placement(text: str) -> str:
    """`S(1)` as PyTorch writes it: `Shard(1)`."""
    if text == "R":
        return "Replicate()"
    if text.startswith("S("):
        return f"Shard({text[2:-1]})"
    raise EmitError(f"placement {text!r} of an activation between modules; expected R or S(dim)")


def _arguments(m: ModulePlan, takes: str, gives: str) -> tuple[str, ...]:
    """Keyword arguments where the plan differs from what the style assumes by itself."""
    out: list[str] = []
    if m.input != takes:
        out.append(f"input_layouts={placement(m.input)}")
    if m.output != gives:
        out.append(f"output_layouts={placement(m.output)}")
    return tuple(out)


def _needs(m: ModulePlan, what: str, got: str, expected: str) -> None:
    if got != expected:
        raise EmitError(f"{m.path}: {m.style} {m.kind} with {what} {got}, expected {expected}")


def _column(name: str) -> Callable[[ModulePlan], Style]:
    return lambda m: Style(name, _arguments(m, "R", "S(-1)"))


def _row(name: str) -> Callable[[ModulePlan], Style]:
    return lambda m: Style(name, _arguments(m, "S(-1)", "R"))


def _embedding_rows(m: ModulePlan) -> Style:
    _needs(m, "input", m.input, "R")
    output = () if m.output == "R" else (f"output_layouts={placement(m.output)}",)
    return Style("RowwiseParallel", ("input_layouts=Replicate()", *output))


def _fused(name: str) -> Callable[[ModulePlan], Style]:
    def build(m: ModulePlan) -> Style:
        _needs(m, "output", m.output, "S(-1)")
        extra = () if m.input == "R" else (f"input_layouts={placement(m.input)}",)
        widths = [rows if n == 1 else (n, rows) for n, rows in m.widths]
        kept = (f"kept={m.kept}",) if m.kept else ()
        return Style(name, (f"parts={widths or m.parts}", *kept, *extra))

    return build


def _kv(m: ModulePlan) -> Style:
    _needs(m, "output", m.output, "S(-1)")
    extra = () if m.input == "R" else (f"input_layouts={placement(m.input)}",)
    return Style("KVHeadParallel", (f"heads={m.parts}", *extra))


def _inner(m: ModulePlan) -> Style:
    _needs(m, "input", m.input, "R")
    whole = ", ".join(f'"{name}"' for name in m.whole)
    return Style("InnerParallel", (_splits(m), *[f"whole=[{whole}]"] * bool(whole)))


def _splits(m: ModulePlan) -> str:
    splits = (f'"{name}": {(dim, parts) if parts > 1 else dim}' for name, dim, parts in m.splits)
    return "{" + ", ".join(splits) + "}"


def _pieces(name: str) -> Callable[[ModulePlan], Style]:
    def build(m: ModulePlan) -> Style:
        return Style(name, (_splits(m), *_arguments(m, "R", "R")))

    return build


def _sequence(m: ModulePlan) -> Style:
    """`output="DTensor"`: the sharded output keeps its whole shape for the code that follows."""
    if m.output == "DTensor":
        return Style("SequenceParallel", ())
    if m.input != m.output or not m.input.startswith("S("):
        raise EmitError(f"{m.path}: sequence style with {m.input} -> {m.output}, expected S(d)")
    dim = m.input[2:-1]
    first = () if dim == "1" else (f"sequence_dim={dim}",)
    return Style("SequenceParallel", (*first, "use_local_output=True"))


def _recurrent(_: ModulePlan) -> Style:
    return Style("RecurrentParallel", ())


_made = _pieces("MadeWeightParallel")
_channels, _product = _pieces("ChannelParallel"), _pieces("ProductParallel")
_LINEAR_COLUMN = _column("ColwiseParallel")
_TABLE: dict[tuple[str, str], Callable[[ModulePlan], Style]] = {
    ("column", "Linear"): _LINEAR_COLUMN,
    ("column", "Embedding"): _LINEAR_COLUMN,
    ("column", "Conv1D"): lambda m: _product(replace(m, splits=(("weight", 1, 1), ("bias", 0, 1)))),
    ("row", "Linear"): _row("RowwiseParallel"),
    ("row", "Embedding"): _embedding_rows,
    ("row", "Conv1D"): lambda m: _product(replace(m, splits=(("weight", 0, 1),))),
    ("vocab", "Embedding"): _embedding_rows,
    ("vocab", "Linear"): _LINEAR_COLUMN,
    ("fused_column", "Linear"): _fused("FusedColwiseParallel"),
    ("fused_column", "Conv1D"): _fused("FusedConv1DColwiseParallel"),
    ("fused_column", "MultiheadAttention"): lambda _: Style("AttentionParallel", ()),
    ("kv_column", "Linear"): _kv,
    ("experts", "*"): _inner,
    ("inner", "*"): _inner,
    ("product", "*"): _product,
    ("column", "Conv"): _channels,
    ("fused_column", "Conv"): _channels,
    ("row", "Conv"): _channels,
    ("channels", "Conv"): _channels,
    ("gathered", "Conv"): _channels,
    **dict.fromkeys((("recurrent", kind) for kind in GATES), _recurrent),
    ("gathered", "Linear"): _LINEAR_COLUMN,
    ("gathered", "Embedding"): _LINEAR_COLUMN,
    ("gathered", "EmbeddingBag"): _channels,
    ("sequence", "*"): _sequence,
}


def supported(base: str, style: str) -> bool:
    """Whether the emitter can write `style` for a module of class (or base class) `base`.

    `base` is `Linear`, `Conv1D`, `Embedding`, or the name of another class that takes one tensor
    and gives one tensor of the same shape (a norm, a dropout).
    """
    return style == "replicate" or (style, base) in _TABLE or (style, "*") in _TABLE


def style_of(m: ModulePlan, base: str) -> Style:
    """The style expression of one planned module.

    Raises:
        EmitError: no style covers it.
    """
    return _writer(m, "Conv" if m.splits else base)(m)


def _writer(m: ModulePlan, base: str) -> Callable[[ModulePlan], Style]:
    build = _made if m.made else _TABLE.get((m.style, base)) or _TABLE.get((m.style, "*"))
    if build is None:
        known = ", ".join(sorted({b for s, b in _TABLE if s == m.style}))
        raise EmitError(f"{m.path}: no {m.style} style for {m.kind}; it exists for {known}")
    return build


def classes_of(style: str) -> frozenset[str]:
    """Names of the classes that stand for a style in a patch, whatever the module."""
    sample = ModulePlan("m", "Linear", style, "R", "R")
    found: set[str] = set()
    for kind, base in _TABLE:
        for m in (sample, replace(sample, output="S(-1)"), replace(sample, output="DTensor")):
            with suppress(EmitError):
                found.update({style_of(m, base).name} if kind == style else ())
    return frozenset(found)


def every_style() -> frozenset[str]:
    """All styles that a patch has a class for."""
    return frozenset(style for style, _ in _TABLE)


def split_of(m: ModulePlan, base: str, name: str) -> str:
    """How the style splits the module's parameter `name`: a placement, or `R`.

    Raises:
        EmitError: no style covers it.
    """
    if m.splits and m.style not in ("experts", "inner"):
        return next((f"S({dim})" for param, dim, _ in m.splits if param == name), "R")
    if m.style in ("sequence", "summed", "replicate", "kv_column", "experts", "inner") or (
        m.style == "row" and name == "bias"
    ):
        return "R"
    if m.style == "recurrent":
        return f"S(fused {m.parts})"
    if m.style == "fused_column":
        split = "S(0)" if m.widths else f"S(fused {m.parts})"
        return "R" if name == "bias" else split
    _writer(m, base)
    rows_first = m.style in ("column", "vocab") if base == "Linear" else m.style != "column"
    if base == "Conv1D":
        rows_first = m.style == "row" or name == "bias"
    return "S(0)" if rows_first else "S(1)"


def is_column(m: ModulePlan) -> bool:
    """It takes a whole activation and each rank gives a share of the gradient of it."""
    return m.style in ("column", "fused_column", "kv_column") and not m.splits
