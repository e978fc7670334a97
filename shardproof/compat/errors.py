"""Errors of the class interface.

ValueError
├── ProgramError      a program, a tensor or a mesh that does not fit: what, where, expected, got
│   └── RelationError     a question about a value that has no relation to the one-device program
└── SPMDConsistencyError   SPMD types that no rule joins
"""

from __future__ import annotations


class ProgramError(ValueError):
    """A program that cannot run on the ranks: what, where, expected, got."""


class RelationError(ProgramError):
    """A value of the ranks that is no piece of any value of the one-device program."""


class SPMDConsistencyError(ValueError):
    """Local SPMD types that an op does not accept."""
