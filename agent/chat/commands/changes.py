"""`/diff`, `/apply`, `/undo`, `/redo`: the suggested change of the owner's files."""

from shardproof.agent.actions.patches import Apply
from shardproof.agent.chat import changing
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.run.run import Outcome

GROUP = "changes"


@command(group=GROUP, effect="reads", examples=("/diff",))
def diff(session: Session, words: Words) -> Outcome:
    """Show what /apply would change, and what it rests on. Nothing is written."""
    return changing.show(session)


@command(
    "",
    group=GROUP,
    effect="writes",
    owners=("yes", "unsafe"),
    takes=(Apply, ("yes", "unsafe")),
    examples=("/apply", "/apply --yes"),
)
def apply(session: Session, words: Words) -> Outcome:
    """Write the change: proved, checked, tried on local processes, shown, and agreed to.

    Every file of it is written or none is; a file that changed since it was loaded is refused.
    /settings run says whether the patched model is run first.
    """
    return changing.apply(session, yes=words.has("yes"), unsafe=words.has("unsafe"))


@command(group=GROUP, effect="writes", examples=("/undo",))
def undo(session: Session, words: Words) -> Outcome:
    """Take the last applied change back: the exact bytes of before. A file edited since stays."""
    return changing.again(session, "undo")


@command(group=GROUP, effect="writes", examples=("/redo",))
def redo(session: Session, words: Words) -> Outcome:
    """Apply again what was undone last."""
    return changing.again(session, "redo")
