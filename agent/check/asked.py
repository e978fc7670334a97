"""What `check` is asked: its options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from shardproof.agent.cli.arguments import Batch, Config, Inputs, MeshDims, Seq

ALONE = "same@1"
"""In place of a model: the target itself, on one rank."""


@dataclass(frozen=True)
class Asked:
    """A parallel module, the model it is to compute, and how its tensors are laid out."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="parallel.py:Name, a class or a function that builds a module; or hf:Class.",
        ),
    ]
    mesh: MeshDims
    against: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="model.py:Name, the one-device model; same@1, TARGET on one rank; hf:Class is "
            "its own.",
        ),
    ] = ""
    tp_plan: Annotated[
        str,
        typer.Option(
            metavar="auto|FILE",
            help="Of hf:Class: the plan it is published with, or rules that override it.",
        ),
    ] = ""
    layout: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PLACEMENT|FILE",
            help="Layout of a parameter: fc.weight=S(0)@tp. Default: from its shape.",
        ),
    ] = field(default_factory=list[str])
    input_layout: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PLACEMENT|FILE", help="Layout of an input. Default: replicated."
        ),
    ] = field(default_factory=list[str])
    output_layout: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PLACEMENT|FILE", help="Layout of an output. Default: from its shape."
        ),
    ] = field(default_factory=list[str])
    param: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=NAME",
            help="A parameter that the model calls differently: fc1.*=mlp.up.*, and where a rank "
            "numbers its own experts.#.*=experts.{2*ep+#}.*. Repeatable.",
        ),
    ] = field(default_factory=list[str])
    config: Config = field(default_factory=list[str])
    inputs: Inputs = field(default_factory=list[str])
    batch: Batch = None
    seq: Seq = None
    gradients: Annotated[
        bool, typer.Option("--gradients/--no-gradients", help="Also check the backward.")
    ] = True
    no_grad: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="An input without a gradient, such as a mask."),
    ] = field(default_factory=list[str])
    grad_of_input: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Compare this input's gradient even if the model returns its loss.",
        ),
    ] = field(default_factory=list[str])
    skip_output: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Do not compare this output; still compare gradients."),
    ] = field(default_factory=list[str])
    after_backward: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="Of TARGET's file, called with the module after the backward: reduces gradients.",
        ),
    ] = ""
    op: Annotated[
        list[str],
        typer.Option(
            metavar="OP=COLLECTIVE@MESH_DIM",
            help="Treat a custom op as a collective: vllm.all_reduce=all_reduce@tp.",
        ),
    ] = field(default_factory=list[str])
    device_free: Annotated[
        bool, typer.Option("--device-free", help="Let the CPU answer calls for a CUDA device.")
    ] = False
    load: Annotated[
        str,
        typer.Option(
            metavar="made-up|CHECKPOINT",
            help="Also load numbered elements on each rank and check the shard it holds.",
        ),
    ] = ""
    load_with: Annotated[
        str,
        typer.Option(
            metavar="FUNCTION",
            help="Of TARGET's file, called with the module and the model's state dict to load it; "
            "by default load_state_dict.",
        ),
    ] = ""
    mode: Annotated[
        str,
        typer.Option(metavar="train|eval", help="Check one mode. Default: both."),
    ] = ""
    run: Annotated[
        bool | None,
        typer.Option(
            "--run/--no-run",
            help="Run both modules on local processes, train and eval mode; by default small ones.",
            show_default=False,
        ),
    ] = None
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Search for a proved change of the source and show its diff."
        ),
    ] = False
    write: Annotated[
        bool,
        typer.Option("--write", help="Write that change; shardproof undo reverts it."),
    ] = False
    repair_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds to look for a repair: 10; with --repair 60.", show_default=False
        ),
    ] = None
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write both programs and the contract."),
    ] = None
