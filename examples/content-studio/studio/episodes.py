"""The episodes of the show, read from data/ and assets/."""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Palette:
    """The colours of one teaser."""

    start: str
    end: str
    ink: str


@dataclass(frozen=True)
class Episode:
    """One episode, with everything its pictures need."""

    show: str
    number: int
    title: str
    summary: str
    minutes: int
    palette: Palette


class UnknownEpisode(LookupError):
    """There is no episode with this number."""


def load_episode(number: int) -> Episode:
    """Reads one episode; raises UnknownEpisode with the numbers there are."""
    catalogue = _read("data/episodes.json")
    palettes = _read("assets/palettes.json")
    for entry in catalogue["episodes"]:
        if entry["number"] == number:
            colours = palettes[entry["palette"]]
            return Episode(
                show=catalogue["show"],
                number=number,
                title=entry["title"],
                summary=entry["summary"],
                minutes=entry["minutes"],
                palette=Palette(colours["from"], colours["to"], colours["ink"]),
            )
    last = max(entry["number"] for entry in catalogue["episodes"])
    raise UnknownEpisode(f"there is no episode {number}; the show has episodes 1 to {last}")


def _read(name: str):
    return json.loads((ROOT / name).read_text(encoding="utf-8"))
