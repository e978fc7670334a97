"""The suggested patch on the owner's tree: shown, applied whole or not at all, undone exactly."""

from agent.patching.facts import Applied, Entry, FileChange, Preview, Recovered
from agent.patching.record import NAME, Applicability, describe
from agent.patching.tree import apply_patch, history, preview, recover, redo, undo

__all__ = [
    "NAME",
    "Applicability",
    "Applied",
    "Entry",
    "FileChange",
    "Preview",
    "Recovered",
    "apply_patch",
    "describe",
    "history",
    "preview",
    "recover",
    "redo",
    "undo",
]
