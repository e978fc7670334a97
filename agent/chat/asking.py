"""The language model that an action asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardproof.agent.run.run import Run

if TYPE_CHECKING:
    from shardproof.agent.actions.models import Asking
    from shardproof.agent.chat.models import Asker


def asking(run: Run, asked: Asking) -> Asker | None:
    """The model of the user's environment, if one is wanted and there.

    Raises:
        InputError: a config file or an address that cannot be used.
    """
    if asked.llm == "none":
        return None
    from shardproof.agent.chat.models import Asker, Source
    from shardproof.agent.llm.answers import NoModel

    asker = Asker(Source.USER)
    asker.emit = run.emit
    asker.named = "" if asked.llm == "auto" else asked.llm
    asker.cached = asked.answer_cache
    found = asker.model()
    if isinstance(found, NoModel):
        run.warn(str(found))
        return None
    return asker
