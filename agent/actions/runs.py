"""Actions on scripts, kernels, schedules and sessions, and what the tool says of itself."""

from pathlib import Path
from typing import Annotated

from shardproof.agent.actions.action import Action, Argument, option
from shardproof.agent.actions.models import Words


class BatchCompare(Action, work="batch.comparing:compared", json=False):
    """Compare two batches: improvements and regressions.

    Also: `shardproof batch compare OLD NEW`.

    Exit code 1: a job got worse, or its plan is no longer useful.
    """

    old: Annotated[Path, Argument("Folder of the earlier batch.", "OLD")]
    new: Annotated[Path, Argument("Folder of the later one.", "NEW")]


class Guard(Action, work="cli.guarding:guard"):
    """Run a training script and check its collectives.

    Compares what its ranks exchange as they run. Does not change the script.

    The exit code is the script's own, or 6 after a bad exchange.

    \b
    Examples:
      shardproof guard -- torchrun --nproc-per-node 4 train.py
      shardproof guard --every 1 --level T3 --log guard.jsonl -- torchrun train.py --steps 10
    """

    script: Annotated[Words, Argument("The command that starts the script, after --.", "COMMAND")]
    every: int = option(100, "Check one call in N.", min=1)
    cycle: int = option(
        0,
        "Check calls in one optimizer step of N, and more of them there; 1: all steps. "
        "By default a tenth of --every, 10 at most.",
        min=0,
    )
    level: str = option("R", "How sums are checked: R, or T3 to the bit at three times the cost.")
    keep_going: bool = option(False, "Log alarms; do not end the run.")
    log: Path | None = option(None, "File of JSON lines to append to.")
    patience: float = option(60.0, "Seconds that a rank waits for the others.", min=1)


class Doctor(Action, work="cli.doctor:show"):
    """Print what is installed and what is missing.

    \b
    Examples:
      shardproof doctor
      shardproof doctor --probe
    """

    probe: bool = option(False, "Also probe the model with a few short calls.")


class Ops(Action, work="cli.ops_table:show"):
    """List the ops with signature, attributes and gradient.

    \b
    Examples:
      shardproof ops
      shardproof ops --markdown > docs/ops.md
    """

    markdown: bool = option(False, "As the page docs/ops.md.")


class Lift(Action, work="cli.schedules:lift", limited=True):
    """Lift a TIR or TileLang kernel to a program.

    With a mesh, prove the kernel sharded over ranks.

    \b
    Examples:
      shardproof lift examples/tir/softmax.tir.py
      shardproof lift examples/tir/gemm_tiled.tir.py --mesh tp=2 --place "A:tp=S(0)" \\
        --output "C:tp=S(0)"
    """

    path: Annotated[Path, Argument("A TIR or TileLang script.", "FILE")]
    mesh: str = option("", "Also prove it on ranks: tp=2 or dp=2,tp=2.")
    place: Words = option((), "Placement of an input: A:tp=S(1). Repeatable.")
    output: Words = option((), "Required placement of an output: C:tp=R. Repeatable.")
    collective: Words = option(
        (), "Collective after a buffer is written: C:all_reduce(tp). Repeatable."
    )
    extent: Words = option((), "Value of a symbolic size: M=128. Repeatable.")
    func: str | None = option(None, "Function to lift, if there are several.")
    local: str | None = option(None, "The script that the ranks run.")


class Schedule(Action, work="cli.schedules:schedule"):
    """Generate or check a pipeline schedule.

    Checks order, deadlock, memory and messages.

    \b
    Examples:
      shardproof schedule 1f1b --stages 4 --micro-batches 8
      shardproof schedule mine.txt
    """

    source: Annotated[str, Argument("A kind to generate, or a file to check.", "KIND|FILE")]
    stages: int = option(4, "Pipeline stages.")
    micro_batches: int = option(8, "Micro-batches of a step.")
    chunks: int = option(1, "Model chunks of a stage.")
    svg: Path | None = option(None, "Write a drawing.")
    text: bool = option(False, "Print it as text to edit.")


class Order(Action, work="cli.schedules:order"):
    """Check events of ranks for races and deadlocks.

    Also missing waits, lost messages and buffers used too early.

    \b
    Example:
      shardproof order events.txt
    """

    path: Annotated[Path, Argument("Events of every rank.", "FILE")]


class Bench(Action, work="cli.schedules:bench"):
    """Ask the model of a chat 40 things, and check each.

    The checks look at the session and the files, never at the model's words alone. Needs a
    checkout of the project.

    \b
    Examples:
      shardproof bench agent --results agent.jsonl
      shardproof bench agent --only undo --only faster
      shardproof bench agent --without search --without fixes --without counterexample
      shardproof bench agent --offline scripted
    """

    what: Annotated[str, Argument("Requests to the model of a chat.", "agent")]
    only: Words = option((), "A task by its name. Repeatable.")
    without: Words = option((), "Withhold search, counterexample or fixes. Repeatable.")
    results: Path = option(
        Path("agent.jsonl"), "File with a row per task; finished tasks do not run again."
    )
    offline: str = option("", "Ask a local script instead of a model.", "scripted")


class Replay(Action, work="chat.replaying:replay"):
    """Run a session again and compare every event.

    Uses neither the language model nor the network. Loaded files and answers come from the
    transcript; everything else runs again in a scratch folder. Exits 1 with the first difference.
    Ignores times, peak memory, the folder, the session's name and boundary words. Skips interrupted
    steps and commands that inspect the machine
    (/doctor, /model, /save, /resume, /fork).

    \b
    Example:
      shardproof replay session.jsonl
    """

    transcript: Annotated[Path, Argument("A journal.jsonl, or a file from /save.", "TRANSCRIPT")]
