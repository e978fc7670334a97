"""Runs a function in a fork of this process, so that nothing of what it does is left here."""

# pyright: basic

import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch

from shardproof.synthesis.frontends.torch.errors import CaptureError


def apart(do: Callable[[], Any], root: str) -> Any:
    """What `do` returns, which must be picklable; or, where it raised, a CaptureError as a value,
    and None where the fork ended before it was done.

    Lines of files below `root` are the user's.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has threads, none of which the child needs
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        _answer(do, root, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    if not told:
        return None
    found, error = pickle.loads(told)
    return CaptureError(**error) if error else found


def _answer(do: Callable[[], Any], root: str, writing: int) -> None:
    from shardproof.synthesis.frontends.torch.worker import explain

    found, error = None, {}
    try:
        torch.set_num_threads(1)
        found = do()
    except BaseException as problem:  # noqa: BLE001  (the user's code)
        error = explain(problem, root)
    try:
        with os.fdopen(writing, "wb") as file:
            pickle.dump((found, error), file)
    finally:
        os._exit(0)
