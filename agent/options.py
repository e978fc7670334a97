"""The `--mesh` of the command line, read into a mesh."""

from __future__ import annotations

from agent.errors import InputError
from verifier.kernel.program.types import Mesh

FORM = "NAME=SIZE[,NAME=SIZE...], for example dp=2,tp=2"


def read_mesh(text: str) -> Mesh:
    """Read `dp=2,tp=4`.

    Raises:
        InputError: not of that form, a dim named twice, a size below 1.
    """
    where = f"--mesh {text}"
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier() or not size.isdecimal():
            raise InputError(f"cannot read the mesh dim {part!r}", where=where, expected=FORM)
        if name in sizes:
            raise InputError(f"mesh dim {name!r} is named twice", where=where, expected=FORM)
        if int(size) < 1:
            raise InputError(
                f"mesh dim {name!r} has size {size}", where=where, expected="1 or more"
            )
        sizes[name] = int(size)
    return Mesh(tuple(sizes.items()))
