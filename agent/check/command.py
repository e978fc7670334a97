"""`shardproof check`: traces the ranks of a parallel module, and decides whether they compute what
the model computes."""

import json
import shutil
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from shardproof.agent.actions.programs import ALONE, Check
from shardproof.agent.actions.words import read_mesh
from shardproof.agent.check import confirming, in_source, judging, layouts, loads
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.judging import Checked
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Outcome, Run, within
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.frontends.rank_programs import Ingested
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import (
    EVAL,
    FORWARD,
    INFERENCE,
    MADE_UP,
    MODES,
    SAID,
    TRAIN,
    RanksRequest,
)
from shardproof.synthesis.frontends.torch.ranks.result import (
    RanksCaptured,
    capture_ranks,
    one_is_traced,
)
from shardproof.synthesis.frontends.torch.ranks.stated import on_mesh, read_lines
from shardproof.synthesis.frontends.torch.request import (
    InputSpec,
    held_in_containers,
    is_library,
    read_config,
    resolved,
)
from shardproof.synthesis.repair.edits import Edit
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict

NOT_LOADED = "Each parameter of a rank holds the piece of the model's that the contract says."


def run_check(run: Run, asked: Check) -> Outcome:
    """Decide, report the verdict, and show what repairs the source. Raises what `decided` does."""
    verdict, note, looked = decided(run, asked)
    outcome = verdicts.report(run, verdict, note)
    return outcome if looked.source is None else _told(run, looked.source, outcome, asked)


def decided(run: Run, asked: Check) -> "tuple[Verdict, str, Looked]":
    """Trace, join, state the contract, decide, look for a repair: the verdict, lines beside it, and
    what was found.

    Raises:
        InputError, CaptureError: the command line, the user's code, what cannot be followed.
    """
    mesh = read_mesh(asked.mesh)
    stated = Statements(
        read_lines(asked.layout, "--layout"),
        read_lines(asked.input_layout, "--input-layout"),
        read_lines(asked.output_layout, "--output-layout"),
    )
    on_mesh((*stated.params, *stated.inputs, *stated.outputs), mesh)
    request = _request(asked, mesh, stated)
    with tempfile.TemporaryDirectory(prefix="shardproof-") as scratch:
        try:
            return _decided(run, asked, request, stated, Path(scratch))
        except (CaptureError, InputError, IRError) as problem:
            if not one_is_traced(Path(scratch)):
                raise
            return confirming.refused(run, asked, request, stated, problem), "", Looked()


def _decided(
    run: Run, asked: Check, request: RanksRequest, stated: Statements, scratch: Path
) -> "tuple[Verdict, str, Looked]":
    mesh, plan = request.mesh, None
    if not isinstance(request.tp_plan, str):
        plan = (file := Path(asked.tp_plan).resolve()), file.read_text(encoding="utf-8")
    with run.phase("trace") as phase:
        captured = capture_ranks(request, scratch, run.note)
        sides = captured[0]
        ops = len(sides.ranks[0].program.nodes)
        phase.summary = f"{len(sides.one.program.nodes)} ops on one device, {ops} on rank 0"
        phase.facts["ranks"] = mesh.size
    with run.phase("verify") as phase:
        compared = judging.Compared(asked.skip_output, asked.grad_of_input, _loss(asked.loss))
        judged = _judged(captured, stated, run, compared)
        checked = judged[-1]
        phase.facts.update(checked.verdict.stats)
        phase.summary = f"{len(checked.read.classes)} texts for {mesh.size} ranks"
    if any(c.one.depth for c in captured) and not isinstance(checked.verdict, Proof):
        run.note("layers that were traced prove nothing of all: trace every layer")
        shutil.rmtree(scratch)
        scratch.mkdir()
        return _decided(run, asked, replace(request, full_depth=True), stated, scratch)
    for warning in dict.fromkeys(w for found in captured for w in warnings(found)):
        run.warn(warning)
    held = _loaded(run, request, scratch, checked) if asked.load else None
    found = Looked()
    if not isinstance(checked.verdict, Proof):
        asking = in_source.Asking(request, stated, compared, in_source.captured, plan, captured)
        found = _looked(run, asked, asking, checked)
    apart = [f"{said(c.captured.modes)}: {verdicts.word(c.verdict)}" for c in judged]
    run.emit(events.ContractStated(lines=[p.says(mesh) for p in checked.placed]))
    verdict = in_source.to_blame(request, checked, found.edits)
    if held is not None:
        verdict = loads.decided(verdict, held, mesh)
    if isinstance(verdict, Proof):
        more = [
            *modes_told(captured, asked.step),
            *(a for c in judged for a in assumptions(c.captured)),
        ]
        more += held.told if held else [NOT_LOADED]
        if checked.left:
            more.append(f"Not compared: {', '.join(checked.left)}.")
        assumed = [a for c in judged if isinstance(c.verdict, Proof) for a in c.verdict.assumptions]
        scope = verdict.scope if len(captured) == 1 else (*verdict.scope, "; ".join(apart))
        verdict = replace(verdict, scope=scope, assumptions=tuple(dict.fromkeys([*assumed, *more])))
    verdict = confirming.confirmed(run, asked, request, stated, verdict, captured, checked.outside)
    if asked.keep is not None:
        for judgement in judged:
            many = len(captured) > 1
            part = asked.keep / judgement.captured.modes[0]
            _keep(judgement, part if many else asked.keep)
    others = isinstance(verdict, Proof) or len(captured) == 1
    lines = [] if others else ["; ".join(apart)]
    traced = isinstance(checked.verdict, Counterexample)  # else the run alone refutes
    if traced and isinstance(verdict, Counterexample) and verdict.location is not None:
        for lead in in_source.looked_at(request, checked, verdict.location.source):
            at = lead.line
            lines.append(f"look at     {at.file}:{at.line}   {at.text}  ({lead.why})")
    if held and held.wrong and isinstance(checked.verdict, Counterexample):
        lines += ["the load is wrong too:", *(f"  {x}" for x in held.wrong[: loads.MOST_TOLD])]
    if found.agreeing:
        lines.append(f"these agree under {found.agreeing}")
    return verdict, "\n".join(lines), found


def _judged(
    captured: Sequence[RanksCaptured], stated: Statements, run: Run, compared: judging.Compared
) -> tuple[Checked, ...]:
    """The verdicts, by mode. Where few layers were traced, what stands in the way of one may lie in
    these alone: there is none."""
    try:
        return judging.check_modes(captured, stated, run.note, compared)
    except (CaptureError, InputError):
        first = next((c for c in captured if c.one.depth is not None), None)
        if first is None:
            raise
        none = Ingested(None, (), (), {}, "")
        return (Checked(Unknown(judging.NOT_ALL_LAYERS), (), none, None, first),)


@dataclass
class Looked:
    """What was found that fixes a module."""

    edits: tuple[Edit, ...] = ()
    """Of what was traced."""
    agreeing: str = ""
    """Options under which it is proved as it is."""
    source: in_source.InSource | None = None


def _looked(run: Run, asked: Check, asking: in_source.Asking, checked: Checked) -> Looked:
    """Look for what fixes a module that is not proved, for as long as is asked."""
    found, seconds = Looked(), asked.repair_seconds
    if seconds is None:
        seconds = 60.0 if asked.repair else 10.0
    if isinstance(checked.verdict, Proof) or not seconds:
        return found
    with run.phase("repair") as phase:
        ends, tried = time.monotonic() + seconds, 0
        share = seconds / 3
        with within(share):
            found.edits = judging.edits_for(checked, share)
        with within(min(share, ends - time.monotonic())):
            options = layouts.agreeing(checked, asking.stated, asking.compared)
            found.agreeing = next((o for o in options if o), "")
        if asked.repair and not found.agreeing:
            with within(ends - time.monotonic()):
                for source in in_source.repaired(asking, checked, found.edits):
                    tried, found.source = tried + 1, source
        whole = found.edits or found.agreeing or found.source
        phase.summary = "found" if whole else "none found"
        if asked.repair:
            phase.summary += f", {tried} changes of source tried"
    return found


def _told(run: Run, found: in_source.InSource, outcome: Outcome, asked: Check) -> Outcome:
    """Show a change of source, and write it where that is asked."""
    run.emit(events.Repaired(edits=[], sources=[found.place], diff=found.diff))
    if not asked.write:
        return replace(outcome, answer=f"{outcome.answer}\n{found.diff}".rstrip("\n"))
    from shardproof.agent.patching.tree import apply_texts

    name = found.rewrite.file
    apply_texts(found.diff, {name: (found.before, found.rewrite.text)}, found.sources, found.root)
    done = f"written, and proved; shardproof undo --root {found.root} reverts it"
    return Outcome(Exit.PROVED, "proved", answer=f"{found.diff}{done}")


def _loaded(
    run: Run, request: RanksRequest, scratch: Path, checked: Checked
) -> loads.Looked | None:
    """What was found of the load. Raises CaptureError where it fails and the programs are right."""
    try:
        return loads.looked(scratch, request, checked) if checked.placed else None
    except CaptureError as problem:
        if isinstance(checked.verdict, Proof):
            raise
        run.warn(str(problem))
        return None


def said(modes: Sequence[str]) -> str:
    """`eval mode and train mode`."""
    words = [SAID[m] for m in modes]
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def modes_told(captured: Sequence[RanksCaptured], step: str = "") -> list[str]:
    """What is known of modes, and of a step that is called later, in sentences."""
    every = [m for found in captured for m in found.modes]
    out: list[str] = []
    for found in captured:
        lines = ", ".join(dict.fromkeys(str(d) for d in found.one.draws))
        dropped = f"with dropout at {lines}" if lines else "without dropout"
        same = "the same ops" if len(found.modes) > 1 else "ops of its own"
        if len(captured) == len(found.modes) == 1:
            same = "the ops that are judged"
        out.append(f"The modules run {same} in {said(found.modes)}, {dropped}.")
    if TRAIN not in every:
        out.append("Nothing is said of training: train mode was not asked for.")
    elif EVAL not in every and INFERENCE not in every:
        out.append("Nothing is said of inference: eval mode was not asked for.")
    trained = any(o.role == "grad" for o in captured[0].one.program.outputs)
    for mode, alone in ((TRAIN, FORWARD), (EVAL, INFERENCE)) if trained else ():
        if mode in every and alone not in every:
            what = SAID[alone].capitalize()
            out.append(f"{what} is not compared: the pipeline steps on gradients.")
    if not step:
        out.append("Later calls compute what the first two compute; only these are compared.")
    out.append("torch.inference_mode() is not looked at.")
    return out


def _request(asked: Check, mesh: Mesh, stated: Statements) -> RanksRequest:
    file, config = read_config(asked.config)
    if file:
        from shardproof.synthesis.frontends.torch.request import read_config_file

        config = {**read_config_file(file), **config}
    names: list[tuple[str, str]] = []
    for item in asked.param:
        own, equals, theirs = (part.strip() for part in item.partition("="))
        if not equals or not own or not theirs:
            raise CaptureError(
                f"--param {item}: no pair of names",
                hint="write NAME=NAME: of the parallel module, of the model",
            )
        names.append((own, theirs))
    library = asked.target.startswith("hf:")
    for target in (asked.target, asked.against):
        if is_library(target) and not target.startswith("hf:"):
            raise InputError(
                "check builds files of yours and classes of transformers",
                where=target,
                hint="let a function of yours build the model: model.py:make",
            )
    if not asked.against and not library:
        raise InputError(
            "no model to check against",
            where="--against",
            expected="model.py:Name, the one-device model",
        )
    if asked.tp_plan and not library:
        raise InputError(
            "a plan of transformers is for its classes",
            where=f"--tp-plan {asked.tp_plan}",
            expected="a target such as hf:LlamaForCausalLM",
            hint="let a function of yours apply the plan, and return the module",
        )
    if asked.write and not asked.repair:
        raise InputError("--write writes what --repair finds", where="--write", hint="add --repair")
    if asked.load_with and (library or not asked.load):
        raise InputError(
            "--load-with loads a module of yours, where --load is given",
            where=f"--load-with {asked.load_with}",
            expected="--load made-up, or a folder with *.safetensors",
        )
    step, equals, step_of_one = (name.strip() for name in asked.step.partition("="))
    if equals and not (step and step_of_one):
        raise InputError(
            "no pair of steps",
            where=f"--step {asked.step}",
            expected="the step of TARGET's file, then that of the model's: train_step=one_step",
        )
    return RanksRequest(
        resolved(asked.target),
        resolved(asked.target if asked.against in ("", ALONE) else asked.against),
        mesh,
        config,
        tuple(InputSpec.parse(text) for text in asked.inputs),
        asked.batch,
        asked.seq,
        asked.gradients and not asked.step,
        tuple(names),
        stated.inputs,
        tuple(asked.no_grad),
        asked.after_backward,
        _tp_plan(asked.tp_plan or "auto") if library else "",
        asked.load if asked.load in ("", MADE_UP) else str(Path(asked.load).resolve()),
        asked.load_with,
        (TRAIN,) if asked.step else _modes(asked.mode),
        alone=asked.against == ALONE,
        device_free=asked.device_free,
        full_depth=asked.full_depth,
        step=step,
        step_of_one=step_of_one or step,
        env=asked.env,
        meanings=tuple(asked.op),
        filled=tuple(line.pattern for line in stated.params),
    )


def _tp_plan(given: str) -> str | dict[str, str]:
    """`auto`, or the rules in a file. Raises InputError for a file that holds none."""
    if given == "auto":
        return given
    try:
        rules = json.loads(Path(given).read_text(encoding="utf-8"))
        return TypeAdapter(dict[str, str]).validate_python(rules, strict=True)
    except (OSError, ValueError) as problem:
        raise InputError(
            f"no plan can be read from {given}: {str(problem).splitlines()[0]}",
            where=f"--tp-plan {given}",
            expected='auto, or a .json file such as {"model.layers.*.mlp.up_proj": "colwise"}',
        ) from None


LOSSES = "mean|sum"
MOST_NAMED = 12
"""Tensors that one sentence names."""


def _loss(loss: str) -> str:
    if loss and loss not in LOSSES.split("|"):
        raise InputError(
            f"there is no loss {loss}",
            where=f"--loss {loss}",
            expected="mean, over the ranks, or sum",
            hint="leave it out: gradients that are averaged go with a mean",
        )
    return loss


def _modes(mode: str) -> tuple[str, ...]:
    if mode and mode not in MODES:
        raise InputError(
            f"there is no mode {mode}",
            where=f"--mode {mode}",
            expected=f"one of {', '.join(MODES)}",
            hint="leave it out to check both",
        )
    return (mode,) if mode else MODES


def warnings(captured: RanksCaptured) -> list[str]:
    """What a reader should know whatever the verdict is."""
    out: list[str] = []
    for rank, side in captured.numbered:
        trainable = [n for n in side.unreached if n not in captured.one.frozen]
        new = [n for n in trainable if n not in captured.one.unreached]
        if new:
            out.append(
                f"the backward of rank {rank} gives {', '.join(new)} no gradient: taken as zero"
            )
            break
    seen: set[tuple[str, int]] = set()
    for side in captured.ranks:
        for file, line, what in side.raw:
            if (file, line) not in seen:
                seen.add((file, line))
                out.append(
                    f"{file}:{line}: {what} changes a tensor behind autograd's back; the backward "
                    "passes it by, as PyTorch does"
                )
    return out


def assumptions(captured: RanksCaptured) -> list[str]:
    """What tracing took for granted."""
    one = captured.one
    inputs = ", ".join(f"{i.name}={i.dtype}{list(i.shape)}" for i in captured.one.inputs)
    out = [
        f"Shapes are those of the inputs {inputs}; no other shape is covered.",
        "Ranks run under a process group that sends nothing, on the CPU: code that asks for the "
        "backend or the device goes the way of these.",
    ]
    if not captured.complete:
        size, traced = captured.ranks[0].program.mesh.size, ", ".join(map(str, captured.numbers))
        out.append(
            f"Of {size} ranks {traced} were traced; the others run the same ops with coordinates "
            "of their own. No code but that of PyTorch and shardproof asks which rank it is."
        )
    if any(e.kind == "send" for r in captured.ranks for e in r.events):
        out.append("Messages in flight at one time do not hold each other up, as within one batch.")
    out += held_in_containers(captured.one.inputs)
    for item in captured.one.inputs:
        if item.below:
            other = "" if item.ignored is None else f", or {item.ignored}"
            out.append(f"Integers of {item.name} are from 0 to {item.below - 1}{other}.")
    buffers = sorted({*one.buffers, *(b for r in captured.ranks for b in r.buffers)})
    if buffers:
        out.append(f"Buffers hold the values their constructor gives them: {', '.join(buffers)}.")
    if one.filled:
        out.append(
            "Buffers hold whatever a checkpoint gives them, each rank its piece: "
            f"{', '.join(_laid(captured, name) for name in one.filled)}."
        )
    if one.given:
        out.append(
            "Buffers hold whatever fills them, each rank its piece as the contract says: "
            f"{', '.join(one.given)}."
        )
    if one.states:
        out.append(
            "Buffers that a call changes hold, before it, whatever it may be, each rank its piece; "
            f"after it they are compared: {_named(one.states)}."
        )
    for note in (*one.notes, *(n for r in captured.ranks for n in r.notes)):
        if note not in out:
            out.append(note)
    if one.depth is not None:
        out.append(one.depth.sentence())
        out.append(
            "Not checked: what the code that runs the layers does at those that were not traced."
        )
    if one.frozen:
        out.append(f"Frozen, so without a gradient: {', '.join(one.frozen)}.")
    renamed = dict.fromkeys(pair for r in captured.ranks for pair in r.renamed.items())
    if renamed:
        pairs = "; ".join(f"{own} is {theirs}" for own, theirs in renamed)
        out.append(f"Parameters of the parallel module: {pairs}.")
    given = captured.ranks[0].renamed_arguments
    if given:
        pairs = ", ".join(f"{name} as {own}" for name, own in given.items())
        out.append(f"The parallel module takes {pairs}.")
    return out


def _named(names: Collection[str]) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(islice(names, MOST_NAMED)) + (f" and {more} more" if more > 0 else "")


def _laid(captured: RanksCaptured, name: str) -> str:
    """A buffer with its placement: `scale S(0)@tp`."""
    placed = dict.fromkeys(r.pieces[name] for r in captured.ranks if name in r.pieces)
    return f"{name} {' or '.join(placed)}"


def _keep(checked: Checked, folder: Path) -> None:
    """Write what was decided on, for `shardproof verify` and `shardproof repair`."""
    question = checked.question
    if question is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one.txt").write_text(to_text(question.sequential), encoding="utf-8")
    (folder / "ranks.txt").write_text(to_text(question.distributed), encoding="utf-8")
    contract = json.dumps(question.contract.to_json(), indent=1)
    (folder / "contract.json").write_text(contract, encoding="utf-8")
