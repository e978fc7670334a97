"""plan, candidates, why-not and price on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof.agent.cli.arguments import (
    Dtype,
    Fix,
    GlobalBatch,
    Hardware,
    Memory,
    Model,
    Planned,
    Wished,
)
from shardproof.agent.cli.command import command

if TYPE_CHECKING:
    from shardproof.agent.run.run import Outcome, Run

app = typer.Typer()


@command(app, limited=True)
def candidates(
    run: "Run",
    *,
    model: Model,
    planned: Planned,
    wished: Wished,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of plans at most.")] = 5,
) -> "Outcome":
    """List the best plans, with cost and verdict.

    Includes refused plans with the reason.

    \b
    Examples:
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2 --ban "h.*.mlp.c_fc=column"
    """
    asked = planned.question(model, wished)
    from shardproof.agent.pipeline import considering

    return considering.show_candidates(run, asked, count)


@command(app, "why-not", limited=True)
def why_not(
    run: "Run",
    model: Model,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A module: h.*.mlp.c_fc")],
    style: Annotated[
        str,
        typer.Argument(
            metavar="STYLE", help="replicate, column, row, fused_column, vocab or experts."
        ),
    ],
    planned: Planned,
    wished: Wished,
    bare: Annotated[
        bool,
        typer.Option(
            "--bare", help="Also judge the style alone, without the collectives around it."
        ),
    ] = False,
) -> "Outcome":
    """Say why a module is not sharded in a given way.

    Tries the style; the answer is a verdict.

    Planned with the style and proved, or refuted with a counterexample, or refused with the
    reason. Ends in 0 where a plan with the style holds.

    \b
    Examples:
      shardproof why-not examples/nanogpt.py:GPT "h.*.mlp.c_proj" column --mesh tp=2
      shardproof why-not examples/nanogpt.py:GPT "h.*.mlp.c_proj" row --mesh tp=2 --bare
      shardproof why-not examples/nanogpt.py:GPT ln_f column --mesh tp=2
    """
    asked = planned.question(model, wished)
    from shardproof.agent.pipeline import considering

    return considering.show_why_not(run, asked, path, style, bare=bare)


@command(app, limited=True)
def plan(
    run: "Run",
    model: Model,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="Devices of the cluster.")],
    hardware: Hardware = "h100",
    global_batch: GlobalBatch = None,
    dtype: Dtype = None,
    memory: Memory = None,
    fix: Fix = [],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write choice and certificate as JSON.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a step in time, for Perfetto.")
    ] = None,
) -> "Outcome":
    """Choose a training configuration for a cluster by price.

    Chooses the degrees of tp, cp, ep, pp and dp, micro-batch, ZeRO stage, schedule and
    recomputation. Does not capture a transformers model whose config gives its shape. Proves and
    patches nothing.

    \b
    Examples:
      shardproof plan hf:LlamaForCausalLM --config examples/llama3-405b.json \\
        --gpus 16384
      shardproof plan hf:LlamaForCausalLM --config examples/llama3-8b.json \\
        --gpus 64 --out strategy.json
      shardproof plan hf:LlamaForCausalLM --config examples/llama3-8b.json \\
        --gpus 64 --fix tp=8,zero=1
      shardproof plan hf:LlamaForCausalLM --config examples/llama3-70b.json \\
        --gpus 512 --timeline step.json
    """
    from shardproof.agent.cli.options import Wanted, read_fixed
    from shardproof.agent.training import choosing

    asked = model.request()
    wanted = Wanted(gpus, hardware, global_batch, model.seq, dtype, memory, read_fixed(fix))
    return choosing.plan(run, asked, wanted, out, timeline)


@command(app, json=False)
def price(
    run: "Run",
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="One configuration a line, JSON.")],
    groups: Annotated[
        Path | None, typer.Option(help="JSON file with models and hardware by name.")
    ] = None,
) -> "Outcome":
    """Price training configurations: time and memory.

    A row has id, model, hardware and plan. Prints one JSON line for each: id, step_s,
    memory_bytes, mfu, bubble and exposed_comm_s, or id and error. Captures and runs nothing.

    \b
    Examples:
      shardproof price examples/price.jsonl
      shardproof price rows.jsonl --groups groups.json
    """
    from shardproof.agent.cli import pricing

    return pricing.show(rows, groups)
