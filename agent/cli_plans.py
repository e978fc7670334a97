"""plan, candidates, why-not and price on the command line."""

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
    GlobalBatch,
    Hardware,
    Inputs,
    Json,
    Memory,
    MeshDims,
    Pin,
    Seq,
    Target,
    Timeout,
)


def candidates(
    target: Target,
    mesh: MeshDims,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many at most.")] = 5,
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    hardware: Hardware = "h100",
    pin: Pin = [],
    ban: Ban = [],
    memory: Memory = None,
    constrain: Constrain = [],
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """List the best plans, with cost and verdict.

    Plans that were refused are listed with the reason.

    \b
    Examples:
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2 --ban "h.*.mlp.c_fc=column"
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import considering, pipeline
        from agent.options import read_mesh
        from synthesis import hardware as clusters

        asked = considering.Question(
            pipeline.request(target, config, inputs, batch, seq, full_depth=False),
            read_mesh(mesh),
            clusters.load(hardware),
            considering.wished(pin, ban, memory, constrain),
        )
        return considering.show_candidates(run, asked, count)

    return conduct("candidates", sys.argv[1:], work, json=json, timeout=timeout)


def why_not(
    target: Target,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A module: h.*.mlp.c_fc")],
    style: Annotated[
        str,
        typer.Argument(
            metavar="STYLE", help="replicate, column, row, fused_column, vocab or experts."
        ),
    ],
    mesh: MeshDims,
    bare: Annotated[
        bool,
        typer.Option(
            "--bare", help="Also judge the style alone, without the collectives around it."
        ),
    ] = False,
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    hardware: Hardware = "h100",
    pin: Pin = [],
    ban: Ban = [],
    memory: Memory = None,
    constrain: Constrain = [],
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Say why a module is not sharded in a given way.

    The style is tried, and the answer is a verdict.

    Planned with the style and proved, or refuted with a counterexample, or refused with the
    reason. Ends in 0 where a plan with the style holds.

    \b
    Examples:
      shardproof why-not examples/nanogpt.py:GPT "h.*.mlp.c_proj" column --mesh tp=2
      shardproof why-not examples/nanogpt.py:GPT "h.*.mlp.c_proj" row --mesh tp=2 --bare
      shardproof why-not examples/nanogpt.py:GPT ln_f column --mesh tp=2
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import considering, pipeline
        from agent.options import read_mesh
        from synthesis import hardware as clusters

        asked = considering.Question(
            pipeline.request(target, config, inputs, batch, seq, full_depth=False),
            read_mesh(mesh),
            clusters.load(hardware),
            considering.wished(pin, ban, memory, constrain),
        )
        return considering.show_why_not(run, asked, path, style, bare=bare)

    return conduct("why-not", sys.argv[1:], work, json=json, timeout=timeout)


def plan(
    target: Target,
    gpus: Annotated[int, typer.Option(min=1, metavar="N", help="Devices of the cluster.")],
    config: Config = [],
    inputs: Inputs = [],
    batch: Batch = None,
    seq: Seq = None,
    hardware: Hardware = "h100",
    global_batch: GlobalBatch = None,
    dtype: Dtype = None,
    memory: Memory = None,
    fix: Fix = [],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write choice and certificate as JSON.")
    ] = None,
    timeout: Timeout = None,
    json: Json = False,
) -> int:
    """Choose a training configuration for a cluster, by price alone.

    Degrees of tp, cp, ep, pp and dp, micro-batch, ZeRO stage, schedule and recomputation. A model
    of transformers is not captured where its config has its shape. Nothing is proved or patched.

    \b
    Examples:
      shardproof plan hf:LlamaForCausalLM --config llama3-405b.json --gpus 16384
      shardproof plan hf:LlamaForCausalLM --config llama3-8b.json --gpus 64 --out strategy.json
      shardproof plan hf:LlamaForCausalLM --config llama3-8b.json --gpus 64 --fix tp=8,zero=1
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import choosing, pipeline
        from agent.options import Wanted, read_fixed

        asked = pipeline.request(target, config, inputs, batch, seq, full_depth=False)
        wanted = Wanted(gpus, hardware, global_batch, seq, dtype, memory, read_fixed(fix))
        return choosing.plan(run, asked, wanted, out)

    return conduct("plan", sys.argv[1:], work, json=json, timeout=timeout)


def price(
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="One configuration a line, JSON.")],
    groups: Annotated[
        Path | None, typer.Option(help="JSON file with models and hardware by name.")
    ] = None,
) -> int:
    """Price training configurations: seconds of a step, bytes of the fullest rank.

    A row has id, model, hardware and plan. One JSON line is printed for each: id, step_s,
    memory_bytes, mfu, bubble and exposed_comm_s, or id and error. Nothing is captured or run.

    \b
    Examples:
      shardproof price examples/price.jsonl
      shardproof price rows.jsonl --groups groups.json
    """
    from agent.run import Outcome, Run, conduct

    def work(run: Run) -> Outcome:
        from agent import pricing

        return pricing.show(rows, groups)

    return conduct("price", sys.argv[1:], work, json=False)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog=EXITS)(plan)
    app.command(epilog=EXITS)(candidates)
    app.command("why-not", epilog=EXITS)(why_not)
    app.command(epilog=EXITS)(price)
