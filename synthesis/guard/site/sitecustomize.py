"""Starts the guard in the processes of an unmodified script: found by Python on PYTHONPATH.

It only waits for `torch.distributed` to be imported, and acts where `init_process_group` is called.
"""

# pyright: basic

import importlib.util
import os
import sys
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
NAME = "torch.distributed.distributed_c10d"


class _Finder:
    """Has `start_with` called on the module once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                from shardproof.synthesis.guard.attach import attach

                attach(module)

            spec.loader.exec_module = exec_module
        return spec


def _next_sitecustomize():
    """The one that this file stands before, where there is one."""
    for place in sys.path:
        if str(Path(place or ".").resolve()) == HERE:
            continue
        file = Path(place) / "sitecustomize.py"
        if file.is_file():
            spec = importlib.util.spec_from_file_location("_next_sitecustomize", file)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if os.environ.get("SHARDPROOF_GUARD"):
    sys.meta_path.insert(0, _Finder())
_next_sitecustomize()
