"""The loop of repair: propose, verify, remember, start afresh."""

from shardproof.agent.loop.feedback import Level
from shardproof.agent.loop.loop import Mended, NotMended, Settings, mend
from shardproof.agent.loop.question import Question

__all__ = ["Level", "Mended", "NotMended", "Question", "Settings", "mend"]
