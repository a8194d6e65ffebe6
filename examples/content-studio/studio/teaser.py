"""The teaser picture: a gradient, a waveform and the title, drawn with Pillow."""

import hashlib
from pathlib import Path

from PIL import Image, ImageColor, ImageDraw, ImageFont

from .episodes import Episode

WIDTH, HEIGHT = 1280, 720
MARGIN = 80
BARS = 64


def render_teaser(episode: Episode, path: Path) -> None:
    """Writes the teaser as PNG; the same episode gives the same bytes."""
    image = _gradient(episode.palette.start, episode.palette.end)
    ink = ImageColor.getrgb(episode.palette.ink)
    image.paste(ink, mask=_waveform(episode.title))
    draw = ImageDraw.Draw(image)
    draw.text((MARGIN, MARGIN), episode.show.upper(), font=ImageFont.load_default(30), fill=ink)
    title_font = ImageFont.load_default(84)
    y = 190
    for line in _wrap(draw, episode.title, title_font):
        draw.text((MARGIN, y), line, font=title_font, fill=ink)
        y += 100
    summary_font = ImageFont.load_default(34)
    for line in _wrap(draw, episode.summary, summary_font):
        draw.text((MARGIN, y + 20), line, font=summary_font, fill=ink)
        y += 46
    footer = f"EPISODE {episode.number}  /  {episode.minutes} MIN"
    draw.text((MARGIN, HEIGHT - MARGIN - 30), footer, font=ImageFont.load_default(30), fill=ink)
    image.save(path, format="PNG")


def _gradient(start: str, end: str) -> Image.Image:
    mask = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    top = Image.new("RGB", (WIDTH, HEIGHT), start)
    bottom = Image.new("RGB", (WIDTH, HEIGHT), end)
    return Image.composite(bottom, top, mask)


def _waveform(title: str) -> Image.Image:
    """Bars whose heights follow from the title, so that every episode has a shape of its own."""
    mask = Image.new("L", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(mask)
    step = (WIDTH - 2 * MARGIN) / BARS
    for index, byte in enumerate(hashlib.shake_128(title.encode()).digest(BARS)):
        height = 12 + byte / 255 * 150
        left = MARGIN + index * step
        middle = HEIGHT - 210
        box = (left, middle - height / 2, left + step * 0.55, middle + height / 2)
        draw.rounded_rectangle(box, radius=4, fill=70)
    return mask


def _wrap(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont) -> list[str]:
    lines, current = [], ""
    for word in text.split():
        longer = f"{current} {word}".strip()
        if draw.textlength(longer, font=font) > WIDTH - 2 * MARGIN and current:
            lines.append(current)
            longer = word
        current = longer
    return [*lines, current]
