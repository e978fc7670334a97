"""The suggested patch on the owner's tree: shown, applied whole or not at all, undone exactly."""

from agent.patching.facts import Applied, FileChange, Preview, Recovered
from agent.patching.record import describe
from agent.patching.tree import apply_patch, preview, recover, redo, undo

__all__ = [
    "Applied",
    "FileChange",
    "Preview",
    "Recovered",
    "apply_patch",
    "describe",
    "preview",
    "recover",
    "redo",
    "undo",
]
