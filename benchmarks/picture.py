"""`python -m benchmarks.picture`: docs/terminal.svg, what two commands of the README print.

The commands run here; the picture is their output, as a terminal of 100 columns shows it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/terminal.svg"
COMMANDS = (
    (
        "shardproof parallelize examples/mlp.py:MLP --mesh tp=2 --out {out} --force",
        r"plan .*tp=|read|run .*agrees|proved:",
    ),
    ("shardproof diff {out}", r"\+(?!\+\+)|@@"),
    (
        "shardproof check examples/check/wrong.py:WrongMLP --against examples/check/model.py:MLP"
        " --mesh tp=2",
        r"refuted|  at| {6}",
    ),
)
"""What is run, and which lines of what it prints are shown."""
COLUMNS = 110
COLOURS = {"proved": "bold green", "refuted": "bold red", "+": "green", "-": "red"}
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" role="img"
 xmlns="http://www.w3.org/2000/svg">
<title>A model is made parallel and proved; a wrong one is refuted at its line</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace;
 font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
 height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich writes it, without fonts that would be fetched."""


def output(command: str) -> list[str]:
    """What a command prints; errors and progress too."""
    words = [sys.executable, "-m", "shardproof", *command.split()[1:]]
    ran = subprocess.run(
        words, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return ran.stdout.splitlines()


def _styled(line: str) -> Text:
    word = line.split(" ", 1)[0].rstrip(":")
    style = COLOURS.get(word) or COLOURS.get(line[:1], "")
    return Text(line, style if not line.startswith(("+++", "---")) else "bold")


def draw(out: str = "shardproof-out/picture") -> str:
    """The picture."""
    import io

    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for command, shown in COMMANDS:
        console.print(Text(f"$ {command.format(out='out/').replace(' --force', '')}", "bold cyan"))
        left_out = False
        for line in output(command.format(out=out)):
            if not re.match(shown, line):
                left_out = True
                continue
            if left_out:
                console.print(Text("...", "dim"))
            left_out = False
            console.print(_styled(line.replace(out, "out")))
        console.print()
    return console.export_svg(title="shardproof", theme=MONOKAI, code_format=FORM, unique_id="sp")


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
