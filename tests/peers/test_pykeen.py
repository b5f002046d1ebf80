"""The same numbers as PyKEEN has of realistic ranks and numbers of candidates."""

from functools import cache

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.optional import OptionalModule
from torchrank.names.parse import rows
from torchrank.state.sums import aggregate, mean

ranking = OptionalModule("pykeen.metrics.ranking")


@cache
def pairs():
    """Our metrics and those of PyKEEN."""
    return {
        "mr": ranking.ArithmeticMeanRank(),
        "mr(aggregation=geometric)": ranking.GeometricMeanRank(),
        "mr(aggregation=harmonic)": ranking.HarmonicMeanRank(),
        "mr(aggregation=midpoint)": ranking.MedianRank(),
        "mr(inverse=True)": ranking.InverseArithmeticMeanRank(),
        "mr(inverse=True,aggregation=geometric)": ranking.InverseGeometricMeanRank(),
        "mr(inverse=True,aggregation=harmonic)": ranking.InverseHarmonicMeanRank(),
        "mr(inverse=True,aggregation=midpoint)": ranking.InverseMedianRank(),
        "mr(adjusted=ratio)": ranking.AdjustedArithmeticMeanRank(),
        "mr(adjusted=index)": ranking.AdjustedArithmeticMeanRankIndex(),
        "mr(adjusted=z)": ranking.ZArithmeticMeanRank(),
        "mrr": ranking.InverseHarmonicMeanRank(),
        "mrr(adjusted=index)": ranking.AdjustedInverseHarmonicMeanRank(),
        "mrr(adjusted=z)": ranking.ZInverseHarmonicMeanRank(),
        **{
            f"hitrate{more}@{k}": cls(k=k)
            for k in (1, 3, 10, 50)
            for more, cls in (
                ("", ranking.HitsAtK),
                ("(adjusted=index)", ranking.AdjustedHitsAtK),
                ("(adjusted=z)", ranking.ZHitsAtK),
            )
        },
    }


def deviation(values):
    return values.std(correction=0)


def variance(values):
    return values.var(correction=0)


def scaled_deviation(values):
    """The median absolute deviation, scaled as the standard deviation of a normal distribution."""
    return (values - values.quantile(0.5)).abs().quantile(0.5) / torch.special.ndtri(values.new_tensor(0.75))


SPREADS = {
    deviation: "StandardDeviation",
    variance: "Variance",
    scaled_deviation: "MedianAbsoluteDeviation",
}


def reported(metric):
    """The value of ``compute``, before it is rounded to single precision."""
    rows = metric.rows
    if rows is None:
        average = metric.mean.outside(mean(metric.sums))
    else:
        table = torch.cat(rows)
        average = aggregate(metric.aggregation, table[:, 0], table[:, 1])
    value = metric.transform_result(average, metric.sums)
    torch.testing.assert_close(metric.compute(), value.float(), rtol=0, atol=0)
    return value.item()


def drawn(seed, queries=201, most=300):
    """Ranks, some between two others, and numbers of candidates, some of which are one."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, most, queries)
    n[:3] = 1
    ranks = 1 + np.floor((2 * n - 1) * rng.random(queries) ** 2) / 2
    return ranks, n, np.round(rng.random(queries) * 8) / 4


def all_of(names, **parameters):
    """Our metrics by their names here, which are updated together."""
    return tr.RankingCollection({name: tr.parse(name, **parameters) for name in names})


def assert_all_equal(suite, *arguments):
    for name, metric in suite.items():
        assert reported(metric) == pytest.approx(pairs()[name](*arguments), rel=1e-10), name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("filtered", [False, True])
def test_ranks_and_numbers_of_candidates(seed, filtered):
    ranks, n, _ = drawn(seed, queries=200 + seed % 2)
    suite = all_of(pairs(), filtered=filtered)
    for part in np.array_split(np.arange(len(ranks)), 3):
        suite.update(tr.Ranking.from_ranks(torch.tensor(ranks[part]), torch.tensor(n[part])))
    assert_all_equal(suite, ranks, n)


@pytest.mark.parametrize("seed", range(3))
def test_weights(seed):
    ranks, n, weights = drawn(seed)
    suite = all_of([name for name, peer in pairs().items() if peer.supports_weights])
    assert len(suite) > 10
    suite.update(tr.Ranking.from_ranks(torch.tensor(ranks), torch.tensor(n)), weights=torch.tensor(weights))
    there = weights > 0
    assert_all_equal(suite, ranks[there], n[there], weights[there])


def test_a_large_catalogue():
    rng = np.random.default_rng(0)
    n = rng.integers(10**5, 2 * 10**6, 300)
    ranks = 1 + (n * rng.random(300) ** 6).astype(int)
    for name, peer in pairs().items():
        metric = tr.parse(name)
        metric.update(tr.Ranking.from_ranks(torch.tensor(ranks, dtype=torch.float64), torch.tensor(n)))
        assert reported(metric) == pytest.approx(peer(ranks, n), rel=1e-9), name


def test_every_measure_of_pykeen_has_a_setting_or_a_reason():
    cells = [cell for row in rows().values() for cell in row.get("pykeen", [])]
    names = {cell.theirs.replace("_", "").replace("{k}", "k").lower() for cell in cells}
    registered = set(ranking.rank_based_metric_resolver.lookup_dict)
    assert len(registered) > 20
    assert names == registered


@pytest.mark.parametrize("spread", SPREADS)
def test_a_callable_aggregation_is_the_spread_of_ranks(spread):
    ranks, n, _ = drawn(6)
    metric = tr.MR(aggregation=spread)
    for part in np.array_split(np.arange(len(ranks)), 3):
        metric.update(tr.Ranking.from_ranks(torch.tensor(ranks[part]), torch.tensor(n[part])))
    assert metric.compute().item() == pytest.approx(getattr(ranking, SPREADS[spread])()(ranks, n), rel=1e-6)
