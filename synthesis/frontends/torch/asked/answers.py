"""What the user's code asks that a trace would answer otherwise than a run.

Where it is known what a run says, the code is told that: the class of a tensor, what attributes it
has, whether it is compiled. The rest, such as addresses, is refused with the line that asks.
"""

# pyright: basic

import gc
import inspect
import linecache
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.distributed.tensor.placement_types import Placement

from shardproof.synthesis.frontends.torch import compiled
from shardproof.synthesis.frontends.torch.asked.classless import CLASSLESS
from shardproof.synthesis.frontends.torch.asked.watching import Watching, caller, now
from shardproof.synthesis.frontends.torch.built_draws import asked_of_draws
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.surroundings import (
    asked_outside,
    gone_through,
    hashed,
    without_gradient,
)

_STAND_INS: tuple[Any, ...] = (FakeTensor, FunctionalTensor)
_THEIRS = {n for c in _STAND_INS for n in (*dir(c), *c.__annotations__)} - set(dir(torch.Tensor))
_OF_MEMORY = """data_ptr untyped_storage storage _typed_storage _storage __dlpack__ __reduce_ex__
__reduce__ __repr__ __str__ __format__ __getstate__ __sizeof__"""
MEMORY = frozenset(_OF_MEMORY.split())
"""Methods that tell, or give away, where and how a tensor lies in memory."""
_OF_MODULES = """_forward_hooks _forward_pre_hooks _forward_hooks_with_kwargs
_forward_pre_hooks_with_kwargs _forward_hooks_always_called _backward_hooks _backward_pre_hooks"""
_HOOKS = frozenset(_OF_MODULES.split())
_OF_PROCESSES = "modules argv orig_argv path path_importer_cache path_hooks meta_path executable"
_PROCESS = frozenset(_OF_PROCESSES.split())
_SWITCHES = {"enabled": torch.backends.mkldnn}
"""What is set otherwise while code is traced, with what it is an attribute of."""
ATTRIBUTES = frozenset(
    {
        "__class__",
        "__dict__",
        "_version",
        "grad",
        "compile",
        *_THEIRS,
        *_HOOKS,
        *_PROCESS,
        *_SWITCHES,
    }
)
"""Attributes that are asked for here."""
OF_THE_FRAME = frozenset({"super", "locals", "globals", "dir", "eval", "exec"})
"""Functions that look at the frame that calls them."""
OF_KINDS = frozenset({"isinstance", "issubclass"})
"""Functions that are given classes, not functions."""
PLAIN = frozenset({"type", "isinstance", "hasattr", "getattr", "vars", "hash"})
"""Functions of Python that are answered here."""
_TRACERS = (
    *("torch._guards", "torch._subclasses", "torch.utils._python_dispatch", "torch.fx"),
    *("torch._dynamo", "torch._functorch", "torch._C", "torch.overrides", "torch._export"),
    *("torch.compiler", "torch.export", "torch._higher_order_ops"),
)
_QUESTION = re.compile(r"(^|_)(is|are|has|have|len|get|detect|active|current|peek|enabled)(_|$)")
"""Names of functions that tell what the code is run by."""
_EVAL_FRAME = str(Path(str(torch.__file__)).parent / "_dynamo" / "eval_frame.py")
_OF_ANY_RUN = re.compile(r"is_tensor_like$|_has_torch_function")
"""Those that tell the same in a trace."""
_AS_IN_A_RUN = frozenset({"is_compiling", "is_exporting", "is_dynamo_compiling"})
_LIKE_REAL_ONES = "a tensor has no memory while the code is traced"
_CALLS = "the calls that lead there are others in a run"
_SET = "it is set otherwise while the code is traced"
_ASKING: dict[Any, str] = {
    **dict.fromkeys((sys._getframe, sys._current_frames, sys.gettrace, sys.getprofile), _CALLS),
    **dict.fromkeys((inspect.stack, inspect.currentframe, inspect.trace), _CALLS),
    **dict.fromkeys((traceback.extract_stack, traceback.format_stack), _CALLS),
    **dict.fromkeys((traceback.walk_stack, gc.get_objects, gc.get_referrers), _CALLS),
    **dict.fromkeys((torch.is_autocast_cache_enabled, torch.get_num_threads), _SET),
    **dict.fromkeys((torch.get_num_interop_threads,), _SET),
    torch._C._to_dlpack: _LIKE_REAL_ONES,
    **dict.fromkeys((torch.save, sys.getsizeof), _LIKE_REAL_ONES),
}
"""Functions whose answer is another in a run, each with why."""


def stands_in(value: Any) -> bool:
    """Whether a tensor is one without values."""
    return type(value) in _STAND_INS


def real_class(value: Any) -> type:
    """The class that a value has in a run."""
    if not stands_in(value):
        CLASSLESS.get(type(value), _nothing)()
        return type(value)
    return nn.Parameter if getattr(value, "_is_param", False) else torch.Tensor


def called(function: Any) -> Any:
    """What a line of the user's calls, or what answers in its place."""
    kind = type(function)
    if kind is type or kind is BuiltinFunctionType:
        answer = _ANSWERS.get(id(function))
        if answer is not None:
            return answer
        watched = now()
        if watched is not None and id(function) in watched.answers:
            return watched.answers[id(function)]
    if kind not in _ASKED:
        return function
    frame = caller()
    asked_outside(function, frame)
    watched = now()
    if watched is not None and watched.building:
        asked_of_draws(function, frame)
    name, module = function.__name__, str(getattr(function, "__module__", ""))
    if name in _AS_IN_A_RUN and module.startswith("torch."):
        if watched is None or not _is_compiled(frame):
            return _no
        said = f"forward calls {name} where torch.compile runs it, which nothing is while traced"
        return _refusing(watched.refusal(frame, said, _HINT))
    if function is dist.get_backend:
        return _gloo
    if function is torch.utils.swap_tensors:
        return _swap
    if watched is None:
        return function
    why = _why_not(function, name, module)
    if not why or _as_in_a_run(why, watched):
        return function
    return _refusing(watched.refusal(caller(), f"forward calls {name}, and {why}", _HINT))


_HINT = "let what forward computes depend on its inputs, its parameters and its configuration alone"
_ASKED = (BuiltinFunctionType, FunctionType, MethodType, MethodDescriptorType)


def _why_not(function: Any, name: str, module: str) -> str:
    """Why the answer of a function is not that of a run; empty where it may be."""
    try:
        if function in _ASKING:
            return _ASKING[function]
    except TypeError:
        return ""
    owner = getattr(function, "__self__", None)
    if name in MEMORY and (isinstance(owner, _LYING) or _of_tensors(function)):
        return _LIKE_REAL_ONES
    plain = _OF_ANY_RUN.match(name) or isinstance(owner, Placement)
    asks = _QUESTION.search(name) and not plain
    if asks and module.startswith(_TRACERS):
        return "it tells what runs the code, which a run does otherwise"
    return ""


def _is_compiled(frame: Any) -> bool:
    """Whether a function given to torch.compile called it, and none that is kept from it."""
    while frame is not None and frame.f_code.co_filename != _EVAL_FRAME:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name != "_fn"


def _as_in_a_run(why: str, watched: Watching) -> bool:
    """Whether the answer is that of a run where the code is: it is not traced as yet."""
    return (watched.real and why == _LIKE_REAL_ONES) or (watched.importing and why == _CALLS)


_LYING: tuple[Any, ...] = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)


def _of_tensors(function: Any) -> bool:
    owner = getattr(function, "__objclass__", None)
    return isinstance(owner, type) and issubclass(torch.Tensor, owner)


def _refusing(refusal: CaptureError) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise refusal

    return refuse


def _no() -> bool:
    return False


def _gloo(*args: Any, **kwargs: Any) -> str:
    return dist.get_backend(*args, **kwargs).replace("fake", "gloo")


def _swap(t1: Any, t2: Any) -> None:
    """`torch.utils.swap_tensors`: each tensor gets the memory of the other. PyTorch raises at a
    traced one, which a weak reference follows."""
    if _swaps_alone(t1) and _swaps_alone(t2) and t1.dtype == t2.dtype:
        held = t1.data
        t1.data = t2.data
        t2.data = held
    else:
        torch.utils.swap_tensors(t1, t2)


def _swaps_alone(value: Any) -> bool:
    """Whether a traced tensor is its memory alone: neither autograd nor a view holds it, and the
    user has put nothing else on it."""
    if type(value) is not FakeTensor or value.requires_grad or value.constant is not None:
        return False
    held: Any = value
    return held._use_count() == 1 and vars(held).keys() == vars(held.data).keys()


def _nothing() -> None:
    pass


def read(value: Any, name: str) -> Any:
    """An attribute, as a line of the user's reads it."""
    compiled.read(value, name)
    if stands_in(value):
        if name == "__class__":
            return real_class(value)
        if name in _THEIRS:
            kind = real_class(value).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
    watched = now()
    if watched is not None:
        if name == "grad" and isinstance(value, torch.Tensor) and value.is_leaf and not _has(value):
            without_gradient(caller())
        hidden = isinstance(value, torch.Tensor) and name in ("_version", "__dict__")
        if hidden and not watched.real:
            raise watched.refusal(
                caller(), f"forward reads {name} of a tensor: it is another in a run", _HINT
            )
        if name in _SWITCHES and value is _SWITCHES[name]:
            raise watched.refusal(caller(), f"forward reads {name} of mkldnn, and {_SET}", _HINT)
        process = value is sys and name in _PROCESS and not watched.importing
        hooks = name in _HOOKS and isinstance(value, nn.Module) and not watched.real
        if process or hooks:
            of = "sys" if process else "a module"
            why = "the process is another" if process else "the trace adds some of its own"
            raise watched.refusal(caller(), f"forward reads {name} of {of}: {why}", _HINT)
    return getattr(value, name)


def _has(leaf: torch.Tensor) -> bool:
    return leaf.grad is not None


# Answers of Python's own functions.


def _type(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return real_class(args[0])
    given: Any = args
    name, bases, space = given
    space = {"__module__": sys._getframe(1).f_globals.get("__name__"), **space}
    return type(name, bases, space, **kwargs)


def _isinstance(value: Any, kinds: Any) -> bool:
    if not stands_in(value):
        CLASSLESS.get(type(value), _nothing)()
        return isinstance(value, kinds)
    return any(isinstance(value, kind) for kind in _each(kinds) if kind not in _STAND_INS)


def _each(kinds: Any) -> Iterator[Any]:
    if isinstance(kinds, tuple):
        for kind in kinds:
            yield from _each(kind)
    else:
        yield kinds


def _hasattr(value: Any, name: str) -> bool:
    if name not in ATTRIBUTES:
        return hasattr(value, name)
    try:
        read(value, name)
    except AttributeError:
        return False
    return True


def _getattr(value: Any, name: str, *default: Any) -> Any:
    if name not in ATTRIBUTES:
        return getattr(value, name, *default)
    try:
        return read(value, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _vars(*values: Any) -> Any:
    if not values:
        return sys._getframe(1).f_locals
    return read(values[0], "__dict__") if stands_in(values[0]) else vars(*values)


def _hash(value: Any) -> int:
    hashed(value, sys._getframe(1))
    return hash(value)


def ordered(value: Any) -> Any:
    """What a line of the user's goes through."""
    if type(value) in (set, frozenset):
        gone_through(value, sys._getframe(1))
    return value


_ANSWERS: dict[int, Any] = {
    id(hash): _hash,
    id(type): _type,
    id(isinstance): _isinstance,
    id(hasattr): _hasattr,
    id(getattr): _getattr,
    id(vars): _vars,
    id(sys.getrefcount): lambda value: random.randrange(2, 34),
    id(print): lambda *args, **kwargs: print(*args, **kwargs),  # noqa: T201
}
"""By the function: what answers. How many references there are is drawn, so that what it decides is
seen as what a draw decides. A tensor that is printed is shown to nobody who could ask."""


def no_other_kernels() -> None:
    """From now on, code of the user's may give no op of PyTorch another kernel: the program of such
    code would be written in ops that it does not run. What it gives tensors without memory is left
    out: no run reads it, and shapes stay those of PyTorch."""
    from shardproof.synthesis.frontends.torch.homes import is_users

    library: Any = torch.library.Library
    original = library.impl
    if getattr(original, "refuses", False):
        return

    def impl(self: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == torch.library.__file__:
            frame = frame.f_back
        if self.ns in _OWN_OPS and frame is not None and is_users(frame.f_code.co_filename):
            key = args[1] if len(args) > 1 else kwargs.get("dispatch_key", "")
            if (key or self.dispatch_key) == "Meta":
                return None
            raise CaptureError(
                f"the code gives {self.ns}::{op} another kernel, which is not what is traced",
                file=Path(frame.f_code.co_filename).name,
                line=frame.f_lineno,
                text=linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip(),
                hint="write an op of your own: torch.library.custom_op",
            )
        return original(self, op, *args, **kwargs)

    impl.refuses = True
    library.impl = impl


_OWN_OPS = ("aten", "prims", "prim", "c10d", "_c10d_functional", "_dtensor")
"""Namespaces of ops that have a meaning here."""


_TEXT = ("makes text of a tensor, which has no values", "print it outside of forward")
_SHOWN = {
    "__repr__": _TEXT,
    "__format__": _TEXT,
    "__reduce_ex__": ("makes bytes of a tensor, which has no values", "save it outside of forward"),
    "__dlpack__": ("hands on the memory of a tensor, which has none", "compute in tensors"),
}


@contextmanager
def shown_to_nobody() -> Iterator[None]:
    """What a tensor looks like, as text or as bytes, is refused where a line of the user's asks;
    its memory, where one has it handed to another library."""
    from shardproof.synthesis.frontends.torch.homes import is_users

    kept: list[tuple[Any, str, Any]] = []

    def own(frame: Any) -> bool:
        return is_users(frame.f_code.co_filename)

    def guard(cls: Any, name: str, original: Any) -> Any:
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame, watched = sys._getframe(1), now()
            while name == "__dlpack__" and frame is not None and not own(frame):
                frame = frame.f_back
            hollow = type(self) not in (torch.Tensor, nn.Parameter) or self.is_meta
            if watched is None or watched.real or not hollow:
                return original(self, *args, **kwargs)
            if frame is not None and own(frame):
                if watched.text is not None and name in ("__repr__", "__format__"):
                    return watched.text(self, *args)
                message, hint = _SHOWN[name]
                raise watched.refusal(frame, f"forward {message} while it is traced", hint)
            return original(self, *args, **kwargs)

        return guarded

    for cls in (torch.Tensor, FunctionalTensor):
        for name in _SHOWN:
            if name in vars(cls):
                kept.append((cls, name, vars(cls)[name]))
                setattr(cls, name, guard(cls, name, vars(cls)[name]))
    try:
        yield
    finally:
        for cls, name, original in kept:
            setattr(cls, name, original)
