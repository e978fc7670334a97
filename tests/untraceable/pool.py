"""Tries many targets in one process that imports PyTorch once, and forks for each of them.

`python pool.py FOLDER TARGET...` leaves in `FOLDER/N` what a worker leaves for the Nth target.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    folder, targets = Path(sys.argv[1]), sys.argv[2:]
    import torch

    from verifier.frontend import trying, worker
    from verifier.frontend.request import CaptureRequest

    assert trying  # imported here, before the forks
    torch.set_num_threads(1)
    running = 0
    for number, target in enumerate(targets):
        here = folder / str(number)
        here.mkdir()
        request = CaptureRequest(target).to_json()
        (here / "request.json").write_text(json.dumps({"task": "try", "request": request}))
        if running == 2:
            os.wait()
            running -= 1
        if os.fork() == 0:
            report: dict[str, object] = {}
            try:
                worker.run(here)
            except BaseException as problem:  # noqa: BLE001
                report["error"] = worker.explain(problem, "")
            (here / "report.json").write_text(json.dumps(report))
            os._exit(0)
        running += 1
    for _ in range(running):
        os.wait()


if __name__ == "__main__":
    main()
