"""The private parts of PyTorch that capture stands on, behind one version check."""

# pyright: basic

import os
import sys
import traceback
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from shardproof.synthesis.frontends.torch.decompose import decompositions
from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError, HandwrittenError

TRIED = ((2, 9), (2, 14))
"""Versions of PyTorch, from (included) and up to (excluded), that offer these functions."""


def check_version() -> None:
    """Raises CaptureError for a PyTorch outside of `TRIED`."""
    parts = torch.__version__.split("+")[0].split(".")
    version = (int(parts[0]), int(parts[1]))
    low, high = TRIED
    if not low <= version < high:
        raise CaptureError(
            f"PyTorch {torch.__version__} is not supported by capture",
            hint=f"install torch>={low[0]}.{low[1]},<{high[0]}.{high[1]}",
        )


def plain_kernels() -> None:
    """From now on this process runs layers op by op: none of what this CPU has one kernel for, none
    that `torch.export` would write in other ops than those that run. A mask of `nn.Transformer` is
    used as it is: whether it is the causal one, for which there is a kernel, is not looked at. A
    module that is converted to what it is stays as it is: a parameter without memory may not."""
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False
    transformer: Any = nn.modules.transformer
    transformer._detect_is_causal_mask = _told_causal
    module: Any = nn.Module
    module.to = _converted
    keys = [getattr(torch._C.DispatchKey, key) for key in ("CompositeImplicitAutograd", "Autograd")]
    for name in _REWRITTEN:
        packet = getattr(torch.ops.aten, name)
        for op in (getattr(packet, overload) for overload in packet.overloads()):
            for key in keys:
                op.py_kernels.pop(key, None)
            op._dispatch_cache.clear()


def _told_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    del mask, size
    return is_causal is True


_convert: Any = nn.Module.to


def _converted(module: Any, *args: Any, **kwargs: Any) -> Any:
    functions: Any = getattr(torch._C, "_nn")  # noqa: B009  (torch says no types of it)
    device, dtype, _, form = functions._parse_to(*args, **kwargs)
    is_now = (
        form is None
        and (dtype is None or dtype.is_floating_point)
        and all(type(m)._apply is nn.Module._apply for m in module.modules())
        and all(
            device in (None, t.device)
            and (dtype in (None, t.dtype) or not (t.is_floating_point() or t.is_complex()))
            for t in (*module.parameters(), *module.buffers())
        )
    )
    return module if is_now else _convert(module, *args, **kwargs)


_REWRITTEN = (
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "upsample_nearest1d", "upsample_nearest2d"),
    *("upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d"),
)


def fake_mode() -> Any:
    """Tensors with shapes and a CPU device but no memory."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def _caller() -> tuple[str, int, str]:
    """File, line and text of the innermost code that is neither PyTorch's nor ours."""
    ours = [str(Path(file).parent) + os.sep for file in (str(torch.__file__), __file__)]
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((*ours, "<")):
            inside = frame.filename.partition(f"-packages{os.sep}")[2]
            return inside or Path(frame.filename).name, frame.lineno or 0, frame.line or ""
    return "", 0, ""


@contextmanager
def no_custom_backward() -> Generator[None]:
    """Refuse custom autograd functions: export keeps their forward and loses their backward."""
    function: Any = torch.autograd.Function
    original = function.__dict__["apply"]

    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        operator = cls.__name__.removeprefix("GeneratedBackwardFor_")
        file, line, text = _caller()
        if operator != cls.__name__:
            raise CaptureError(
                f"the custom operator {operator} has no meaning in the language",
                hint=f"write it with tensor operations{OR_TRANSLATE}",
                file=file,
                line=line,
                text=text,
            )
        raise HandwrittenError(
            f"{cls.__name__} has a hand-written backward, which torch.export would drop",
            hint="write its forward with tensor operations, and let autograd derive the backward"
            + OR_TRANSLATE,
            file=file,
            line=line,
            text=text,
        )

    function.apply = classmethod(refuse)
    try:
        yield
    finally:
        function.apply = original


@contextmanager
def no_gradient_hooks() -> Generator[None]:
    """Refuse hooks on the gradients of tensors: export drops them."""
    tensor: Any = torch.Tensor
    names = ("register_hook", "register_post_accumulate_grad_hook")
    originals = {name: getattr(tensor, name) for name in names}

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        file, line, text = _caller()
        raise CaptureError(
            "a hook on the gradient of a tensor is not followed",
            hint=f"write what it does to the gradient as an op of the forward{OR_TRANSLATE}",
            file=file,
            line=line,
            text=text,
        )

    for name in names:
        setattr(tensor, name, refuse)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(tensor, name, original)


@contextmanager
def as_it_runs() -> Generator[None]:
    """Code that asks whether it is compiled or exported is told that it is not, PyTorch's own
    aside: what is traced is what runs."""
    compiler: Any = torch.compiler
    names = ("is_compiling", "is_exporting")
    originals = {name: getattr(compiler, name) for name in names}

    def told(original: Any) -> Any:
        def answer() -> bool:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return caller.partition(".")[0] == "torch" and original()

        return answer

    for name, original in originals.items():
        setattr(compiler, name, told(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(compiler, name, original)


def export(module: Any, kwargs: dict[str, Any]) -> Any:
    """`torch.export` without guards, as a module that is called with `kwargs`."""
    with no_custom_backward(), no_gradient_hooks(), as_it_runs():
        program = torch.export.export(module, (), kwargs=kwargs)
    return program.module(check_guards=False)


def joint_graph(module: Any, kwargs: dict[str, Any]) -> Any:
    """The joint forward and backward graph at aten level, ops without a rule opened; forward alone
    where nothing needs a gradient."""
    # Half the time of importing PyTorch: not where a model is refused before it is traced.
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with ExitStack() as stack:
        return aot_export_joint_with_descriptors(
            stack, module, (), kwargs, decompositions=decompositions()
        ).graph_module


def describe(desc: Any) -> tuple[str, str]:
    """(kind, name) of an input or output descriptor.

    Kinds: param, buffer, input, tangent, output, grad, mutation. The name is the module path of a
    param or buffer, or the number of an input or output.
    """
    name = type(desc).__name__
    if name == "ParamAOTInput":
        return "param", desc.target
    if name == "BufferAOTInput":
        return "buffer", desc.target
    if name == "PlainAOTInput":
        return "input", str(desc.idx)
    if name == "TangentAOTInput":
        kind, target = describe(desc.output)
        return "mutation" if kind == "mutation" else "tangent", target
    if name == "PlainAOTOutput":
        return "output", str(desc.idx)
    if name == "GradAOTOutput":
        return "grad", describe(desc.grad_of)[1]
    if name == "InputMutationAOTOutput":
        return "mutation", describe(desc.mutated_input)[1]
    raise CaptureError(
        f"PyTorch describes a value of the joint graph as {name}, which is not known"
    )
