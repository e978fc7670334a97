"""`/model`, `/prompt`, `/cost`, `/budget`: the language model, if there is one."""

from typing import Any

from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Peek, Shown
from shardproof.agent.chat.registry import Words, command
from shardproof.agent.chat.state import Budget
from shardproof.agent.llm.answers import NoModel
from shardproof.agent.llm.format_tiers import TOOLS
from shardproof.agent.run.errors import InputError
from shardproof.agent.run.run import Outcome

GROUP = "the model"
UNTRIED = (
    "how the endpoint gives structure is not known yet: the first question of all is preceded by a "
    "few short ones that try it out (a colour and a number, nothing of yours), and the schema may "
    "then go as a parameter instead of the lines below"
)


@command(
    "[NAME | default]",
    group=GROUP,
    completes=("value",),
    examples=("/model", "/model qwen3-coder", "/model default"),
    machine=True,
)
def model(session: Session, words: Words) -> Outcome:
    """Say which language model is asked, and where; or ask another one at the same endpoint.

    Only the user's environment and config say where requests go; no session can.
    """
    if words.words:
        name = "" if words.words[0] == "default" else words.words[0]
        settings = session.state.settings.model_copy(update={"model": name})
        session.change(settings=settings)
        session.asker.named = name
        session.asker.close()
    found = session.asker.client()
    if isinstance(found, NoModel):
        return session.say(str(found))
    endpoint = found.endpoint
    rung = found.profiles.of(endpoint).rung or "not tried yet"
    return session.say(
        f"{endpoint.model} at {endpoint.shown} (from {endpoint.origin}), structure by {rung}"
    )


@command(
    "INPUT",
    group=GROUP,
    free=True,
    completes=("command",),
    examples=(
        "/prompt why is down split by rows?",
        "/prompt /explain --model",
        "/prompt /translate",
    ),
)
def prompt(session: Session, words: Words) -> Outcome:
    """Show exactly what would leave the machine for an input, and send nothing.

    The input is what would be typed: words for the model, or a command that asks it.
    """
    if not words.raw:
        raise InputError("for which input?", where="/prompt", expected="words, or a command")
    from shardproof.agent.chat import conversation as talk, registry

    try:
        with session.asking(Asker(Peek())):
            if words.raw.startswith("/"):
                name, _, rest = words.raw[1:].partition(" ")
                found = registry.find(name)
                if name == "prompt":
                    raise InputError("/prompt of /prompt", where="/prompt")
                found.work(session, registry.split(found, rest.strip()))
            else:
                talk.answer(session, words.raw)
    except Shown as shown:
        return session.say(_sent(session, shown))
    return session.say("nothing would be sent for this input")


def _sent(session: Session, shown: Shown) -> str:
    import json

    from shardproof.agent.llm.client import body
    from shardproof.agent.llm.endpoint import Endpoint
    from shardproof.agent.llm.profile import Profile

    client = session.asker.client()
    if isinstance(client, NoModel):
        endpoint, profile = Endpoint("http://127.0.0.1/", "(no model)"), Profile()
        where = f"nowhere: {client.reason}"
    else:
        endpoint, profile = client.endpoint, client.profiles.of(client.endpoint)
        where = f"{endpoint.shown}/chat/completions"
    auto = endpoint.structured == "auto"
    rung = profile.rung if auto else endpoint.structured
    if auto and profile.tools and shown.form is not None and shown.form.tools:
        rung = TOOLS
    limit = profile.limit_param or endpoint.max_tokens_param
    data: dict[str, Any] = body(endpoint, profile, rung or "text", shown.messages, shown.form)
    data |= {limit: endpoint.max_tokens, "stream": True}
    messages = data.pop("messages")
    lines = [f"to {where}", json.dumps(data, ensure_ascii=False)]
    if not rung and not isinstance(client, NoModel):
        lines.append(UNTRIED)
    for message in messages:
        lines += [f"--- {message['role']}", message["content"].rstrip("\n")]
    return "\n".join(lines)


@command(group=GROUP, effect="reads", examples=("/cost",))
def cost(session: Session, words: Words) -> Outcome:
    """Say what the model has cost in this session: calls, tokens, money, seconds."""
    spent, limits = session.asker.spent, session.state.budget
    lines = [spent.words()]
    stated = {k: v for k, v in limits.model_dump().items() if v is not None}
    if stated:
        lines.append("budget: " + ", ".join(f"{k} {v:g}" for k, v in stated.items()))
    return session.say("\n".join(lines))


@command(
    "[calls=N] [tokens=N] [usd=X] [seconds=S] | none",
    group=GROUP,
    completes=("value",),
    examples=("/budget calls=10 tokens=100000", "/budget none"),
)
def budget(session: Session, words: Words) -> Outcome:
    """Limit what the model may cost in this session; it only lowers the limits of the config."""
    if words.words:
        new = Budget() if words.words == ("none",) else _budget(session.state.budget, words.words)
        session.change(budget=new)
        session.asker.budget = new
    stated = {k: v for k, v in session.state.budget.model_dump().items() if v is not None}
    if not stated:
        return session.say("no budget of this session; the limits of the config hold")
    return session.say("budget: " + ", ".join(f"{k} {v:g}" for k, v in stated.items()))


def _budget(now: Budget, words: tuple[str, ...]) -> Budget:
    found = now.model_dump()
    for word in words:
        name, equals, text = word.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        whole = name in ("calls", "tokens")
        if name not in found or not equals or not 0 <= value < 1e12 or (whole and value % 1):
            raise InputError(
                "no such limit", where="/budget", got=word, expected="calls, tokens, usd, seconds"
            )
        found[name] = int(value) if whole else value
    return Budget(**found)
