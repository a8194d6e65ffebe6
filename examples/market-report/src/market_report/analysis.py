"""What the report says, computed with numpy and pandas."""

from importlib import resources

import numpy as np
import pandas as pd

TRADING_DAYS = 252


def load_prices() -> pd.DataFrame:
    """One row a day, one column a share."""
    with resources.files("market_report").joinpath("prices.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, parse_dates=["day"])
    return table.pivot(index="day", columns="share", values="close").sort_index()


def summarise(prices: pd.DataFrame) -> pd.DataFrame:
    """Return, yearly volatility and deepest fall of each share, the best return first."""
    returns = np.log(prices).diff().dropna()
    summary = pd.DataFrame(
        {
            "return": prices.iloc[-1] / prices.iloc[0] - 1,
            "volatility": returns.std() * np.sqrt(TRADING_DAYS),
            "deepest_fall": (prices / prices.cummax() - 1).min(),
        }
    )
    return summary.sort_values("return", ascending=False)


def monthly(prices: pd.DataFrame) -> pd.DataFrame:
    """The last close of each month."""
    return prices.resample("ME").last()
