"""What the entrances take is what the actions declare: command line, Python, session, manifest."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer

import shardproof
from shardproof.agent.actions.action import Action, Argument, flags
from shardproof.agent.actions.batches import APART, Batch, entry
from shardproof.agent.actions.catalogue import ACTIONS
from shardproof.agent.actions.models import Candidates, Parallelize, Translate, WhyNot
from shardproof.agent.actions.patches import Apply
from shardproof.agent.actions.programs import Check, Repairing
from shardproof.agent.batch.manifest import FORMS, MATRIX, Entry, Options, form
from shardproof.agent.chat import planning, tools
from shardproof.agent.chat.registry import registered
from shardproof.agent.chat.state import Settings
from shardproof.agent.cli import command
from shardproof.agent.cli.main import app
from shardproof.agent.cli.project import Planning

GROUP: Any = typer.main.get_command(app)
SAMPLES: dict[Any, Any] = {str: "a", int: 7, float: 2.5, Path: Path("p"), bool: True}


def sample(field: Any) -> Any:
    """A value that is not the default."""
    kind = field.annotation
    if get_origin(kind) is tuple:
        return tuple(SAMPLES[get_args(kind)[0]] for _ in range(2))
    if get_origin(kind) is Literal:
        return get_args(kind)[-1]
    kind = next(iter(get_args(kind)), kind)
    return not field.default if kind is bool else SAMPLES[kind]


def filled(action: type[Action]) -> Action:
    return action(**{name: sample(field) for name, (field, _) in action.parameters().items()})


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.command.name)
def test_the_command_line_takes_what_is_declared(action: type[Action]) -> None:
    found = {p.name: p for p in GROUP.commands[action.command.name].params}
    more = {"timeout": action.command.limited, "json": action.command.json}
    more["format"] = action.command.formats
    own = action.parameters()
    extra = {name for name, wanted in more.items() if wanted} | {"help"}
    assert set(found) - extra == set(own)
    for name, (field, option) in own.items():
        param = found[name]
        assert param.help == option.help
        assert param.required == field.is_required()
        if not isinstance(option, Argument):
            assert param.opts == list(flags(name, option)[: len(param.opts)])


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.command.name)
def test_the_words_of_an_action_are_read_as_the_same_action(
    action: type[Action], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Action] = []
    monkeypatch.setattr(command, "perform", lambda _, a: asked.append(a) or 1 / 0)
    made = filled(action)
    GROUP(list(made.words()), standalone_mode=False)
    assert asked == [made]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.command.name)
def test_the_work_of_an_action_takes_it(action: type[Action]) -> None:
    room, _, name = action.command.work.partition(":")
    _, *taken = inspect.signature(
        getattr(import_module(f"shardproof.agent.{room}"), name)
    ).parameters.values()
    if taken[0].name == "asked":
        kind = taken[0].annotation
        assert (kind if isinstance(kind, str) else kind.__name__) == action.__name__
    else:
        needed = {p.name for p in taken if p.default is p.empty}
        assert needed <= set(action.parameters()) <= {p.name for p in taken}


@pytest.mark.parametrize(
    ("work", "action", "own"),
    [
        (shardproof.parallelize, Parallelize, {"target": "model"}),
        (shardproof.check, Check, {"target": "module"}),
        (shardproof.assert_parallel_equal, Check, {"target": "module"}),
        (shardproof.repair, Repairing, {}),
    ],
)
def test_the_functions_take_what_is_declared(
    work: Any, action: type[Action], own: dict[str, str]
) -> None:
    taken = inspect.signature(work).parameters
    declared = {own.get(name, name): field for name, (field, _) in action.parameters().items()}
    assert set(taken) - {"progress", "problem"} == set(declared)
    for name, field in declared.items():
        if name not in ("against", *own.values()) and not field.is_required():
            assert taken[name].default == field.default
    with pytest.raises(shardproof.ShardproofError, match="no option layouts"):
        work(*["x.py:X"] * sum(p.kind != p.KEYWORD_ONLY for p in taken.values()), layouts=())


def test_every_command_can_be_called_by_name() -> None:
    ended = shardproof.command("schedule", source="1f1b", stages=2, micro_batches=2)
    assert (ended.exit, ended.verdict) == (0, "proved")
    with pytest.raises(shardproof.ShardproofError, match="stages cannot be used"):
        shardproof.command("schedule", source="1f1b", stages="two")
    with pytest.raises(shardproof.ShardproofError, match="no command nothing"):
        shardproof.command("nothing")


def test_manifests_and_batches_take_what_a_job_may_be_told() -> None:
    declared = {entry(n, o): f for n, (f, o) in Parallelize.parameters().items() if n not in APART}
    assert set(Options.model_fields) == {*declared, "timeout"}
    assert set(MATRIX) <= set(declared)
    spelled = {entry(name, option) for name, (_, option) in Batch.parameters().items()}
    assert set(Options.model_fields) <= spelled
    assert all(form(name) for name in (*Entry.model_fields, *FORMS))
    for name in declared:
        given = Options.model_validate({name: [1] if name in ("batch", "seq") else None})
        assert name in given.model_fields_set


def test_a_project_file_takes_what_is_declared() -> None:
    assert set(Planning.model_fields) <= set(Parallelize.parameters())


IN_A_SESSION = {
    Parallelize: {
        "target": "/load TARGET",
        "mesh": "/mesh",
        "hardware": "/settings hardware",
        "run": "/settings run",
        "guard": "/settings guard",
        "inline": "/settings inline",
        "pin": "/pin",
        "ban": "/ban",
        "constrain": "/constrain",
        "memory": "/constrain memory",
        "out": "/report DIRECTORY",
        "llm": "/model",
        "answer_cache": "chat --no-answer-cache",
        "translation": "/translate --reply",
        "force": "the report in a session's own folder is replaced, another one never",
        "require_useful": "the plan itself says whether it is useful",
        "launcher": "the command alone writes one",
        "dialect": "a session writes patches; the command alone, plans of libraries",
        "micro_batches": "of a launcher",
        "optimizer": "of a launcher",
        "run_steps": "of a launcher",
    },
    Translate: {
        "target": "/translate TARGET",
        "out": "/report DIRECTORY",
        "show_prompt": "/prompt /translate",
        "llm": "/model",
        "answer_cache": "chat --no-answer-cache",
    },
    Repairing: {"llm": "/repair --model", "answer_cache": "chat --no-answer-cache"},
    WhyNot: {"path": "/why-not MODULE", "style": "/why-not MODULE STYLE"},
    Candidates: {},
    Apply: {
        "out": "the plan of the session",
        "root": "the folder of the session",
        "recapture": "a session always reads the patched source again",
    },
}
"""How a session is told what is no option of a command of it."""
OF_A_SESSION = {
    Parallelize: ("load", "mesh"),
    Translate: ("translate",),
    Repairing: ("repair",),
    WhyNot: ("why-not",),
    Candidates: ("candidates",),
    Apply: ("apply",),
}


@pytest.mark.parametrize("action", OF_A_SESSION, ids=lambda a: a.__name__)
def test_a_session_takes_what_is_declared(action: type[Action]) -> None:
    known = registered()
    options = {option for name in OF_A_SESSION[action] for option in known[name].options}
    elsewhere = IN_A_SESSION[action]
    shared = set(Parallelize.parameters()) if action in (WhyNot, Candidates) else set()
    for name, (_, option) in action.parameters().items():
        said = {flag[2:] for flag in flags(name, option)} <= options
        assert said != (name in elsewhere) or name in shared, name
    for said in elsewhere.values():
        head, _, rest = said.partition(" ")
        if head.startswith("/"):
            assert head[1:] in known
        if head == "/settings":
            assert rest in Settings.model_fields


def test_a_session_asks_for_all_that_it_was_told() -> None:
    sized = {name for name in Parallelize.parameters() if name in planning.SIZED}
    assert sized == set(planning.SIZED)
    assert registered()["mesh"].options == registered()["price"].options


def test_tools_name_the_options_that_a_model_may_give() -> None:
    for found in tools.offered():
        about = tools.tool(found)["parameters"]["properties"]["words"]["description"]
        for option in found.options:
            assert (f"[--{option}" in about) == (option not in found.owners)
