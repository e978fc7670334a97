"""Arguments and options that several commands take. Nothing heavier than typer is imported here."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shardproof.agent.pipeline.considering import Question, Wishes
    from shardproof.synthesis.frontends.torch.request import CaptureRequest

MeshDims = Annotated[str, typer.Option(help="Mesh dims, outermost first: dp=2,tp=2.")]
Gpus = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Number of devices; chooses the mesh and the rest for them."
    ),
]
GlobalBatch = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Sequences of an optimizer step that is priced."),
]
Fix = Annotated[
    list[str],
    typer.Option(
        metavar="KEY=VALUE",
        help="Fix parts of the configuration: tp=8,pp=4, zero=1, recompute=none; repeatable.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="Dtype that prices products: bf16, fp8 or fp4. Default: the config's."),
]
Hardware = Annotated[
    str, typer.Option(help="Cluster for the cost model: a shipped name or a TOML file.")
]
Config = Annotated[
    list[str],
    typer.Option(
        metavar="ITEM",
        help="key=value, or one .json or .toml file; repeatable, key=value wins.",
    ),
]
Inputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="ITEM",
        help="name=dtype[sizes], e.g. idx=i64[4,32] or idx=i64[4,32]<65 (values below 65).",
    ),
]
Batch = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Batch size of generated inputs.")
]
Seq = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Sequence length of generated inputs.")
]
FullDepth = Annotated[
    bool, typer.Option("--full-depth", help="Capture every layer, not only distinct ones.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="github|sarif|rdjsonl|junit",
        help="Write findings to stdout in a format that CI reads.",
    ),
]
Pin = Annotated[
    list[str],
    typer.Option(
        metavar="PATH=STYLE",
        help="Give a module this style: replicate, column, row, fused_column, vocab or experts. "
        "Repeatable.",
    ),
]
Ban = Annotated[
    list[str],
    typer.Option(metavar="PATH=STYLE|TACTIC", help="Never this style, or this tactic. Repeatable."),
]
Memory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory per rank at most: 80GB, 512MiB.")
]
Constrain = Annotated[
    list[str],
    typer.Option(
        metavar="WORD",
        help="sequence_parallel, no_sequence_parallel or no_loss_parallel. Repeatable.",
    ),
]
Timeout = Annotated[
    float | None, typer.Option(min=0.1, metavar="S", help="Time limit of the command, in seconds.")
]
Root = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder that the patch's paths are relative to.")
]
Recapture = Annotated[
    bool,
    typer.Option("--recapture", help="Read the patched source again and prove it."),
]


def _answers(kept: bool) -> bool:
    """Into the environment, where the endpoint is looked up."""
    if not kept:
        os.environ["SHARDPROOF_ANSWER_CACHE"] = "0"
    return kept


AnswerCache = Annotated[
    bool,
    typer.Option(
        "--answer-cache/--no-answer-cache",
        callback=_answers,
        help="Reuse the model's earlier answer to an equal question.",
    ),
]
Cache = Annotated[bool, typer.Option("--cache/--no-cache", help="Use earlier answers of Z3.")]

EXITS = (
    "Exit codes: 0 done and proved (a certificate: accepted), 1 refuted, unknown or rejected, "
    "2 usage, config or input, 3 model endpoint, 4 budget or time, 5 nothing selected, 6 alarm of "
    "the guard, 70 our own fault, 130 interrupted."
)


@dataclass(frozen=True)
class Model:
    """Options of commands that capture a model."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="path/model.py:Class, or hf:Class for a transformers model."
        ),
    ]
    config: Config = field(default_factory=list[str])
    inputs: Inputs = field(default_factory=list[str])
    batch: Batch = None
    seq: Seq = None

    def request(self, full_depth: bool = False, gradients: bool = True) -> "CaptureRequest":
        """What to capture.

        Raises:
            CaptureError, InputError: a word that cannot be read.
        """
        from shardproof.agent.cli import options

        words = (self.target, self.config, self.inputs, self.batch, self.seq)
        return options.request(*words, full_depth, gradients)

    def warmed(self, full_depth: bool = False, gradients: bool = True) -> "CaptureRequest":
        """The same for a command that is sure to capture: what does it starts before the rest."""
        from shardproof.synthesis.frontends.torch.process import warm_up
        from shardproof.synthesis.frontends.torch.request import split_target

        asked = self.request(full_depth, gradients)
        split_target(self.target)  # a wrong word is answered before anything slow is begun
        warm_up(self.target)
        return asked


@dataclass(frozen=True)
class Wished:
    """Options of commands that plan."""

    pin: Pin = field(default_factory=list[str])
    ban: Ban = field(default_factory=list[str])
    memory: Memory = None
    constrain: Constrain = field(default_factory=list[str])

    def read(self) -> "Wishes":
        """Raises WishError: one that cannot be read."""
        from shardproof.agent.pipeline import considering

        return considering.wished(self.pin, self.ban, self.memory, self.constrain)


@dataclass(frozen=True)
class Planned:
    """Options of commands that ask about plans for a mesh."""

    mesh: MeshDims
    hardware: Hardware = "h100"

    def question(self, model: Model, wished: Wished) -> "Question":
        """Raises CaptureError, InputError, WishError: an option that cannot be read."""
        from shardproof.agent.cli.options import read_mesh

        mesh = read_mesh(self.mesh)
        asked = model.warmed()
        from shardproof.agent.pipeline.considering import Question
        from shardproof.synthesis import hardware

        cluster = hardware.load(self.hardware)
        return Question(asked, mesh, cluster, wished.read())


@dataclass(frozen=True)
class Verify:
    """What `verify` is asked: a directory, or three files."""

    path: Annotated[
        Path | None,
        typer.Argument(metavar="[DIRECTORY]", help="A directory that parallelize wrote."),
    ] = None
    sequential: Annotated[Path | None, typer.Option(help="One-device program, IR file.")] = None
    distributed: Annotated[Path | None, typer.Option(help="Program of the ranks, IR file.")] = None
    contract: Annotated[Path | None, typer.Option(help="Layouts of inputs and outputs.")] = None
    relations: Annotated[
        bool, typer.Option("--relations", help="Print the layout found for every value.")
    ] = False
    cache: Cache = True
    recapture: Recapture = False
    root: Root = Path()


@dataclass(frozen=True)
class Repair:
    """What `repair` is asked: three files, and how a repair is looked for."""

    sequential: Annotated[Path, typer.Option(help="One-device program, IR file.")]
    distributed: Annotated[Path, typer.Option(help="Program of the ranks, IR file.")]
    contract: Annotated[Path, typer.Option(help="Layouts of inputs and outputs.")]
    max_edits: Annotated[int, typer.Option(min=1, help="Maximum of edits in one search.")] = 3
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of the whole loop.")] = 30.0
    rounds: Annotated[
        int, typer.Option(min=1, help="Maximum of searches and questions to the model.")
    ] = 6
    llm: Annotated[
        str,
        typer.Option(
            metavar="none|auto|MODEL",
            help="A model to ask where the search finds nothing, or several equal repairs: "
            "auto is the one that the environment names.",
        ),
    ] = "none"
    answer_cache: AnswerCache = True
    feedback: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Feedback for a model: none, message, relation, witness or fixes.",
        ),
    ] = "fixes"


@dataclass(frozen=True)
class Guarded:
    """What the guard is to do."""

    every: Annotated[int, typer.Option(min=1, help="Check one call in N.")] = 100
    cycle: Annotated[
        int,
        typer.Option(
            min=0,
            help="Check calls in one optimizer step of N, and more of them there; 1: all steps. "
            "By default a tenth of --every, 10 at most.",
        ),
    ] = 0
    level: Annotated[
        str, typer.Option(help="How sums are checked: R, or T3 to the bit at three times the cost.")
    ] = "R"
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Log alarms; do not end the run.")
    ] = False
    log: Annotated[Path | None, typer.Option(help="File of JSON lines to append to.")] = None
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that a rank waits for the others.")
    ] = 60.0
    json: Json = False
    """Stdout is ours then: what the script writes there goes to stderr."""
