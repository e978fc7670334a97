"""Run-time fingerprints. The names are those of `shardproof.synthesis.guard.fingerprint`."""

from shardproof.synthesis.guard.fingerprint import *  # noqa: F403
