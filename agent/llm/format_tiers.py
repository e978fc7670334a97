"""How structure is asked for and read back: a ladder from the strictest way down to plain text.

Servers differ in what they hold to, and some say yes and do not. So the rung is found by trying
(`probe.py`), and what comes back is validated on every rung alike.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

JSON_SCHEMA, JSON_OBJECT, TOOL, TEXT = "json_schema", "json_object", "tool", "text"
RUNGS = (JSON_SCHEMA, JSON_OBJECT, TOOL, TEXT)
"""From strict to plain."""
TOOLS = "tools"
"""Not of the ladder: free words, and tools that the model may call."""
TOOL_NAME = "reply"
_THOUGHT = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.S)

Schema = Mapping[str, Any]


class ExtractError(ValueError):
    """No JSON object in a reply, in words that a model can act on."""


def parameters(rung: str, name: str, schema: Schema) -> dict[str, Any]:
    """What the request says beside its messages."""
    if rung == JSON_SCHEMA:
        form = {"name": name, "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": form}}
    if rung == JSON_OBJECT:
        return {"response_format": {"type": "json_object"}}
    if rung == TOOL:
        function = {"name": TOOL_NAME, "description": name, "parameters": schema}
        return {
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": TOOL_NAME}},
        }
    return {}


def instruction(rung: str, schema: Schema) -> str:
    """What the system message says about the form of the reply."""
    if rung == JSON_SCHEMA:
        return "Answer with one JSON object of the given schema and nothing else."
    shown = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    if rung == TOOL:
        return f"Answer by calling the function `{TOOL_NAME}` once."
    how = "" if rung == JSON_OBJECT else " in one fenced block that starts with ```json"
    return f"Answer with one JSON object{how} and nothing else. Its JSON schema:\n{shown}"


def extract(text: str) -> str:
    """The JSON object of a reply: the whole of it, or the one fenced block in it.

    Raises:
        ExtractError: there is none, or several.
    """
    body = without_thought(text)
    if body.startswith("{"):
        return body
    blocks = _fenced(body)
    if len(blocks) == 1 and blocks[0].startswith("{"):
        return blocks[0]
    if len(blocks) > 1:
        raise ExtractError(f"{len(blocks)} fenced blocks; expected one JSON object")
    if not body:
        raise ExtractError("an empty reply; expected one JSON object")
    raise ExtractError(f"no JSON object; the reply starts with {body[:60]!r}")


def without_thought(text: str) -> str:
    """A reply without what a model wrote while it was thinking."""
    return _THOUGHT.sub("", text).strip()


def _fenced(text: str) -> list[str]:
    """What stands between lines that begin with three backticks; the last one must be closed."""
    blocks: list[str] = []
    inside: list[str] | None = None
    for line in text.splitlines():
        mark = line.strip()
        if inside is not None and mark == "```":
            blocks.append("\n".join(inside).strip())
            inside = None
        elif inside is not None:
            inside.append(line)
        elif mark.lower() in ("```", "```json"):
            inside = []
    return blocks
