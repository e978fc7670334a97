"""docs/schema: JSON schemas of what runs write.

python -m benchmarks.schemas
"""

import json
from pathlib import Path
from typing import Any

from shardproof.agent.patching.record import Noted
from shardproof.agent.run import events

FOLDER = Path("docs/schema")


def schemas() -> dict[str, dict[str, Any]]:
    """By file name: events.jsonl and `--json`, a line each; the entry `patch` of manifest.json."""
    return {"event.json": events.schema(), "manifest-patch.json": Noted.model_json_schema()}


def text(schema: dict[str, Any]) -> str:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **schema}, indent=1) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
