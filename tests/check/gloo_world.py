"""A world of two real gloo processes, forked once, and what they answer."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

Answers = Mapping[str, object]


def answers(folder: Path, asked: Mapping[str, Callable[[int], object]]) -> list[dict[str, object]]:
    """What each gives on rank 0 and on rank 1, asked of both at once and in order. What raises
    answers with its error."""
    pids = [_forked(folder, rank, asked) for rank in (0, 1)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    texts = [(folder / f"answers-{rank}.json") for rank in (0, 1)]
    assert codes == [0, 0], [t.read_text() for t in texts if t.exists()]
    return [json.loads(t.read_text()) for t in texts]


def _forked(folder: Path, rank: int, asked: Mapping[str, Callable[[int], object]]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        warnings.simplefilter("ignore")
        found = _asked(folder, rank, asked)
        (folder / f"answers-{rank}.json").write_text(json.dumps(found))
        code = 0
    except BaseException:  # noqa: BLE001  (told to the test)
        (folder / f"answers-{rank}.json").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _asked(
    folder: Path, rank: int, asked: Mapping[str, Callable[[int], object]]
) -> dict[str, object]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=30),
    )
    found: dict[str, object] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask(rank)
        except Exception as problem:  # noqa: BLE001  (it is the answer)
            found[name] = f"{type(problem).__name__}: {problem}"
        dist.barrier()
    dist.destroy_process_group()
    return found
