"""Run-time fingerprints. The names are those of `synthesis.guard.fingerprint`."""

from synthesis.guard.fingerprint import *  # noqa: F403
