"""A problem goes straight through the rooms of the verifier, and the picture of it is current."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json
from benchmarks.walk import EXAMPLE, PICTURE, drawn, walk
stays = walk(*EXAMPLE)
print(json.dumps([stays, drawn(stays) == PICTURE.read_text()]))
"""


def test_every_room_is_entered_once_or_twice() -> None:
    import json

    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    stays, current = json.loads(done.stdout)
    rooms = [room for _, room in stays]
    entered = Counter(rooms)
    assert entered["verifier/order"] == entered["verifier/provers/relate"] == 1
    assert max(entered.values()) <= 2, entered
    assert current, "run python -m benchmarks.walk"
