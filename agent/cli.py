"""The command line: what the commands are called, what they take, and what they exit with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent import cli_patches, cli_plans
from agent.arguments import (
    EXITS,
    Ban,
    Batch,
    Config,
    Constrain,
    FullDepth,
    Inputs,
    Json,
    Memory,
    Pin,
    Seq,
    Target,
    Timeout,
)
from agent.chat import command as sessions

# Everything heavier than typer is imported inside a command: `--help` must answer at once.

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        from agent import __version__

        typer.echo(f"shardproof {__version__}")
        raise typer.Exit


@app.callback(epilog=EXITS)
def shardproof(
    context: typer.Context,
    prompts: sessions.Prompts = [],  # noqa: B006
    json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> int:
    """Turn a PyTorch model into a parallel one that is proved equal to it.

    Without a command, a session in this terminal: /help in it lists what it can do.
    """
    if context.invoked_subcommand is not None:
        return 0
    return sessions.bare(prompts, json, context.get_help())


@app.command(epilog=EXITS)
def parallelize(
    target: Target,
    mesh: Annotated[str, typer.Option(help="Mesh dims, outermost first: dp=2,tp=2.")],
    out: Annotated[Path, typer.Option(help="Directory to write; must be empty or absent.")],
    config: Config = [],  # noqa: B006  (typer reads the default, nothing mutates it)
    inputs: Inputs = [],  # noqa: B006
    batch: Batch = None,
    seq: Seq = None,
    execute: Annotated[
        bool | None,
        typer.Option(
            "--run/--no-run",
            help="Run the patched model on local processes and compare it with one process; "
            "by default where the model is small enough.",
        ),
    ] = None,
    hardware: Annotated[
        str, typer.Option(help="Cluster the cost model assumes: a shipped name or a TOML file.")
    ] = "h100",
    pin: Pin = [],  # noqa: B006
    ban: Ban = [],  # noqa: B006
    memory: Memory = None,
    constrain: Constrain = [],  # noqa: B006
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="Let a language model propose starting points of the search.",
        ),
    ] = "none",
    full_depth: FullDepth = False,
    guard: Annotated[
        bool, typer.Option("--guard", help="Have the patch watch what ranks exchange as it runs.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier run wrote to --out.")
    ] = False,
    translation: Annotated[
        Path | None,
        typer.Option(help="A program for a model that capture refuses; held to the code first."),
    ] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Capture a model, plan it for a mesh, prove the plan, and write it as a patch with a report.

    Nothing is written unless the run gets as far as a verdict.

    \b
    Examples:
      shardproof parallelize examples/nanogpt.py:GPT --mesh dp=2,tp=2 --out out/
      shardproof parallelize hf:LlamaForCausalLM --config llama3-8b.json --mesh tp=8 --out out/
      shardproof parallelize hf:GPT2LMHeadModel --config n_layer=2 --mesh tp=2 --out out/ --run
      shardproof parallelize examples/nanogpt.py:GPT --mesh tp=2 --pin wte=replicate --out out/
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import considering, pipeline
        from agent.options import read_mesh
        from synthesis import hardware as clusters

        job = pipeline.Job(
            mesh=read_mesh(mesh),
            request=pipeline.request(target, config, inputs, batch, seq, full_depth),
            cluster=clusters.load(hardware),
            out=out,
            execute=execute,
            force=force,
            guard=guard,
            arguments=tuple(sys.argv[1:]),
            wishes=considering.wished(pin, ban, memory, constrain),
            llm=llm,
        )
        if translation is None and llm == "none":
            return pipeline.parallelize(run, job)
        from agent.translation import command

        return command.either(run, job, translation)

    return conduct("parallelize", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def verify(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[DIRECTORY]", help="A directory that parallelize wrote."),
    ] = None,
    sequential: Annotated[Path | None, typer.Option(help="One-device program, IR file.")] = None,
    distributed: Annotated[Path | None, typer.Option(help="Program of the ranks, IR file.")] = None,
    contract: Annotated[
        Path | None, typer.Option(help="How inputs and outputs are laid out.")
    ] = None,
    relations: Annotated[
        bool, typer.Option("--relations", help="Say what every value was found to be.")
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Prove an edited large program by what changed since a proof that was kept.",
        ),
    ] = True,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Check an out-directory again, or prove one IR program equal to another under a contract.

    A directory is checked without search, network or torch: the hashes of its files, and its
    certificate step by step.

    \b
    Examples:
      shardproof verify out/
      shardproof verify --sequential s.txt --distributed d.txt --contract c.txt --relations
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import recheck

        return recheck.dispatch(run, path, sequential, distributed, contract, relations, cache)

    return conduct("verify", sys.argv[1:], work, json=json, timeout=timeout)


@app.command("verify-ranks", epilog=EXITS)
def verify_ranks(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RANKS", help="The programs: a folder, a zip, a tar, or one file (.sp, .spz)."
        ),
    ],
    sequential: Annotated[Path, typer.Option(metavar="FILE", help="One-device program, IR file.")],
    contract: Annotated[
        Path, typer.Option(metavar="FILE", help="How inputs and outputs are laid out.")
    ],
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Read the program of every rank, thousands of them, and prove that together they compute one.

    A rank that deviates from those around it is named with its file and line.

    \b
    Examples:
      shardproof verify-ranks ranks/ --sequential one.txt --contract contract.json
      shardproof verify-ranks plan.spz --sequential one.txt --contract contract.json --json
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import ranks

        return ranks.verify(run, path, sequential, contract)

    return conduct("verify-ranks", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def step(
    target: Target,
    mesh: Annotated[str, typer.Option(help="Mesh dims, outermost first: dp=2,tp=2.")],
    micro_batches: Annotated[
        int, typer.Option(min=1, metavar="N", help="Micro-batches of a step.")
    ] = 1,
    config: Config = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    batch: Batch = None,
    seq: Seq = None,
    hardware: Annotated[str, typer.Option(help="Cluster that the cost model assumes.")] = "h100",
    out: Annotated[
        Path | None, typer.Option(help="Directory for programs, contract and certificate.")
    ] = None,
    full_depth: FullDepth = False,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Prove a model's whole training step: micro-batches, reduction, clipping, AdamW.

    `--batch` is the extent of one micro-batch over all ranks.

    \b
    Examples:
      shardproof step examples/nanogpt.py:GPT --mesh dp=2,tp=2 --micro-batches 4
      shardproof step hf:LlamaForCausalLM --config examples/llama-small.json --mesh tp=2 --out step/
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import pipeline, stepping
        from agent.options import read_mesh
        from synthesis import hardware as clusters

        asked = pipeline.request(target, config, inputs, batch, seq, full_depth)
        job = stepping.Job(asked, read_mesh(mesh), clusters.load(hardware), micro_batches, out)
        return stepping.prove(run, job)

    return conduct("step", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def capture(
    target: Target,
    config: Config = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    batch: Batch = None,
    seq: Seq = None,
    full_depth: FullDepth = False,
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Leave the backward pass out.")
    ] = False,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Print the program of a model on one device: forward, backward, every op with its source.

    \b
    Examples:
      shardproof capture examples/nanogpt.py:GPT
      shardproof capture hf:LlamaForCausalLM --config num_hidden_layers=2 --batch 2 --seq 16
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import pipeline

        request = pipeline.request(
            target, config, inputs, batch, seq, full_depth, gradients=not forward_only
        )
        return pipeline.show_program(run, request)

    return conduct("capture", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def translate(
    target: Target,
    config: Config = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    reply: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="A reply written beforehand: the program, or JSON of the form. Repeatable; "
            "without one the model is asked.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Write the program that was bound.")] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what would be sent, and send nothing.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="The whole file, also where a module of it would do.")
    ] = False,
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="The model that is asked: auto is the one that the environment names.",
        ),
    ] = "auto",
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Translate a model that capture refuses, and hold the translation to the code on samples.

    \b
    Examples:
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --show-prompt
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --reply reply.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import pipeline
        from agent.translation import command

        request = pipeline.request(target, config, inputs, None, None, False)
        asked = command.Asked(request, tuple(reply), out, show_prompt, whole, llm)
        return command.translate(run, asked)

    return conduct("translate", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def lift(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A TIR or TileLang script.")],
    mesh: Annotated[str, typer.Option(help="Also prove it on ranks: tp=2 or dp=2,tp=2.")] = "",
    place: Annotated[
        list[str], typer.Option(help="How an input is placed: A:tp=S(1). Repeatable.")
    ] = [],  # noqa: B006
    output: Annotated[
        list[str], typer.Option(help="How an output must be: C:tp=R. Repeatable.")
    ] = [],  # noqa: B006
    collective: Annotated[
        list[str], typer.Option(help="After a buffer is made: C:all_reduce(tp). Repeatable.")
    ] = [],  # noqa: B006
    extent: Annotated[
        list[str], typer.Option(help="Value of a symbolic extent: M=128. Repeatable.")
    ] = [],  # noqa: B006
    func: Annotated[
        str | None, typer.Option(help="Which function, where there are several.")
    ] = None,
    local: Annotated[str | None, typer.Option(help="The script that the ranks run.")] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Lift a kernel script to a program; with a mesh, prove it when it is split over ranks.

    \b
    Examples:
      shardproof lift examples/tir/softmax.tir.py
      shardproof lift examples/tir/gemm_tiled.tir.py --mesh tp=2 --place "A:tp=S(0)" \\
        --output "C:tp=S(0)"
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import more

        return more.lift(run, path, mesh, place, output, collective, extent, func, local)

    return conduct("lift", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def schedule(
    source: Annotated[
        str, typer.Argument(metavar="KIND|FILE", help="A kind to generate, or a file to check.")
    ],
    stages: Annotated[int, typer.Option(help="Pipeline stages.")] = 4,
    micro_batches: Annotated[int, typer.Option(help="Micro-batches of a step.")] = 8,
    chunks: Annotated[int, typer.Option(help="Model chunks of a stage.")] = 1,
    svg: Annotated[Path | None, typer.Option(help="Write a drawing.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print it as text to edit.")] = False,
    json: Json = False,
) -> int:
    """Generate a pipeline schedule, or check one of your own: order, deadlock, memory, messages.

    \b
    Examples:
      shardproof schedule 1f1b --stages 4 --micro-batches 8
      shardproof schedule mine.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import more

        return more.schedule(run, source, stages, micro_batches, chunks, svg, text)

    return conduct("schedule", sys.argv[1:], work, json=json)


@app.command(epilog=EXITS)
def order(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Events of every rank.")],
    json: Json = False,
) -> int:
    """Check what ranks do in time: races, missing waits, lost messages, deadlocks.

    \b
    Example:
      shardproof order events.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import more

        return more.order(run, path)

    return conduct("order", sys.argv[1:], work, json=json)


@app.command(epilog=EXITS)
def repair(
    sequential: Annotated[Path, typer.Option(help="One-device program, IR file.")],
    distributed: Annotated[Path, typer.Option(help="Program of the ranks, IR file.")],
    contract: Annotated[Path, typer.Option(help="How inputs and outputs are laid out.")],
    max_edits: Annotated[int, typer.Option(min=1, help="Edits of one search at most.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of the whole loop.")] = 30.0,
    rounds: Annotated[
        int, typer.Option(min=1, help="Searches and questions to the model at most.")
    ] = 6,
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="A model to ask where the search finds nothing, or several repairs alike: "
            "auto is the one that the environment names.",
        ),
    ] = "none",
    feedback: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="What a model is told: none, message, relation, witness or fixes.",
        ),
    ] = "fixes",
    json: Json = False,
) -> int:
    """Mend the program of the ranks: the fewest edits after which it is proved, as a diff.

    The diff is of the file as it is written, comments and all. Nothing is written.

    \b
    Examples:
      shardproof repair --sequential s.txt --distributed d.txt --contract c.txt
      shardproof repair --sequential s.txt --distributed d.txt --contract c.txt --llm auto
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import repairing

        files = repairing.Files(sequential, distributed, contract)
        choice = repairing.Choice(max_edits, seconds, rounds, feedback, llm)
        return repairing.command(run, files, choice)

    return conduct("repair", sys.argv[1:], work, json=json)


@app.command(epilog=EXITS)
def guard(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="What starts the script, after --.")
    ],
    every: Annotated[int, typer.Option(min=1, help="Look at one call of so many.")] = 100,
    level: Annotated[
        str, typer.Option(help="How sums are checked: R, or T3 to the bit at three times the cost.")
    ] = "R",
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Log alarms; do not end the run.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="File of JSON lines to append to.")] = None,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that a rank waits for the others.")
    ] = 60.0,
    json: Json = False,
) -> int:
    """Run a distributed script, unmodified, and check what its ranks exchange.

    The exit code is the script's own, or 6 where an exchange went wrong.

    \b
    Examples:
      shardproof guard -- torchrun --nproc-per-node 4 train.py
      shardproof guard --every 1 --level T3 --log guard.jsonl -- torchrun train.py --steps 10
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import guarding

        asked = guarding.Asked(every, level, not keep_going, log, patience, quiet=json)
        return guarding.guard(run, command, asked)

    return conduct("guard", sys.argv[1:], work, json=json)


@app.command(epilog=EXITS)
def bench(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="scale or repair.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="scale: plans (L1 L2 L3 D1 D2 D3, plans) or curves (dp tp pp micro_batches layers "
            "hidden seq, curves). repair: corpus, zoo, training. All by default.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for results, page, picture and tables.")
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of a curve's point; the fastest counts.")
    ] = 1,
    unrolled: Annotated[
        bool, typer.Option("--unrolled", help="Write micro-batches of a plan out, as scheduled.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Wrong programs of each part at most.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds to repair one program.")
    ] = 10.0,
    stop: Annotated[
        float | None,
        typer.Option(metavar="S", help="Stop repairing after so long; the next run goes on there."),
    ] = None,
    llm: Annotated[
        str, typer.Option(metavar="none|auto|MODEL", help="Repair with a model.")
    ] = "none",
    feedback: Annotated[
        list[str],
        typer.Option(
            metavar="LEVEL",
            help="Repair by the model alone, told so much: none, message, relation, witness, "
            "fixes or all. Repeatable.",
        ),
    ] = [],  # noqa: B006
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Measure proofs of full-size training steps (scale), or repairs of wrong programs (repair).

    What is measured is kept as it goes: a run of repair that is interrupted goes on where it was.

    \b
    Examples:
      shardproof bench scale L1 D1
      shardproof bench scale --out scale/ --repeat 3
      shardproof bench repair corpus --limit 10
      shardproof bench repair --out repair/ --llm auto --feedback all --limit 20
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import bench as bench_command
        from agent.errors import InputError

        if what == "repair":
            from agent.bench_repair import command as bench_repair

            asked = bench_repair.Choice(
                tuple(names or ()),
                limit,
                seconds,
                llm=llm,
                levels=tuple(feedback),
                stop=stop,
            )
            return bench_repair.command(run, asked, out)
        if what != "scale":
            raise InputError("no such benchmark", expected="scale or repair", got=what)
        choice = bench_command.Choice(tuple(names or ()), repeat, unrolled)
        return bench_command.run(run, choice, out)

    return conduct("bench", sys.argv[1:], work, json=json, timeout=timeout)


@app.command(epilog=EXITS)
def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Also ask the model, at the cost of a few short calls.")
    ] = False,
    json: Json = False,
) -> int:
    """Say what is installed here and what each missing part would give.

    \b
    Examples:
      shardproof doctor
      shardproof doctor --probe
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import doctor as visit
        from agent.errors import Exit

        with run.phase("look") as phase:
            found = [*visit.parts(), visit.model(probe)]
            missing = [part.name for part in found if part.needed and not part.found]
            phase.summary = f"{len(missing)} needed parts missing" if missing else "nothing missing"
            phase.facts.update({part.name: part.found for part in found})
        code = Exit.INPUT if missing else Exit.PROVED
        return Outcome(code, answer=visit.table(found))

    return conduct("doctor", sys.argv[1:], work, json=json)


@app.command(epilog=EXITS)
def ops(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/ops.md.")] = False,
) -> int:
    """List the ops: signature in factors, attributes, linearity, gradient.

    \b
    Examples:
      shardproof ops
      shardproof ops --markdown > docs/ops.md
    """
    from agent import optable
    from agent.console import Pipe

    text = optable.markdown().removesuffix("\n") if markdown else optable.table()
    Pipe(sys.stdout).line(text)
    return 0


sessions.register(app, EXITS)


cli_plans.register(app)
cli_patches.register(app)


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    sys.exit(_run())


def _run() -> int:
    from agent.errors import Exit

    try:
        result: object = app(standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return int(Exit.INTERRUPTED)
    return result if isinstance(result, int) else 0


def _usage(error: typer.TyperException) -> int:
    """A command line that typer refused: same form and same last event as any other error."""
    from agent.errors import InputError
    from agent.run import Outcome, Run, conduct

    arguments = sys.argv[1:]

    def work(run: Run) -> Outcome:
        raise InputError(error.format_message(), hint="shardproof --help, or COMMAND --help")

    command = next((a for a in arguments if not a.startswith("-")), "")
    return conduct(command, arguments, work, json="--json" in arguments)
