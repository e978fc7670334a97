"""Every action."""

from shardproof.agent.actions import batches, models, patches, programs, runs
from shardproof.agent.actions.action import Action

ACTIONS: tuple[type[Action], ...] = (
    models.Parallelize,
    programs.Check,
    programs.Verify,
    patches.Apply,
    batches.Batch,
    runs.Guard,
    runs.Doctor,
    runs.Ops,
    models.Step,
    models.Capture,
    models.Translate,
    runs.BatchCompare,
    models.Candidates,
    models.WhyNot,
    models.Plan,
    models.Price,
    programs.Explain,
    programs.CheckCertificate,
    programs.VerifyRanks,
    programs.Repair,
    runs.Lift,
    runs.Schedule,
    runs.Order,
    runs.Bench,
    runs.Replay,
    patches.Diff,
    patches.Undo,
    patches.Redo,
)
"""Every action, in the order of `--help`."""
