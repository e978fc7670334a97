"""A unified diff as lines with their kind and number."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: str
    """"add", "del", "hunk", "file", "note" or "same"."""
    number: int | None
    """In the new file; in the old file for a deleted line."""
    text: str


def diff_lines(diff: str) -> tuple[DiffLine, ...]:
    """Hunk headers say how many lines follow, so that `--- x` inside a hunk is a deleted `-- x`."""
    out: list[DiffLine] = []
    old = new = old_left = new_left = 0
    for text in diff.removesuffix("\n").split("\n") if diff else ():
        header = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", text)
        if text.startswith("\\"):
            out.append(DiffLine("note", None, text))
        elif old_left > 0 or new_left > 0:
            sign = text[:1]
            kind = {"+": "add", "-": "del"}.get(sign, "same")
            out.append(DiffLine(kind, old if kind == "del" else new, text))
            if kind != "add":
                old, old_left = old + 1, old_left - 1
            if kind != "del":
                new, new_left = new + 1, new_left - 1
        elif header:
            old, new = int(header[1]), int(header[3])
            old_left, new_left = int(header[2] or 1), int(header[4] or 1)
            out.append(DiffLine("hunk", None, text))
        else:
            out.append(DiffLine("file", None, text))
    return tuple(out)


def changed(lines: tuple[DiffLine, ...]) -> tuple[int, int]:
    """(added, deleted)"""
    kinds = [item.kind for item in lines]
    return kinds.count("add"), kinds.count("del")
