"""Random batches that tests of statistics share, and queries that samplers share among processes."""

import torch

import torchrank as tr

MANY, MEASURES = 101, ["ndcg@20", "numq"]  # of an UnpaddedSampler


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(seed=0, queries=40, width=6):
    """Scores and grades; every seventh query has nothing relevant."""
    scores = torch.rand(queries, width, generator=rng(seed))
    grades = torch.randint(0, 3, (queries, width), generator=rng(seed + 1))
    grades[::7] = 0
    return scores, grades


def many(rows=slice(None)):
    """The scores and the labels of some of 101 queries."""
    return torch.rand(MANY, 50, generator=rng())[rows], (7 * torch.arange(MANY) % 50)[rows]


def unpadded():
    """A loader of 101 queries: on two processes of 6 batches and of 5."""
    return torch.utils.data.DataLoader(range(MANY), batch_size=10, sampler=tr.UnpaddedSampler(MANY))


def with_values(values, weights=None, pieces=1, **arguments):
    """A metric whose queries have these values, >= 0: the gain of a single candidate."""
    metric = tr.CG(top_k=1, **arguments)
    values = torch.as_tensor(values, dtype=torch.float64)
    for part in torch.arange(len(values)).tensor_split(pieces):
        one = None if weights is None else torch.as_tensor(weights, dtype=torch.float64)[part]
        metric.update(torch.zeros(len(part), 1), values[part, None], weights=one)
    return metric
