"""Inline SVG: escaped elements, text that fits its box, and the frame that names a picture.

Colours come from the stylesheet of the page through classes, so that pictures follow its theme.
"""

from dataclasses import dataclass, field

from markupsafe import Markup, escape

MONO = 0.61
"""Width of a monospaced character in ems, of the widest font in common use."""
SANS = 0.6
"""Average width of a proportional character in ems, on the safe side."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """A picture under construction; `add` appends and `y` is the pen."""

    width: float
    parts: list[Markup] = field(default_factory=list[Markup])

    def add(self, *parts: Markup) -> None:
        self.parts.extend(parts)


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """`cls` is class; underscores of other attribute names become hyphens; None is left out."""
    written = Markup("")
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
            key = {"cls": "class", "view_box": "viewBox"}.get(key, key.replace("_", "-"))
            written += Markup(' {}="{}"').format(key, shown)
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inner, Markup(name))


def box(
    x: float, y: float, width: float, height: float, cls: str, radius: float = 3, tip: str = ""
) -> Markup:
    children = (element("title", tip),) if tip else ()
    return element(
        "rect", *children, x=x, y=y, width=max(width, 0.0), height=height, rx=radius, cls=cls
    )


def label(
    x: float,
    y: float,
    text: str,
    cls: str = "",
    anchor: str = "start",
    room: float | None = None,
    size: float = 11,
) -> Markup:
    """Text with its baseline at y; shortened to `room` pixels, the whole of it as a tooltip."""
    shown = text if room is None else fit(text, room, size, MONO if "mono" in cls else SANS)
    children = (shown,) if shown == text else (shown, element("title", text))
    return element("text", *children, x=x, y=y, text_anchor=anchor, font_size=size, cls=cls or None)


def fit(text: str, room: float, size: float, em: float) -> str:
    limit = int(room / (size * em))
    return text if len(text) <= limit else text[: max(limit - 1, 1)].rstrip() + "…"


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, cls=cls)


def arrow(x: float, y1: float, y2: float, cls: str) -> Markup:
    """A vertical arrow from y1 to y2."""
    tip = 4.0 if y2 > y1 else -4.0
    back = y2 - tip * 1.5
    head = f"M {x - 3.5:.2f} {back:.2f} L {x:.2f} {y2:.2f} L {x + 3.5:.2f} {back:.2f}"
    return line(x, y1, x, y2, f"wire {cls}") + element("path", d=head, cls=f"head {cls}")


def picture(drawn: Canvas, height: float, key: str, title: str, description: str) -> Markup:
    """The finished drawing, with a title and a description for those who cannot see it."""
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        *drawn.parts,
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        view_box=f"0 0 {drawn.width:g} {height:g}",
        width=drawn.width,
        height=height,
    )
