"""The larger lists of `listed.txt` that models are drawn from, and the draw.

Under the packages that are installed for them, a line a model: the class or factory by its dotted
name, `timm:NAME` or `hf:CLASS`; its keyword arguments; its inputs, named as `--input` names them;
and what of the result is returned, all of it where that is empty; and the method that is called,
where it is not `forward`. `$NAME` stands for a text given above all packages. Instead of packages,
`clone/NAME@COMMIT` stands for a repository. A line `# WORDS` begins a draw of that name.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo import sample

TABLE, DRAWN = (Path(__file__).with_name(f"{name}.txt") for name in ("listed", "drawn"))
CLONE = "clone/"


@dataclass(frozen=True)
class Listed:
    name: str
    """The package, and what is made of it."""
    packages: tuple[str, ...]
    """With versions; the model's own is the first, the others are imported by it."""
    made: str
    arguments: str
    inputs: tuple[str, ...]
    result: str = ""
    method: str = ""
    """With its point."""
    draw: str = ""

    @property
    def package(self) -> str:
        return re.split("==|@", self.packages[0].removeprefix(CLONE))[0]

    @property
    def is_clone(self) -> bool:
        return self.packages[0].startswith(CLONE)


def listed(table: Path = TABLE) -> list[Listed]:
    """All of them.

    Raises:
        ValueError: two have one name.
    """
    texts: dict[str, str] = {}
    packages: tuple[str, ...] = ()
    draw = ""
    out: dict[str, Listed] = {}
    for line in table.read_text().splitlines():
        if line.startswith("# "):
            draw = line[2:]
        elif line.startswith("$"):
            name, _, text = line[1:].partition(" ")
            texts[name] = text
        elif line.startswith("["):
            packages = tuple(line[1:-1].split())
        elif line:
            one = _read(packages, string.Template(line).substitute(texts), draw)
            if one.name in out:
                raise ValueError(f"two models are called {one.name}")
            out[one.name] = one
    return list(out.values())


def _read(packages: tuple[str, ...], line: str, draw: str) -> Listed:
    made, arguments, inputs, *more = (cell.strip() for cell in line.split(" | "))
    result, method, *_ = (*more, "", "")
    package = Listed("", packages, "", "", ()).package
    asked = re.match(r'\w*name="([\w-]+)"', arguments) if made.endswith("get_model") else None
    short = asked[1] if asked else ".".join(made.split(".")[1:][-2:])
    name = made if ":" in made else f"{package}/{short}"
    return Listed(name, packages, made, arguments, tuple(inputs.split()), result, method, draw)


def drawn(models: Sequence[Listed], count: int, seed: int) -> list[Listed]:
    """So many models, of every package as many as its share, at least one, in an order drawn
    too."""
    by_name = {one.name: one for one in models}
    pairs = [(one.package, one.name) for one in models]
    out = [by_name[name] for _, name in sample(pairs, count, seed)]
    random.Random(seed).shuffle(out)
    return out
