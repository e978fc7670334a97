"""`lift`, `schedule` and `order`: kernels, pipeline schedules, and events of ranks."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.cli.arguments import EXITS
from shardproof.agent.cli.command import command
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import read_text

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()


@command(app, limited=True)
def lift(
    run: "Run",
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A TIR or TileLang script.")],
    mesh: Annotated[str, typer.Option(help="Also prove it on ranks: tp=2 or dp=2,tp=2.")] = "",
    place: Annotated[
        list[str], typer.Option(help="Placement of an input: A:tp=S(1). Repeatable.")
    ] = [],
    output: Annotated[
        list[str], typer.Option(help="Required placement of an output: C:tp=R. Repeatable.")
    ] = [],
    collective: Annotated[
        list[str],
        typer.Option(help="Collective after a buffer is written: C:all_reduce(tp). Repeatable."),
    ] = [],
    extent: Annotated[
        list[str], typer.Option(help="Value of a symbolic size: M=128. Repeatable.")
    ] = [],
    func: Annotated[
        str | None, typer.Option(help="Function to lift, if there are several.")
    ] = None,
    local: Annotated[str | None, typer.Option(help="The script that the ranks run.")] = None,
) -> "Outcome":
    """Lift a TIR or TileLang kernel to a program.

    With a mesh, prove the kernel sharded over ranks.

    \b
    Examples:
      shardproof lift examples/tir/softmax.tir.py
      shardproof lift examples/tir/gemm_tiled.tir.py --mesh tp=2 --place "A:tp=S(0)" \\
        --output "C:tp=S(0)"
    """
    from shardproof.agent.run.run import Outcome
    from shardproof.synthesis.frontends.tir.command import BAD_INPUT, main_lift

    with run.phase("lift"):
        code, said = main_lift(
            str(path),
            mesh,
            placements=place,
            outputs=output,
            collectives=collective,
            extents=extent,
            func=func,
            local=local,
        )
    if code == BAD_INPUT:
        raise InputError(said, where=str(path))
    return Outcome(Exit.PROVED if code == 0 else Exit.NOT_PROVED, answer=said)


@command(app)
def schedule(
    run: "Run",
    source: Annotated[
        str, typer.Argument(metavar="KIND|FILE", help="A kind to generate, or a file to check.")
    ],
    stages: Annotated[int, typer.Option(help="Pipeline stages.")] = 4,
    micro_batches: Annotated[int, typer.Option(help="Micro-batches of a step.")] = 8,
    chunks: Annotated[int, typer.Option(help="Model chunks of a stage.")] = 1,
    svg: Annotated[Path | None, typer.Option(help="Write a drawing.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print it as text to edit.")] = False,
) -> "Outcome":
    """Generate or check a pipeline schedule.

    Checks order, deadlock, memory and messages.

    \b
    Examples:
      shardproof schedule 1f1b --stages 4 --micro-batches 8
      shardproof schedule mine.txt
    """
    from shardproof.synthesis import schedules

    with run.phase("read") as phase:
        if source in schedules.GENERATORS:
            found = schedules.generate(source, stages, micro_batches, chunks)
        else:
            kinds = f"a kind ({', '.join(schedules.GENERATORS)}) or a file"
            found = schedules.parse(read_text(Path(source), "the schedule", kinds), source)
        phase.summary = f"{len(found.stages)} stages"
    with run.phase("check"):
        faults = schedules.check_schedule(found)
    if svg is not None:
        svg.write_text(schedules.draw_svg(found), encoding="utf-8")
    drawn = schedules.to_text(found) if text else "" if faults else schedules.draw_text(found)
    return _told(run, [(str(f), str(f.source)) for f in faults], drawn)


@command(app)
def order(
    run: "Run",
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Events of every rank.")],
) -> "Outcome":
    """Check events of ranks for races and deadlocks.

    Also missing waits, lost messages and buffers used too early.

    \b
    Example:
      shardproof order events.txt
    """
    from shardproof.verifier.order.text import parse_text
    from shardproof.verifier.order.verify import verify_time

    with run.phase("read"):
        program = parse_text(read_text(path, "the events", "a file of events"), str(path))
    with run.phase("check"):
        found = verify_time(program)
    lines: list[tuple[str, str]] = []
    for violation in found:
        steps = violation.trace.lines() if violation.trace is not None else []
        shown = "\n".join([f"{violation.check}: {violation.message}", *(f"  {s}" for s in steps)])
        lines.append((shown, "; ".join(map(str, violation.events))))
    return _told(run, lines, "")


def _told(run: "Run", faults: Sequence[tuple[str, str]], drawn: str) -> "Outcome":
    from shardproof.agent.run import events
    from shardproof.agent.run.run import Outcome

    for message, where in faults:
        run.emit(events.VerdictReached(verdict="refuted", message=message, where=where))
    if faults:
        return Outcome(Exit.NOT_PROVED, "refuted", answer=drawn or "refuted")
    return Outcome(Exit.PROVED, "proved", answer=drawn or "in order")


@app.command(epilog=EXITS)
def mcp() -> int:
    """Serve the commands of a session to agents, over MCP.

    On stdin and stdout. What writes files needs `confirm` from the client. Needs the package mcp:
    pip install 'shardproof[mcp]'.

    \b
    Examples:
      shardproof mcp
    """
    from shardproof.agent.chat.mcp_server import serve
    from shardproof.agent.run.errors import ShardproofError
    from shardproof.agent.run.run import refused

    try:
        return serve()
    except ShardproofError as error:
        return refused("mcp", error, json=False)


@command(app)
def bench(
    run: "Run",
    what: Annotated[str, typer.Argument(metavar="agent", help="Requests to the model of a chat.")],
    only: Annotated[list[str], typer.Option(help="A task by its name. Repeatable.")] = [],
    without: Annotated[
        list[str], typer.Option(help="Withhold search, counterexample or fixes. Repeatable.")
    ] = [],
    results: Annotated[
        Path, typer.Option(help="File with a row per task; finished tasks do not run again.")
    ] = Path("agent.jsonl"),
    offline: Annotated[
        str, typer.Option(metavar="scripted", help="Ask a local script instead of a model.")
    ] = "",
) -> "Outcome":
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
    import sys
    from importlib import import_module

    from shardproof.agent.run.run import Outcome
    from shardproof.installed import IMPORTED_FROM

    if what != "agent" or offline not in ("", "scripted"):
        got = what if what != "agent" else f"--offline {offline}"
        raise InputError("nothing to run", got=got, expected="agent, --offline scripted")
    sys.path.insert(0, IMPORTED_FROM)
    try:
        running = import_module("benchmarks.agent.running")
        asked = import_module("tests.chat.strong").asked if offline else nullcontext
    except ModuleNotFoundError as error:
        hint = "run it in a checkout of the project"
        raise InputError("the benchmark is not installed", got=str(error), hint=hint) from None
    with asked():
        found = running.bench(results, only, without, run.note)
    left = running.unsolved_rows(found)
    return Outcome(
        Exit.NOT_PROVED if left else Exit.PROVED, answer="\n".join([running.table(found), *left])
    )
