"""Captures a model around the modules that capture cannot take.

Such a module becomes one opaque op. In the program its results are inputs, and its arguments are
outputs: another program is put between them later.
"""

# pyright: basic

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch.aten.table import MASKS, TABLE
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.inputs import torch_types
from shardproof.synthesis.frontends.torch.lower import DTYPES, Lowering
from shardproof.synthesis.frontends.torch.materialize import (
    fake_inputs,
    fake_mode,
    parameters_on_meta,
    take_buffers,
    tied_groups,
    to_fake,
)
from shardproof.synthesis.frontends.torch.observed import Hole
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.prune import prune
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.frontends.torch.session import prepare
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES, Target
from shardproof.synthesis.frontends.torch.trace import trace
from shardproof.verifier.kernel.program.program import Program

OP = "shardproof_frontend::hole"


@dataclass
class Seen:
    """How one module was called in a real run."""

    path: str
    module: nn.Module
    calls: int = 0
    args: Any = None
    """Tree of the arguments, tensors included."""
    result: Any = None
    top: dict[int, int] = field(default_factory=dict[int, int])
    """Largest integer seen in each tensor argument."""
    low: int = 0

    def key(self) -> tuple[Any, ...]:
        """Equal for modules that are the same code at the same sizes."""
        own = [(path, type(m), _own(m)) for path, m in self.module.named_modules()]
        shapes = [(n, tuple(p.shape)) for n, p in self.module.named_parameters()]
        return (*own, str(shapes), str(self.types(self.args)))

    @staticmethod
    def types(tree: Any) -> list[Any]:
        return [
            (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x
            for x in pytree.tree_leaves(tree)
        ]


def _own(module: nn.Module) -> str:
    """What a module was told, without what every module has."""
    plain = (int, float, str, bool, tuple, list, dict, type(None))
    found = {k: v for k, v in vars(module).items() if isinstance(v, plain) and k not in _EVERY}
    return str(found)


_EVERY = frozenset(vars(nn.Module()))


def watch_calls(model: nn.Module) -> dict[str, Seen]:
    """Fills in, as the model runs, how each module below it is called."""
    seen: dict[str, Seen] = {}
    for path, module in model.named_modules():
        if not path:
            continue
        seen[path] = Seen(path, module)

        def after(m: Any, args: Any, kwargs: Any, result: Any, path: str = path) -> None:
            note = seen[path]
            note.calls += 1
            if note.args is None:
                note.args, note.result = (args, kwargs), result
            leaves = pytree.tree_leaves((args, kwargs))
            for i, x in enumerate(x for x in leaves if isinstance(x, torch.Tensor)):
                if not x.is_floating_point() and x.dtype is not torch.bool and x.numel():
                    note.top[i] = max(note.top.get(i, 0), int(x.max()))
                    note.low = min(note.low, int(x.min()))

        module.register_forward_hook(after, with_kwargs=True)
    return seen


_SHAPES: dict[int, list[tuple[tuple[int, ...], Any]]] = {}
_FOUND: dict[int, tuple[str, ...]] = {}


@torch.library.custom_op(OP, mutates_args=())
def _hole(args: list[torch.Tensor], key: int) -> list[torch.Tensor]:
    raise CaptureError("a hole holds no value")


@_hole.register_fake
def _(args: list[torch.Tensor], key: int) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=dtype) for shape, dtype in _SHAPES[key]]


def _rule(e: Any, args: list[str], key: int) -> tuple[str, ...]:
    """Arguments leave the program, results come into it."""
    for i, value in enumerate(args):
        e.b.output(value, "output", f"hole{key}.argument{i}")
    names = tuple(f"hole{key}.result{i}" for i in range(len(e.result)))
    _FOUND[key] = tuple(e.b.input(n, t, "input", n) for n, t in zip(names, e.result, strict=True))
    return names


class Opaque(nn.Module):
    """Stands where a module was."""

    def __init__(self, key: int, result: Any, narrow: Any) -> None:
        super().__init__()
        leaves, self.form = pytree.tree_flatten(result)
        self.key = key
        _SHAPES[key] = [
            (tuple(t.shape), narrow if t.is_floating_point() else t.dtype) for t in leaves
        ]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        found = torch.ops.shardproof_frontend.hole(tensors, self.key)
        return pytree.tree_unflatten(list(found), self.form)


@dataclass
class Around:
    """The rest of a model, forward only."""

    captured: Captured
    holes: tuple[Hole, ...]


def build(request: CaptureRequest, target: Target) -> nn.Module:
    with parameters_on_meta():
        return target.build()


def capture_around(
    request: CaptureRequest,
    target: Target,
    facts: ModelFacts,
    specs: tuple[InputSpec, ...],
    model: nn.Module,
    left_out: list[Seen],
    places: Provenance,
) -> Around:
    """Capture `model`, which is changed, with these modules left out.

    Raises:
        CaptureError, or what the user's code raises: the rest cannot be captured either.
    """
    canonical = {n: g[0] for g in tied_groups(model) for n in g}
    dtype = TORCH_DTYPES[request.dtype]
    for key, seen in enumerate(left_out):
        parent, _, name = seen.path.rpartition(".")
        setattr(model.get_submodule(parent), name, Opaque(key, seen.result, dtype))
    model = prepare(model, dtype, gradients=False)
    buffers = take_buffers(model)
    TABLE[f"{OP}.default"] = _rule
    _FOUND.clear()
    with fake_mode():
        to_fake(model)
        kwargs = fake_inputs(torch_types(specs))
    traced = trace(model, kwargs, target.result_names)
    below = {s.name: s.limit for s in specs}
    lowered = Lowering(traced, buffers, places, canonical, facts.class_name, below=below).run()
    program = prune(lowered.program)
    used = {i.name for i in program.inputs}
    consts = {k: v for k, v in lowered.consts.items() if k in used}
    holes: list[Hole] = []
    for key, seen in enumerate(left_out):
        if key not in _FOUND:
            raise CaptureError(f"{seen.path} is called in a real run, but not while it is captured")
        wanted = [f"hole{key}.argument{i}" for i in range(len(_arguments(seen)))]
        holes.append(Hole(seen.path, tuple(wanted), _FOUND[key]))
    notes = list(lowered.notes)
    if lowered.infinite:
        notes.append(MASKS)
    return Around(Captured(program, consts, facts, tuple(notes)), tuple(holes))


def _arguments(seen: Seen) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(seen.args) if isinstance(x, torch.Tensor)]


def with_loss(program: Program, loss: str | None) -> Program:
    """A forward traced without gradients knows no loss: say which output it is."""
    outputs = tuple(
        replace(o, role="loss") if o.role == "output" and o.path == loss else o
        for o in program.outputs
    )
    return replace(program, outputs=outputs)


def specs_of(seen: Seen, names: list[str], dtype: str) -> tuple[InputSpec, ...]:
    """The tensor arguments of a module's forward."""
    out: list[InputSpec] = []
    for i, (name, x) in enumerate(zip(names, _arguments(seen), strict=True)):
        kind = dtype if x.is_floating_point() else DTYPES[x.dtype]
        below = seen.top.get(i, 0) + 1 if kind in ("i64", "i32", "u8") else 0
        out.append(InputSpec(name, tuple(x.shape), kind, below))
    return tuple(out)
