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


def parallelize_first(lines: tuple[DiffLine, ...]) -> tuple[DiffLine, ...]:
    """The same with the hunks of each file that add `parallelize` before its others."""
    files: list[tuple[list[DiffLine], list[list[DiffLine]]]] = []
    for item in lines:
        if not files or (item.kind == "file" and files[-1][1]):
            files.append(([], []))
        head, hunks = files[-1]
        if item.kind == "hunk":
            hunks.append([])
        (hunks[-1] if hunks else head).append(item)

    def later(hunk: list[DiffLine]) -> bool:
        return not any(i.kind == "add" and "def parallelize(" in i.text for i in hunk)

    return tuple(
        item for head, hunks in files for part in (head, *sorted(hunks, key=later)) for item in part
    )


def changed(lines: tuple[DiffLine, ...]) -> tuple[int, int]:
    """(added, deleted)"""
    kinds = [item.kind for item in lines]
    return kinds.count("add"), kinds.count("del")
