#!/usr/bin/env python3
"""Makes the pictures of one episode: a teaser (PNG, Pillow) and a thumbnail (WebP, sharp).

They are written to $WORKSPACE, or to the current directory where that is not set; the project
itself is only read.
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path

from PIL import Image

from studio.episodes import UnknownEpisode, load_episode
from studio.teaser import render_teaser
from studio.thumbnail import make_thumbnail


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Makes the pictures of one episode.")
    parser.add_argument("--episode", type=int, required=True, help="number of the episode")
    episode_number = parser.parse_args(arguments).episode
    try:
        episode = load_episode(episode_number)
    except UnknownEpisode as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2

    output = Path(os.environ.get("WORKSPACE") or Path.cwd())
    teaser = output / f"episode-{episode.number:02}-teaser.png"
    thumbnail = output / f"episode-{episode.number:02}-thumbnail.webp"

    print(f'{episode.show}, episode {episode.number}: "{episode.title}"')
    render_teaser(episode, teaser)
    with Image.open(teaser) as picture:
        print(_line(teaser, picture.format, *picture.size))
    made = make_thumbnail(teaser, thumbnail)
    print(_line(thumbnail, made["format"].upper(), made["width"], made["height"]))
    return 0


def _line(path: Path, kind: str, width: int, height: int) -> str:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    return f"made {path.name}  {kind} {width}x{height}  {len(content)} bytes  sha256 {digest}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
