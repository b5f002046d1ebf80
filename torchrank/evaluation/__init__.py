"""From judgments and runs to numbers, their intervals, coverage and comparisons, in one call."""
