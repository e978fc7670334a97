"""Starts the guard when a script makes its process group, and stops it when that goes."""

import functools
import json
import os
import sys
from typing import Any

SETTINGS = "SHARDPROOF_GUARD"


def attach(module: Any) -> None:
    """Wrap `init_process_group` and `destroy_process_group` of `torch.distributed`."""
    begin, end = module.init_process_group, module.destroy_process_group

    @functools.wraps(begin)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = begin(*args, **kwargs)
        _start(module)
        return result

    @functools.wraps(end)
    def destroy_process_group(group: Any = None) -> Any:
        guard = _active()
        if guard is not None and (group is None or group is module.group.WORLD):
            guard.stop()
        return end(group)

    module.init_process_group = init_process_group
    module.destroy_process_group = destroy_process_group


def _active() -> Any:
    found = sys.modules.get("shardproof.synthesis.guard.guard")
    return found.active() if found else None


def _start(module: Any) -> None:
    if module.get_backend() == "fake" or module.get_world_size() < 2 or _active() is not None:
        return
    from shardproof.synthesis.guard.guard import Guard

    Guard(**json.loads(os.environ[SETTINGS])).start()
