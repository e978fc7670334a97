"""`translate`, and `parallelize` from a translation."""

from collections.abc import Callable, Sequence

from shardproof.agent.actions.models import Translate
from shardproof.agent.llm.client import Model
from shardproof.agent.llm.translating import prompted
from shardproof.agent.pipeline import pipeline
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.files import read_text
from shardproof.agent.run.run import Outcome, Run
from shardproof.agent.translation.rounds import GivenUp, Replies, Report
from shardproof.agent.translation.trial import Trial
from shardproof.agent.translation.trust import (
    BackwardDiffers,
    Bound,
    Differs,
    DisplayOnly,
    NotRunnable,
)
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.frontends.torch.capture import attempt
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts
from shardproof.synthesis.frontends.torch.observed import Observed, Subject
from shardproof.synthesis.frontends.torch.request import CaptureRequest, split_target
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.files import load
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Proof

Attempt = Callable[[CaptureRequest, Callable[[str], None]], Observed]


def translate(run: Run, asked: Translate, request: CaptureRequest) -> Outcome:
    """Translate what capture refuses, and hold the translation to the code.

    Raises:
        InputError, CaptureError: a target or a file that cannot be used.
    """
    observed = tried(run, request)
    if observed.problem is None:
        return Outcome(
            Exit.PROVED, answer="capture takes it as it is: there is nothing to translate"
        )
    trial = trial_of(request, observed, asked.whole)
    if asked.show_prompt:
        return Outcome(Exit.PROVED, answer=_prompts(trial))
    if asked.reply:
        report = sat(run, trial, Replies([read_text(path, "a reply") for path in asked.reply]))
    else:
        model = asked.asker(run)
        if model is None:
            hint = "--show-prompt prints what would be asked, --reply FILE takes an answer"
            return Outcome(Exit.ENDPOINT, answer=f"{observed.problem}\n{hint}")
        try:
            report = sat(run, trial, model)
        finally:
            model.close()
    text = ""
    if isinstance(report.end, Bound | DisplayOnly):
        text = to_text(report.end.forward)
        if asked.out is not None:
            asked.out.write_text(text, encoding="utf-8")
    lines = ended(run, report)
    return Outcome(
        report.exit, answer="\n".join([*([text] if asked.out is None else []), *lines]).strip()
    )


def tried(run: Run, request: CaptureRequest, attempting: Attempt = attempt) -> Observed:
    """Try the target in a phase of its own, and say why it was refused."""
    if split_target(request.target)[0] == "hf":
        raise InputError("only a user's file can be translated", where=request.target)
    with run.phase("try") as phase:
        observed = attempting(request, run.note)
        phase.summary = str(observed.problem) if observed.problem else "captured"
    if observed.problem is not None:
        problem = observed.problem
        where = f"{problem.file}:{problem.line}" if problem.line else problem.file
        trial = trial_of(request, observed, False)
        whole = observed.whole
        run.emit(
            events.NotCaptured(
                message=problem.message,
                where="   ".join(part for part in (where, problem.text) if part),
                missing=[m.package for m in observed.missing],
                subjects=[s.path or s.name for s in trial.subjects()],
                runs=whole is not None and whole.problem is None,
            )
        )
    return observed


def trial_of(request: CaptureRequest, observed: Observed, whole: bool) -> Trial:
    return Trial(observed, split_target(request.target)[1], request.inputs, whole)


def sat(run: Run, trial: Trial, model: Model) -> Report:
    """The loop in a phase of its own; every difference is told as it is fed back."""

    def tell(subject: Subject | None, lines: Sequence[str]) -> None:
        name = (subject.path or subject.name) if subject is not None else trial.name
        run.emit(events.TranslationDiffers(subject=name, lines=list(lines)))

    with run.phase("translate") as phase:
        report = trial.run(model, tell)
        phase.summary = f"{_word(report)}, {report.asked} programs judged"
        phase.facts["tokens"] = report.usage.total
    return report


def _word(report: Report) -> str:
    return {
        Bound: "bound",
        DisplayOnly: "display-only",
        BackwardDiffers: "backward",
        GivenUp: "given up",
    }[type(report.end)]


def ended(run: Run, report: Report) -> list[str]:
    """Say how a translation ended, as an event and as lines."""
    match report.end:
        case Bound() as bound:
            lines = ["bound to the code", *bound.assumptions]
        case DisplayOnly(reason=reason):
            lines = [f"display-only: nothing was compared, because the code does not run: {reason}"]
        case BackwardDiffers() as backward:
            lines = [f"a fault of the code: {backward.what} differs", *backward.lines()]
        case GivenUp(reason=reason):
            lines = [f"no translation: {reason}"]
    word = _word(report)
    run.emit(
        events.TranslationEnded.model_validate({"end": word, "asked": report.asked, "lines": lines})
    )
    return lines


def _prompts(trial: Trial) -> str:
    """Exactly what would leave this machine, for every subject."""
    rendered = [prompted(task) for task in trial.tasks()]
    return "\n\n".join(
        f"=== system ===\n{p.system}\n=== user ===\n{p.user}".rstrip() for p in rendered
    )


def parallelize(run: Run, job: pipeline.Job) -> Outcome:
    """Plan and prove a target that capture refuses, from a translation that is bound to it:
    the one given, or one that the job's model makes.

    Raises:
        InputError, CaptureError: a target or a file that cannot be used.
    """
    observed = tried(run, job.request)
    if observed.problem is None:
        run.note("capture takes it: the translation is not needed")
        return pipeline.parallelize(run, job)
    trial = trial_of(job.request, observed, False)
    if job.asked.translation is not None:
        end = _given(run, trial, load(job.asked.translation))
    else:
        model = job.asked.asker(run)
        if model is None:
            return Outcome(Exit.ENDPOINT, answer=str(observed.problem))
        try:
            report = sat(run, trial, model)
        finally:
            model.close()
        ended(run, report)
        end = report.end
    if isinstance(end, Bound) and observed.captured is not None:
        return pipeline.parallelize_bound(run, job, observed.captured.facts, end)
    if isinstance(end, DisplayOnly):
        return _displayed(run, job, end)
    said = end.lines() if isinstance(end, BackwardDiffers | Differs) else [str(end)]
    return Outcome(Exit.NOT_PROVED, answer="\n".join(["not bound to the code:", *said]))


def _given(
    run: Run, trial: Trial, program: Program
) -> Bound | DisplayOnly | Differs | BackwardDiffers:
    with run.phase("bind") as phase:
        found = trial.judge(program)
        phase.summary = type(found).__name__
    if isinstance(found, NotRunnable):
        return DisplayOnly(program, str(found))
    if isinstance(found, Differs):
        run.emit(events.TranslationDiffers(subject=trial.name, lines=found.lines()))
    return found


def _displayed(run: Run, job: pipeline.Job, shown: DisplayOnly) -> Outcome:
    """A plan to look at. Nothing is written, and nothing is said of the code."""
    try:
        joint = grad(shown.forward)
    except IRError as error:
        raise InputError(f"the translation has no gradient: {error}") from None
    facts = ModelFacts(job.request.target, split_target(job.request.target)[1])
    captured = Captured(joint, {}, facts)
    made = pipeline.planned(run, job, captured, split_loss=False)
    verdict = pipeline.verified(run, captured, made)
    what = "proved" if isinstance(verdict, Proof) else verdicts.word(verdict)
    message = (
        f"display-only: the plan is {what} for the translation, and nobody compared the "
        f"translation with the code, because it does not run here: {shown.reason}"
    )
    run.emit(events.VerdictReached(verdict="unknown", message=message))
    return Outcome(Exit.NOT_PROVED, "unknown", answer=message)
