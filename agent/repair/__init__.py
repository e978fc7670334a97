"""The loop of repair: propose, verify, remember, start afresh."""

from shardproof.agent.repair.feedback import Level
from shardproof.agent.repair.loop import Fixed, NotFixed, Settings, fix
from shardproof.synthesis.repair.question import Question

__all__ = ["Fixed", "Level", "NotFixed", "Question", "Settings", "fix"]
