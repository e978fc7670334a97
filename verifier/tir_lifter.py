"""Lifts tensor programs. The names are those of `shardproof.compat.tir_lifter`."""

from shardproof.compat.tir_lifter import *  # noqa: F403
