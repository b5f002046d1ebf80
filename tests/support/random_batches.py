"""Random batches that tests of statistics share."""

import torch


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(seed=0, queries=40, width=6):
    """Scores and grades; every seventh query has nothing relevant."""
    scores = torch.rand(queries, width, generator=rng(seed))
    grades = torch.randint(0, 3, (queries, width), generator=rng(seed + 1))
    grades[::7] = 0
    return scores, grades
