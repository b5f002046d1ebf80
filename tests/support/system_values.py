"""Values of systems on the same queries, for tests of comparisons."""

from dataclasses import dataclass

import numpy as np

import torchrank as tr
from torchrank.statistics.comparison import compare


@dataclass
class Columns:
    ids: object
    columns: dict
    higher_is_better: dict | None = None


def values(n=60, systems=3, step=0.03, seed=0):
    # [query, system]: each system is better than the one before it by `step` on average
    rng = np.random.default_rng(seed)
    return rng.uniform(0.2, 0.8, (n, 1)) + step * np.arange(systems) + rng.normal(0, 0.1, (n, systems))


def named(n=60, systems=3, **options):
    return dict(zip("abcd", values(n, systems, **options).T))


def only(systems, **options):
    rows = compare(systems, **options).table.rows
    assert len(rows) == 1
    return rows[0]


def by_id(column):
    return {f"q{i}": float(value) for i, value in enumerate(column)}


def evaluation_of(runs):
    """An evaluation of a ranking, or of the values of all queries by the name of the run."""
    rankings = {"run": runs} if isinstance(runs, tr.Ranking) else {}
    tables = {"run": tr.QueryTable(range(runs.num_queries), {})} if rankings else runs
    rows = [{"run": run, "queries": len(table), "same id as query": 0} for run, table in tables.items()]
    return tr.Evaluation(tables, {}, rows, "judged", rankings=rankings)
