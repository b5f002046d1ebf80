"""How often the intervals of `torchrank.Rectified` contain the truth: ``python -m tests.support.simulated_judges``.

Each row is a judge: 1,000 queries have a value by him, and 20, 50 or 200 of them one by people. The numbers are the
smallest share of simulated data sets, over five kinds of values, whose 95 % interval contains the expected value by
people; and the largest mean width of these intervals, divided by that of people alone.
"""

import sys

import torch

from torchrank.display import Table
from torchrank.layouts.checks import Problem
from torchrank.state.sums import summed
from torchrank.statistics.intervals import t_interval, wilson
from torchrank.wrappers.compared import rectify

#: values of people, and their probabilities; None = uniform on [0, 1], as of nDCG
MEASURES = {
    "graded": None,
    "reciprocal rank": {1.0: 0.5, 0.5: 0.15, 1 / 3: 0.1, 0.25: 0.05, 0.0: 0.2},
    "hit": {1.0: 0.7, 0.0: 0.3},
    "rare hit": {1.0: 0.1, 0.0: 0.9},
    "difference": {1.0: 0.06, 0.5: 0.12, 0.0: 0.7, -0.5: 0.08, -1.0: 0.04},  # of two systems
}


def people(measure, shape, draw):
    """Values by people, and their expectation."""
    values = torch.rand(shape, generator=draw, dtype=torch.float64)
    if (known := MEASURES[measure]) is None:
        return values, 0.5
    at = torch.searchsorted(torch.tensor([*known.values()]).double().cumsum(0)[:-1], values)
    return torch.tensor([*known]).double()[at], sum(value * p for value, p in known.items())


def judge(kind, y, draw):
    """Values by the judge and by people: independent of each other, or right for a share of the queries."""
    other = y[torch.randperm(len(y), generator=draw)]  # the values of other data sets
    u = torch.rand(y.shape, generator=draw, dtype=torch.float64)
    if kind == "good":  # 95 % as people, others at random
        return torch.where(u < 0.95, y, other), y
    if kind == "fair":
        return torch.where(u < 0.6, y, other), y
    if kind == "bad":
        return other, y
    if kind == "opposite":
        return 1 - torch.where(u < 0.8, y, other), y
    if kind == "lenient":  # a perfect value for 30 % of the queries
        return torch.where(u < 0.3, 1.0, y), y
    if kind == "exaggerating":
        return torch.exp(3 * y) * (0.5 + u), y
    assert kind == "hiding"  # as people, but perfect for the 5 % of the queries in which people find nothing
    return torch.where(u < 0.05, 1.0, y), torch.where(u < 0.05, 0.0, y)


JUDGES = ("good", "fair", "bad", "opposite", "lenient", "exaggerating", "hiding")


def sums(kinds):
    """The sums [replicate, kind, 1, SIZE] of values [replicate, query] of each kind."""
    none = torch.zeros(len(kinds[0]), len(Problem), dtype=torch.float64)
    return torch.stack([summed(x, None, None, None, none) for x in kinds], dim=1).unsqueeze(2)


def simulated(measure, kind, humans, replicates, seed=0, queries=1000):
    """Coverage with the judge and of people alone, and the ratio of their mean widths."""
    draw = torch.Generator().manual_seed(seed)
    y, truth = people(measure, (replicates, queries), draw)
    f, y = judge(kind, y, draw)
    truth *= 0.95 if kind == "hiding" else 1
    sampled = [f, f[:, :humans], y[:, :humans], (y - f)[:, :humans]]
    alone = [x[:, :humans] * 0 for x in sampled[:2]] + [sampled[2], sampled[2]]  # a judge that says nothing
    ends = [intervals(each, "hit" in measure) for each in (sampled, alone)]
    inside = [((low <= truth) & (truth <= high)).double().mean().item() for low, high in ends]
    widths = [(high - low).nanmean().item() for low, high in ends]
    return {"coverage": inside[0], "people alone": inside[1], "width": widths[0] / widths[1]}


def intervals(kinds, binary):
    """The ends [2, replicate] of the intervals of values [replicate, query] of each kind."""
    state = sums(kinds)
    found = rectify(state, state[..., 2])
    columns = (found.value, found.variance.sqrt(), found.effective, found.df)
    rows = zip(*(x.tolist() for x in columns))
    return torch.tensor([
        wilson(min(max(value, 0.0), 1.0), effective) if binary else t_interval(value, error, df)
        for value, error, effective, df in rows
    ]).T  # fmt: skip


def main(replicates):
    """A row for each judge, and one for people alone."""
    rows = [{"judge": kind} for kind in (*JUDGES, "none: people alone")]
    for humans in (20, 50, 200):
        every = [[simulated(measure, kind, humans, replicates) for measure in MEASURES] for kind in JUDGES]
        for row, found in zip(rows, every):
            row[f"{humans} queries"] = 100 * min(one["coverage"] for one in found)
            row[f"width of {humans}"] = max(one["width"] for one in found)
        rows[-1][f"{humans} queries"] = 100 * min(one["people alone"] for found in every for one in found)
        rows[-1][f"width of {humans}"] = 1.0
    return Table.of_rows(rows, {name: ".2f" if "width" in name else ".1f" for name in [*rows[0]][1:]})


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)}\n")
