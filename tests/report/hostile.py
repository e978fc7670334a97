"""A report whose every string tries to break out of the page it is put on."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardproof.agent.report import Report

CLOSED = {
    "proved",
    "refuted",
    "unknown",
    "forward",
    "backward",
    "input",
    "output",
    "parameter",
    "accepted",
    "rejected",
    "not run",
    "safe",
}
"""Words of closed sets, left as they are."""

POISON = (
    "</style></svg></title><script>alert(1)</script><img src=http://evil.test/x onerror=alert(2)>"
    '"\' onload="alert(3)" {{ 7 * 7 }} {% raw %} ]]> --> \x1b[31m\x00\u202eevil\u2066\u200b\r\n'
    "# heading\n- item `tick` ```fence``` | bar ![i](http://evil.test/i.png) [l](javascript:x) "
    "@everyone #12 &lt; <!-- " + "x" * 200
)


def poisoned(report: Report) -> Report:
    return _poison(report)


def _poison(value: Any) -> Any:
    if isinstance(value, str):
        return value if value in CLOSED else value + POISON
    if isinstance(value, tuple):
        return tuple(_poison(item) for item in value)
    if isinstance(value, dict):
        return {_poison(key): _poison(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value)]
        return dataclasses.replace(value, **{n: _poison(getattr(value, n)) for n in names})
    return value
