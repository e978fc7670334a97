"""From what was traced to a verdict: the texts of all ranks as one program, contract, `verify`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shardproof.agent.check import dropout, losses
from shardproof.agent.check.consts import same_tables
from shardproof.agent.check.contract import Placed, Statements, agree, no_rank, untrained
from shardproof.agent.check.depth import in_depth
from shardproof.agent.check.orders import in_order_of_ranks, told as told_orders
from shardproof.agent.check.parts import in_parts
from shardproof.agent.repair.repairing import told
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.rank_programs import Ingested, judged
from shardproof.synthesis.frontends.torch.leading_dims import leading_dims
from shardproof.synthesis.frontends.torch.ranks import in_time
from shardproof.synthesis.frontends.torch.ranks.bounds import outside
from shardproof.synthesis.frontends.torch.ranks.micro_batches import in_one_body
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT, STATE
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, Side
from shardproof.synthesis.frontends.torch.ranks.together import in_one_shape, ordinary, together
from shardproof.synthesis.frontends.torch.ranks.unequal_parts import at_once
from shardproof.synthesis.frontends.torch.ranks.whole_batch import whole_batch
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.faults import blamed, moved
from shardproof.synthesis.repair.localize import Edits
from shardproof.verifier.checker import prepare
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.problem import Problem
from shardproof.verifier.text import source_note
from shardproof.verifier.verdict import Counterexample, Location, Proof, Trace, Unknown, Verdict
from shardproof.verifier.verification import verify, walk

Tell = Callable[[str], None]


MICRO_BATCHES = "{dim}: {count} parts of the batch of a rank, one after the other"
NOT_ALL_LAYERS = "the layers that were traced do not say what all do"


@dataclass(frozen=True)
class Checked:
    """What was found of a parallel module."""

    verdict: Verdict
    placed: tuple[Placed, ...]
    read: Ingested
    question: Problem | None
    """None where no program stands for the ranks: some wait for ever, say."""
    captured: RanksCaptured
    """What it is about: the modes too."""
    left: tuple[str, ...] = ()
    """What is not compared, in words."""
    outside: tuple[str, ...] = ()
    """Mesh dims over which a loss computed outside is the mean of those of the ranks."""


@dataclass(frozen=True)
class Compared:
    """What is compared, where it is not all."""

    skipped: Sequence[str] = ()
    """Outputs that are not."""
    grads: Sequence[str] = ()
    """Inputs of which the gradients are, although the model returns a loss."""
    loss: str = ""
    """`mean` or `sum`, what a loss computed outside is of those of the ranks."""


ALL = Compared()


def check_modes(
    found: Sequence[RanksCaptured], stated: Statements, tell: Tell, compared: Compared = ALL
) -> tuple[Checked, ...]:
    """Judge each that was captured, up to the first that is not proved.

    Raises:
        InputError, CaptureError: as `check`.
    """
    out: list[Checked] = []
    for captured in found:
        out.append(check(captured, stated, tell, compared))
        if not isinstance(out[-1].verdict, Proof):
            break
    return tuple(out)


STATES = (
    "the step of the ranks keeps {mine}, which is taken for {theirs} of the model's step, and is "
    "not proved so; if it is another number, say which: --param {mine}=NAME"
)
UNPAIRED = (
    "the step of the ranks keeps {mine}, the model's keeps {theirs}: nothing says how one is made "
    "of the other; keep the same under the same names, or say --param {mine}=NAME"
)


def check(
    captured: RanksCaptured, stated: Statements, tell: Tell, compared: Compared = ALL
) -> Checked:
    """What `_of_states` finds. Where states were paired by kind alone, or not at all, what follows
    from the pairs is no refutation: ranks may keep other numbers, and step alike.

    Raises:
        InputError, CaptureError: as `_of_states`.
    """
    found = _of_states(captured, stated, tell, compared)
    if not isinstance(found.verdict, Counterexample):
        return found
    pairs = [(STATES, pair) for r in captured.ranks for pair in r.paired_by_kind.items()]
    pairs += [(UNPAIRED, r.unpaired) for r in captured.ranks if r.unpaired is not None]
    for reason, (mine, theirs) in pairs[:1]:
        return replace(found, verdict=Unknown(reason.format(mine=mine, theirs=theirs)))
    return found


def _of_states(
    captured: RanksCaptured, stated: Statements, tell: Tell, compared: Compared
) -> Checked:
    """What `_checked` finds. Where a rank uses what may not be there, only a refutation stands.

    Raises:
        InputError, CaptureError: as `_checked`; such a use, where what was traced is not refuted.
    """
    doubt = next((r.doubt for r in captured.ranks if r.doubt is not None), None)
    if doubt is None:
        return _held(captured, stated, tell, compared)
    try:
        found = _held(captured, stated, tell, compared)
    except InputError:
        raise doubt.refusal from None
    verdict = found.verdict
    if not isinstance(verdict, Counterexample):
        raise doubt.refusal
    file, line, text = doubt.at
    if not file:
        return found
    used = f"{doubt.refusal.file}:{doubt.refusal.line}"
    said = f"{doubt.refusal.message}: {used}  {doubt.refusal.text}"
    place = Location("", text, said, Source(file, line, text=text))
    return replace(found, verdict=replace(verdict, location=place))


def _held(captured: RanksCaptured, stated: Statements, tell: Tell, compared: Compared) -> Checked:
    """What `_checked` finds. Where no rank has a parameter, or the state of one, what else is wrong
    may refute them.

    Raises:
        InputError, CaptureError: as `_checked`; such a parameter, where nothing else is wrong.
    """
    one = captured.one.program
    params = [i.path for i in one.inputs if i.role == "param"]
    lacking = [p for p in params if not any(p in r.laid_out for r in captured.ranks)]
    of_them = {f"grad:{p}" for p in lacking} | {f"output:{STATE}{p}" for p in lacking}
    rest = tuple(o for o in one.outputs if output_key(o) not in of_them)
    if not lacking or not rest:
        return _checked(captured, stated, tell, compared)
    kept = replace(captured, one=replace(captured.one, program=replace(one, outputs=rest)))
    found = _checked(kept, stated, tell, compared)
    if not isinstance(found.verdict, Counterexample):
        raise no_rank(lacking[0])
    tell(str(no_rank(lacking[0])))
    return found


def _checked(
    captured: RanksCaptured, stated: Statements, tell: Tell, compared: Compared = ALL
) -> Checked:
    """What comes of the first way to see rows in a stated order that decides; else of the first."""
    found: Checked | None = None
    problem: InputError | None = None
    for ordered, plain in in_order_of_ranks(captured, stated):
        try:
            made = _of_rows(ordered, plain, tell, compared)
        except InputError as other:
            problem = problem or other
            continue
        mesh = captured.ranks[0].program.mesh
        made = replace(made, placed=told_orders(made.placed, stated, mesh))
        if not isinstance(made.verdict, Unknown):
            return made
        found = found or made
    if found is None:
        assert problem is not None
        raise problem
    return found


def _of_rows(
    captured: RanksCaptured, stated: Statements, tell: Tell, compared: Compared = ALL
) -> Checked:
    """Read the texts of all ranks, make the contract, and decide.

    Where inputs are split and the loss of a rank is not the model's, the loss that is compared is
    the mean over the mesh dims that they are split over, unless its layout is stated.

    Raises:
        InputError, CaptureError: layouts that are not clear or do not fit; values that only ranks
            have.
    """
    counts = _counts_apart(captured)
    skipped = (*compared.skipped, *counts)
    one, left = _compared(captured.one, replace(compared, skipped=skipped))
    captured = replace(captured, one=replace(captured.one, program=one))
    tables = same_tables(captured)
    if captured.complete:
        in_time.refuse_unlike([r.events for r in captured.ranks])
    programs = {n: r.compared for n, r in captured.numbered}
    if not any(e.alike for r in captured.ranks for e in r.events if e.kind == "meet"):
        programs = in_one_shape(programs)
    read = together(programs, captured.texts, tell)
    for found in read.of_kind("malformed"):
        raise InputError(f"the ranks run no programs that fit together: {found.message}")
    program = read.program
    if program is None:
        verdict = judged(one, read, None, progress=tell)
        return Checked(_placed_in_source(verdict, captured.texts), (), read, None, captured)
    stuck = _stuck(captured)
    if stuck is not None:
        return Checked(stuck, (), read, None, captured)
    strays = _outside(captured)
    if isinstance(strays, Counterexample | Unknown):
        return Checked(strays, (), read, None, captured)
    program = leading_dims(ordinary(_sourced(program, captured.texts)))
    whole = captured
    captured, program, stated = in_parts(captured, program, stated)
    one = captured.one.program
    program = _same_outputs(captured, program)
    over = losses.averaged(captured, program, stated, tables)
    if over:
        program = losses.mean_loss(program, over, losses.losses(captured.one, one))
    outside, laid = losses.outside(captured, program, stated, tables, compared.loss)
    if outside:
        program = losses.mean_outside(program, laid, outside)
    found = _decided(captured, one, replace(read, program=program), stated, tables, strays, tell)
    if over:
        mean, named = f"its mean over {' and '.join(over)}", losses.losses(captured.one, one)
        said = [
            replace(p, how=mean) if p.kind == "output" and p.name in named else p
            for p in found.placed
        ]
        found = replace(found, placed=tuple(said))
    verdict = found.verdict
    if outside and isinstance(verdict, Proof):
        mean = losses.OUTSIDE.format(over=" and ".join(outside))
        verdict = replace(verdict, assumptions=(*verdict.assumptions, mean))
    return replace(found, verdict=verdict, left=left, captured=whole, outside=outside)


def _decided(
    captured: RanksCaptured,
    one: Program,
    read: Ingested,
    stated: Statements,
    tables: Mapping[str, str],
    strays: tuple[str, ...],
    tell: Tell,
) -> Checked:
    """The verdict on the programs, under the first layouts of dropout's masks that prove it."""
    program = read.program
    assert program is not None
    first: Checked | None = None
    rolled = in_one_body(program)
    for masks in dropout.choices(captured, program.mesh, stated):
        contract, placed = agree(captured, program, stated, tables, masks)
        question = Problem(one, rolled, contract, captured.one.consts)
        if captured.one.depth is not None:
            whole = in_depth(captured, question)
            if whole is None:
                return Checked(Unknown(NOT_ALL_LAYERS), placed, read, None, captured)
            question = whole
        verdict = _verdict(question, program, read, tell)
        if isinstance(verdict, Proof):
            assumed = dropout.assumed(captured, masks, program.mesh)
            told = (*verdict.assumptions, *strays, *assumed)
            scope = (*verdict.scope, *_micro_batches(program, rolled))
            verdict = replace(verdict, assumptions=told, scope=scope)
        if isinstance(verdict, Proof):
            verdict = dropout.clash(captured, masks, program.mesh) or verdict
        verdict = _placed_in_source(verdict, captured.texts)
        found = Checked(verdict, placed, read, question, captured)
        if isinstance(verdict, Proof):
            return found
        first = first or found
    assert first is not None
    return first


def _verdict(question: Problem, program: Program, read: Ingested, tell: Tell) -> Verdict:
    """What is found of the ranks' program by the first way to read the parts of a batch that
    decides."""
    rolled = question.distributed is not program
    whole = None if rolled else _whole(question, program)
    found = None if whole is None else _judged(whole, read, tell)
    lifted = _lifted(question) if rolled else None
    if lifted is not None:
        found = _judged(lifted, read, tell)
    if found is None or isinstance(found, Unknown):
        found = _judged(question, read, tell)
    whole = _whole(question, program) if rolled and isinstance(found, Unknown) else None
    return found if whole is None else _judged(whole, read, tell)


def _whole(question: Problem, program: Program) -> Problem | None:
    """The same question of programs that compute at once what these compute in parts, where that
    is related."""
    one, many = at_once(question.sequential), at_once(program)
    if one is question.sequential and many is program:
        return None
    asked = replace(question, sequential=one, distributed=many)
    return asked if walk(prepare(asked).problem).holds else None


def _judged(question: Problem, read: Ingested, tell: Tell) -> Verdict:
    many = replace(read, program=question.distributed)
    return judged(question.sequential, many, question.contract, question.consts, tell)


def _lifted(question: Problem) -> Problem | None:
    """The same question of a model that takes its batch at once, where the model takes it in
    micro-batches and is proved to compute what that one does."""
    one = question.sequential
    parts = in_one_body(one)
    whole = None if parts is one else whole_batch(parts, parts.mesh.names[-1])
    if whole is None:
        return None
    inputs = {i.name: Layout.replicate(i.type.shape) for i in one.inputs}
    outputs = {output_key(o): Layout.replicate(one.types[o.value].shape) for o in one.outputs}
    same = verify(Problem(whole, parts, Contract(inputs, outputs), question.consts))
    return replace(question, sequential=whole) if isinstance(same, Proof) else None


def _micro_batches(program: Program, rolled: Program) -> list[str]:
    """What mesh dims stand for that are none of the ranks'."""
    added = [d for d in rolled.mesh.dims if d not in program.mesh.dims]
    return [MICRO_BATCHES.format(dim=dim, count=count) for dim, count in added]


def _stuck(captured: RanksCaptured) -> Counterexample | None:
    """Ranks that wait for ever where no message is buffered."""
    if not captured.complete:
        return None  # the ranks that were traced do the same in the same order
    found = in_time.first_stuck([r.events for r in captured.ranks])
    if found is None:
        return None
    rank, call, said = found
    mesh = captured.ranks[rank].program.mesh
    trace = Trace("communication of ranks", f"{said}: no rank continues if nothing is buffered")
    at = Source(call.file, call.line, text=call.text)
    place = Location("", call.text, f"rank {rank} waits here", at)
    return Counterexample(str(mesh), trace, place)


def _outside(captured: RanksCaptured) -> Counterexample | Unknown | tuple[str, ...]:
    """A lookup that leaves its table on some rank, or what is assumed of those not known.

    Raises:
        InputError: the model on one device looks outside of its own tables.
    """
    for found in outside(captured.one.program, captured.one.inputs):
        if found.leaves:
            raise InputError(
                f"the model looks up entry {found.index} of {found.size}: {found.given}",
                where=str(found.source),
                hint="say which integers there are: --input name=i64[2,8]<65 (values below 65)",
            )
    assumed: list[str] = []
    below: Unknown | None = None
    for rank, side in captured.numbered:
        for found in outside(side.program, captured.one.inputs):
            if found.index is not None and found.index < 0:
                said = f"rank {rank} looks up entry {found.index}, for {found.given}"
                place = Location(found.op, found.source.text, said, found.source)
                below = below or Unknown(f"{said}: an index below 0 is not followed", place)
                continue
            if found.index is None:
                said = f"Indices at {found.source} are in range."
                assumed += [said] if said not in assumed else []
                continue
            message = (
                f"rank {rank} looks up entry {found.index} of {found.size}, for {found.given}: "
                "PyTorch raises an error, or reads what is not there"
            )
            trace = Trace("index in range", message)
            reason = f"the index is {found.index}, the entries are 0 to {found.size - 1}"
            place = Location(found.op, found.source.text or found.op, reason, found.source)
            return Counterexample(str(side.program.mesh), trace, place)
    return below or tuple(assumed)


def _sourced(program: Program, texts: Path) -> Program:
    """Nodes come from the user's code, not from a rank's text."""
    nodes = tuple(replace(n, source=in_source(n.source, texts)) for n in program.nodes)
    return replace(program, nodes=nodes)


def _compared(side: Side, compared: Compared) -> tuple[Program, tuple[str, ...]]:
    """The model with the outputs that are compared, and what is not in words. Of a model that
    returns its loss, the inputs are data: of their gradients, those that are asked for.

    Raises:
        InputError: a name of no output, of no input with a gradient.
    """
    one = side.program
    named = [o.path for o in one.outputs if o.role != "grad"]
    inputs = [
        o.path.removeprefix(GRAD_OF_INPUT)
        for o in one.outputs
        if o.role == "grad" and o.path.startswith(GRAD_OF_INPUT)
    ]
    for option, names, known in (
        ("--skip-output", compared.skipped, named),
        ("--grad-of-input", compared.grads, inputs),
    ):
        for name in names:
            if name not in known:
                raise InputError(
                    f"the model has no {'output' if known is named else 'float input'} {name}",
                    where=f"{option} {name}",
                    expected=f"one of {', '.join(known)}" if known else "none: it has none",
                )
    data = inputs if losses.losses(side, one) else []
    out = {GRAD_OF_INPUT + n for n in data if n not in compared.grads}
    kept = tuple(
        o for o in one.outputs if o.path not in (out if o.role == "grad" else compared.skipped)
    )
    if not kept:
        raise InputError("no output is compared", where="--skip-output")
    left = [f"the gradient of {n}" for n in data if n not in compared.grads]
    return replace(one, outputs=kept), (*compared.skipped, *left)


def _counts_apart(captured: RanksCaptured) -> tuple[str, ...]:
    """Counts of calls that the model alone keeps, and reads for nothing but the next count."""
    program, found = captured.one.program, list[str]()
    kept = {n.rpartition(".")[2] for _, side in captured.numbered for n in side.every}
    for out in program.outputs:
        name = out.path.removeprefix(STATE)
        reading = [n for n in program.nodes if not {name, out.value}.isdisjoint(n.inputs)]
        counted = [n.op for n in reading] == ["add_scalar"] and reading[0].inputs == (name,)
        if not counted or reading[0].outputs != (out.value,) or out.path == name:
            continue
        if program.types[name].kind == "integer" and name.rpartition(".")[2] not in kept:
            found.append(out.path)
    return tuple(found)


def _same_outputs(captured: RanksCaptured, many: Program) -> Program:
    """The ranks' program with the outputs that are compared. Raises InputError where one lacks."""
    one = captured.one.program
    theirs = {output_key(o): o for o in many.outputs}
    for out in one.outputs:
        if output_key(out) in theirs:
            continue
        if out.role == "grad" and not out.path.startswith(GRAD_OF_INPUT):
            raise untrained(captured, out.path)
        if out.path.startswith(STATE):
            raise InputError(
                f"the model changes {out.path.removeprefix(STATE)}, which no rank does",
                hint=f"--skip-output {out.path} leaves it out",
            )
        raise InputError(f"no rank gives the {out.role} {out.path}")
    return replace(many, outputs=tuple(theirs[output_key(o)] for o in one.outputs))


def _placed_in_source(verdict: Verdict, texts: Path) -> Verdict:
    """Places in the texts of ranks become places in the user's code."""
    match verdict:
        case Counterexample(location=place, witness=witness) if place is not None:
            found = in_source(place.source, texts)
            if isinstance(witness, Trace):
                steps = tuple(_reworded(step, texts) for step in witness.steps)
                witness = replace(witness, message=_reworded(witness.message, texts), steps=steps)
            place = replace(place, source=found, reason=_reworded(place.reason, texts))
            return replace(verdict, location=place, witness=witness)
        case Unknown(location=place, reason=reason) if place is not None:
            place = replace(place, source=in_source(place.source, texts))
            return replace(verdict, location=place, reason=_reworded(reason, texts))
        case _:
            return verdict


def in_source(place: Source, texts: Path) -> Source:
    """Where a line of a rank's text comes from; a place that is none of these stays."""
    path = texts / Path(place.file).name
    if not place.file.endswith(".sp") or not path.is_file():
        return place
    lines = path.read_text(encoding="utf-8").splitlines()
    if not 0 < place.line <= len(lines):
        return NOWHERE
    _, at, note = lines[place.line - 1].partition(" @ ")
    try:
        return source_note.read(f"@ {note}") if at else NOWHERE
    except MalformedError:
        return NOWHERE


def _reworded(text: str, texts: Path) -> str:
    """The same with `rank-00001.sp:12` as the line of the user's code."""
    out: list[str] = []
    for word in text.split(" "):
        name, _, line = word.rstrip(":").rpartition(":")
        if name.endswith(".sp") and line.isdigit():
            found = in_source(Source(name, int(line)), texts)
            word = f"{found}:" if word.endswith(":") else str(found)
            word = "" if found == NOWHERE else word
        out.append(word)
    return " ".join(w for w in out if w)


def edits_for(checked: Checked, seconds: float) -> tuple[Edit, ...]:
    """The fewest edits of what was traced after which it is proved, if they are found."""
    question = checked.question
    if isinstance(checked.verdict, Proof) or question is None or seconds <= 0:
        return ()
    from shardproof.synthesis.repair.question import Question
    from shardproof.synthesis.repair.search import Repaired, repair

    one, many = question.sequential, question.distributed
    asked = Question(one, many, question.contract, consts=question.consts)
    found = repair(asked, seconds=seconds)
    return found.edits if isinstance(found, Repaired) else ()


def with_edits(checked: Checked, edits: Sequence[Edit]) -> Verdict:
    """The verdict with edits that fix what was traced."""
    verdict, question = checked.verdict, checked.question
    if not edits or question is None or isinstance(verdict, Proof):
        return verdict
    many = question.distributed
    if isinstance(verdict, Counterexample) and (place := verdict.location) is not None:
        fault = blamed(Edits(many, place, edits))
        verdict = replace(verdict, location=moved(place, fault) if fault else place)
    return replace(verdict, fixes=("; ".join(told(many, edit) for edit in edits),))
