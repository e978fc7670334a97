"""The loop of repair: propose, verify, remember, start afresh."""

from shardproof.agent.repair.feedback import Level
from shardproof.agent.repair.loop import Mended, NotMended, Settings, mend
from shardproof.agent.repair.question import Question

__all__ = ["Level", "Mended", "NotMended", "Question", "Settings", "mend"]
