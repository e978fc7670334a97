"""One job of a batch: what `parallelize` would be asked for, in the same words."""

import re
from pathlib import Path

from pydantic import BaseModel

from shardproof.agent.cli import options
from shardproof.agent.cli.options import Wanted, read_mesh
from shardproof.agent.pipeline import considering, pipeline
from shardproof.synthesis import hardware as clusters
from shardproof.synthesis.frontends.torch.request import split_target
from shardproof.synthesis.planner.search import axes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,119}")
"""Names are names of folders, too."""
NAME_FORM = "letters, digits and . _ = + -, at most 120, a letter or a digit first"


class Job(BaseModel, frozen=True, extra="forbid"):
    """A model, a mesh and the options of `parallelize`, as on its command line."""

    name: str
    target: str
    mesh: str
    config: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    batch: int | None = None
    seq: int | None = None
    hardware: str = clusters.DEFAULT
    run: bool | None = None
    pin: tuple[str, ...] = ()
    ban: tuple[str, ...] = ()
    memory: str | None = None
    constrain: tuple[str, ...] = ()
    full_depth: bool = False
    guard: bool = False
    translation: str | None = None
    timeout: float | None = None
    """Seconds that the job may take; None: no limit."""

    def arguments(self, out: Path) -> tuple[str, ...]:
        """The command line that does the same without a batch, after `shardproof`."""
        words = ["parallelize", self.target, "--mesh", self.mesh]
        many = {
            "--config": self.config,
            "--input": self.inputs,
            "--pin": self.pin,
            "--ban": self.ban,
            "--constrain": self.constrain,
        }
        words += [word for name, values in many.items() for v in values for word in (name, v)]
        one = {
            "--batch": self.batch,
            "--seq": self.seq,
            "--memory": self.memory,
            "--translation": self.translation,
            "--hardware": None if self.hardware == clusters.DEFAULT else self.hardware,
        }
        words += [w for name, v in one.items() if v is not None for w in (name, str(v))]
        words += [] if self.run is None else ["--run" if self.run else "--no-run"]
        words += ["--full-depth"] if self.full_depth else []
        words += ["--guard"] if self.guard else []
        return (*words, "--out", str(out))


def asked(job: Job, out: Path, inputs: str = "") -> pipeline.Job:
    """What the pipeline is given. `inputs` is the hash of all that the result depends on.

    Raises:
        ShardproofError, CaptureError, HardwareError, PlanError: words that cannot be read, or files
            that are not there.
    """
    split_target(job.target)
    mesh = read_mesh(job.mesh)
    axes(mesh)
    return pipeline.Job(
        request=options.request(
            job.target, job.config, job.inputs, job.batch, job.seq, job.full_depth
        ),
        mesh=mesh,
        cluster=clusters.load(job.hardware),
        out=out,
        execute=job.run,
        guard=job.guard,
        arguments=job.arguments(out),
        wishes=considering.wished(job.pin, job.ban, job.memory, job.constrain),
        wanted=Wanted(hardware=job.hardware, seq=job.seq, memory=job.memory),
        inputs=inputs,
    )
