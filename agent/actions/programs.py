"""Actions that begin with code or programs: what they take."""

from pathlib import Path
from typing import Annotated

from shardproof.agent.actions.action import Action, Argument, Option
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
    relations: Annotated[bool, Option("Print the relation of every value.")] = False
    cache: Cache = True
    recapture: Annotated[
        bool, Option("Read the patched source again and prove what it computes.")
    ] = False
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
    depth: Annotated[int, Option("How many ops back.", min=0)] = 3


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
    sequential: Annotated[Path | None, Option("One-device program, if not program.json there.")] = (
        None
    )
    distributed: Annotated[
        Path | None, Option("Program of the ranks, if not distributed.json there.")
    ] = None
    contract: Annotated[Path | None, Option("The contract, if not contract.json there.")] = None
    rules_trusted: Annotated[bool, Option("Do not ask Z3 about the steps.")] = False
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
    against: Annotated[
        str,
        Option(
            "model.py:Name, the one-device model; same@1, TARGET on one rank; hf:Class is its own.",
            "MODEL",
        ),
    ] = ""
    tp_plan: Annotated[
        str,
        Option(
            "Of hf:Class: the plan it is published with, or rules that override it.", "auto|FILE"
        ),
    ] = ""
    layout: Annotated[
        Words,
        Option(
            "How a parameter is laid out: fc.weight=S(0)@tp. By default from its shape.",
            "NAME=PLACEMENT|FILE",
        ),
    ] = ()
    input_layout: Annotated[
        Words, Option("Of an input; by default replicated.", "NAME=PLACEMENT|FILE")
    ] = ()
    output_layout: Annotated[
        Words, Option("Of an output; by default from its shape.", "NAME=PLACEMENT|FILE")
    ] = ()
    param: Annotated[
        Words,
        Option(
            "A parameter that the model calls differently: fc1.*=mlp.up.*, and where a rank "
            "numbers its own experts.#.*=experts.{2*ep+#}.*. Repeatable.",
            "NAME=NAME",
        ),
    ] = ()
    config: Config = ()
    inputs: Inputs = ()
    batch: Batch = None
    seq: Seq = None
    gradients: Annotated[bool, Option("Also check the backward.")] = True
    no_grad: Annotated[Words, Option("An input without a gradient: a mask, say.", "NAME")] = ()
    grad_of_input: Annotated[
        Words,
        Option("An input whose gradient is compared although the model returns its loss.", "NAME"),
    ] = ()
    skip_output: Annotated[
        Words, Option("An output that is not compared; gradients still are.", "NAME")
    ] = ()
    after_backward: Annotated[
        str,
        Option(
            "Of TARGET's file, called with the module after the backward: reduces gradients.",
            "FUNCTION",
        ),
    ] = ""
    op: Annotated[
        Words,
        Option(
            "A custom op that is to be taken for a collective: vllm.all_reduce=all_reduce@tp.",
            "OP=COLLECTIVE@MESH_DIM",
        ),
    ] = ()
    device_free: Annotated[bool, Option("Let the CPU answer calls for a CUDA device.")] = False
    load: Annotated[
        str,
        Option(
            "Load each rank too, elements numbered, and look at the piece that it then holds.",
            "made-up|CHECKPOINT",
        ),
    ] = ""
    load_with: Annotated[
        str,
        Option(
            "Of TARGET's file, called with the module and the model's state dict to load it; "
            "by default load_state_dict.",
            "FUNCTION",
        ),
    ] = ""
    mode: Annotated[
        str, Option("Check one mode of the modules; by default both.", "train|eval")
    ] = ""
    run: Annotated[
        bool | None,
        Option("Run both modules on local processes, train and eval mode; by default small ones."),
    ] = None
    repair: Annotated[
        bool, Option("Look for a change of the source that is proved; show its diff.")
    ] = False
    write: Annotated[bool, Option("Write that change; shardproof undo takes it back.")] = False
    repair_seconds: Annotated[
        float | None, Option("Seconds to look for a repair: 10; with --repair 60.", min=0)
    ] = None
    keep: Annotated[Path | None, Option("Write both programs and the contract.", "DIRECTORY")] = (
        None
    )


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

    max_edits: Annotated[
        int, Option("Edits of one search at most.", min=1, flags=("--max-edits", "--edits"))
    ] = 3
    seconds: Annotated[float, Option("Seconds of the whole loop.", min=0)] = 30.0
    rounds: Annotated[int, Option("Searches and questions to the model at most.", min=1)] = 6
    llm: Annotated[
        str,
        Option(
            "A model to ask where the search finds nothing, or several equal repairs: auto is the "
            "one that the environment names.",
            "none|auto|MODEL",
        ),
    ] = "none"
    feedback: Annotated[
        str,
        Option("What a model is shown: none, message, relation, witness or fixes.", "LEVEL"),
    ] = "fixes"


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
