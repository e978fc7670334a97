"""A model's training configurations: priced as all others, tried where a patch can do them."""

from __future__ import annotations

import json
from functools import cache

import pytest

from shardproof.agent.actions.models import Asking, Plan
from shardproof.agent.chat.models import Asker
from shardproof.agent.llm.answers import NoModel
from shardproof.agent.llm.client import Client
from shardproof.agent.llm.configuring import configure
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.run.run import Run
from shardproof.agent.training import choosing, strategy
from shardproof.agent.training.choosing import _proposed  # pyright: ignore[reportPrivateUsage]
from shardproof.synthesis.strategy import choice as choices
from shardproof.synthesis.strategy.choice import Choice
from shardproof.synthesis.strategy.shape import of_config
from tests.commands import ROOT
from tests.llm.scripted import Scripted
from tests.llm.server import Server, says


@cache
def chosen() -> tuple[Choice, str]:
    config = json.loads((ROOT / "examples/llama3-8b.json").read_text())
    asked = Plan(target="hf:LlamaForCausalLM", gpus=64, seq=8192)
    space, said = strategy.space_of(of_config(config, "LlamaForCausalLM"), asked, 64)
    return choices.choose(space), said


def reply(*fixes: str) -> str:
    rows = [{"fix": fix, "reason": "the links are uneven"} for fix in fixes]
    return json.dumps({"configurations": rows})


def test_the_question_holds_prices_links_and_what_can_be_chosen(
    server: Server, client: Client
) -> None:
    server.answers(says(reply("tp=4,dp=16,shard=8,recompute=full")))
    found = configure(client, *chosen())
    assert isinstance(found, Read)
    assert found.value[0].fixed == (("tp", 4), ("dp", 16), ("shard", 8), ("recompute", "full"))
    system, user = (m["content"] for m in server.bodies[0]["messages"])
    assert "recompute: none|selective|full" in system
    assert "GB/s each between nodes" in user
    assert f"step {chosen()[0].best.step_s:.3g} s" in user
    assert "64 devices" in user


@pytest.mark.parametrize("bad", ["tp=banana", "mesh=2", "recompute=sometimes", ""])
def test_what_no_configuration_has_is_a_located_error(bad: str) -> None:
    found = configure(Scripted([reply(bad), reply(bad)]), *chosen())
    assert isinstance(found, Malformed)
    assert "configurations[0].fix" in str(found)
    both = configure(Scripted([reply(bad, "tp=8")]), *chosen())
    assert isinstance(both, Read)
    assert len(both.value) == 1


def test_proposals_are_priced_and_meshes_that_can_be_written_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = reply("tp=2,dp=32,zero=3,recompute=none", "pp=4,recompute=full", "tp=64")
    monkeypatch.setattr(Asking, "asker", lambda asked, run: Asker(Scripted([answer])))
    choice, said = chosen()
    more, patches = _proposed(Run([]), Asking(llm="auto"), choice, said)
    (mesh,) = [choosing.mesh_of(p) for p in patches]
    assert mesh.dims == (("dp_replicate", 4), ("dp_shard", 8), ("tp", 2))
    rows = more.others[len(choice.others) :]
    assert [row.step_s is None for row in rows] == [False, False, True]
    assert "slower" in rows[1].why
    assert rows[0].name.startswith("the model's tp=2,dp=32")
    assert more.best is choice.best
    assert more.proof is choice.proof


def test_without_an_answer_the_choice_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    choice, said = chosen()
    silent = Asker(Scripted([NoModel("no key")]))
    monkeypatch.setattr(Asking, "asker", lambda asked, run: silent)
    assert _proposed(Run([]), Asking(llm="auto"), choice, said) == (choice, [])
    monkeypatch.undo()
    assert _proposed(Run([]), Asking(), choice, said) == (choice, [])
