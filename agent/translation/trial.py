"""From a target that capture refuses to a bound translation: part by part where the rest can be
captured, else the whole file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from shardproof.agent.llm.client import Model
from shardproof.agent.llm.translating import Task, beyond_one_device
from shardproof.agent.run.errors import InputError
from shardproof.agent.translation.binding import bind, bind_whole
from shardproof.agent.translation.rounds import GivenUp, Report, run_rounds
from shardproof.agent.translation.splicing import splice
from shardproof.agent.translation.trust import Bound, Differs, Judged, NotRunnable
from shardproof.synthesis.frontends.torch.observed import Observed, Subject, Trouble
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Input, Program
from shardproof.verifier.kernel.program.types import TensorType

Tell = Callable[[Subject | None, Sequence[str]], None]


@dataclass(frozen=True)
class Trial:
    """What is to be translated of a target that was tried."""

    observed: Observed
    name: str
    """Class name of the target."""
    inputs: tuple[InputSpec, ...] = ()
    """As the caller gives them; used where the class cannot be looked at."""
    whole_only: bool = False
    """Translate the whole file, also where a part would do."""

    def subjects(self) -> tuple[Subject, ...]:
        """What is translated: modules, or the whole model."""
        o = self.observed
        if o.parts and o.around is not None and not self.whole_only:
            return o.parts
        return (o.whole,) if o.whole is not None else ()

    def tasks(self) -> tuple[Task, ...]:
        """A task for each subject."""
        found = tuple(task_of(self.observed, s) for s in self.subjects())
        return found or (free_task(self.observed, self.name, self.inputs),)

    def judge(self, program: Program) -> Judged:
        """Hold a program for the whole model to the code.

        Raises:
            InputError: it has other inputs or outputs than the model.
        """
        whole = self.observed.whole
        if whole is None:
            return NotRunnable(self.observed.problem or Trouble("the class cannot be built"))
        if whole.problem is not None:
            return NotRunnable(whole.problem)
        _fits(program, whole, self.consts())
        return bind(program, whole, self.consts())

    def consts(self) -> Mapping[str, NDArray[Any]]:
        """Values of constant inputs by name: buffers, and constants that capture found."""
        o = self.observed
        found: dict[str, NDArray[Any]] = {}
        if o.around is not None:
            found |= o.around.consts
        if o.whole is not None:
            found |= o.whole.consts
        return found

    def run(self, model: Model, tell: Tell) -> Report:
        """Ask for translations until the whole is bound.

        Raises:
            InputError: source that is not Python.
        """
        subjects = self.subjects()
        if not subjects:
            return run_rounds(model, self.tasks()[0], self.judge, lambda t: tell(None, t))
        if not subjects[0].path:
            return _asked(model, self.tasks()[0], subjects[0], tell)
        reports: list[Report] = []
        for task, subject in zip(self.tasks(), subjects, strict=True):
            report = _asked(model, task, subject, tell)
            reports.append(report)
            if not isinstance(report.end, Bound):
                return _together(reports, report.end)
        return _together(reports, self._joined(subjects, [r.end for r in reports]))

    def _joined(self, subjects: tuple[Subject, ...], ends: list[Any]) -> Bound | GivenUp:
        """The captured rest with the parts in it, held to the whole model."""
        o = self.observed
        assert o.around is not None
        assert o.whole is not None
        bound: list[Bound] = [end for end in ends if isinstance(end, Bound)]
        parts = {
            path: part.forward
            for subject, part in zip(subjects, bound, strict=True)
            for path in subject.alike
        }
        try:
            program = splice(o.around.program, o.holes, parts, o.around.facts.tied)
        except IRError as error:
            return GivenUp(str(error))
        found = bind_whole(program, o.whole, bound, self.consts())
        if isinstance(found, Bound):
            return found
        lines = found.lines() if not isinstance(found, NotRunnable) else [str(found)]
        differences = (found,) if isinstance(found, Differs) else ()
        return GivenUp(
            f"each part agrees with the code, the whole model does not: {'; '.join(lines)}",
            differences,
        )


def _asked(model: Model, task: Task, subject: Subject, tell: Tell) -> Report:
    return run_rounds(model, task, lambda p: bind(p, subject), lambda t: tell(subject, t))


def _together(reports: list[Report], end: Any) -> Report:
    usage = reports[0].usage
    for report in reports[1:]:
        usage += report.usage
    return Report(
        end,
        sum(r.asked for r in reports),
        tuple(d for r in reports for d in r.differences),
        "\n".join(r.text for r in reports),
        usage,
    )


def _fits(program: Program, whole: Subject, consts: Mapping[str, Any]) -> None:
    """Raises InputError where a program is not one of this model."""
    if problems := beyond_one_device(program):
        raise InputError("the program is none of one device", got="; ".join(problems))
    params = {p.path: p.type for p in whole.params}
    given = {s.name: (s.shape, s.dtype) for s in whole.inputs}
    for item in program.inputs:
        where = f"input %{item.name}"
        if item.role == "param" and params.get(item.path) != item.type:
            raise InputError(
                "the program has another parameter than the model",
                where=where,
                got=str(item.type),
                expected=str(params.get(item.path, f"one of {', '.join(params)}")),
            )
        if item.role == "input" and given.get(item.path) != (item.type.shape, item.type.dtype):
            raise InputError(
                "the program has another input than the model",
                where=where,
                got=str(item.type),
                expected=", ".join(f"{k}={d}{list(s)}" for k, (s, d) in given.items()),
            )
        if item.role == "const" and item.name not in consts:
            raise InputError(
                "the model has no such buffer", where=where, expected=", ".join(consts)
            )
        if item.role not in ("param", "input", "const"):
            raise InputError("a translation is a forward program", where=where, got=item.role)
    wanted = [(o.role, o.path, o.type.shape) for o in whole.outputs]
    found = [(o.role, o.path, program[o.value].shape) for o in program.outputs]
    if wanted != found:
        raise InputError(
            "the program has other outputs than the model",
            expected=", ".join(f"{r} {p} {list(s)}" for r, p, s in wanted),
            got=", ".join(f"{r} {p} {list(s)}" for r, p, s in found),
        )


def task_of(observed: Observed, subject: Subject) -> Task:
    """The task of one subject: the whole model, or a module of it."""
    inputs = [Input(p.path, p.type, "param", p.path) for p in subject.params]
    inputs += [_given(spec) for spec in subject.inputs]
    inputs += [
        Input(path, TensorType(value.shape, _dtype(value.dtype.kind)), "const", path)
        for path, value in subject.consts.items()
    ]
    return Task(
        subject.name,
        observed.source,
        observed.file,
        tuple(inputs),
        tuple((o.role, o.path) for o in subject.outputs),
        _why(observed, subject),
        free=not subject.outputs,
    )


def free_task(observed: Observed, name: str, inputs: tuple[InputSpec, ...]) -> Task:
    """The task where the class could not be built: only what the caller says is known."""
    return Task(
        name,
        observed.source,
        observed.file,
        tuple(_given(spec) for spec in inputs),
        (),
        str(observed.problem or ""),
        free=True,
    )


def _given(spec: InputSpec) -> Input:
    return Input(spec.name, TensorType(spec.shape, spec.dtype), "input", spec.name)


def _dtype(kind: str) -> str:
    return {"f": "f32", "b": "bool", "u": "u8"}.get(kind, "i64")


def _why(observed: Observed, subject: Subject) -> str:
    problem = str(observed.problem or "")
    if subject.path:
        return f"{problem}. Only the class {subject.name} is to be translated."
    return problem
