"""Actions that begin with code or programs: what they take."""

from pathlib import Path
from typing import Annotated

from shardproof.agent.actions.action import Action, Argument, Option, option
from shardproof.agent.actions.models import (
    Asking,
    Batch,
    Config,
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
Contract = Option("How inputs and outputs are laid out.")


class Verify(Action, work="verdict.reverify:dispatch", limited=True, formats=True):
    """Check an out-directory again, or prove two programs equal.

    A directory is checked without search, network or torch: the hashes of its files, its
    certificate step by step, the order in time, and that the plan is that of the programs. It ends
    accepted (0) or rejected (1): its patch is tied to all that by hashes alone. --recapture reads
    the patched source and proves that; then the word is proved.

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
    relations: bool = option(False, "Print the relation of every value.")
    cache: Cache = True
    recapture: bool = option(False, "Read the patched source again and prove what it computes.")
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
    depth: int = option(3, "How many ops back.", min=0)


class CheckCertificate(Action, work="verdict.certificates:check_alone", limited=True):
    """Run the checker alone on a certificate.

    Nothing is searched for and nothing else of a directory is read. Z3 is asked about the steps
    that the certificate rests on; with --rules-trusted numpy is all it takes. It ends accepted (0),
    rejected (1), or with a file that cannot be read (2).

    \b
    Examples:
      shardproof check-certificate out/
      shardproof check-certificate out/ --rules-trusted --json
      shardproof check-certificate c.json --sequential s.txt --distributed d.txt --contract c.txt
    """

    path: Annotated[
        Path, Argument("An out-directory, or a certificate and files beside it.", "DIRECTORY|FILE")
    ]
    sequential: Path | None = option(None, "One-device program, if not program.json there.")
    distributed: Path | None = option(None, "Program of the ranks, if not distributed.json there.")
    contract: Path | None = option(None, "The contract, if not contract.json there.")
    rules_trusted: bool = option(False, "Do not ask Z3 about the steps.")
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
            "parallel.py:Name, a class or a function that builds a module; or hf:Class.", "TARGET"
        ),
    ]
    mesh: Mesh
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
        "How a parameter is laid out: fc.weight=S(0)@tp. By default from its shape.",
        "NAME=PLACEMENT|FILE",
    )
    input_layout: Words = option((), "Of an input; by default replicated.", "NAME=PLACEMENT|FILE")
    output_layout: Words = option(
        (), "Of an output; by default from its shape.", "NAME=PLACEMENT|FILE"
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
    gradients: bool = option(True, "Also check the backward.")
    no_grad: Words = option((), "An input without a gradient: a mask, say.", "NAME")
    grad_of_input: Words = option(
        (), "An input whose gradient is compared although the model returns its loss.", "NAME"
    )
    skip_output: Words = option((), "An output that is not compared; gradients still are.", "NAME")
    after_backward: str = option(
        "",
        "Of TARGET's file, called with the module after the backward: reduces gradients.",
        "FUNCTION",
    )
    op: Words = option(
        (),
        "A custom op that is to be taken for a collective: vllm.all_reduce=all_reduce@tp.",
        "OP=COLLECTIVE@MESH_DIM",
    )
    device_free: bool = option(False, "Let the CPU answer calls for a CUDA device.")
    load: str = option(
        "",
        "Load each rank too, elements numbered, and look at the piece that it then holds.",
        "made-up|CHECKPOINT",
    )
    load_with: str = option(
        "",
        "Of TARGET's file, called with the module and the model's state dict to load it; "
        "by default load_state_dict.",
        "FUNCTION",
    )
    mode: str = option("", "Check one mode of the modules; by default both.", "train|eval")
    run: bool | None = option(
        None, "Run both modules on local processes, train and eval mode; by default small ones."
    )
    repair: bool = option(False, "Look for a change of the source that is proved; show its diff.")
    write: bool = option(False, "Write that change; shardproof undo takes it back.")
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
    contract: Annotated[Path, Option("How inputs and outputs are laid out.", "FILE")]


class Mending(Asking):
    """How a repair is looked for, and what is asked where the search finds none."""

    max_edits: int = option(
        3, "Edits of one search at most.", min=1, flags=("--max-edits", "--edits")
    )
    seconds: float = option(30.0, "Seconds of the whole loop.", min=0)
    rounds: int = option(6, "Searches and questions to the model at most.", min=1)
    llm: str = option(
        "none",
        "A model to ask where the search finds nothing, or several equal repairs: auto is the "
        "one that the environment names.",
        "none|auto|MODEL",
    )
    feedback: str = option(
        "fixes", "What a model is shown: none, message, relation, witness or fixes.", "LEVEL"
    )


class Repair(Mending, work="repair.repairing:command", formats=True):
    """Repair a wrong program by the fewest edits, proved.

    The diff is of the file as it is written, comments and all. Nothing is written.

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
