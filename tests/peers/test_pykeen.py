"""The same numbers as PyKEEN has of realistic ranks and numbers of candidates."""

import re
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
    """The metrics of PyKEEN by our labels: those of the preset, and the two medians, of which it has none."""
    found = {"mr(aggregation=midpoint)": ranking.MedianRank()}
    found["mr(inverse=True,aggregation=midpoint)"] = ranking.InverseMedianRank()
    for theirs, ours in tr.preset("pykeen", 1, 3, 10, 50).items():
        name, k = re.fullmatch(r"(.*?)(?<=_at_)?(\d*)", theirs).groups()
        found[ours] = ranking.rank_based_metric_resolver.make(f"{name}k" if k else name, {"k": int(k)} if k else {})
    return found


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


def all_of(names):
    """Our metrics by their names here, which are updated together."""
    return tr.RankingCollection({name: tr.parse(name) for name in names})


def assert_all_equal(suite, *arguments):
    for name, metric in suite.items():
        assert reported(metric) == pytest.approx(pairs()[name](*arguments), rel=1e-10), name


@pytest.mark.parametrize("seed", range(2))
def test_ranks_and_numbers_of_candidates(seed):
    ranks, n, _ = drawn(seed, queries=200 + seed % 2)
    suite = all_of(pairs())
    for part in np.array_split(np.arange(len(ranks)), 3):
        suite.update(tr.Ranking.from_ranks(torch.tensor(ranks[part]), torch.tensor(n[part])))
    assert_all_equal(suite, ranks, n)


def test_weights():
    ranks, n, weights = drawn(0)
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
