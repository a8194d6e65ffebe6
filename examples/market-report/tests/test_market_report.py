"""Run with `python3 -m unittest discover tests`, with the package installed."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pandas as pd

from market_report.analysis import load_prices, monthly, summarise


class AnalysisTest(unittest.TestCase):
    def test_summary_of_known_prices(self):
        days = pd.date_range("2024-01-01", periods=4, freq="D")
        prices = pd.DataFrame({"UP": [10.0, 11, 12, 15], "DOWN": [10.0, 12, 6, 9]}, index=days)
        summary = summarise(prices)
        self.assertEqual(list(summary.index), ["UP", "DOWN"])
        self.assertAlmostEqual(summary.loc["UP", "return"], 0.5)
        self.assertAlmostEqual(summary.loc["UP", "deepest_fall"], 0.0)
        self.assertAlmostEqual(summary.loc["DOWN", "deepest_fall"], -0.5)
        expected = np.std(np.diff(np.log([10, 11, 12, 15])), ddof=1) * np.sqrt(252)
        self.assertAlmostEqual(summary.loc["UP", "volatility"], expected)

    def test_prices_are_complete(self):
        prices = load_prices()
        self.assertEqual(prices.shape, (180, 4))
        self.assertFalse(prices.isna().to_numpy().any())
        self.assertEqual(len(monthly(prices)), 9)


class CommandTest(unittest.TestCase):
    def test_writes_both_tables(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["market-report", "--share", "TIDE", "--share", "QUAY"],
                env={**os.environ, "WORKSPACE": folder},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 3)
            summary = pd.read_csv(Path(folder) / "summary.csv", index_col="share")
            self.assertEqual(sorted(summary.index), ["QUAY", "TIDE"])
            self.assertTrue((Path(folder) / "monthly.csv").exists())

    def test_unknown_share(self):
        done = subprocess.run(["market-report", "--share", "NONE"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no share NONE", done.stderr)


if __name__ == "__main__":
    unittest.main()
