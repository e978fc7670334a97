"""Curves as pictures, drawn with matplotlib (`pip install shardproof[plots]`)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from shardproof.agent.run.errors import InputError


def draw(curves: Mapping[str, Sequence[tuple[int, float]]]) -> tuple[bytes, str]:
    """One panel a curve: what is varied against seconds. As PNG, and as SVG to put into a page.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise InputError(
            "matplotlib is not installed", hint="pip install 'shardproof[plots]'"
        ) from None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    wide = 4
    high = -(-len(curves) // wide)
    figure: Any
    figure, grid = plt.subplots(high, wide, figsize=(13, 2.9 * high), squeeze=False, sharey=True)
    top = 1.1 * max(s for points in curves.values() for _, s in points)
    panels: list[Any] = [panel for line in grid for panel in line]
    for panel, (name, points) in zip(panels, curves.items(), strict=False):
        at = [x for x, _ in points]
        panel.plot(at, [s for _, s in points], marker="o", color="#2f5d8a")
        panel.set_xscale("log", base=2)
        panel.set_xticks(at, [str(x) for x in at], fontsize=8)
        panel.minorticks_off()
        panel.set_ylim(0, top)
        panel.set_title(name.replace("_", "-"), fontsize=10)
        panel.set_ylabel("seconds", fontsize=8)
        panel.grid(visible=True, alpha=0.3)
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    figure.tight_layout()
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=120)
    figure.savefig(svg, format="svg")
    plt.close(figure)
    text = svg.getvalue()
    return png.getvalue(), text[text.index("<svg") :]
