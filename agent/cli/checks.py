"""verify, repair and their kin: commands that start from programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.check.asked import ALONE, Asked
from shardproof.agent.cli.arguments import Cache, Repair, Verify
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()


@command(app, limited=True, formats=True)
def verify(run: "Run", asked: Verify) -> "Outcome":
    """Check an out-directory again, or prove two programs equal.

    Checks a directory without search, network or torch: hashes, certificate, order in time, and
    that the plan agrees with the programs. Ends accepted (0) or rejected (1). Only hashes tie the
    patch to the proof; --recapture reads the patched source again and ends proved.

    \b
    Examples:
      shardproof verify out/
      shardproof verify out/ --recapture
      shardproof verify --sequential examples/verify/one.txt --relations \\
        --distributed examples/verify/right.txt \\
        --contract examples/verify/contract.txt
    """
    from shardproof.agent.verdict import reverify as recheck

    return recheck.dispatch(run, asked)


@command(app)
def explain(
    run: "Run",
    directory: Annotated[Path, typer.Argument(help="A directory with a proof.")],
    value: Annotated[str, typer.Argument(help="A value of distributed.json: %57.")],
    depth: Annotated[int, typer.Option(min=0, help="Number of ops to go back.")] = 3,
) -> "Outcome":
    """Say what a value of the ranks is, by a proof.

    And from which values that follows, a few ops back.

    The certificate is checked first. A value inside a repeated block is named as it is there.

    \b
    Example:
      shardproof explain out/ %57 --depth 5
    """
    from shardproof.agent.verdict import derivation

    return derivation.explain(run, directory, value, depth)


@command(app, "check-certificate", limited=True)
def check_certificate(
    run: "Run",
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
    cache: Cache = True,
) -> "Outcome":
    """Run the checker alone on a certificate.

    Searches nothing and reads nothing else of a directory. Asks Z3 about each step of the
    certificate; --rules-trusted needs numpy alone. Exit codes: accepted (0), rejected (1),
    unreadable file (2).

    \b
    Examples:
      shardproof check-certificate out/
      shardproof check-certificate out/ --rules-trusted --json
      shardproof check-certificate c.json --sequential s.txt --distributed d.txt --contract c.txt
    """
    from shardproof.agent.verdict import certificates

    files = certificates.Files.beside(path, sequential, distributed, contract)
    return certificates.check_alone(run, files, rules_trusted, cache)


@command(app, limited=True, formats=True)
def check(run: "Run", asked: Asked) -> "Outcome":
    """Prove parallel code of yours equal to a one-device model.

    For modules that call torch.distributed, hold DTensors, or run under fully_shard or DDP. Every
    rank is traced by PyTorch, forward and backward, under a process group that sends nothing.

    \b
    Examples:
      shardproof check examples/check/parallel.py:ParallelMLP \\
        --against examples/check/model.py:MLP --mesh tp=2
      shardproof check p.py:Block --against m.py:Block --mesh dp=2,tp=2 --input-layout "x=S(0)@dp"
      shardproof check hf:LlamaForCausalLM --config examples/llama-small.json --mesh tp=2
    """
    from shardproof.agent.cli.options import read_mesh
    from shardproof.synthesis.frontends.torch.process import warm_up
    from shardproof.synthesis.frontends.torch.request import split_target

    read_mesh(asked.mesh)  # a wrong word is answered before anything slow is begun
    for target in {asked.target, asked.against} - {"", ALONE}:
        split_target(target)
    warm_up(asked.target)
    from shardproof.agent.check.command import run_check

    return run_check(run, asked)


@command(app, "verify-ranks", limited=True)
def verify_ranks(
    run: "Run",
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RANKS", help="The programs: a folder, a zip, a tar, or one file (.sp, .spz)."
        ),
    ],
    sequential: Annotated[Path, typer.Option(metavar="FILE", help="One-device program, IR file.")],
    contract: Annotated[Path, typer.Option(metavar="FILE", help="Layouts of inputs and outputs.")],
) -> "Outcome":
    """Prove programs given as one text per rank.

    Thousands of ranks are read as one program. A rank that deviates from those around it is named
    with its file and line.

    \b
    Examples:
      shardproof verify-ranks ranks/ --sequential one.txt --contract contract.json
      shardproof verify-ranks plan.spz --sequential one.txt --contract contract.json --json
    """
    from shardproof.agent.verdict import ranks

    return ranks.verify(run, path, sequential, contract)


@command(app, formats=True)
def repair(run: "Run", asked: Repair) -> "Outcome":
    """Repair a wrong program by the fewest edits, proved.

    Prints a diff that keeps comments and spacing. Writes nothing.

    \b
    Examples:
      shardproof repair --sequential examples/repair/one.txt \\
        --distributed examples/repair/many.txt \\
        --contract examples/repair/contract.txt
      shardproof repair --sequential s.txt --distributed d.txt --contract c.txt --llm auto
    """
    from shardproof.agent.repair import repairing

    return repairing.command(run, asked)
