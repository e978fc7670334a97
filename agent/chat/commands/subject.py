"""`/load` and `/mesh`: what a session is about."""

from math import prod

from shardproof.agent.actions.models import Captured, Parallelize, Translate
from shardproof.agent.chat import planning
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.chat.state import KINDS, Model, Planned, Refused, Source
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome

GROUP = "what it is about"
CALLED = tuple(name for name in Captured.parameters() if name != "target")


@command(
    "TARGET | sequential FILE distributed FILE contract FILE",
    group=GROUP,
    effect="changes",
    takes=(Captured, CALLED),
    completes=("target", "path"),
    examples=(
        "/load examples/mlp.py:MLP",
        "/load hf:LlamaForCausalLM --config examples/llama-small.json --batch 4 --seq 16",
        "/load sequential one.txt distributed wrong.txt contract contract.txt",
    ),
)
def load(session: Session, words: Words) -> Outcome:
    """Load a model, or programs in text form.

    A model is captured once, in a process of its own. Programs may be given one by one; together
    they are what /verify, /cex and /repair are about. Nothing that was loaded changes when its
    file does: load it again.
    """
    if not words.words:
        raise InputError("nothing to load", where="/load", expected="path/model.py:Class, or FILEs")
    if words.words[0] in KINDS:
        return _programs(session, words)
    if len(words.words) > 1:
        raise InputError("more than one target", where="/load", got=" ".join(words.words[1:]))
    return _model(session, words)


def _model(session: Session, words: Words) -> Outcome:
    from shardproof.agent.chat import translating
    from shardproof.agent.chat.workspace import packed
    from shardproof.agent.pipeline import pipeline
    from shardproof.synthesis.emit.facts import ModelFacts
    from shardproof.synthesis.execute.job import collect_facts
    from shardproof.synthesis.frontends.torch.captured import dump
    from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError
    from shardproof.synthesis.frontends.torch.request import is_library, split_target

    wanted = _wanted(words)
    target = wanted.target
    kind, _ = split_target(target)
    seen = [] if is_library(target) else [kind]
    asked = wanted.request()
    if asked.config_file:
        seen.append(asked.config_file)
    files = [read(session, path) for path in seen]
    try:
        captured = pipeline.captured_in(session.run, asked)
    except CaptureError as error:
        if is_library(target) or OR_TRANSLATE not in error.hint:
            raise
        return translating.offer(session, wanted, error)
    for file in captured.facts.files:
        path = session.shown(file.location) if file.location else ""
        if path and path not in [f.path for f in files]:
            session.file(path, file.text)
            files.append(Source(path=path, sha256=file.sha256))
    with session.run.phase("inspect") as phase:
        facts = collect_facts(asked)
        phase.summary = f"{len(facts.modules)} modules called"
    kept = session.workspace.keep
    captured_as, facts_as = kept(packed(captured)), kept(dump(ModelFacts, facts))
    given = wanted.model_dump()
    session.about(Model(**given, captured=captured_as, facts=facts_as, files=tuple(files)))
    modules = [p for p in captured.facts.modules if p]
    more = f" and {len(modules) - 8} more" if len(modules) > 8 else ""
    return session.say(
        f"{captured.facts.class_name}: {captured.facts.param_count:,} parameters, modules "
        f"{', '.join(modules[:8])}{more}\n"
        + (_mesh_line(session) if session.state.mesh else "next: /mesh tp=2, then /plan")
    )


def read(session: Session, path: str) -> Source:
    """Read a file into the session."""
    try:
        data = (session.root / path).read_bytes()
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8", where=path) from None
    except OSError as error:
        raise InputError("cannot be read", where=path, got=error.strerror or "") from None
    session.file(session.shown(path), text)
    return Source(path=session.shown(path), sha256=session.artifacts.keep(text))


def _programs(session: Session, words: Words) -> Outcome:
    parts = list(words.words)
    if len(parts) % 2 or any(kind not in KINDS for kind in parts[::2]):
        raise InputError(
            "programs are loaded by kind and file",
            where="/load",
            expected="sequential FILE, distributed FILE, contract FILE, in any order",
            got=" ".join(parts),
        )
    programs = session.state.programs
    lines: list[str] = []
    for kind, path in zip(parts[::2], parts[1::2], strict=True):
        source = read(session, path)
        programs = programs.model_copy(update={kind: source, "repaired": ""})
        if kind != "contract":
            program = session.workspace.program(source)
            lines.append(f"{kind}: {len(program.nodes)} ops, {len(program.inputs)} inputs")
        else:
            lines.append(f"contract: {source.path}")
    session.change(programs=programs, subject="programs", judged=None, at=0)
    missing = programs.missing()
    if missing:
        lines.append(f"still to load: {', '.join(missing)}")
    else:
        session.workspace.pair()
        lines.append("next: /verify")
    return session.say("\n".join(lines))


def _wanted(words: Words) -> Refused:
    given = words.given(Captured)
    return Refused.of(f"/load {words.words[0]}", {**given, "target": words.words[0]})


@command(
    "[TARGET]",
    group=GROUP,
    effect="changes",
    owners=("reply",),
    takes=(Translate, ("reply", "whole", *CALLED)),
    completes=("target",),
    examples=(
        "/translate",
        "/translate --reply reply.txt",
        "/translate examples/untraceable/squared_relu.py:FeedForward",
    ),
    most=1,
)
def translate(session: Session, words: Words) -> Outcome:
    """Have code that capture refuses translated, and compare the translation with it.

    The source goes to the model; /prompt /translate shows it and sends nothing. Only a translation
    that agrees with the code on all samples is planned from. --reply FILE takes a reply instead of
    asking, --whole translates the whole file where a part would do.
    """
    from shardproof.agent.chat import translating

    wanted = _wanted(words) if words.words else session.state.refused
    if wanted is None:
        raise InputError(
            "nothing was refused", where="/translate", hint="/translate path/model.py:Class"
        )
    return translating.translate(session, wanted, words.one("reply"), words.has("whole"))


@command(
    "[NAME=SIZE,...]",
    group=GROUP,
    effect="changes",
    takes=(Parallelize, planning.SIZED),
    completes=("mesh",),
    examples=("/mesh tp=2", "/mesh dp=2,tp=4", "/mesh --gpus 8", "/mesh --gpus 64 --fix tp=8"),
)
def mesh(session: Session, words: Words) -> Outcome:
    """Choose the mesh, or say which it is: names and sizes of its dims, outermost first.

    --gpus N has the fastest one chosen by price that a patch can be written for, with all else of a
    training configuration; --seq and --global-batch say for which tokens, --fix what is not to be
    chosen.
    """
    from shardproof.agent.actions.words import read_mesh
    from shardproof.synthesis.planner.search import axes

    by_price = words.has("gpus")
    if not words.words and not by_price:
        return session.say(_mesh_line(session) if session.state.mesh else "no mesh yet: /mesh tp=2")
    given = words.given(Parallelize)
    chosen = planning.chosen(session, **given) if by_price else read_mesh(",".join(words.words))
    axes(chosen)
    planned: Planned | None = session.state.planned
    if dict(chosen.dims) != session.state.mesh:
        planned = None
    session.change(mesh=dict(chosen.dims), planned=planned)
    if planned is None and session.state.subject == "model":
        session.change(judged=None, at=0, ideas=[])
    return session.say(_mesh_line(session))


def _mesh_line(session: Session) -> str:
    dims = session.state.mesh
    size = prod(dims.values())
    shown = ", ".join(f"{name}={extent}" for name, extent in dims.items())
    hint = "" if session.state.planned or session.state.model is None else "; next: /plan"
    return f"mesh {shown}: {size} ranks{hint}"
