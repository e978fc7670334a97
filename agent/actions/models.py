"""Actions that begin with a model: what they take, and what the words of it ask for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BeforeValidator

from shardproof.agent.actions.action import Action, Argument, Option, option
from shardproof.synthesis.planner.dialects import DIALECTS

if TYPE_CHECKING:
    from shardproof.agent.chat.models import Asker
    from shardproof.agent.pipeline.considering import Question
    from shardproof.agent.run.run import Run
    from shardproof.synthesis.frontends.torch.request import CaptureRequest
    from shardproof.synthesis.planner.constraints import Constraints

STYLES = "replicate, column, row, fused_column, vocab or experts"


def _mesh(given: Any) -> Any:
    """A mesh in words, of `{"dp": 2, "tp": 2}`, a `DeviceMesh` with names, or our own."""
    if given is None or isinstance(given, str):
        return given
    from shardproof.agent.actions.words import mesh_words

    return mesh_words(given)


def _config(given: Any) -> Any:
    """Entries of a config in words."""
    if not isinstance(given, Mapping):
        return given or ()
    entries = cast("Mapping[str, Any]", given)
    return tuple(f"{key}={json.dumps(value, default=str)}" for key, value in entries.items())


Words = tuple[str, ...]
Mesh = Annotated[str, BeforeValidator(_mesh), Option("Mesh dims, outermost first: dp=2,tp=2.")]
Gpus = Annotated[
    int | None, Option("Number of devices; chooses the mesh and the rest for them.", "N", min=1)
]
Config = Annotated[
    Words,
    BeforeValidator(_config),
    Option("key=value, or one .json or .toml file; repeatable, key=value wins.", "ITEM"),
]
Inputs = Annotated[
    Words,
    Option(
        "name=dtype[sizes], e.g. idx=i64[4,32] or idx=i64[4,32]<65 (values below 65). "
        "An entry of a dict: batch.ids=i64[4,32]. "
        "Labels may also be -100: labels=i64[4,32]<65|-100.",
        "ITEM",
        flags=("--input",),
    ),
]
Batch = Annotated[int | None, Option("Batch size of generated inputs.", "N", min=1)]
Seq = Annotated[int | None, Option("Sequence length of generated inputs.", "N", min=1)]
Env = Annotated[
    Words,
    Option(
        "Give your code this variable. Repeatable. It sees PYTHONPATH, but few others.",
        "NAME[=VALUE]",
    ),
]
Hardware = Annotated[str, Option("Cluster for the cost model: a shipped name or a TOML file.")]
Root = Annotated[Path, Option("Folder that the patch's paths are relative to.", "DIR")]
Memory = Annotated[str | None, Option("Memory per rank at most: 80GB, 512MiB.", "SIZE")]


class Captured(Action):
    """A model, and with what it is built and called."""

    target: Annotated[
        str,
        Argument(
            "path/model.py:Class or package.module:Class; a function that builds the model too. "
            "By name: hf:Class, timm:NAME, torchvision:NAME, diffusers:Class.",
            "TARGET",
        ),
    ]
    config: Config = ()
    inputs: Inputs = ()
    batch: Batch = None
    seq: Seq = None
    env: Env = ()
    full_depth: bool = option(False, "Capture every layer, not only distinct ones.")

    def request(self, gradients: bool = True) -> "CaptureRequest":
        """What to capture.

        Raises:
            CaptureError, InputError: a word that cannot be read.
        """
        from shardproof.agent.actions import words

        return words.request(self, gradients)

    def warmed(self, gradients: bool = True) -> "CaptureRequest":
        """The same for an action that is sure to capture: what does it starts before the rest."""
        from shardproof.synthesis.frontends.torch.process import warm_up
        from shardproof.synthesis.frontends.torch.request import ask_for_inputs

        asked = self.request(gradients)
        ask_for_inputs(asked)  # a wrong word is answered before anything slow is begun
        warm_up(self.target)
        return asked


class Constrained(Action):
    """What a plan must keep."""

    pin: Words = option((), f"Give a module this style: {STYLES}. Repeatable.", "PATH=STYLE")
    ban: Words = option((), "Never this style, or this tactic. Repeatable.", "PATH=STYLE|TACTIC")
    memory: Memory = None
    constrain: Words = option(
        (), "sequence_parallel, no_sequence_parallel or no_loss_parallel. Repeatable.", "WORD"
    )

    def constraints(self) -> "Constraints":
        """Raises ConstraintError: one that cannot be read."""
        from shardproof.synthesis.planner.constraints import NO_CONSTRAINTS

        limit = [] if self.memory is None else [f"memory={self.memory}"]
        kinds: tuple[tuple[Literal["pin", "ban", "constrain"], Words], ...]
        kinds = ("pin", self.pin), ("ban", self.ban), ("constrain", (*limit, *self.constrain))
        out = NO_CONSTRAINTS
        for kind, given in kinds:
            for words in given:
                out = out.with_constraint(kind, words)
        return out


class Asking(Action):
    """Which language model is asked."""

    llm: str = option(
        "none", "Let a language model propose starting points of the search.", "none|auto|MODEL"
    )
    answer_cache: bool = option(True, "Reuse the model's earlier answer to an equal question.")

    def asker(self, run: "Run") -> "Asker | None":
        """The model of the user's environment, if one is wanted and there.

        Raises:
            InputError: a config file or an address that cannot be used.
        """
        if self.llm == "none":
            return None
        from shardproof.agent.chat.models import Asker, Source
        from shardproof.agent.llm.answers import NoModel

        asker = Asker(Source.USER)
        asker.emit = run.emit
        asker.named = "" if self.llm == "auto" else self.llm
        asker.cached = self.answer_cache
        found = asker.model()
        if isinstance(found, NoModel):
            run.warn(str(found))
            return None
        return asker


class Priced(Captured):
    """For what a step is priced."""

    hardware: Hardware = "h100"
    global_batch: int | None = option(
        None, "Sequences of an optimizer step that is priced.", "N", min=1
    )
    dtype: str | None = option(
        None, "Dtype that prices products: bf16, fp8 or fp4. Default: the config's."
    )
    memory: Memory = None


class Chosen(Priced):
    """For what a training configuration is chosen."""

    fix: Words = option(
        (),
        "Fix parts of the configuration: tp=8,pp=4, zero=1, recompute=none; repeatable.",
        "KEY=VALUE",
    )

    @property
    def fixed(self) -> tuple[tuple[str, int | str], ...]:
        """What of the configuration is not to be chosen. Raises InputError."""
        from shardproof.agent.actions.words import read_fixed

        return read_fixed(self.fix)


class Parallelize(Asking, Constrained, Chosen, work="pipeline.starting:parallelize", limited=True):
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
      shardproof parallelize hf:Qwen3ForCausalLM --mesh tp=2 --dialect transformers --out out/
      shardproof parallelize llama.py:Llama --mesh dp=2,tp=2 --dialect torchtitan --out out/
    """

    mesh: Annotated[
        str | None,
        BeforeValidator(_mesh),
        Option("Mesh dims, outermost first: dp=2,tp=2. Or --gpus."),
    ] = None
    gpus: Gpus = None
    out: Path | None = option(
        None, "Directory to write, empty or absent; by default shardproof-out/CLASS."
    )
    run: bool | None = option(
        None,
        "Run the patched model on local processes and on one, and compare. Default: if small.",
    )
    launcher: bool = option(
        False,
        "Also write train_parallel.py: optimizer, clipping, micro-batches, checkpoints. Proves its "
        "training step, and where the patch is run runs it too.",
    )
    micro_batches: int = option(1, "Micro-batches of the launcher's step.", "N", min=1)
    optimizer: str = option("adamw", "Of the launcher.", "adamw|adam|sgd")
    run_steps: int | None = option(
        None, "Steps of the launcher that are run before its checkpoint: 3.", "N", min=1
    )
    require_useful: bool = option(
        False, "End with exit code 5 where the plan shards less than half of what it could."
    )
    dialect: str = option(
        "pytorch",
        " ".join(f"{d.name}: {d.writes}" for d in DIALECTS.values()),
        "|".join(DIALECTS),
    )
    guard: bool = option(False, "Make the patch watch what ranks exchange.")
    inline: bool = option(False, "Paste what the patch needs instead of importing shardproof.")
    force: bool = option(False, "Replace what an earlier run wrote to --out.")
    translation: Path | None = option(
        None, "A program for code that capture refuses; must agree with the code."
    )


class Step(Chosen, work="pipeline.starting:step", limited=True):
    """Prove a model's whole training step.

    Micro-batches, gradient reduction, clipping and AdamW. `--batch` is the extent of one
    micro-batch over all ranks.

    \b
    Examples:
      shardproof step examples/nanogpt.py:GPT --mesh dp=2,tp=2 --micro-batches 4
      shardproof step hf:LlamaForCausalLM --config examples/llama-small.json --mesh pp=2,tp=2
      shardproof step hf:LlamaForCausalLM --config examples/llama3-70b.json --gpus 512
    """

    mesh: Annotated[
        str | None, BeforeValidator(_mesh), Option("Mesh dims, outermost first: pp=2,dp=2,tp=2.")
    ] = None
    gpus: int | None = option(None, "Choose mesh, batches and schedule.", "N", min=1)
    micro_batches: int = option(1, "Micro-batches of a step.", "N", min=1)
    schedule: str = option("1f1b", "Order along pp: gpipe, 1f1b, zero_bubble, zero_bubble_2p.")
    out: Path | None = option(None, "Directory for programs, contract and certificate.")


class Capture(Captured, work="pipeline.starting:capture", limited=True):
    """Print the one-device program of a model.

    Forward and backward, every op with its source line.

    \b
    Examples:
      shardproof capture examples/nanogpt.py:GPT
      shardproof capture hf:LlamaForCausalLM --config num_hidden_layers=2 --batch 2 --seq 16
    """

    forward_only: bool = option(False, "Leave the backward pass out.")


class Translate(Asking, Captured, work="pipeline.starting:translate", limited=True):
    """Write a model that capture refuses in the text form.

    A language model writes it, or you. It must agree with the code on samples before any proof
    uses it.

    \b
    Examples:
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --show-prompt
      shardproof translate examples/untraceable/squared_relu.py:FeedForward --reply reply.txt
    """

    reply: tuple[Path, ...] = option(
        (),
        "A reply written beforehand: the program, or JSON of the form. Repeatable; without one "
        "the model is asked.",
        "FILE",
    )
    out: Path | None = option(None, "Write the accepted program.")
    show_prompt: bool = option(False, "Print the request and send nothing.")
    whole: bool = option(False, "Translate the whole file, even if one module suffices.")
    llm: str = option(
        "auto",
        "Model to ask; auto: the one that the environment names.",
        "none|auto|MODEL",
    )


class Planned(Constrained, Priced):
    """A question about plans for a mesh."""

    mesh: Mesh

    def question(self) -> "Question":
        """Raises CaptureError, InputError, ConstraintError: an option that cannot be read."""
        from shardproof.agent.actions.words import read_mesh

        mesh = read_mesh(self.mesh)
        asked = self.warmed()
        from shardproof.agent.pipeline.considering import Question
        from shardproof.synthesis import hardware

        return Question(self, asked, mesh, hardware.load(self.hardware), self.constraints())


class Candidates(Planned, work="pipeline.starting:candidates", limited=True):
    """List the best plans, with cost and verdict.

    Includes refused plans with the reason.

    \b
    Examples:
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2
      shardproof candidates examples/nanogpt.py:GPT --mesh tp=2 --ban "h.*.mlp.c_fc=column"
    """

    count: int = option(5, "Number of plans at most.", "N", min=1)


class WhyNot(Planned, work="pipeline.starting:why_not", limited=True):
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

    path: Annotated[str, Argument("A module: h.*.mlp.c_fc", "PATH")]
    style: Annotated[str, Argument(f"{STYLES}.", "STYLE")]
    bare: bool = option(False, "Also judge the style alone, without the collectives around it.")


class Plan(Chosen, work="pipeline.starting:plan", limited=True):
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

    gpus: Annotated[int, Option("Devices of the cluster.", "N", min=1)]
    out: Path | None = option(None, "Write choice and certificate as JSON.", "FILE")
    timeline: Path | None = option(None, "Write a step in time, for Perfetto.", "FILE")


class Price(Action, work="cli.pricing:show", json=False):
    """Price training configurations: time and memory.

    A row has id, model, hardware and plan. Prints one JSON line for each: id, step_s,
    memory_bytes, mfu, bubble and exposed_comm_s, or id and error. Captures and runs nothing.

    \b
    Examples:
      shardproof price examples/price.jsonl
      shardproof price rows.jsonl --groups groups.json
    """

    rows: Annotated[Path, Argument("One configuration a line, JSON.", "ROWS")]
    groups: Path | None = option(None, "JSON file with models and hardware by name.")
