"""Every sentence that a verdict rests on is declared, in every test in which one is reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.declared.assumptions import undeclared
from shardproof.agent.run import events
from shardproof.agent.run.run import Run


@pytest.fixture(autouse=True)
def assumptions_are_declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails the test with the sentences that nothing declares."""
    strange: list[str] = []
    emit = Run.emit

    def listened(run: Run, event: events.Event) -> None:
        if isinstance(event, events.VerdictReached):
            strange.extend(undeclared(event.assumptions))
        emit(run, event)

    monkeypatch.setattr(Run, "emit", listened)
    yield
    assert not strange, f"not declared in benchmarks/declared/assumptions.py: {strange}"
