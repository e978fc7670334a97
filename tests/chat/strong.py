"""A model that is not one: rules over words, behind a real HTTP server, that call tools and read.

It is shown what any model is shown, and nothing else: the question, the facts and what the commands
said. Names and numbers in its answers come from there.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from math import prod
from typing import Any

from tests.llm.server import Server, chunk, stream

FENCE = re.compile(r"<<< (B[0-9a-f]{32})\n(.*?)\n\1 >>>", re.S)
MODULE = r"([a-z_]\w*(?:\.(?:\w+|\*))*)"
PRICE = re.compile(r"^(\S+) +step ([\d.]+) (\S+), .* sent per rank, ([\d.]+) (\S+) per rank", re.M)
SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
BYTES = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "GB": 1e9}
COUNTS = {"two": 2, "three": 3, "four": 4, "eight": 8}


@dataclass(frozen=True)
class Heard:
    """What a request shows."""

    asked: str
    facts: Mapping[str, str]
    did: tuple[tuple[str, str], ...]
    """Commands of before and what they said."""

    @property
    def results(self) -> str:
        return "\n".join(text for _, text in self.did)


@dataclass(frozen=True)
class Price:
    mesh: str
    step_s: float
    memory: float
    line: str

    @property
    def ranks(self) -> int:
        return prod(int(size) for size in re.findall(r"=(\d+)", self.mesh))


def read(messages: Sequence[Mapping[str, Any]]) -> Heard:
    """The question, the facts and the results so far."""
    first = next(m["content"] for m in messages if m["role"] == "user")
    fenced = [m[2] for m in FENCE.finditer(first)]
    facts = dict(re.findall(r"(?m)^([\w.* -]+): (.*)$", fenced[0]))
    called = {
        c["id"]: f"/{c['function']['name'].replace('_', '-')} "
        + json.loads(c["function"]["arguments"])["words"]
        for m in messages
        for c in m.get("tool_calls", ())
    }
    said = [(called[m["tool_call_id"]], m["content"]) for m in messages if m["role"] == "tool"]
    did = [(line, "\n".join(m[2] for m in FENCE.finditer(text))) for line, text in said]
    return Heard(fenced[-1].strip(), facts, tuple(did))


def think(heard: Heard) -> list[str] | str:
    """Commands to call, or words."""
    if not heard.did:
        return first(heard) or "I do not know what to do about that."
    return following(heard) or answer(heard)


def first(heard: Heard) -> list[str]:
    """The commands that a request takes at once."""
    q = heard.asked
    low = q.lower()
    for pattern, commands in DIRECT:
        found = re.search(pattern, q)
        if found:
            return [found.expand(command) for command in commands]
    named = meshes(q)
    if len(named) > 1 and re.search("faster|fastest|smallest|compare", low):
        return [f"/price {' '.join(named)}"]
    room = re.search(r"fit in ([\d.]+) ?GB", q)
    count = gpus(q)
    if room and count:
        return [f"/price {' '.join(grids(count))}"]
    if room or re.search("how long|how much memory|how many bytes", low):
        return ["/price", "/plan"]
    out = constraints(heard)
    mesh = grid(low, count) if not named else named[0]
    out += [f"/mesh {mesh}"] if mesh else []
    return out + (["/plan"] if "plan" in low else [])


DIRECT: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?i)\bundo\b", ("/undo",)),
    (r"put the change back|\bredo\b", ("/redo",)),
    (
        r"(\S+\.txt) do the same as (\S+\.txt).* contract is (\S+\.txt)",
        (r"/load sequential \2 distributed \1 contract \3", "/verify"),
    ),
    (r"load the class (\w+) of (\S+\.py) with a batch of (\d+)", (r"/load \2:\1 --batch \3",)),
    (r"(?i)(?:fix|repair).* file", ("/repair", "/diff", "/apply")),
    (r"(?i)repair.* diff", ("/repair", "/diff")),
    (r"(?i)\b(?:fix|repair)\b", ("/repair",)),
    (r"report .*into (\S+)/", (r"/report \1",)),
    (r"write it into", ("/apply",)),
    (r"what you would change", ("/diff",)),
    (r"go wrong|where it is wrong", ("/verify", "/cex", "/cex next")),
    (r"assume", ("/verify", "/explain")),
    (rf"why is {MODULE} not split by (column|row)s", (r"/why-not \1 \2",)),
    (rf"why is {MODULE} not (\w+)", (r"/why-not \1 \2",)),
    (rf"how is {MODULE} placed", (r"/explain \1",)),
    (r"considered", ("/candidates",)),
    (r"right\?|proved\?", ("/verify",)),
)
"""Requests that the words alone decide."""


def constraints(heard: Heard) -> list[str]:
    q, low = heard.asked, heard.asked.lower()
    out: list[str] = []
    if "pin away" in low or "drop the pin" in low:
        return [f"/pin --drop {heard.facts['pin'].partition('=')[0].split()[0]}"]
    rules = (
        (rf"pin {MODULE} to (\w+)", r"/pin \1 \2"),
        (rf"never split {MODULE} by (\w+?)s\b", r"/ban \1 \2"),
        (rf"embedding {MODULE} whole", r"/pin \1 replicate"),
        (r"without sequence parallelism", "/constrain no_sequence_parallel"),
        (r"logits of the loss whole", "/constrain no_loss_parallel"),
        (r"(H\d00|A100) cards", r"/settings hardware \1"),
    )
    for pattern, command in rules:
        found = re.search(pattern, q)
        if found:
            line = found.expand(command)
            out.append(line.lower() if line.startswith("/settings") else line)
    return out


def meshes(text: str) -> list[str]:
    """The meshes that a text names."""
    text = re.sub(r"(tp|dp)=(\d+) with (tp|dp)=(\d+)", r"\1=\2,\3=\4", text)
    found = re.findall(r"(?:tp|dp)=\d+(?:,(?:tp|dp)=\d+)*", text)
    return [",".join(sorted(name.split(","))) for name in found]


def gpus(text: str) -> int:
    found = re.search(r"(\d+) GPUs", text)
    return int(found[1]) if found else 0


def grid(low: str, count: int) -> str:
    """The mesh that words ask for."""
    both = re.search(r"(\w+) replicas of the data, each split in (\w+)", low)
    if both:
        return f"dp={COUNTS[both[1]]},tp={COUNTS[both[2]]}"
    name = "dp" if "data parallelism alone" in low else "tp"
    return f"{name}={count}" if count else ""


def grids(count: int) -> list[str]:
    """The meshes of so many devices."""
    found = [(count // tp, tp) for tp in range(1, count + 1) if count % tp == 0]
    return [",".join(f"{n}={s}" for n, s in (("dp", a), ("tp", b)) if s > 1) for a, b in found]


def prices(text: str) -> list[Price]:
    """The rows of /price."""
    return [
        Price(m[1], float(m[2]) * SECONDS[m[3]], float(m[4]) * BYTES[m[5]], m[0])
        for m in PRICE.finditer(text)
    ]


def following(heard: Heard) -> list[str]:
    """What prices lead to."""
    q = heard.asked
    last = heard.did[-1][0]
    if last == "/verify" and "there is no plan" in heard.results:
        return ["/plan", "/verify"]
    if not last.startswith("/price "):
        return []
    rows = sorted(prices(heard.results), key=lambda row: row.step_s)
    room = re.search(r"(?:fit in|at most) ([\d.]+) GB", q)
    if room:
        rows = [row for row in rows if row.memory <= float(room[1]) * BYTES["GB"]]
    if "smallest" in q:
        rows.sort(key=lambda row: row.ranks)
    if not rows or ("plan it" not in q and not room):
        return []
    limit = [f"/constrain memory={room[1]}GB"] if room and "fit" in q else []
    return [*limit, f"/mesh {rows[0].mesh}", "/plan"]


def answer(heard: Heard) -> str:
    """What was found out, in words."""
    q, low = heard.asked, heard.asked.lower()
    rows = sorted(prices(heard.results), key=lambda row: row.step_s)
    if "faster" in low and len(rows) == 2:
        return f"{rows[0].mesh} is faster: {rows[0].line}; the other: {rows[1].line}."
    edits = re.findall(r"(?m)^proved: (.*)$", heard.results)
    if "how many edits" in low and edits:
        count = len(edits[-1].split("; "))
        return f"It takes {count} edit{'s' * (count != 1)}: {edits[-1]}"
    kept = [line for line in heard.results.splitlines() if not line.startswith("next:")]
    head = "No, it needs more. " if re.match("would it fit", q) else ""
    return head + "The session says: " + "\n".join(kept)[:2500]


# -- over HTTP -------------------------------------------------------------------------------


def _call(at: int, name: str, arguments: Mapping[str, Any]) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": at, "id": f"call_{at}", "type": "function", "function": function}
    return chunk(None, tool_calls=[call])


def _reply(body: Mapping[str, Any]) -> list[dict[str, object]]:
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    if "choose" in offered:
        return [_call(0, "choose", {"colour": "teal-902", "count": 1}), chunk(None, "tool_calls")]
    heard = read(body["messages"])
    said = think(heard)
    if isinstance(said, list):
        split = [line[1:].partition(" ") for line in said]
        base = len(heard.did)
        calls = [
            _call(at, name.replace("-", "_"), {"words": words})
            for at, (name, _, words) in enumerate(split)
            if name.replace("-", "_") in offered
        ]
        for at, call in enumerate(calls):
            call["choices"][0]["delta"]["tool_calls"][0]["id"] = f"call_{base + at}"  # type: ignore[index]
        if calls:
            return [*calls, chunk(None, "tool_calls")]
        said = "I have no command for that."
    half = len(said) // 2
    return [chunk(said[:half]), chunk(said[half:]), chunk(None, "stop")]


@contextmanager
def serving() -> Generator[Server]:
    """A server that answers so."""
    server = Server()

    def way(handler: BaseHTTPRequestHandler) -> None:
        body = server.bodies[-1]
        said = _reply(body)
        spent = {"prompt_tokens": len(json.dumps(body)) // 4}
        spent["completion_tokens"] = len(json.dumps(said)) // 40
        spent["total_tokens"] = sum(spent.values())
        usage = {**chunk(), "model": "scripted", "choices": [], "usage": spent}
        stream(*({**piece, "model": "scripted"} for piece in said), usage)(handler)

    server.answers(way)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def asked() -> Generator[Server]:
    """The same, as the endpoint of this process."""
    kept = dict(os.environ)
    with serving() as server, tempfile.TemporaryDirectory() as config:
        os.environ |= {
            "SHARDPROOF_BASE_URL": server.url,
            "SHARDPROOF_MODEL": "scripted",
            "XDG_CONFIG_HOME": config,
        }
        try:
            yield server
        finally:
            os.environ.clear()
            os.environ.update(kept)
