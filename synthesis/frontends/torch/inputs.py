"""Decides the arguments of `forward`: from the request, the user's file, or the model's config; and
by a traced graph the integers that a model's tables admit, of which an example shows only some."""

# pyright: basic

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.integers import FIRST, JOINED
from shardproof.synthesis.frontends.torch.lower import DTYPES
from shardproof.synthesis.frontends.torch.ranks.arguments import integers_of, leaves
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES, Target
from shardproof.synthesis.frontends.torch.trace import Traced

BATCH, SEQ = 4, 128
SIDE = 224
"""Of the images of a model that takes any size."""
_PER_SEQUENCE = ("ForSequenceClassification", "ForImageClassification", "ForMultipleChoice")


def find_inputs(request: CaptureRequest, target: Target, model: nn.Module) -> tuple[InputSpec, ...]:
    """The arguments by name. Raises CaptureError where none are given or they do not fit."""
    if request.inputs:
        found = request.inputs
    elif target.module is not None:
        found = _example_inputs(request, target)
    else:
        found = _library_inputs(request, target)
    signature = inspect.signature(target.cls.forward)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for spec in found:
        if spec.name.partition(".")[0] not in signature.parameters and not takes_any:
            raise CaptureError(
                f"{target.cls.forward.__qualname__} has no argument {spec.name!r}",
                hint=f"it takes {', '.join(list(signature.parameters)[1:])}",
            )
    return tuple(_fitted(spec, model, request.dtype) for spec in found)


def _fitted(spec: InputSpec, model: nn.Module, dtype: str) -> InputSpec:
    """Floats have the dtype of the parameters. Integers index some table: without a bound they
    stay below the smallest embedding."""
    if spec.dtype in ("f32", "f64", "bf16", "f16"):
        return replace(spec, dtype=dtype)
    if spec.below or spec.dtype not in ("i64", "i32"):
        return spec
    rows = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    return replace(spec, below=min(rows, default=2), sampled=True)


def _example_inputs(request: CaptureRequest, target: Target) -> tuple[InputSpec, ...]:
    function = getattr(target.module, "example_inputs", None)
    if function is None:
        raise CaptureError(
            "no example inputs",
            hint="give --input name=dtype[extents] for each argument of forward, "
            "or define example_inputs() in the file",
        )
    given = {k: v for k, v in (("batch", request.batch), ("seq", request.seq)) if v is not None}
    accepted = set(inspect.signature(function).parameters)
    refused = sorted(set(given) - accepted)
    if refused:
        raise CaptureError(
            f"example_inputs() takes no {refused[0]}",
            hint=f"let it take {refused[0]}, or give the inputs with --input",
        )
    torch.manual_seed(0)  # what is read off the values is then the same in every run
    result = function(**given)
    if isinstance(result, torch.Tensor):
        result = (result,)
    if isinstance(result, (tuple, list)):
        names = list(inspect.signature(target.cls.forward).parameters)[1:]
        result = dict(zip(names, result, strict=False))
    if not isinstance(result, dict):
        raise CaptureError("example_inputs() returns neither tensors nor a dict of tensors")
    return tuple(_spec(*leaf) for item in result.items() for leaf in leaves(*item))


def _spec(name: str, value: Any) -> InputSpec:
    if not isinstance(value, torch.Tensor):
        raise CaptureError(f"example input {name!r} is a {type(value).__name__}, expected a tensor")
    if value.dtype not in DTYPES:
        raise CaptureError(
            f"example input {name!r} has dtype {value.dtype}, which is not supported"
        )
    integral = not value.is_floating_point() and value.dtype is not torch.bool
    below, ignored = integers_of(value) if integral else (0, None)
    strides = () if value.is_contiguous() else value.stride()
    shape, dtype = tuple(value.shape), DTYPES[value.dtype]
    return InputSpec(name, shape, dtype, below, strides, ignored, sampled=bool(below))


def _library_inputs(request: CaptureRequest, target: Target) -> tuple[InputSpec, ...]:
    names = inspect.signature(target.cls.forward).parameters
    config = target.hf_config
    batch = request.batch or BATCH
    if config is None and target.image is not None:
        return (InputSpec(list(names)[1], (batch, *target.image), request.dtype),)
    if config is None:
        takes = [p.name for p in list(names.values())[1:] if p.default is p.empty]
        raise CaptureError(
            f"{target.cls.__name__} does not tell the sizes of {', '.join(takes)}",
            hint=f"give --input {takes[0] if takes else 'x'}=f32[4,16] and so on",
        )
    labels = "labels" in names
    if "input_ids" in names:
        longest = getattr(config, "max_position_embeddings", None) or SEQ
        seq = request.seq or min(SEQ, longest)
        vocab = config.vocab_size
        out = [InputSpec("input_ids", (batch, seq), "i64", vocab)]
        if labels:
            whole = target.cls.__name__.endswith(_PER_SEQUENCE)
            below = getattr(config, "num_labels", 2) if whole else vocab
            out.append(InputSpec("labels", (batch,) if whole else (batch, seq), "i64", below))
        return tuple(out)
    if "pixel_values" in names:
        sees = getattr(config, "vision_config", config)
        size = getattr(sees, "image_size", SIDE)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        image = (batch, getattr(sees, "num_channels", 3), height, width)
        out = [InputSpec("pixel_values", image, request.dtype)]
        if labels:
            out.append(InputSpec("labels", (batch,), "i64", config.num_labels))
        return tuple(out)
    frames = getattr(config, "max_source_positions", None)
    if "input_features" in names and labels and frames:
        # Whisper's two convolutions leave one position of two frames (arXiv 2212.04356)
        longest = config.max_target_positions
        sound = (batch, config.num_mel_bins, 2 * frames)
        words = (batch, min(request.seq or SEQ, longest))
        return (
            InputSpec("input_features", sound, request.dtype),
            InputSpec("labels", words, "i64", config.vocab_size),
        )
    raise CaptureError(
        f"{target.cls.__name__} takes neither input_ids nor pixel_values",
        hint="give --input name=dtype[extents] for each argument of forward",
    )


def torch_types(
    specs: tuple[InputSpec, ...],
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]:
    """Shape, strides (empty: contiguous) and dtype of each."""
    return {s.name: (s.shape, s.strides, TORCH_DTYPES[s.dtype]) for s in specs}


SAME = frozenset(FIRST.split()) - {"gather", "index", "index_select"}
CLASSES = frozenset(["nll_loss_forward", "nll_loss_nd", "nll_loss", "cross_entropy_loss"])
ALONG = {"index_select": 1, "gather": 1, "scatter": 1, "scatter_add": 1, "index_add": 1}
"""Ops that look up along a dim, with the operand that says which; the index is the next one."""
AGAIN = frozenset(["embedding_dense_backward", "nll_loss_backward", "index_put", "eq", "ne"])
AGAIN |= {"lt", "le", "gt", "ge", "zeros_like", "ones_like", "full_like"}
"""Ops that read an index which was looked up before, or tell integers apart."""


def from_tables(traced: Traced, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """The inputs; integers whose bound is that of an example reach to the end of the smallest table
    that they are looked up in. Those that are computed with stay as the example has them."""
    places = {name: node for node, name in traced.inputs.items()}
    return tuple(
        replace(s, below=min(sizes))
        if s.sampled and s.name in places and (sizes := _sizes(places[s.name]))
        else s
        for s in specs
    )


def _sizes(start: fx.Node) -> set[int]:
    """Extents of the dims that entries of a value are looked up in; none where it has other uses
    too."""
    todo, seen, sizes = [start], {start}, set[int]()
    while todo:
        value = todo.pop()
        for user in value.users:
            name = getattr(user.target, "__name__", str(user.target)).partition(".")[0]
            size = _size(user, name, value)
            if size is not None:
                sizes.add(size)
                continue
            operands: Any = user.args
            kept = [operands[i] for i in JOINED.get(name, ()) if i < len(operands)]
            flat = [x for k in kept for x in (k if isinstance(k, list | tuple) else [k])]
            if (name in SAME and operands[0] is value) or value in flat:
                if not is_integer(user):
                    return set()
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
            elif user.op != "output" and name not in AGAIN:
                return set()
    return sizes


def _size(user: fx.Node, name: str, value: fx.Node) -> int | None:
    args: Any = user.args
    if name == "embedding" and args[1] is value:
        return _shape(args[0])[0]
    if name in CLASSES and args[1] is value:
        shape = _shape(args[0])
        return shape[1 if len(shape) > 1 else 0]
    if name in ALONG and len(args) > 2 and args[2] is value:
        shape = _shape(args[0])
        return shape[args[1]] if shape else None
    if name == "index" and any(found is value for found in args[1]):
        return _shape(args[0])[[found is value for found in args[1]].index(True)]
    return None


def _shape(node: Any) -> Any:
    return node.meta["val"].shape if isinstance(node, fx.Node) else ()


def is_integer(node: fx.Node) -> bool:
    """Whether a node holds integers, or several values."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return dtype is None or not (dtype.is_floating_point or dtype.is_complex)
