"""Proves an edited program by what changed, from the proof of the one it was edited from.

    kept: list[Base] = []
    verify(problem, remember=kept)
    found = proved_again(kept[0], edited)          # None: verify the whole program

What it finds is no `Proof`: the checker sees no certificate of the edited program.

`Store` keeps bases on disk between runs.
"""

from verifier.reuse.base import Base
from verifier.reuse.reverify import Carried, proved_again

__all__ = ["Base", "Carried", "proved_again"]
