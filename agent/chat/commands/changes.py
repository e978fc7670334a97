"""`/diff`, `/apply`, `/undo`, `/redo`: the suggested change of the owner's files."""

from __future__ import annotations

from agent.chat import changing
from agent.chat.engine import Session
from agent.chat.registry import Words, command
from agent.run import Outcome

GROUP = "changes"


@command(group=GROUP, examples=("/diff",))
def diff(session: Session, words: Words) -> Outcome:
    """Show what /apply would change, and what it rests on. Nothing is written."""
    return changing.show(session)
