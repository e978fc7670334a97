"""Run-time fingerprints. The names are those of `synthesis.guard.fingerprint`."""

from shardproof.compat import fingerprint_legacy as legacy  # noqa: F401  # pyright: ignore[reportUnusedImport]
from synthesis.guard.fingerprint import *  # noqa: F403
