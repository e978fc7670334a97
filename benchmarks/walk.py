"""`python -m benchmarks.walk`: one problem from the command line to its verdict, as a picture.

`shardproof verify` is run on the example of `examples/verify` and watched. A room is entered where
the command line, the diagnosis or `verify` itself calls into it; that they call it several times in
a row is one stay. The picture is `docs/walk.svg`.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "walk.svg"
LEADING = ("agent", "synthesis/repair", "verifier/verification.py")
"""Who hands a problem on."""
EXAMPLE = tuple(
    word
    for name, file in (("sequential", "one"), ("distributed", "right"), ("contract", "contract"))
    for word in (f"--{name}", str(ROOT / "examples" / "verify" / f"{file}.txt"))
)
WIDTH, HEIGHT, GAP = 230, 26, 10


def room_of(file: str) -> str | None:
    """The room that a file of ours lies in."""
    path = Path(file)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).parts
    parts = parts[1:] if parts[0] == "shardproof" else parts
    if parts[0] not in ("agent", "synthesis", "verifier"):
        return None
    depth = 1 if parts[0] == "agent" else 3 if parts[1] == "provers" else 2
    return "/".join(parts[:depth])


def walk(*words: str) -> list[tuple[int, str]]:
    """The rooms that `shardproof verify WORDS` enters, in order, with how deep each is called."""
    from shardproof.agent.cli.main import main

    stays: list[tuple[int, str]] = [(0, "agent")]

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        del arg
        if event != "call" or frame.f_back is None or frame.f_code.co_name.startswith("<"):
            return
        room, caller = (room_of(f.f_code.co_filename) for f in (frame, frame.f_back))
        if room and room != caller and caller in LEADING:
            stay = (LEADING.index(caller) + 1, room)
            if stays[-1] != stay:
                stays.append(stay)

    with (
        patch.object(sys, "argv", ["shardproof", "verify", "--no-cache", *words]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        sys.setprofile(watch)
        try:
            main()
        finally:
            sys.setprofile(None)
    return stays


def drawn(stays: list[tuple[int, str]]) -> str:
    """The stays as an SVG, one below the other, indented by who calls."""
    step = HEIGHT + GAP
    height = step * len(stays) + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 160}" height="{height}" '
        'font-family="monospace" font-size="13">',
        f'<rect width="{WIDTH + 160}" height="{height}" fill="white"/>',
    ]
    for row, (depth, room) in enumerate(stays):
        x, y = GAP + 40 * depth, GAP + step * row
        if row:
            out.append(
                f'<path d="M{x - 26} {y - GAP} V{y + HEIGHT // 2} H{x}" fill="none" stroke="#888"/>'
            )
        out.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#eef3fb" '
            'stroke="#456"/>'
        )
        out.append(f'<text x="{x + 10}" y="{y + 17}">{escape(room)}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(walk(*EXAMPLE)))
