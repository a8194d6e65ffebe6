"""The command `market-report`."""

import argparse
import os
from pathlib import Path

from .analysis import load_prices, monthly, summarise


def main(arguments: list[str] | None = None) -> int:
    """Writes summary.csv and monthly.csv to $WORKSPACE or the current directory."""
    parser = argparse.ArgumentParser(description="Summarises the closing prices.")
    parser.add_argument("--share", action="append", help="only this share; can be repeated")
    options = parser.parse_args(arguments)

    prices = load_prices()
    unknown = sorted(set(options.share or []) - set(prices.columns))
    if unknown:
        parser.error(f"there is no share {unknown[0]}; there are {', '.join(prices.columns)}")
    if options.share:
        prices = prices[options.share]

    output = Path(os.environ.get("WORKSPACE") or Path.cwd())
    summary = summarise(prices)
    summary.to_csv(output / "summary.csv", float_format="%.4f", lineterminator="\n")
    monthly(prices).to_csv(output / "monthly.csv", float_format="%.2f", lineterminator="\n")
    for share, row in summary.iterrows():
        print(
            f"{share}  return {row['return']:+7.1%}  volatility {row['volatility']:6.1%}"
            f"  deepest fall {row['deepest_fall']:7.1%}"
        )
    print(f"wrote summary.csv and monthly.csv ({len(prices)} days)")
    return 0
