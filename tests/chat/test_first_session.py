"""docs/first-session.md shows what a new user's first session shows, in a real terminal."""

from __future__ import annotations

import pytest

from benchmarks import first_session as page


@pytest.mark.torch
@pytest.mark.slow
def test_the_page_shows_what_a_first_session_shows() -> None:
    pytest.importorskip("pyte")
    pytest.importorskip("torch")
    written = page.PAGE.read_text(encoding="utf-8")
    shown = page.screens()
    assert "agrees" in shown["apply"], "the patched model was run"
    assert max(len(line) for text in shown.values() for line in text.split("\n")) <= page.WIDTH
    assert shown["help"].count("\n") < page.HEIGHT - 1
    for name, text in shown.items():
        at = " ".join(page.plain(text))
        assert at in " ".join(page.plain(written)), f"{name} is out of date: make docs"
