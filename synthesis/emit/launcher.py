"""Writes the script that trains a patched model, on its mesh or on one device."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.parallelize import batch_mesh, definitions
from shardproof.synthesis.emit.patch import COMMENT, EmitError, Patch
from shardproof.synthesis.emit.snippets import SNIPPETS
from shardproof.synthesis.emit.stages import PP, Cut
from shardproof.synthesis.frontends.torch.homes import home_of
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.planner.plan import Plan
from shardproof.verifier.kernel.program.types import Mesh

FILE = "train_parallel.py"
TEMPLATE = Path(__file__).with_name(f"{FILE}.j2")
OPTIMIZERS = {
    "adamw": "AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)",
    "adam": "Adam(model.parameters(), lr=3e-4)",
    "sgd": "SGD(model.parameters(), lr=0.1, momentum=0.9)",
}
"""By the word of `--optimizer`, what `torch.optim` makes."""
TAKEN = frozenset(
    [
        "cp",
        "dp",
        "loss",
        "mesh",
        "micro_batch",
        "model",
        "norm",
        "number",
        "optimizer",
        "total",
        "whole",
    ]
)
"""Names of the script that no input may have."""
STAGED = frozenset(["counted", "given", "held", "last", "losses", "pp", "schedule", "square"])
"""Likewise, of one with a pipeline."""
KEYWORDS = ("loss_kwargs", "losses", "return_outputs", "target")
"""Of a schedule's step: an input has another there."""
DTYPES = {"i64": "int64", "i32": "int32", "u8": "uint8", "bool": "bool"}
A_NODE = 8
"""Processes that a line of torchrun starts on one node at most."""


@dataclass(frozen=True, slots=True)
class Training:
    """What a step is to be."""

    micro_batches: int = 1
    optimizer: str = "adamw"
    """A word of `OPTIMIZERS`."""
    mesh: Mesh | None = None
    """That of the launcher, where its pipeline adds a dim to that of the patch."""
    cut: Cut = field(default_factory=Cut)


@dataclass(frozen=True, slots=True)
class Launcher:
    """The script, and how it is called."""

    text: str
    folder: str
    """What its imports are looked up in, relative to where the patch applies."""
    torchrun: str
    """Options of torchrun, in words."""


def obstacle(
    facts: ModelFacts, inputs: Sequence[InputSpec], dp: int, training: Training
) -> str | None:
    """Why no launcher can be written over `dp` ranks of data parallelism; None where one can."""
    if not facts.loss_of_call:
        return f"{facts.class_name} returns no loss to train with"
    if not facts.build:
        return f"how {facts.class_name} is built cannot be written as an expression"
    taken = TAKEN | STAGED if training.cut.stages else TAKEN
    clash = sorted(taken & {i.name for i in inputs})
    if not all(i.name.isidentifier() for i in inputs):
        return "an argument of forward holds several tensors"
    if clash:
        return f"an input is called {clash[0]}, as something of the launcher is"
    rows, parts = inputs[0].shape[0] if inputs[0].shape else 1, dp * training.micro_batches
    if rows % parts:
        return (
            f"a batch of {rows} is not divisible into {training.micro_batches} micro-batches "
            f"of {dp} ranks: give --batch {-(-rows // parts) * parts}"
        )
    if training.mesh is None:
        return None
    if training.micro_batches < training.mesh[PP]:
        return f"{training.mesh[PP]} stages need as many micro-batches: give --micro-batches"
    whole = next((i.name for i in inputs if i.shape[:1] != inputs[0].shape[:1]), None)
    return f"each stage is given rows of the batch, and {whole} has none" if whole else None


def launcher(
    facts: ModelFacts,
    plan: Plan,
    patch: Patch,
    inputs: Sequence[InputSpec],
    training: Training,
    inline: bool = False,
) -> Launcher:
    """The script that trains what `patch` makes of the model under `plan`.

    Args:
        inputs: what `forward` is given, each with the whole batch.
        inline: whether what it needs is pasted instead of imported.

    Raises:
        EmitError: what `obstacle` says.
    """
    problem = obstacle(facts, inputs, plan.batch_ranks, training)
    if problem is not None:
        raise EmitError(problem)
    if facts.file is None:
        home, names = Path(next(iter(patch.files))).stem, ("build_model", patch.function)
        folder = "."
    else:
        found = home_of(facts.file)
        home, names = found.name, (*facts.names, patch.function)
        here = Path.cwd().resolve()
        inside = found.base.is_relative_to(here)
        folder = (found.base.relative_to(here) if inside else found.base).as_posix()
    _, imports = import_lines([(home, name) for name in names])
    batch = [i.name for i in inputs]
    rows = [i.name for i in inputs if i.shape[:1] == inputs[0].shape[:1] and i.shape]
    dp = " x ".join(plan.batch_dims)
    data = {"dp": batch_mesh(plan)} if dp else {}
    data |= {"cp": f'mesh["{plan.cp}"]'} if plan.cp else {}
    averaged = [name for name in data if plan.loss != "sum" or name != "dp"]
    mesh, staged = training.mesh or plan.mesh, bool(training.cut.stages)
    uses = [SNIPPETS["Stage"]] * staged + [SNIPPETS["one_dim"]] * bool(plan.replicate)
    pasted, needed = definitions(uses, inline)
    _, more = import_lines(needed)
    cut = training.micro_batches > 1
    taken = {
        (True, True): f", and takes of each\n    micro-batch the rows of its coordinate along {dp}",
        (True, False): f", and takes\n    the rows of its coordinate along {dp}",
        (False, True): ", in micro-batches",
        (False, False): "",
    }[bool(dp), cut and not staged]
    template = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    ).from_string(TEMPLATE.read_text(encoding="utf-8"))
    size = mesh.size
    nodes = f"--nnodes {-(-size // A_NODE)} " if size > A_NODE else ""
    torchrun = f"{nodes}--nproc-per-node {min(size, A_NODE)}"
    text = template.render(
        name=facts.class_name,
        mesh=mesh,
        launch=f"torchrun {torchrun} {FILE}",
        comment=COMMENT,
        imports="\n".join((*imports, *more)),
        pasted=pasted,
        stages=[_strings(paths) for paths in training.cut.stages],
        tied=", ".join(f'"{name}"' for name in training.cut.tied),
        inner=", ".join(f'"{name}"' for name in plan.mesh.names),
        sharded=plan.mesh.size > 1,
        sizes="{" + ", ".join(f'"{n}": {k}' for n, k in mesh.dims) + "}",
        micro_batches=training.micro_batches,
        optimizer=OPTIMIZERS[training.optimizer],
        build=facts.build,
        parallelize=patch.function,
        batch=", ".join(batch),
        named=", ".join(f"{n}{'_' if n in KEYWORDS else ''}={n}" for n in batch),
        target=batch[0],
        loss=facts.loss_of_call,
        dp=dp,
        data=data,
        rows=", ".join(rows) if len(rows) > 1 else f"({rows[0]},)",
        all_rows=f"({', '.join(rows)})" if len(rows) > 1 else f"({rows[0]},)",
        taken=taken,
        mean=plan.loss != "sum",
        averaged="".join(f" / {name}.size()" for name in averaged),
        drawn=[_drawn(i) for i in inputs],
    )
    ast.parse(text)
    return Launcher(text, folder, torchrun)


def _strings(words: Sequence[str]) -> str:
    """A tuple of words as code."""
    written = ", ".join(f'"{word}"' for word in words)
    return f"({written}{',' * (len(words) == 1)})"


def _drawn(spec: InputSpec) -> str:
    """An expression that draws an input."""
    if spec.dtype not in DTYPES:
        return f"torch.randn({tuple(spec.shape)}, generator=random)"
    kind = "" if spec.dtype == "i64" else f", dtype=torch.{DTYPES[spec.dtype]}"
    return f"torch.randint({spec.below or 2}, {tuple(spec.shape)}, generator=random{kind})"


def stamped(text: str, comment: str) -> str:
    """A launcher with another comment in the place of `COMMENT`: the same code, on the same lines.

    Raises:
        EmitError: the comment is not one line, or `COMMENT` does not stand there once.
    """
    if text.count(COMMENT) != 1 or "\n" in comment or comment[:1] != "#":
        raise EmitError(f"{FILE}: {COMMENT!r} does not stand there once")
    return text.replace(COMMENT, comment)
