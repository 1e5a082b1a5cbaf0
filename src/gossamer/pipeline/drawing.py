"""A drawing is a list of plain shapes. It becomes SVG inside a page, an SVG file, or a PNG file.

Colours are names. In a page they are its CSS variables, so a drawing follows the page's light or
dark theme. An SVG file brings the same variables along. A PNG is light. PNG needs Pillow
(``gossamer[report]``), whose own font makes it look the same everywhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape
from itertools import pairwise
from typing import Any

from msgspec import Struct

LIGHT = {
    "bg": "#ffffff", "fg": "#1b1f24", "soft": "#57606a", "line": "#d8dee4", "card": "#f6f8fa",
    "good": "#1a7f37", "bad": "#cf222e",
    "c0": "#0b6bcb", "c1": "#c2570c", "c2": "#1a7f5a",
    "c3": "#8250df", "c4": "#9a6700", "c5": "#57606a",
}  # fmt: skip
DARK = {
    "bg": "#0d1117", "fg": "#e6edf3", "soft": "#9da7b3", "line": "#30363d", "card": "#161b22",
    "good": "#3fb950", "bad": "#ff7b72",
    "c0": "#58a6ff", "c1": "#f0883e", "c2": "#3fb98a",
    "c3": "#bc8cff", "c4": "#d4a72c", "c5": "#9da7b3",
}  # fmt: skip
COLOURS = 6
FONT = 12
LETTER = 6.4
"""The approximate width of a letter. Labels that would overlap are left out."""
HALO = 2
"""The distance around its letters within which a clear text hides the background."""
SCALE = 3
"""The pixels of a PNG for each unit of the drawing."""


class PngError(RuntimeError):
    """No library can make a PNG. The message names the package to install."""


class Rect(Struct, frozen=True):
    x: float
    y: float
    width: float
    height: float
    colour: str
    said: str = ""


class Polyline(Struct, frozen=True):
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 2.0
    dashed: bool = False


class Dot(Struct, frozen=True):
    x: float
    y: float
    radius: float
    colour: str
    said: str = ""


class Text(Struct, frozen=True):
    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = "fg"
    bold: bool = False
    upright: bool = False
    """Written from the bottom to the top."""
    clear: bool = False
    """The letters hide the background around them."""


Shape = Rect | Polyline | Dot | Text


class Drawing(Struct, frozen=True):
    title: str
    words: str
    """A description for readers who do not see the drawing."""
    width: int
    height: int
    shapes: tuple[Shape, ...]

    def svg(self) -> str:
        """SVG for a page that has the colours as CSS variables."""
        described = escape(f"{self.title}. {self.words}", quote=True)
        return (
            f'<svg class="figure" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{described}" fill="currentColor" font-size="{FONT}">'
            f"{''.join(map(_svg, self.shapes))}</svg>"
        )

    def svg_file(self) -> str:
        """An SVG file of its own, light or dark like its reader's theme."""
        inside = "".join(map(_svg, self.shapes))
        size = (
            f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="{FONT}" '
            'font-family="system-ui,sans-serif">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.words)}</desc>"
            f"<style>svg{{{variables(LIGHT)};background:var(--bg);color:var(--fg);"
            "fill:currentColor}"
            f"@media (prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}</style>"
            f"{inside}</svg>\n"
        )

    def png(self) -> bytes:
        require_png()
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (self.width * SCALE, self.height * SCALE), LIGHT["bg"])
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            _paint(image, pen, shape)
        packed = io.BytesIO()
        image.save(packed, "PNG", optimize=True)
        return packed.getvalue()


def require_png() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise PngError("PNG files need Pillow: pip install 'gossamer[report]'") from None


def variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


def _svg(shape: Shape) -> str:
    said = (
        f"<title>{escape(shape.said)}</title>"
        if isinstance(shape, Rect | Dot) and shape.said
        else ""
    )
    colour = f"var(--{shape.colour})"
    if isinstance(shape, Rect):
        at = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
        box = f'{at} width="{shape.width:.1f}" height="{shape.height:.1f}"'
        return f'<rect {box} fill="{colour}">{said}</rect>'
    if isinstance(shape, Dot):
        at = f'cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:.1f}"'
        return f'<circle {at} fill="{colour}">{said}</circle>'
    if isinstance(shape, Polyline):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dashes = ' stroke-dasharray="5 4"' if shape.dashed else ""
        stroke = f'stroke="{colour}" stroke-width="{shape.width:g}"{dashes}'
        return f'<polyline points="{points}" fill="none" {stroke}/>'
    turned = f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"' if shape.upright else ""
    bold = ' font-weight="600"' if shape.bold else ""
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}" fill="{colour}"'
    clear = (
        f' stroke="var(--bg)" stroke-width="{2 * HALO}" paint-order="stroke"' if shape.clear else ""
    )
    return f"<text {place}{bold}{turned}{clear}>{escape(shape.text)}</text>"


def _paint(image: Any, pen: Any, shape: Shape) -> None:
    colour = LIGHT[shape.colour]
    if isinstance(shape, Rect):
        if shape.height > 0 and shape.width > 0:
            pen.rectangle(
                _scaled((shape.x, shape.y, shape.x + shape.width, shape.y + shape.height)),
                fill=colour,
            )
    elif isinstance(shape, Dot):
        x, y, radius = shape.x, shape.y, shape.radius
        pen.ellipse(_scaled((x - radius, y - radius, x + radius, y + radius)), fill=colour)
    elif isinstance(shape, Polyline):
        width = max(1, round(shape.width * SCALE))
        for points in _dashes(shape.points) if shape.dashed else (shape.points,):
            pen.line(
                [(x * SCALE, y * SCALE) for x, y in points], fill=colour, width=width, joint="curve"
            )
    else:
        _write(image, pen, shape, colour)


def _write(image: Any, pen: Any, shape: Text, colour: str) -> None:
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(FONT * SCALE)
    stroke = 1 if shape.bold else 0
    length = pen.textlength(shape.text, font=font)
    shift = {"start": 0.0, "middle": length / 2, "end": length}[shape.anchor]
    if not shape.upright:
        at = (shape.x * SCALE - shift, shape.y * SCALE)
        if shape.clear:
            pen.text(
                at,
                shape.text,
                font=font,
                anchor="ls",
                fill=LIGHT["bg"],
                stroke_width=HALO * SCALE,
                stroke_fill=LIGHT["bg"],
            )
        pen.text(
            at,
            shape.text,
            fill=colour,
            font=font,
            anchor="ls",
            stroke_width=stroke,
            stroke_fill=colour,
        )
        return
    height = round(FONT * SCALE * 1.4)
    strip = Image.new("L", (round(length) + 4, height), 0)
    ImageDraw.Draw(strip).text((2, height * 0.75), shape.text, fill=255, font=font, anchor="ls")
    turned = strip.rotate(90, expand=True)
    place = (round(shape.x * SCALE - height * 0.75), round(shape.y * SCALE - (length - shift)))
    image.paste(Image.new("RGB", turned.size, colour), place, turned)


def _scaled(box: Iterable[float]) -> list[float]:
    return [value * SCALE for value in box]


def _dashes(
    points: tuple[tuple[float, float], ...], on: float = 5.0, off: float = 4.0
) -> Iterable[tuple[tuple[float, float], ...]]:
    """The straight pieces of a dashed line.

    Each stretch starts with a new dash, which is invisible.
    """
    for (x1, y1), (x2, y2) in pairwise(points):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
        at = 0.0
        while at < length:
            end = min(at + on, length)
            yield tuple(
                (x1 + (x2 - x1) * d / length, y1 + (y2 - y1) * d / length) for d in (at, end)
            )
            at = end + off
