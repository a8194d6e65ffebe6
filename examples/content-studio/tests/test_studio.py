"""Run with `python3 -m unittest` in the project's directory; nothing is written there."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent


def project_files():
    """Every file of the project with its time of change; what was installed is left out."""
    installed = {".venv", "node_modules", "__pycache__"}
    return {
        path: path.stat().st_mtime_ns
        for path in ROOT.rglob("*")
        if not installed & set(path.relative_to(ROOT).parts)
    }


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_episode(self, number, output):
        output.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, str(ROOT / "run.py"), "--episode", str(number)],
            env={**os.environ, "WORKSPACE": str(output)},
            cwd=self.folder,
            capture_output=True,
            text=True,
        )

    def test_makes_both_pictures(self):
        done = self.run_episode(12, self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("The clock that ran late", done.stdout)
        with Image.open(self.folder / "episode-12-teaser.png") as teaser:
            self.assertEqual((teaser.format, teaser.size), ("PNG", (1280, 720)))
            self.assertGreater(len(teaser.getcolors(1 << 24)), 100)
        thumbnail = (self.folder / "episode-12-thumbnail.webp").read_bytes()
        self.assertEqual((thumbnail[:4], thumbnail[8:12]), (b"RIFF", b"WEBP"))

    def test_same_episode_same_bytes(self):
        first, second = self.folder / "first", self.folder / "second"
        self.assertEqual(self.run_episode(3, first).returncode, 0)
        self.assertEqual(self.run_episode(3, second).returncode, 0)
        names = sorted(path.name for path in first.iterdir())
        self.assertEqual(names, sorted(path.name for path in second.iterdir()))
        for name in names:
            self.assertEqual((first / name).read_bytes(), (second / name).read_bytes(), name)

    def test_unknown_episode(self):
        done = self.run_episode(99, self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no episode 99", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_project_is_only_read(self):
        before = project_files()
        self.assertEqual(self.run_episode(1, self.folder).returncode, 0)
        self.assertEqual(project_files(), before)

    def test_setup_noted_the_build(self):
        info = json.loads((ROOT / "build-info.json").read_text(encoding="utf-8"))
        self.assertEqual(info["pillow"], "12.1.1")
        self.assertEqual(info["sharp"], "0.34.5")


if __name__ == "__main__":
    unittest.main()
