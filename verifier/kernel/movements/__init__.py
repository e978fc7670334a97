"""Ops whose values change ranks. Loaded for a program that has one."""

from shardproof.verifier.kernel.movements import movement as movement, rooted as rooted
