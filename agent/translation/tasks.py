"""What is asked of a translator: the source, the inputs and outputs, and why capture refused."""

from agent.llm.translating import Task
from synthesis.frontends.torch.observed import Observed, Subject
from synthesis.frontends.torch.request import InputSpec
from verifier.kernel.program.program import Input
from verifier.kernel.program.types import TensorType


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
