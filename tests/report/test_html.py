"""`report.html` as text: self-contained, escaped, well formed for those who cannot see it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import jinja2
import pytest

from shardproof.agent.report import Report, render_html
from shardproof.agent.report.html import MOST_DIFF_LINES, environment, stylesheet
from tests.report import samples
from tests.report.hostile import poisoned

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Tags with their attributes in order, and whether every tag was closed where it should."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_page_is_well_formed_and_self_contained(report: Report) -> None:
    html = render_html(report)
    page = Page(html)
    assert page.open == []
    assert page.all("script") == [{}]
    assert {"link", "img", "iframe", "object", "embed", "base", "form"}.isdisjoint(
        name for name, _ in page.tags
    )
    for _, attributes in page.tags:
        assert not {"src", "style", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in stylesheet()
    assert "@import" not in stylesheet()
    assert page.tags[0] == ("html", {"lang": "en"})
    assert {"charset": "utf-8"} in page.all("meta")
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))


def test_policy_allows_this_style_and_nothing_else(report: Report) -> None:
    html = render_html(report)
    style = re.search(r"<style>(.*?)</style>", html, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(m["content"] for m in Page(html).all("meta") if "http-equiv" in m)
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    script = re.search(r"<script>(.*?)</script>", html, re.S)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_headings_tables_and_pictures_are_named(report: Report) -> None:
    page = Page(render_html(report))
    levels = [int(name[1]) for name, _ in page.tags if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(th.get("scope") in {"col", "row", "rowgroup"} for th in page.all("th"))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for svg in page.all("svg"):
        if svg.get("aria-hidden") != "true":
            assert svg["role"] == "img"
            assert set(svg["aria-labelledby"].split()) <= set(ids)
    targets = [a["href"][1:] for a in page.all("a")]
    assert set(targets) <= set(ids)


def test_amounts_stand_on_one_scale_and_sum_up() -> None:
    page = Page(render_html(samples.proved()))
    scales = {m["aria-label"]: (float(m["value"]), float(m["max"])) for m in page.all("meter")}
    whole, most = scales["one device"]
    part, same = scales["each rank of the plan"]
    assert part < whole == most == same
    times = [v for name, (v, _) in scales.items() if "communication" in name or name == "compute"]
    assert sum(times) == pytest.approx(scales["compute"][1])


def test_hostile_strings_add_no_element(report: Report) -> None:
    plain, hostile = Page(render_html(report)), Page(render_html(poisoned(report)))
    assert {name for name, _ in hostile.tags} <= {name for name, _ in plain.tags} | {
        "code", "dl", "dt", "dd", "h3", "pre", "p", "span", "title",
    }  # fmt: skip
    html = render_html(poisoned(report))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u200b]", html)
    assert "\\u202eevil" in html
    assert "{{ 7 * 7 }}" in html


def test_long_diff_is_cut_and_pointed_at() -> None:
    base = samples.proved()
    assert base.patch is not None
    body = "".join(f"+line {i}\n" for i in range(MOST_DIFF_LINES + 100))
    diff = f"--- /dev/null\n+++ b/f.py\n@@ -0,0 +1,{MOST_DIFF_LINES + 100} @@\n{body}"
    html = render_html(replace(base, patch=replace(base.patch, diff=diff)))
    assert "103 lines more are in <code>patch.diff</code>" in html
    assert len(html) < 1_000_000


def test_missing_variable_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{{ nothing }}").render()


PAIRS = (
    ("text", "bg"), ("text", "card"), ("text", "sunk"), ("muted", "bg"), ("muted", "card"),
    ("muted", "sunk"), ("accent", "bg"), ("good", "good-bg"), ("bad", "bad-bg"), ("bad", "card"),
    ("warn", "warn-bg"), ("fw", "fw-bg"), ("bw", "bw-bg"), ("fw", "card"), ("bw", "card"),
    ("split", "split-bg"), ("add", "add-bg"), ("del", "del-bg"), ("muted", "add-bg"),
    ("muted", "del-bg"),
)  # fmt: skip


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(theme: str) -> None:
    """WCAG 2.2 AA asks for 4.5 of small text."""
    blocks = re.findall(r":root \{(.*?)\}", stylesheet(), re.S)
    colours: dict[str, str] = {}
    for block in blocks[: 2 if theme == "dark" else 1]:
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    poor = [(a, b) for a, b in PAIRS if contrast(colours[a], colours[b]) < 4.5]
    assert poor == []


def test_stylesheet_has_no_broken_rule() -> None:
    css = stylesheet()
    assert css.count("{") == css.count("}")
    assert all(not line.endswith(" @media") for line in css.split("{"))
    for selector in re.findall(r"([^{}]+)\{", css):
        assert "@" not in selector.strip()[1:]
