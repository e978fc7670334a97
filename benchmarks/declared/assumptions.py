"""What verdicts may rest on: every sentence, declared once, with what it means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Assumption:
    """A sentence that a verdict prints, with holes, and what it means where it does not hold."""

    name: str
    text: str
    """The sentence; `{name}` stands for any words, or none."""
    meaning: str
    """What goes wrong where it does not hold, or how to see that it does."""

    def says(self, **holes: object) -> str:
        """The sentence with its holes filled."""
        return self.text.format(**holes)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"\{\w+\}", self.text)
        return re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)

    def covers(self, sentence: str) -> bool:
        return self.pattern.fullmatch(sentence) is not None


def said(sentence: str) -> Assumption | None:
    """The declaration that a sentence is an instance of."""
    return next((a for a in DECLARED if a.covers(sentence)), None)


def undeclared(sentences: Iterable[str]) -> list[str]:
    return [sentence for sentence in sentences if said(sentence) is None]


def table() -> str:
    """The declarations as a table in Markdown."""
    rows = [f"| `{a.text.replace('`', '')}` | {a.meaning} |" for a in DECLARED]
    return "\n".join(["| sentence | what it means |", "|---|---|", *rows]) + "\n"


def _declared(*rows: tuple[str, str, str]) -> tuple[Assumption, ...]:
    return tuple(Assumption(*row) for row in rows)


# ruff: noqa: E501
DECLARED = _declared(
    ("balanced", "{what} is the same on every rank along {mesh_dim}", "The mean of ranks is the mean of all; give each rank equally many labels."),
    ("shapes", "Shapes are those of the inputs {inputs}; no other shape is covered.", "Run again with other shapes."),
    ("dtype", "Parameters are {dtype}; casts are the identity over the reals.", "Rounding is not covered."),
    ("attention", "Attention is {how}, without a cache.", "Another implementation is another program."),
    ("experts", "Experts are the {how} implementation.", "Another implementation is another program."),
    ("buffers", "Buffers hold the values their constructor gives them: {buffers}.", "A checkpoint with other values is another program."),
    ("buffers-state", "Buffers that a call changes hold, before it, whatever it may be, each rank its piece; after it they are compared: {buffers}.", "Ranks must start from pieces of one state."),
    ("buffers-given", "Buffers that forward changes are read and given back, whatever they hold: {buffers}", "Ranks must start from equal state."),
    ("buffers-filled", "Buffers hold whatever fills them, each rank its piece as the contract says: {buffers}.", "A buffer that `--layout` names holds any value; what fills it must give each rank that piece."),
    ("compiled", "What torch.compile makes computes what the code computes.", "The code runs op by op while it is traced. A compiler may fuse, reorder and round."),
    ("buffers-sparse", "Sparse buffers are left out, and forward does not read them: {buffers}.", "The language has no sparse tensors. Code that lists all buffers finds these missing."),
    ("buffers-any", "Buffers hold whatever a checkpoint gives them{how}: {buffers}.", "Each rank must load its piece of the same checkpoint."),
    ("buffers-alike", "Buffers of alike layers that are filled alike hold the same.", "A checkpoint in which they differ is not covered where layers are proved as one."),
    ("infinities", "No infinity is multiplied by 0, or meets another, at {where}.", "PyTorch gives NaN there."),
    ("integers-any", "Integers of no known range do not overflow: {where}.", "State a range with --input."),
    ("integers-of-reals", "Numbers become integers as reals do, without rounding: {where}.", "Rounding is not covered."),
    ("ungraded", "Gradients are those of {loss}; what else is returned ({names}) is taken to get none.", "A loss that is made of these outside of the model has gradients that nobody compared."),
    ("beside-tensors", "What forward returns beside tensors is not compared: {names}.", "Return tensors."),
    ("kept-parameters", "{module} keeps what it makes of parameters: later calls are taken to have the same.", "Build the model anew after its parameters change."),
    ("infinite", "Constants that are infinite or the largest of a dtype (masks) are plus or minus 2^200, scores under them -10^30.", "A row that infinite numbers mask whole is NaN in PyTorch."),
    ("unused", "No output depends on {names}: no gradient is claimed for it.", "An optimizer must pass these by on each rank."),
    ("untrained", "Read, but reached by no gradient: {names}; none is claimed for it.", "An optimizer must pass these by on each rank."),
    ("asserts", "An assert on values of tensors is left out, and taken to hold: {where}.", "Where it fails, one device stops and so does a rank."),
    ("frozen", "Frozen, so without a gradient: {names}.", "Nothing is said of training them."),
    ("tied", "Tied parameters are one parameter: {names}.", "They must stay tied on each rank."),
    ("chosen", "Rows that values choose are read as all rows, {how}", "A row left out must have a value."),
    ("dropout-config", "Dropout of the config is set to 0: {names}.", "Its masks are not compared."),
    ("dropout-left", "Train mode runs the ops of eval mode, with dropout left out at {lines}.", "Its masks are not compared."),
    ("dropout-none", "Train mode runs the ops of eval mode; there is no dropout.", "Both modes were traced."),
    ("eval-alone", "The model runs in eval mode: nothing is said of training.", "Prove the training mode by itself."),
    ("train-captured", "It is train mode that is captured{more}.", "What eval mode runs is said beside it."),
    ("eval-other", "Eval mode runs something else, at {where}: nothing is said of it.", "Prove eval mode by itself."),
    ("clamped", "Parameters that train mode clamps are taken to lie in bounds: {names}.", "A checkpoint out of bounds is another program."),
    ("check-modes", "The modules run {what} in {modes}, {dropout}.", "Other modes are not covered."),
    ("no-forward", "Train mode under torch.no_grad() is not compared: the pipeline steps on gradients.", "A pipeline that raises without gradients is judged with them alone."),
    ("no-forward-eval", "Eval mode under torch.no_grad() is not compared: the pipeline steps on gradients.", "PyTorch evaluates no schedule in a V."),
    ("given-by-rank", "{name} is given of its rank: {names}.", "Your launcher has to pass the same."),
    ("kept-default", "{name} keeps its default of {names}: what a rank would pass is not looked at.", "A factory without the default is given it: def build(group): return Split(group)."),
    ("no-training", "Nothing is said of training: train mode was not asked for.", "Ask with --mode train."),
    ("no-inference", "Nothing is said of inference: eval mode was not asked for.", "Ask with --mode eval."),
    ("pieces", "Each parameter of a rank holds the piece of the model's that the contract says.", "--load loads each rank and looks at what it holds."),
    ("later-calls", "Later calls compute what the first two compute{more}", "State that shows in a later call is not seen."),
    ("second-step", "The second step is compared, for any state of optimizers; a third runs the same ops, apart from numbers that are counted. Later steps are taken to do so too.", "A step that does something else later, at a count say, is not seen."),
    ("first-step", "The first step, from optimizers without state, is not compared.", "What only the first step does is not seen."),
    ("logged", "Numbers that a step reads from tensors to log them are not compared, and their text and type decide nothing: {places}.", "What compares or computes with such a number is refused."),
    ("not-zero", "Counts that a step tells from 0 are above it: {places}.", "What a step does at 0, with a batch that has no label, say, is not compared."),
    ("finite-asked", "Numbers are finite where a step asks: {places}.", "What a step does otherwise, stopping, say, is not compared."),
    ("kept-numbers", "Numbers that a step keeps and computes nothing else from are not compared: {names}.", "A running loss may be that of a rank's own rows."),
    ("fused", "Fused optimizers compute what PyTorch's others compute.", "The run steps the fused one."),
    ("rounded-root", "A factor of a norm that is the root of a small fraction, but for rounding, is that root.", "DTensor gives the norm of what n ranks hold alike the factor 1 / sqrt(n), rounded."),
    ("inference-mode", "torch.inference_mode() is not looked at.", "Code that asks for it may compute something else there."),
    ("drawn", "What is drawn at {lines} decides nothing: draws near 0, 1/4, 1/2, 3/4 and 1, and on both sides of what a draw is compared with, were tried, and no others.", "A draw in between that takes another branch is not seen."),
    ("read-variable", "{line} reads the environment variable {name}, which was {was} here: a run that reads something else is not covered.", "Start every run with the same variables."),
    ("read-variables", "{line} reads all variables of the environment: a run that reads something else is not covered.", "Start every run with the same variables."),
    ("read-clock", "{line} reads the clock: a run that reads something else is not covered.", "What depends on the time is not seen."),
    ("read-outside", "{line} reads {what}: a run that reads something else is not covered.", "What differs there between processes or runs is not seen."),
    ("changing", "{module}: {what} changes from call to call; two calls run the same.", "What depends on it in a later call is not seen."),
    ("nothing-sent", "Ranks run under a process group that sends nothing, on the CPU: code that asks for the backend or the device goes the way of these.", "Code that acts otherwise on a GPU is not seen."),
    ("buffered", "a send does not wait for its recv", "Ranks that wait for each other to receive stop there."),
    ("messages", "Messages in flight at one time do not hold each other up, as within one batch.", "Unbatched sends may wait for each other."),
    ("containers", "Each call is given dicts, lists and objects of its own: {names}.", "What a call leaves in one is not compared."),
    ("integers", "Integers of {name} are from 0 to {last}.", "An index out of range is not covered."),
    ("begins", "Before any step, what ranks keep is the piece of what the model's step keeps: {names}.", "State that begins with other values is not seen."),
    ("not-below-0", "Integer inputs that are used as an index are not below 0.", "A negative index counts from the end."),
    ("softplus", "softplus is log(1 + exp(x)) also above its threshold of {threshold}.", "PyTorch gives x there, within rounding."),
    ("renamed", "Parameters of the parallel module: {pairs}.", "Say it with --param where it is wrong."),
    ("arguments", "The parallel module takes {pairs}.", "Say it with an option where it is wrong."),
    ("loss-outside", "The loss that is computed from the outputs is a mean over the rows: each {over} rank takes that of its own rows.", "A loss that is added up needs --loss sum."),
    ("ddp", "DistributedDataParallel is taken to average the gradients over its group.", "As PyTorch documents; a communication hook is another program."),
    ("custom-body", "The custom op {name} computes what its body in Python does.", "Its kernel is not read."),
    ("custom-taken", "The custom op {name} is taken to be {what}.", "Its kernel is not read."),
    ("cpu", "Answered by the CPU: {what}.", "A GPU may answer otherwise."),
    ("itself", "The model is the parallel module itself, on one rank.", "A fault on one rank too is not seen."),
    ("ranks-traced", "The patched code was traced on ranks {ranks} of {size}: {how}", "Code that treats a rank in between otherwise is not seen."),
    ("few-ranks", "Of {size} ranks {ranks} were traced; the others run the same ops with coordinates of their own. No code but that of PyTorch and shardproof asks which rank it is.", "Check on a mesh of up to 256 ranks, where all are traced."),
    ("translation", "The translation agrees with {subject} on {samples} samples {how}", "Other values may go another way."),
    ("not-compared", "Not compared: {why}.", "Samples on which nothing was seen."),
    ("one-way", "On no sample is the condition at {where}: what the code does then is not covered.", "Give inputs on which it is."),
    ("backward", "The backward of {name} is not the gradient of its forward; the translation has the gradient that the code has.", "The gradient is that of the code."),
    ("opened-labels", "Every label names a class or is {ignored}.", "PyTorch raises an error, or reads out of bounds."),
    ("labels", "Every label names a class.", "PyTorch raises an error, or reads out of bounds."),
    ("top", "Among equal entries {op} takes the one of lower index first, on every device; {how}", "Ranks may choose differently among ties."),
    ("depth", "{layers} of the {total} layers of {names} were traced. {how}", "--full-depth traces them all; `check` does by default."),
    ("layers-run", "Not checked: what the code that runs the layers does at those that were not traced.", "A loop that counts its layers may treat one otherwise: leave out --no-full-depth."),
    ("changes", "A call changes {names}; two calls in a row run the same ops.", "What depends on it in a later call is not seen."),
    ("draws-alike", "Random numbers at {lines} for values that are whole on every {mesh_dim} rank: ranks along {same} draw the same (same random state).", "Give these ranks the same seed."),
    ("draws-apart", "Random numbers at {lines} for pieces over {mesh_dim}: ranks along {same} draw their own (different random states).", "Seed ranks along it apart."),
    ("draws-law", "Results are equal in distribution: for whatever is drawn.", "One run differs from another by what it draws."),
    ("precision", "fully_shard {what} in {dtype}.", "Rounding is not covered."),
    ("pipeline", "{schedule}.step({arguments}) runs {count} micro-batches{end}.", "Call it so."),
    ("update-range", "values that a {fold} runs over are in the range of {dtype}", "Values beyond it are lost."),
    ("index-range", "indices of {buffer} read from {where} are in range", "A read out of bounds is not covered."),
    ("samples-float32", "Compared in float32: in float64 the code gives other values ({why}).", "The comparison is coarser."),
    ("samples-not-wide", "Not run in float64: {why}.", "The comparison is coarser."),
    ("samples-left", "Values leave PyTorch at {where}: what is decided there is looked for on the samples alone.", "Give inputs on which it is decided otherwise."),
    ("samples-in-place", "Forward changes its {what} in place; the program does not.", "Callers that read it afterwards see another value."),
    ("seeded", "The generator `{name}` is seeded alike on all ranks: {lines} from it, and ranks that draw differently compute something else.", "Give all ranks the same seed."),
    ("plain-inputs", "A run does not compare gradients of inputs: one device fails with inputs that need one.", "The proof covers these gradients; a fault outside the trace would pass."),
    ("rounded", "A run differs by {relative}, which is taken for rounding in {narrow}.", "A fault of that size beside code in 16 bits would pass. Run it in float32."),
    ("lookups", "Indices at {where} are in range.", "PyTorch raises an error, or reads out of bounds."),
    ("plan-estimates", "The estimates of plan.json are what the run wrote: {listed}.", "Nothing in a directory shows them; run plan again."),
)  # fmt: skip
"""To declare another is to add a line here."""
