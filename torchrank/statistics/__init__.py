"""How far the mean of a measure, and a difference between two means, can be trusted: numbers in, verdicts out."""
