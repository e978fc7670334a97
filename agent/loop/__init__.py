"""The loop of repair: propose, verify, remember, start afresh."""

from agent.loop.feedback import Level
from agent.loop.loop import Mended, NotMended, Settings, mend
from agent.loop.question import Question

__all__ = ["Level", "Mended", "NotMended", "Question", "Settings", "mend"]
