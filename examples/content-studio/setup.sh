#!/bin/sh
# Runs last in a build. Checks that both native libraries load and notes what this build is made of.
set -eu

python3 - <<'PYTHON'
import json
import platform
import subprocess
from pathlib import Path

import PIL
from PIL import features

if not features.check("freetype2"):
    raise SystemExit("this Pillow has no FreeType, titles cannot be drawn")

node = "import('sharp').then(({default: s}) => console.log(JSON.stringify(s.versions)))"
sharp = json.loads(subprocess.run(["node", "-e", node], check=True, capture_output=True).stdout)
episodes = json.loads(Path("data/episodes.json").read_text(encoding="utf-8"))

info = {
    "episodes": len(episodes["episodes"]),
    "pillow": PIL.__version__,
    "python": platform.python_version(),
    "sharp": sharp["sharp"],
    "vips": sharp["vips"],
}
Path("build-info.json").write_text(json.dumps(info, indent=2, sort_keys=True) + "\n", encoding="utf-8")
print("setup: wrote build-info.json")
PYTHON
