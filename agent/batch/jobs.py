"""One job of a batch: what `parallelize` would be asked for, in the same words."""

import re
from pathlib import Path

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.pipeline import pipeline
from shardproof.synthesis.frontends.torch.request import split_target
from shardproof.synthesis.planner.search import axes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,119}")
"""Names are names of folders, too."""
NAME_FORM = "letters, digits and . _ = + -, at most 120, a letter or a digit first"


class Job(Parallelize):
    """A model, a mesh and the options of `parallelize`, as on its command line."""

    name: str
    timeout: float | None = None
    """Seconds that the job may take; None: no limit."""

    def arguments(self, out: Path) -> tuple[str, ...]:
        """The command line that does the same without a batch, after `shardproof`."""
        return self.model_copy(update={"out": out}).words()


def asked(job: Job, out: Path, inputs: str = "") -> pipeline.Job:
    """What the pipeline is given. `inputs` is the hash of all that the result depends on.

    Raises:
        ShardproofError, CaptureError, HardwareError, PlanError: words that cannot be read, or files
            that are not there.
    """
    split_target(job.target)
    found = pipeline.job_of(job, out, inputs=inputs)
    axes(found.mesh, rows=True)
    return found
