"""parallelize, step, capture and translate: commands that start from a model."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.cli.arguments import (
    AnswerCache,
    Dtype,
    Fix,
    FullDepth,
    GlobalBatch,
    Gpus,
    Hardware,
    Memory,
    Model,
    Wished,
)
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()


@command(app, limited=True)
def parallelize(
    run: "Run",
    *,
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory to write, empty or absent; by default shardproof-out/CLASS."),
    ] = None,
    mesh: Annotated[
        str | None, typer.Option(help="Mesh dims, outermost first: dp=2,tp=2. Or --gpus.")
    ] = None,
    gpus: Gpus = None,
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
    wished: Wished,
    fix: Fix = [],
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="Let a language model propose starting points of the search.",
        ),
    ] = "none",
    answer_cache: AnswerCache = True,
    full_depth: FullDepth = False,
    guard: Annotated[
        bool, typer.Option("--guard", help="Make the patch watch what ranks exchange.")
    ] = False,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline", help="Paste what the patch needs instead of importing shardproof."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier run wrote to --out.")
    ] = False,
    translation: Annotated[
        Path | None,
        typer.Option(help="A program for code that capture refuses; must agree with the code."),
    ] = None,
) -> "Outcome":
    """Plan, prove and patch a model for a mesh or a cluster.

    Captures and plans the model, writes the plan as a patch, reads the patched source back and
    proves it. `--gpus` chooses the mesh, batches, schedule and the rest of the configuration by
    price. Nothing is written before a verdict.

    \b
    Examples:
      shardproof parallelize examples/nanogpt.py:GPT --mesh dp=2,tp=2 --out out/
      shardproof parallelize hf:LlamaForCausalLM --config examples/llama3-8b.json --gpus 64
      shardproof parallelize hf:LlamaForCausalLM --config examples/llama3-8b.json --mesh tp=8
      shardproof parallelize hf:GPT2LMHeadModel --config n_layer=2 --mesh tp=2 --out out/ --run
      shardproof parallelize examples/nanogpt.py:GPT --mesh tp=2 --pin wte=replicate --out out/
    """
    from shardproof.agent.cli.options import Wanted, mesh_for, placed, read_fixed
    from shardproof.agent.run import outdir
    from shardproof.agent.run.errors import InputError

    devices, fixed = mesh_for(mesh, gpus), read_fixed(fix)
    if fixed and mesh is not None:
        raise InputError("--mesh leaves nothing to fix", where="--fix", hint="give --gpus")
    out = out or placed(model.target)
    outdir.check_free(out, force=force)
    request = model.warmed(full_depth)
    from shardproof.agent.pipeline import pipeline
    from shardproof.agent.training import choosing
    from shardproof.synthesis import hardware as clusters

    job = pipeline.Job(
        mesh=devices,
        request=request,
        cluster=clusters.load(hardware),
        out=out,
        execute=execute,
        force=force,
        guard=guard,
        inline=inline,
        arguments=tuple(sys.argv[1:]),
        wishes=wished.read(),
        llm=llm,
        wanted=Wanted(gpus or 1, hardware, global_batch, model.seq, dtype, wished.memory, fixed),
    )
    if mesh is None:
        return choosing.parallelize(run, job, translation)
    if translation is None and llm == "none":
        return pipeline.parallelize(run, job)
    from shardproof.agent.translation import command

    return command.either(run, job, translation)


@command(app, limited=True)
def step(
    run: "Run",
    model: Model,
    mesh: Annotated[
        str | None, typer.Option(help="Mesh dims, outermost first: pp=2,dp=2,tp=2.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Choose mesh, batches and schedule.")
    ] = None,
    global_batch: GlobalBatch = None,
    memory: Memory = None,
    fix: Fix = [],
    micro_batches: Annotated[
        int, typer.Option(min=1, metavar="N", help="Micro-batches of a step.")
    ] = 1,
    schedule: Annotated[
        str,
        typer.Option(help="Order along pp: gpipe, 1f1b, zero_bubble, zero_bubble_2p."),
    ] = "1f1b",
    hardware: Hardware = "h100",
    out: Annotated[
        Path | None, typer.Option(help="Directory for programs, contract and certificate.")
    ] = None,
    full_depth: FullDepth = False,
) -> "Outcome":
    """Prove a model's whole training step.

    Micro-batches, gradient reduction, clipping and AdamW. `--batch` is the extent of one
    micro-batch over all ranks.

    \b
    Examples:
      shardproof step examples/nanogpt.py:GPT --mesh dp=2,tp=2 --micro-batches 4
      shardproof step hf:LlamaForCausalLM --config examples/llama-small.json --mesh pp=2,tp=2
      shardproof step hf:LlamaForCausalLM --config examples/llama3-70b.json --gpus 512
    """
    from shardproof.agent.cli.options import Wanted, mesh_for, read_fixed

    given = mesh_for(mesh, gpus)
    asked = model.warmed(full_depth)
    from shardproof.agent.training import choosing, stepping
    from shardproof.synthesis import hardware as clusters

    if mesh is None and gpus is not None:
        wanted = Wanted(gpus, hardware, global_batch, model.seq, None, memory, read_fixed(fix))
        job = replace(choosing.stepped(run, asked, wanted), out=out)
    else:
        job = stepping.Job(asked, given, clusters.load(hardware), micro_batches, out, schedule)
    return stepping.prove(run, job)


@command(app, limited=True)
def capture(
    run: "Run",
    model: Model,
    full_depth: FullDepth = False,
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Leave the backward pass out.")
    ] = False,
) -> "Outcome":
    """Print the one-device program of a model.

    Forward and backward, every op with its source line.

    \b
    Examples:
      shardproof capture examples/nanogpt.py:GPT
      shardproof capture hf:LlamaForCausalLM --config num_hidden_layers=2 --batch 2 --seq 16
    """
    request = model.warmed(full_depth, gradients=not forward_only)
    from shardproof.agent.pipeline import pipeline

    return pipeline.show_program(run, request)


@command(app, limited=True)
def translate(
    run: "Run",
    model: Model,
    reply: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="A reply written beforehand: the program, or JSON of the form. Repeatable; "
            "without one the model is asked.",
        ),
    ] = [],
    out: Annotated[Path | None, typer.Option(help="Write the accepted program.")] = None,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print the request and send nothing.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Translate the whole file, even if one module suffices.")
    ] = False,
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="Model to ask; auto: the one that the environment names.",
        ),
    ] = "auto",
    answer_cache: AnswerCache = True,
) -> "Outcome":
    """Write a model that capture refuses in the text form.

    A language model writes it, or you. It must agree with the code on samples before any proof
    uses it.

    \b
    Examples:
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --show-prompt
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --reply reply.txt
    """
    request = model.warmed()
    from shardproof.agent.translation import command

    asked = command.Asked(request, tuple(reply), out, show_prompt, whole, llm)
    return command.translate(run, asked)
