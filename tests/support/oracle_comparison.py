"""Metrics beside the oracle, on each query."""

from functools import cache

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases, oracles
from torchrank.layouts.canonical import Need

MEASURES = sorted(name for name, cls in tr.RankingMetric.registry.items() if cls.__module__.startswith("torchrank."))
FEW = layout_cases.few_configs()
MANY = layout_cases.many_configs()


def each_in_turn(configs):
    """Each metric under one of its tie policies, which differs from one metric to the next."""
    alike = {}
    for config in configs:
        others = tuple(pair for pair in config.parameters if pair[0] != "ties")
        alike.setdefault((config.name, others), []).append(config)
    return [several[number % len(several)] for number, several in enumerate(alike.values())]


#: For tests of code that sees nothing of the tie policy.
IN_TURN = each_in_turn(FEW)


def each_combination():
    """Those, and every combination of other parameters than cutoffs and policies, with one of each."""
    found = {}
    for config in each_in_turn(MANY):
        others = tuple(pair for pair in config.parameters if pair[0] not in ("ties", "top_k", "empty_target_action"))
        found[config.name, others] = config
    return list(dict.fromkeys([*IN_TURN, *found.values()]))


EACH = each_combination()


@cache
def wanted(config, query):
    """The value of the oracle."""
    return oracles.value(config.name, query, **config.for_oracle)


def assert_equal(config, queries, got, where):
    """Values of queries equal those of the oracle; if not, the shortest query that differs is shown."""
    assert_all_equal([config], queries, [got], where)


def assert_all_equal(configs, queries, values, where):
    """:func:`assert_equal` for the values of each metric, which are compared in one go."""
    if not configs:
        return
    for config, got in zip(configs, values, strict=True):
        assert got.dtype == torch.float64, f"{config}: {got.dtype}"
        assert got.shape == (len(queries),), f"{config} in {where}: {got.shape}"
    want = torch.tensor([[wanted(config, query) for query in queries] for config in configs], dtype=torch.float64)
    want = want.reshape(len(configs), len(queries))
    if torch.allclose(torch.stack(list(values)), want, rtol=1e-9, atol=1e-9, equal_nan=True):
        return
    for config, got, row in zip(configs, values, want):
        fail_if_different(config, queries, got, row, where)


def fail_if_different(config, queries, got, want, where):
    wrong = (~torch.isclose(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)).nonzero().flatten().tolist()
    if wrong:
        worst = min(wrong, key=lambda i: len(str(queries[i])))
        pytest.fail(
            f"{config} in {where}: {len(wrong)} of {len(queries)} differ; the shortest, number {worst}, "
            f"{queries[worst]} is {got[worst].item()} and should be {want[worst].item()}"
        )


@cache
def suites(metrics):
    """The labels and the collection of the metrics of each need.

    Metrics of one need are ranked as each of them alone. A larger need would hide one that asks for less than it reads.
    """
    groups = {}
    for metric in metrics:
        groups.setdefault(metric.required, {})[metric.label] = metric
    # Labels with a dot are no keys of a collection.
    named = [{f"m{n}": metric for n, metric in enumerate(one.values())} for one in groups.values()]
    return list(zip(map(list, groups.values()), map(tr.RankingCollection, named)))


def scored(metrics, *args, **kwargs):
    """The values of each metric, by its label; metrics of one need are ranked once."""
    found = {}
    for labels, suite in suites(tuple(metrics)):
        found.update(zip(labels, suite.score(*args, **kwargs).values(), strict=True))
    return found


def assert_equal_by_need(configs, queries, batch, where):
    """Values of a batch equal those of the oracle; metrics of one need are ranked once."""
    metrics = [layout_cases.scoring(config) for config in configs]
    found = scored(metrics, *batch.args, **batch.kwargs)
    assert_all_equal(configs, queries, [found[metric.label] for metric in metrics], where)


def configs_of(name, configs):
    """The configurations of a measure, of which there is at least one."""
    found = [config for config in configs if config.name == name]
    assert found, f"no metric to try of {name}"
    return found


def kind_of_need(config):
    """The need of a metric, where all ranks at which it may stop are one: layouts and engines see no more of it."""
    need = layout_cases.scoring(config).required
    return need if need.reach is None else Need(1, need.relevant, need.all_candidates)


#: Measures that stand for all others where the measure itself is not the subject. Together they have every kind of
#: need, and read all parts of a ranking: grades and the ideal order of all grades, ranks under every tie policy, ranks
#: among the irrelevant, numbers of candidates, subtopics, judged but irrelevant candidates, and every candidate.
REPRESENTATIVES = (
    "alphandcg", "auroc", "bpref", "fallout", "judged", "kendalltau", "map", "mrr", "ndcg", "rbo", "rbpresidual"
)  # fmt: skip
