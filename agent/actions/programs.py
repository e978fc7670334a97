"""Actions that begin with code or programs: what they take."""

from pathlib import Path
from typing import Annotated

from shardproof.agent.actions.action import Action, Argument, Option, option
from shardproof.agent.actions.models import (
    Asking,
    Batch,
    Config,
    Env,
    Inputs,
    Mesh,
    Root,
    Seq,
    Words,
)

ALONE = "same@1"
"""In place of a model: the target itself, on one rank."""

Cache = Annotated[bool, Option("Use earlier answers of Z3.")]
Sequential = Option("One-device program, IR file.")
Distributed = Option("Program of the ranks, IR file.")
Contract = Option("Layouts of inputs and outputs.")


class Verify(Action, work="verdict.reverify:dispatch", limited=True, formats=True):
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

    path: Annotated[Path | None, Argument("A directory that parallelize wrote.", "[DIRECTORY]")] = (
        None
    )
    sequential: Annotated[Path | None, Sequential] = None
    distributed: Annotated[Path | None, Distributed] = None
    contract: Annotated[Path | None, Contract] = None
    relations: bool = option(False, "Print the layout found for every value.")
    cache: Cache = True
    recapture: bool = option(False, "Read the patched source again and prove it.")
    root: Root = Path()


class Explain(Action, work="verdict.derivation:explain"):
    """Say what a value of the ranks is, by a proof.

    And from which values that follows, a few ops back.

    The certificate is checked first. A value inside a repeated block is named as it is there.

    \b
    Example:
      shardproof explain out/ %57 --depth 5
    """

    directory: Annotated[Path, Argument("A directory with a proof.")]
    value: Annotated[str, Argument("A value of distributed.json: %57.")]
    depth: int = option(3, "Number of ops to go back.", min=0)


class CheckCertificate(Action, work="verdict.certificates:check_alone", limited=True):
    """Run the checker alone on a certificate.

    Searches nothing and reads nothing else of a directory. Asks Z3 about each step of the
    certificate; --rules-trusted needs numpy alone; --smtlib writes what Z3 is asked. Exit codes:
    accepted (0), rejected (1), unreadable file (2).

    \b
    Examples:
      shardproof check-certificate out/
      shardproof check-certificate out/ --rules-trusted --json
      shardproof check-certificate out/ --smtlib obligations/
      shardproof check-certificate c.json --sequential s.txt --distributed d.txt --contract c.txt
    """

    path: Annotated[
        Path, Argument("An out-directory, or a certificate and files beside it.", "DIRECTORY|FILE")
    ]
    sequential: Path | None = option(None, "One-device program, if not program.json there.")
    distributed: Path | None = option(None, "Program of the ranks, if not distributed.json there.")
    contract: Path | None = option(None, "The contract, if not contract.json there.")
    rules_trusted: bool = option(False, "Do not ask Z3 about the steps.")
    smtlib: Path | None = option(
        None, "Ask Z3 about all steps anew, and write each obligation there as SMT-LIB.", "DIR"
    )
    cache: Cache = True


class Check(Action, work="check.starting:check", limited=True, formats=True):
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

    target: Annotated[
        str,
        Argument(
            "parallel.py:Name, a class or a function that builds a module; hf:Class; or "
            "torchtitan:MODEL, a training step.",
            "TARGET",
        ),
    ]
    mesh: Mesh
    job_config: Path | None = option(None, "Of torchtitan:MODEL: the job config, TOML.", "FILE")
    against: str = option(
        "",
        "model.py:Name, the one-device model; same@1, TARGET on one rank; hf:Class is its own.",
        "MODEL",
    )
    tp_plan: str = option(
        "", "Of hf:Class: the plan it is published with, or rules that override it.", "auto|FILE"
    )
    layout: Words = option(
        (),
        "Layout of a parameter: fc.weight=S(0)@tp. Default: from its shape.",
        "NAME=PLACEMENT|FILE",
    )
    input_layout: Words = option(
        (),
        "Layout of an input. Also zigzag(1)@cp, striped(1)@cp. Default: replicated.",
        "NAME=PLACEMENT|FILE",
    )
    output_layout: Words = option(
        (), "Layout of an output. Default: from its shape.", "NAME=PLACEMENT|FILE"
    )
    param: Words = option(
        (),
        "A parameter that the model calls differently: fc1.*=mlp.up.*, and where a rank "
        "numbers its own experts.#.*=experts.{2*ep+#}.*. Repeatable.",
        "NAME=NAME",
    )
    config: Config = ()
    inputs: Inputs = ()
    batch: Batch = None
    seq: Seq = None
    env: Env = ()
    gradients: bool = option(True, "Also check the backward.")
    full_depth: bool = option(True, "Trace every layer, not only three of a kind.")
    no_grad: Words = option((), "An input without a gradient, such as a mask.", "NAME")
    grad_of_input: Words = option(
        (), "Compare this input's gradient even if the model returns its loss.", "NAME"
    )
    skip_output: Words = option((), "Do not compare this output; still compare gradients.", "NAME")
    loss: str = option(
        "",
        "Of a loss computed from the outputs: the mean or the sum of those of the ranks. Default: "
        "mean over mesh dims of DistributedDataParallel and fully_shard, else sum.",
        "mean|sum",
    )
    after_backward: str = option(
        "",
        "Of TARGET's file, called with the module after the backward: reduces gradients.",
        "FUNCTION",
    )
    step: str = option(
        "",
        "Of both files, a training step: called with what TARGET returns and the inputs, as "
        "train_step(model, optimizer, x). Compares what it leaves in parameters and optimizers. "
        "Where MODEL's file calls it differently: train_step=one_step.",
        "FUNCTION[=FUNCTION]",
    )
    op: Words = option(
        (),
        "Treat a custom op as a collective: vllm.all_reduce=all_reduce@tp.",
        "OP=COLLECTIVE@MESH_DIM",
    )
    device_free: bool = option(False, "Let the CPU answer calls for a CUDA device.")
    load: str = option(
        "",
        "Also load numbered elements on each rank and check the shard it holds.",
        "made-up|CHECKPOINT",
    )
    load_with: str = option(
        "",
        "Of TARGET's file, called with the module and the model's state dict to load it; "
        "by default load_state_dict.",
        "FUNCTION",
    )
    mode: str = option("", "Check one mode. Default: both.", "train|eval")
    run: bool | None = option(
        None, "Run both modules on local processes, train and eval mode; by default small ones."
    )
    repair: bool = option(False, "Search for a proved change of the source and show its diff.")
    write: bool = option(False, "Write that change; shardproof undo reverts it.")
    repair_seconds: float | None = option(
        None, "Seconds to look for a repair: 10; with --repair 60.", min=0
    )
    keep: Path | None = option(None, "Write both programs and the contract.", "DIRECTORY")


class VerifyRanks(Action, work="verdict.ranks:verify", limited=True):
    """Prove programs given as one text per rank.

    Thousands of ranks are read as one program. A rank that deviates from those around it is named
    with its file and line.

    \b
    Examples:
      shardproof verify-ranks ranks/ --sequential one.txt --contract contract.json
      shardproof verify-ranks plan.spz --sequential one.txt --contract contract.json --json
    """

    path: Annotated[
        Path, Argument("The programs: a folder, a zip, a tar, or one file (.sp, .spz).", "RANKS")
    ]
    sequential: Annotated[Path, Option("One-device program, IR file.", "FILE")]
    contract: Annotated[Path, Option("Layouts of inputs and outputs.", "FILE")]


class Repairing(Asking):
    """How a repair is looked for, and what is asked where the search finds none."""

    max_edits: int = option(
        3, "Maximum of edits in one search.", min=1, flags=("--max-edits", "--edits")
    )
    seconds: float = option(30.0, "Seconds of the whole loop.", min=0)
    rounds: int = option(6, "Maximum of searches and questions to the model.", min=1)
    llm: str = option(
        "none",
        "A model to ask where the search finds nothing, or several equal repairs: auto is the "
        "one that the environment names.",
        "none|auto|MODEL",
    )
    feedback: str = option(
        "fixes", "Feedback for a model: none, message, relation, witness or fixes.", "LEVEL"
    )


class Repair(Repairing, work="repair.repairing:command", formats=True):
    """Repair a wrong program by the fewest edits, proved.

    Prints a diff that keeps comments and spacing. Writes nothing.

    \b
    Examples:
      shardproof repair --sequential examples/repair/one.txt \\
        --distributed examples/repair/many.txt \\
        --contract examples/repair/contract.txt
      shardproof repair --sequential s.txt --distributed d.txt --contract c.txt --llm auto
    """

    sequential: Annotated[Path, Sequential]
    distributed: Annotated[Path, Distributed]
    contract: Annotated[Path, Contract]
