"""verify, repair and their kin: commands that start from programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.arguments import (
    EXITS,
    Batch,
    Config,
    Inputs,
    Json,
    MeshDims,
    Recapture,
    Root,
    Seq,
    Timeout,
)


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
        bool, typer.Option("--relations", help="Print the relation of every value.")
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Believe what Z3 was asked before.",
        ),
    ] = True,
    recapture: Recapture = False,
    root: Root = Path(),
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Check an out-directory again, or prove two programs equal.

    A directory is checked without search, network or torch: the hashes of its files, its
    certificate step by step, the order in time, and that the plan is that of the programs. It ends
    accepted (0) or rejected (1): its patch is tied to all that by hashes alone. --recapture reads
    the patched source and proves that; then the word is proved.

    \b
    Examples:
      shardproof verify out/
      shardproof verify out/ --recapture
      shardproof verify --sequential s.txt --distributed d.txt --contract c.txt --relations
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import reverify as recheck

        return recheck.dispatch(
            run, path, sequential, distributed, contract, relations, cache, recapture, root
        )

    return conduct("verify", sys.argv[1:], work, json=json, timeout=timeout)


def explain(
    directory: Annotated[Path, typer.Argument(help="A directory with a proof.")],
    value: Annotated[str, typer.Argument(help="A value of distributed.json: %57.")],
    depth: Annotated[int, typer.Option(min=0, help="How many ops back.")] = 3,
    json: Json = False,
) -> int:
    """Say what a proof found a value of the ranks to be, and what that follows from.

    The certificate is checked first. A value inside a repeated block is named as it is there.

    \b
    Example:
      shardproof explain out/ %57 --depth 5
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import derivation

        return derivation.explain(run, directory, value, depth)

    return conduct("explain", sys.argv[1:], work, json=json)


def check_certificate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="DIRECTORY|FILE", help="An out-directory, or a certificate and files beside it."
        ),
    ],
    sequential: Annotated[
        Path | None, typer.Option(help="One-device program, if not program.json there.")
    ] = None,
    distributed: Annotated[
        Path | None, typer.Option(help="Program of the ranks, if not distributed.json there.")
    ] = None,
    contract: Annotated[
        Path | None, typer.Option(help="The contract, if not contract.json there.")
    ] = None,
    rules_trusted: Annotated[
        bool, typer.Option("--rules-trusted", help="Do not ask Z3 about the steps.")
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Believe what Z3 was asked before.")
    ] = True,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Run the checker alone on a certificate.

    Nothing is searched for and nothing else of a directory is read. Z3 is asked about the steps
    that the certificate rests on; with --rules-trusted numpy is all it takes. It ends accepted (0),
    rejected (1), or with a file that cannot be read (2).

    \b
    Examples:
      shardproof check-certificate out/
      shardproof check-certificate out/ --rules-trusted --json
      shardproof check-certificate c.json --sequential s.txt --distributed d.txt --contract c.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import certificates

        files = certificates.Files.beside(path, sequential, distributed, contract)
        return certificates.check_alone(run, files, rules_trusted, cache)

    return conduct("check-certificate", sys.argv[1:], work, json=json, timeout=timeout)


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="parallel.py:Name, a class or a function that builds a module."
        ),
    ],
    against: Annotated[
        str, typer.Option(metavar="MODEL", help="model.py:Name, the one-device model.")
    ],
    mesh: MeshDims,
    layout: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PLACEMENT|FILE",
            help="How a parameter is laid out: fc.weight=S(0)@tp. By default from its shape.",
        ),
    ] = [],
    input_layout: Annotated[
        list[str],
        typer.Option(metavar="NAME=PLACEMENT|FILE", help="Of an input; by default replicated."),
    ] = [],
    output_layout: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PLACEMENT|FILE", help="Of an output; by default from its shape."
        ),
    ] = [],
    param: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=NAME",
            help="A parameter that the model calls differently: fc1.*=mlp.up.*. Repeatable.",
        ),
    ] = [],
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    gradients: Annotated[
        bool, typer.Option("--gradients/--no-gradients", help="Also check the backward.")
    ] = True,
    no_grad: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="An input without a gradient: a mask, say."),
    ] = [],
    skip_output: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="An output that is not compared; gradients still are."),
    ] = [],
    after_backward: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="Of TARGET's file, called with the module after the backward: reduces gradients.",
        ),
    ] = "",
    mode: Annotated[
        str,
        typer.Option(metavar="train|eval", help="Check one mode of the modules; by default both."),
    ] = "",
    repair_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to look for a repair.")
    ] = 10.0,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write both programs and the contract."),
    ] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Prove parallel code of yours equal to a one-device model.

    For modules that call torch.distributed. Every rank is traced by PyTorch, forward and backward,
    under a process group that sends nothing.

    \b
    Examples:
      shardproof check parallel.py:ParallelMLP --against model.py:MLP --mesh tp=2
      shardproof check p.py:Block --against m.py:Block --mesh dp=2,tp=2 --input-layout "x=S(0)@dp"
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from synthesis.frontends.torch.process import warm_up

        warm_up(target)
        from agent.check import command

        asked = command.Asked(
            target,
            against,
            mesh,
            layout,
            input_layout,
            output_layout,
            param,
            config,
            inputs,
            batch,
            seq,
            gradients,
            no_grad,
            skip_output,
            after_backward,
            mode,
            repair_seconds,
            keep,
        )
        return command.run_check(run, asked)

    return conduct("check", sys.argv[1:], work, json=json, timeout=timeout)


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
    """Prove programs given as one text per rank.

    Thousands of ranks are read as one program. A rank that deviates from those around it is named
    with its file and line.

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
            help="A model to ask where the search finds nothing, or several equal repairs: "
            "auto is the one that the environment names.",
        ),
    ] = "none",
    feedback: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="What a model is shown: none, message, relation, witness or fixes.",
        ),
    ] = "fixes",
    json: Json = False,
) -> int:
    """Repair a wrong program by the fewest edits that are proved.

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


def lift(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A TIR or TileLang script.")],
    mesh: Annotated[str, typer.Option(help="Also prove it on ranks: tp=2 or dp=2,tp=2.")] = "",
    place: Annotated[
        list[str], typer.Option(help="How an input is placed: A:tp=S(1). Repeatable.")
    ] = [],
    output: Annotated[
        list[str], typer.Option(help="How an output must be: C:tp=R. Repeatable.")
    ] = [],
    collective: Annotated[
        list[str], typer.Option(help="After a buffer is made: C:all_reduce(tp). Repeatable.")
    ] = [],
    extent: Annotated[
        list[str], typer.Option(help="Value of a symbolic extent: M=128. Repeatable.")
    ] = [],
    func: Annotated[
        str | None, typer.Option(help="Which function, where there are several.")
    ] = None,
    local: Annotated[str | None, typer.Option(help="The script that the ranks run.")] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Lift a TIR or TileLang kernel to a program.

    With a mesh, prove the kernel when it is split over ranks.

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
    """Generate or check a pipeline schedule.

    Checked are order, deadlock, memory and messages.

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


def order(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Events of every rank.")],
    json: Json = False,
) -> int:
    """Check events of ranks for races and deadlocks.

    Also missing waits, lost messages and buffers used too early.

    \b
    Example:
      shardproof order events.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import more

        return more.order(run, path)

    return conduct("order", sys.argv[1:], work, json=json)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog=EXITS)(verify)
    app.command(epilog=EXITS)(check)
    app.command(epilog=EXITS)(explain)
    app.command("check-certificate", epilog=EXITS)(check_certificate)
    app.command("verify-ranks", epilog=EXITS)(verify_ranks)
    app.command(epilog=EXITS)(repair)
    app.command(epilog=EXITS)(lift)
    app.command(epilog=EXITS)(schedule)
    app.command(epilog=EXITS)(order)
