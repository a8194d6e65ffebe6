"""The thumbnail, made from the teaser by the Node script beside this package."""

import json
import subprocess
from pathlib import Path

from .episodes import ROOT


def make_thumbnail(teaser: Path, path: Path) -> dict:
    """Writes the thumbnail as WebP and returns what the script says about it."""
    script = ROOT / "scripts" / "thumbnail.mjs"
    done = subprocess.run(
        ["node", str(script), str(teaser), str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)
