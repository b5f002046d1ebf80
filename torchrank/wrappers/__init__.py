"""Metrics around a suite: the same sums by slice, by replicate and by system, or the values themselves."""
