"""Keys, addresses and child processes: who gets a key, and who may say where requests go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof.agent.llm.answers import NoModel
from shardproof.agent.llm.endpoint import Endpoint, find, project_settings, shown
from shardproof.agent.llm.secret import Secret, clean_environ, redacted
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch import process

SECRETS = {
    "OPENAI_API_KEY": "sk-aaaaaaaaaaaaaaaaaaaa",
    "SHARDPROOF_API_KEY": "plain",
    "MY_TOKEN": "t",
    "AWS_SECRET_ACCESS_KEY": "s",
    "GITHUB_PAT": "p",
    "DB_PASSWORD": "p",
    "HF_TOKEN": "hf_x",
    "OPENAI_CUSTOM_HEADERS": "X: y",
    "HTTPS_PROXY": "http://user:pass@proxy:3128",
    "SOMETHING": "sk-live-0123456789abcdefgh",
    "PIP_INDEX_URL": "https://me:secret@host/simple",
    "netrc_auth": "x",
}
HARMLESS = {"PATH": os.environ.get("PATH", ""), "LANG": "C", "KEYBOARD": "us", "MONKEY": "1"}


def test_child_processes_get_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **HARMLESS}.items():
        monkeypatch.setenv(name, value)
    cleaned = clean_environ(EXTRA="1")
    assert not set(SECRETS) & set(cleaned)
    assert {**HARMLESS, "EXTRA": "1"}.items() <= cleaned.items()
    for env in (cleaned, process.environment()):
        told = subprocess.run(
            [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert not set(SECRETS) & set(json.loads(told))
        assert not [v for v in SECRETS.values() if len(v) > 5 and v in told]


def test_a_key_is_not_shown_or_stored() -> None:
    import copy
    import pickle

    key = Secret("sk-abcdefgh")
    endpoint = Endpoint("http://h/v1", "m", key)
    for text in (str(key), repr(key), f"{key}", repr(endpoint), str(vars(endpoint))):
        assert "abcdefgh" not in text
    for store in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            store(endpoint)
    assert redacted("Authorization: Bearer abcdefghijk", key) == "Authorization: Bearer ***"


@pytest.mark.parametrize(
    "line",
    [
        'base_url = "http://evil.invalid/v1"',
        'api_key_env = "AWS_SECRET_ACCESS_KEY"',
        'api_key = "x"',
        'model = "expensive"',
        'extra_body = { user = "x" }',
        "max_tokens = 1000000",
        'structured = "text"',
        "prices = {}",
        "timeout = { read = 1e9 }",
        "budget = { usd = -1 }",
        "budget = { usd = nan }",
        "budget = { spend = 1 }",
        "budget = 3",
        'enabled = "no"',
    ],
)
def test_a_project_may_not_say_where_requests_go(line: str, tmp_path: Path) -> None:
    path = tmp_path / "shardproof.toml"
    path.write_text(f"# a project\n[model]\n{line}\n")
    with pytest.raises(InputError) as caught:
        find({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, tmp_path / "none", path)
    assert caught.value.where == f"{path}:3"


def test_a_project_may_lower_budgets_and_switch_off(tmp_path: Path) -> None:
    user, path = tmp_path / "user.toml", tmp_path / "shardproof.toml"
    env = {"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}
    user.write_text("[model]\nbudget = { calls = 10, usd = 1.0 }\n")
    path.write_text("[model]\nbudget = { calls = 1000, usd = 0.5, tokens = 100 }\n")
    found = find(env, user, path)
    assert isinstance(found, Endpoint)
    assert (found.limits.calls, found.limits.usd, found.limits.tokens) == (10, 0.5, 100)
    path.write_text("[model]\nenabled = false\n")
    assert isinstance(find(env, user, path), NoModel)
    path.write_text("[other]\nbase_url = 'x'\n")
    assert project_settings(path) == {}
    path.write_text("model = 3")
    with pytest.raises(InputError):
        find(env, user, path)


LOCAL = "http://127.0.0.1:8000/v1"
FOUND: dict[str, tuple[dict[str, str], str, str, str] | tuple[dict[str, str], str, str]] = {
    "nothing": ({}, "", "no key"),
    "a key and no model": ({"OPENAI_API_KEY": "k"}, "", "https://api.openai.com/v1", "k"),
    "a server and no model": ({"OPENAI_BASE_URL": LOCAL}, "", "no model is named"),
    "OpenAI": (
        {"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, "", "https://api.openai.com/v1", "k"
    ),
    "an address in the environment": (
        {"OPENAI_BASE_URL": LOCAL, "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, "", LOCAL, "k"
    ),
    "our address does not get the key of OpenAI": (
        {"SHARDPROOF_BASE_URL": LOCAL, "OPENAI_API_KEY": "k", "SHARDPROOF_MODEL": "m"},
        "", LOCAL, "none",
    ),
    "an address of the user does not get the key of OpenAI": (
        {"OPENAI_API_KEY": "k"}, f'base_url = "{LOCAL}"\nmodel = "m"', LOCAL, "none"
    ),
    "a key by name": (
        {"MINE": "k2", "OPENAI_API_KEY": "k"},
        'base_url = "https://h.example/v1"\napi_key_env = "MINE"\nmodel = "m"',
        "https://h.example/v1", "k2",
    ),
    "a key by name that is not set": (
        {"OPENAI_API_KEY": "k"},
        'base_url = "https://h.example/v1"\napi_key_env = "MINE"\nmodel = "m"',
        "the variable MINE",
    ),
    "an address elsewhere without a key": (
        {"OPENAI_API_KEY": "k"}, 'base_url = "https://h.example/v1"\nmodel = "m"', "no key for"
    ),
    "switched off": ({"OPENAI_API_KEY": "k"}, "enabled = false", "switched off"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_endpoint_is_found(case: str, tmp_path: Path) -> None:
    env, text, *expected = FOUND[case]
    user = tmp_path / "user.toml"
    user.write_text(f"[model]\n{text}\n")
    found = find(env, user)
    if len(expected) == 1:
        assert isinstance(found, NoModel)
        assert expected[0] in str(found)
        assert "\n" not in str(found)
    else:
        assert isinstance(found, Endpoint)
        assert [found.base_url, found.key.reveal()] == expected


@pytest.mark.parametrize(
    "url", ["http://u:p@h/v1", "https://h/v1?key=sk-x", "file:///etc/passwd", "h:80", "http://[::1"]
)
def test_an_address_that_is_none_is_refused_without_showing_it(url: str, tmp_path: Path) -> None:
    env = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}
    with pytest.raises(InputError) as caught:
        find(env, tmp_path / "none")
    assert caught.value.where == "OPENAI_BASE_URL"
    assert "u:p" not in str(vars(caught.value))
    assert "sk-x" not in str(vars(caught.value)) + shown(url)


@pytest.mark.parametrize(
    "text", ["[model", "[model]\napi_key = 'sk-1'", "[model]\nstructured = 'xml'", "\x00",
             "[model]\nprices = { m = { input = 1 } }", "[model]\ntemperature = true"]
)  # fmt: skip
def test_a_user_file_that_cannot_be_used_is_named(text: str, tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text(text)
    with pytest.raises(InputError) as caught:
        find({}, user)
    assert str(user) in caught.value.where
    assert "sk-1" not in str(vars(caught.value))


def test_help_does_not_wait_for_the_model_packages() -> None:
    code = (
        "import sys, shardproof.agent.cli.main, shardproof.agent.llm, prompts\n"
        "heavy = {'openai', 'tenacity', 'jinja2', 'httpx2'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
