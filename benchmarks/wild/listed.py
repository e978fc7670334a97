"""The larger lists of `listed.txt` that models are drawn from, and the draw.

Under the packages that are installed for them, a line a model: the class or factory by its dotted
name, `timm:NAME` or `hf:CLASS`; its keyword arguments; its inputs, named as `--input` names them;
and what of the result is returned, all of it where that is empty. `$NAME` stands for a text given
above all packages.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo import sample

TABLE = Path(__file__).with_name("listed.txt")


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

    @property
    def package(self) -> str:
        return self.packages[0].partition("==")[0]


def listed() -> list[Listed]:
    """All of them.

    Raises:
        ValueError: two have one name.
    """
    texts: dict[str, str] = {}
    packages: tuple[str, ...] = ()
    out: dict[str, Listed] = {}
    for line in TABLE.read_text().splitlines():
        if line.startswith("$"):
            name, _, text = line[1:].partition(" ")
            texts[name] = text
        elif line.startswith("["):
            packages = tuple(line[1:-1].split())
        elif line:
            one = _read(packages, string.Template(line).substitute(texts))
            if one.name in out:
                raise ValueError(f"two models are called {one.name}")
            out[one.name] = one
    return list(out.values())


def _read(packages: tuple[str, ...], line: str) -> Listed:
    made, arguments, inputs, *result = (cell.strip() for cell in line.split(" | "))
    package = packages[0].partition("==")[0]
    asked = re.match(r'\w*name="([\w-]+)"', arguments) if made.endswith("get_model") else None
    short = asked[1] if asked else ".".join(made.split(".")[1:][-2:])
    name = made if ":" in made else f"{package}/{short}"
    return Listed(name, packages, made, arguments, tuple(inputs.split()), "".join(result))


def drawn(models: Sequence[Listed], count: int, seed: int) -> list[Listed]:
    """So many models, of every package as many as its share, at least one, in an order drawn
    too."""
    by_name = {one.name: one for one in models}
    pairs = [(one.package, one.name) for one in models]
    out = [by_name[name] for _, name in sample(pairs, count, seed)]
    random.Random(seed).shuffle(out)
    return out
