"""Tries many targets in one process that imports PyTorch once, and forks for each of them.

`python -m tests.untraceable.pool FOLDER TARGET...` leaves what the worker leaves in `FOLDER/N`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    folder, targets = Path(sys.argv[1]), sys.argv[2:]
    import torch

    from verifier.frontend import trying, worker  # noqa: F401  (imported before the forks)
    from verifier.frontend.observed import save  # noqa: F401
    from verifier.frontend.request import CaptureRequest

    torch.set_num_threads(1)
    running: dict[int, int] = {}
    for number, target in enumerate(targets):
        here = folder / str(number)
        here.mkdir()
        request = CaptureRequest(target).to_json()
        (here / "request.json").write_text(json.dumps({"task": "try", "request": request}))
        if len(running) == 2:
            running.pop(os.wait()[0])
        child = os.fork()
        if child == 0:
            report: dict[str, object] = {}
            try:
                worker.run(here)
                report["done"] = True
            except BaseException as problem:  # noqa: BLE001
                import traceback
                traceback.print_exc()
                report["error"] = worker.explain(problem, "")
            (here / "report.json").write_text(json.dumps(report))
            os._exit(0)
        running[child] = number
    while running:
        running.pop(os.wait()[0])


if __name__ == "__main__":
    main()
