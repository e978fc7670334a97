"""The suggested patch on the owner's tree: shown, applied whole or not at all, undone exactly."""

from shardproof.agent.patching.facts import Applied, FileChange, Preview, Recovered
from shardproof.agent.patching.record import describe
from shardproof.agent.patching.tree import apply_patch, preview, recover, redo, undo

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
