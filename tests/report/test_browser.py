"""What a person sees when they open the report, in a real browser with JavaScript disabled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.chromium import Chromium
from tests.report.conftest import REPORTS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

WIDTHS = (360, 800, 1400)

# Visible pictures with text that leaves the frame, or that lies over other text.
CROWDED = """
(() => {
  const out = [];
  for (const svg of document.querySelectorAll("figure svg[role=img]")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [name, r] of texts)
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 2 || r.bottom > frame.bottom + 3)
        out.push("outside: " + name);
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const [a, b] = [texts[i][1], texts[j][1]];
      const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (w > 1 && h > 4) out.push(`overlap: ${texts[i][0]} / ${texts[j][0]}`);
    }
  }
  return out;
})()
"""  # noqa: E501

SEEN = """
(() => {
  const shown = e => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const text = q => [...document.querySelectorAll(q)].filter(shown).map(e => e.textContent.trim());
  return {
    badge: text(".badge"), headline: text(".verdict > span"), cells: text("td, tbody th"),
    svg: text("figure svg text"), pictures: text("figure svg[role=img]").length,
    figures: document.querySelectorAll("figure").length, diff: text(".diff .add"),
  };
})()
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(REPORTS))
def test_page_does_not_overflow_and_fetches_nothing(
    name: str, width: int, browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], width, script=False)
    wide, room = browser.evaluate("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
    assert room == width
    assert wide <= room
    assert browser.requests == [pages[name].as_uri()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "name", ["proved", "refuted", "unknown", "large", "hostile", "hostile-refuted"]
)
def test_text_in_pictures_is_readable(
    name: str, width: int, browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], width, script=False)
    assert browser.evaluate(CROWDED) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_there_without_javascript(
    width: int, browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages["proved"], width, script=False)
    seen = browser.evaluate(SEEN)
    assert seen["badge"] == ["Proved"]
    assert "39 gradients" in seen["headline"][0]
    assert "model.layers.*.self_attn.o_proj" in " ".join(seen["cells"])
    assert "reduce_scatter" in seen["cells"]
    assert {"q_proj", "rank 3", "model.layers.*"} <= set(seen["svg"])
    assert (seen["pictures"], seen["figures"]) == (2, 5)  # one width of each
    assert any("fully_shard" in line for line in seen["diff"])


def test_inputs_of_the_smallest_case_are_drawn(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["refuted"], 800, script=False)
    assert browser.evaluate(SEEN)["badge"] == ["Refuted"]
    drawn = "[...document.querySelectorAll('.entries td')]"
    assert browser.evaluate(f"{drawn}.filter(e => e.checkVisibility()).length") == 8
    assert "y = h @ self.w2" in browser.evaluate("document.body.innerText")


def test_dark_scheme_is_dark_and_light_is_light(browser: Chromium, pages: dict[str, Path]) -> None:
    background = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    browser.open(pages["proved"], 800, dark=True, script=False)
    assert max(browser.evaluate(background)) < 40
    browser.open(pages["proved"], 800, script=False)
    assert min(browser.evaluate(background)) > 230


def test_hostile_strings_run_nothing(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"], 800, script=True)
    counts = (
        "[document.scripts.length, document.images.length, document.querySelectorAll('*').length]"
    )
    scripts, images, elements = browser.evaluate(counts)
    browser.open(pages["proved"], 800, script=True)
    assert (scripts, images) == (1, 0)
    assert elements == pytest.approx(browser.evaluate(counts)[2], rel=0.2)


@pytest.mark.parametrize("name", ["proved", "refuted", "unknown"])
def test_print_style_is_light_and_fits_the_paper(
    name: str, browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], 720, script=False)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=dark)
    wide = browser.evaluate("document.documentElement.scrollWidth")
    colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert wide <= 720
    assert colour == "rgb(255, 255, 255)"


def test_page_prints(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["proved"], 800, dark=True, script=False)
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000


CONTRAST = """
(() => {
  const lin = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * lin(r) + 0.7152 * lin(g) + 0.0722 * lin(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll("body *:not(svg *):not(script)")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.className === "skip") continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push([e.tagName, e.className, ratio]);
  }
  return out;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["proved", "refuted", "unknown", "large"])
def test_text_stands_out_and_fits(
    name: str, width: int, dark: bool, browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], width, dark=dark, script=True)
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.evaluate(CONTRAST) == []
    wide, room = browser.evaluate("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
    assert wide <= room == width


def test_every_code_block_has_a_button_that_copies_it(
    browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.open(pages["proved"], 800, script=True)
    blocks, buttons = browser.evaluate(
        "['pre.code, .diff pre', 'button.copy'].map(q => document.querySelectorAll(q).length)"
    )
    assert blocks == buttons > 2
    browser.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    browser.evaluate("document.querySelector('button.copy').click()")
    assert browser.evaluate("window.copied").strip()
