"""Proves an edited program by what changed, from the proof of the one it was edited from.

    kept: list[Base] = []
    verify(sequential, distributed, contract, remember=kept)
    proof = proved_again(kept[0], edited)          # None: verify the whole program

`Store` keeps bases on disk between runs.
"""

from verifier.reuse.base import Base
from verifier.reuse.reverify import INCREMENTAL, proved_again

__all__ = ["INCREMENTAL", "Base", "proved_again"]
