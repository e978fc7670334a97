"""parallelize, step, capture and translate: commands that start from a model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.arguments import (
    EXITS,
    Ban,
    Batch,
    Config,
    Constrain,
    Dtype,
    Fix,
    FullDepth,
    GlobalBatch,
    Gpus,
    Hardware,
    Inputs,
    Json,
    Memory,
    Pin,
    Seq,
    Target,
    Timeout,
)


def parallelize(
    target: Target,
    out: Annotated[Path, typer.Option(help="Directory to write; must be empty or absent.")],
    mesh: Annotated[
        str | None, typer.Option(help="Mesh dims, outermost first: dp=2,tp=2. Or --gpus.")
    ] = None,
    gpus: Gpus = None,
    config: Config = [],
    inputs: Inputs = [],
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
    hardware: Hardware = "h100",
    global_batch: GlobalBatch = None,
    dtype: Dtype = None,
    pin: Pin = [],
    ban: Ban = [],
    memory: Memory = None,
    constrain: Constrain = [],
    fix: Fix = [],
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
        typer.Option(help="A program for code that capture refuses; compared with it first."),
    ] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Plan, prove and patch a model for a mesh or a cluster.

    With `--gpus` the mesh, batches, schedule and all else is chosen and priced. The model is
    captured and planned, the plan is written as a patch, and the patched source is read back and
    proved. Nothing is written unless the run gets as far as a verdict.

    \b
    Examples:
      shardproof parallelize examples/nanogpt.py:GPT --mesh dp=2,tp=2 --out out/
      shardproof parallelize hf:LlamaForCausalLM --config llama3-8b.json --gpus 64 --out out/
      shardproof parallelize hf:LlamaForCausalLM --config llama3-8b.json --mesh tp=8 --out out/
      shardproof parallelize hf:GPT2LMHeadModel --config n_layer=2 --mesh tp=2 --out out/ --run
      shardproof parallelize examples/nanogpt.py:GPT --mesh tp=2 --pin wte=replicate --out out/
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from synthesis.frontends.torch.process import warm_up

        warm_up(target)
        from agent import choosing, considering, pipeline
        from agent.errors import InputError
        from agent.options import Wanted, mesh_for, read_fixed
        from synthesis import hardware as clusters

        fixed = read_fixed(fix)
        if fixed and mesh is not None:
            raise InputError("--mesh leaves nothing to fix", where="--fix", hint="give --gpus")
        job = pipeline.Job(
            mesh=mesh_for(mesh, gpus),
            request=pipeline.request(target, config, inputs, batch, seq, full_depth),
            cluster=clusters.load(hardware),
            out=out,
            execute=execute,
            force=force,
            guard=guard,
            arguments=tuple(sys.argv[1:]),
            wishes=considering.wished(pin, ban, memory, constrain),
            llm=llm,
            wanted=Wanted(gpus or 1, hardware, global_batch, seq, dtype, memory, fixed),
        )
        if mesh is None:
            return choosing.parallelize(run, job, translation)
        if translation is None and llm == "none":
            return pipeline.parallelize(run, job)
        from agent.translation import command

        return command.either(run, job, translation)

    return conduct("parallelize", sys.argv[1:], work, json=json, timeout=timeout)


def step(
    target: Target,
    mesh: Annotated[str, typer.Option(help="Mesh dims, outermost first: pp=2,dp=2,tp=2.")],
    micro_batches: Annotated[
        int, typer.Option(min=1, metavar="N", help="Micro-batches of a step.")
    ] = 1,
    schedule: Annotated[
        str, typer.Option(help="Order of the stages along pp: gpipe, 1f1b, zero_bubble.")
    ] = "1f1b",
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    hardware: Hardware = "h100",
    out: Annotated[
        Path | None, typer.Option(help="Directory for programs, contract and certificate.")
    ] = None,
    full_depth: FullDepth = False,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Prove a model's whole training step.

    Micro-batches, gradient reduction, clipping and AdamW. `--batch` is the extent of one
    micro-batch over all ranks.

    \b
    Examples:
      shardproof step examples/nanogpt.py:GPT --mesh dp=2,tp=2 --micro-batches 4
      shardproof step hf:LlamaForCausalLM --config examples/llama-small.json --mesh pp=2,tp=2
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from synthesis.frontends.torch.process import warm_up

        warm_up(target)
        from agent import pipeline, stepping
        from agent.options import read_mesh
        from synthesis import hardware as clusters

        asked = pipeline.request(target, config, inputs, batch, seq, full_depth)
        job = stepping.Job(
            asked, read_mesh(mesh), clusters.load(hardware), micro_batches, out, schedule
        )
        return stepping.prove(run, job)

    return conduct("step", sys.argv[1:], work, json=json, timeout=timeout)


def capture(
    target: Target,
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    full_depth: FullDepth = False,
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Leave the backward pass out.")
    ] = False,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Print the one-device program of a model.

    Forward and backward, every op with its source line.

    \b
    Examples:
      shardproof capture examples/nanogpt.py:GPT
      shardproof capture hf:LlamaForCausalLM --config num_hidden_layers=2 --batch 2 --seq 16
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from synthesis.frontends.torch.process import warm_up

        warm_up(target)
        from agent import pipeline

        request = pipeline.request(
            target, config, inputs, batch, seq, full_depth, gradients=not forward_only
        )
        return pipeline.show_program(run, request)

    return conduct("capture", sys.argv[1:], work, json=json, timeout=timeout)


def translate(
    target: Target,
    config: Config = [],
    inputs: Inputs = [],
    reply: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="A reply written beforehand: the program, or JSON of the form. Repeatable; "
            "without one the model is asked.",
        ),
    ] = [],
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
    """Write a model that capture refuses in the text form.

    A language model writes it, or you. It is compared with the code on samples before anything is
    proved from it.

    \b
    Examples:
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --show-prompt
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --reply reply.txt
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from synthesis.frontends.torch.process import warm_up

        warm_up(target)
        from agent import pipeline
        from agent.translation import command

        request = pipeline.request(target, config, inputs, None, None, False)
        asked = command.Asked(request, tuple(reply), out, show_prompt, whole, llm)
        return command.translate(run, asked)

    return conduct("translate", sys.argv[1:], work, json=json, timeout=timeout)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog=EXITS)(parallelize)
    app.command(epilog=EXITS)(step)
    app.command(epilog=EXITS)(capture)
    app.command(epilog=EXITS)(translate)
