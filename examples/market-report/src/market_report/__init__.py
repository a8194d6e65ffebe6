"""A report on the closing prices of a few made-up shares."""
