"""Exceptions that tensors without values raise, and real ones may not, where the user's code
catches them: what it does next is then not what it does in a run."""

# pyright: basic

import dis
import sys
from pathlib import Path
from typing import Any

import torch

from shardproof.synthesis.frontends.torch.asked.watching import now
from shardproof.synthesis.frontends.torch.errors import CaptureError

_TORCH = str(Path(str(torch.__file__)).parent)
_OURS = str(Path(__file__).parents[3])
_ANSWERS = str(Path(__file__).parent)
_NAMES = """_subclasses _ops.py _meta_registrations.py _refs _prims _prims_common _decomp _library
_functorch _export export fx _dynamo _higher_order_ops _logging overrides.py _tensor.py
_tensor_str.py storage.py serialization.py utils/_python_dispatch.py utils/_stats.py"""
_TRACING = tuple(f"{_TORCH}/{name}" for name in _NAMES.split())
"""Files of PyTorch that run ops on tensors without values, or read what these do not have."""
_AS_IN_A_RUN = (ImportError, StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit)
_OF_PYTHON = (
    LookupError,
    AttributeError,
    OSError,
    ArithmeticError,
    AssertionError,
    NameError,
    Warning,
)
"""What Python raises of itself, where no file of `_TRACING` has a part in it."""
_AMBIGUOUS = (TypeError, ValueError)
"""What Python raises too, and PyTorch says of tensors."""
_OF_TENSORS = ("tensor", "numpy", "storage", "pickle")


def passing() -> None:
    """An exception comes by a line of the user's, which may end it."""
    watched, problem = now(), sys.exc_info()[1]
    if watched is None or problem is None or not _only_traced(problem):
        return
    if watched.real and not isinstance(problem, CaptureError):
        return
    if isinstance(problem, CaptureError):
        refusal = problem
        if not refusal.file:
            at = watched.places.of(_raised_in(problem))
            refusal.file, refusal.line, refusal.text = at
    else:
        said = str(problem).strip().partition("\n")[0][:200]
        refusal = watched.refusal(
            _raised_in(problem) or sys._getframe(1),
            f"{type(problem).__name__} ({said}) is raised while the code is traced, where tensors "
            "have no values, and caught: what forward does in a run is not known",
            "ask for values in tensors (torch.where, torch.isfinite(y).all() as a factor), or "
            "outside of forward",
        )
    watched.caught.append(refusal)


def _only_traced(problem: BaseException) -> bool:
    """Whether a run on real tensors may not raise this."""
    from shardproof.synthesis.frontends.torch.homes import is_users

    if isinstance(problem, CaptureError):
        return True
    kind = type(problem)
    if isinstance(problem, _AS_IN_A_RUN) or kind.__module__ == "torch.utils.checkpoint":
        return False
    if kind.__module__.startswith(("torch._subclasses", "torch.fx")):
        return True
    frames = list(_frames(problem))
    files = [code.co_filename for code, _ in frames]
    if any(f.startswith((*_TRACING, _OURS)) for f in files[1:]):
        return True
    code, at = frames[-1]
    if isinstance(problem, _OF_PYTHON) or not _is_call(code, at):
        return False
    plain = isinstance(problem, _AMBIGUOUS) or not is_users(code.co_filename)
    return not plain or any(w in str(problem) for w in _OF_TENSORS)


def _frames(problem: BaseException) -> Any:
    """Code and place in it, outermost first; what answers in place of Python is as Python's own."""
    at: Any = problem.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if not code.co_filename.startswith(_ANSWERS):
            yield code, at.tb_lasti
        at = at.tb_next


def _raised_in(problem: BaseException) -> Any:
    """The frame that lets the exception pass."""
    at: Any = problem.__traceback__
    return _At(at.tb_frame.f_code, at.tb_lineno) if at is not None else None


class _At:
    """A line that an exception went through, which its frame has left since."""

    def __init__(self, code: Any, line: int) -> None:
        self.f_code, self.f_lineno = code, line


def _is_call(code: Any, at: int) -> bool:
    """Whether a call, of what is written in C, raised: not the code itself."""
    return dis.opname[code.co_code[at]] != "RAISE_VARARGS"
