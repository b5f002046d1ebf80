"""Defaults of public functions, classes and methods: an argument of one name has one default, but for those listed."""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType

import torch

import torchrank as tr

#: the default of an argument wherever it is; None for all others
USUAL = {
    "alpha": 0.05, "digits": 4, "duplicates": "error", "expansion": 100, "family": "measure", "format": "auto",
    "level": 0.95, "notes": (), "points": 11, "power": 0.8, "relevance_level": 1, "repeats": "error",
    "replicates": 1000, "seed": 0,
    **dict.fromkeys(("anytime", "ignore_identical_ids", "ignored_identical_ids", "progress"), False),
    **dict.fromkeys(("caption", "name", "source", "text"), ""),
}  # fmt: skip

#: the defaults of single functions, classes and methods
OTHERS = {
    "compare": {"test": "t", "level": None, "missing": "error", "zeros": "pratt", "replicates": 10_000},
    "Comparison": {"test": "t", "correction": "holm", "warnings": ()},
    "Table.of_rows": {"columns": ()},
    "Table.to_html": {"grouped": False},
    "Evaluation": {"ties": "document"},
    "Evaluation.to_html": {"worst": 10},
    "evaluate": {"ignore_identical_ids": None, "relevance_level": None},
    "partial": {"measures": "ndcg@10 map mrr recall@100", "queries": "judged", "precision": "double"},
    "ReadingError": {"unit": "line"},
    "Run": {"ties": "document"},
    "read_chunks": {"lines": 250_000},
    "RankingCollection": {"keys": "label"},
    "RankingCollection.keys": {"keep_base": False},
    "RankingCollection.items": {"keep_base": False, "copy_state": True},
    "RankingCollection.plot": {"over_k": False},
    **{key: {"method": "auto"} for key in ("RankingCollection.intervals", "RankingCollection.summary")},
    "Abstention": {"confidence": "max"},
    "Bootstrapped": {"method": "percentile"},
    # None = the level that the wrapper was made with
    **{key: {"level": None} for key in ("Bootstrapped.intervals", "Bootstrapped.summary", "Bootstrapped.difference")},
    **{key: {"level": None} for key in ("Compared.comparison", "Sliced.summary")},
    "Sliced.estimates": {"level": None, "method": "auto"},
    "Sliced.worst": {"level": None, "min_queries": 2},
    "Sliced.difference": {"level": None, "other": "rest"},
    "PerQuery": {"dtype": torch.float64},
    "QueryTable.deltas": {"most": 10},
    "SampledRanks": {
        "replacement": False, "sampling": "uniform", "empty_target_action": "skip", "aggregation": "mean",
        "ties": "expected", "unjudged": "irrelevant", "validate_args": True, "sync_on_compute": True,
        "dist_sync_on_step": False, "compute_on_cpu": False, "compute_with_cache": True,
    },
    "SampledRanks.estimate": {"method": "em", "gamma": 0.01},
    "TieReport": {"atol": 0.0, "rtol": 0.0},
    "UnpaddedSampler": {"shuffle": False, "drop_last": False},
}  # fmt: skip


def check(folder: str) -> None:
    """Compare the defaults of all that a folder of the package has public."""
    found, wanted = {}, {}
    for name in tr.__all__:
        thing = getattr(tr, name)
        if str(getattr(thing, "__module__", "")).startswith(f"torchrank.{folder}"):
            public = [key for key in vars(thing) if key[0] != "_"] if isinstance(thing, type) else []
            for path, function in {name: thing, **{f"{name}.{key}": getattr(thing, key) for key in public}}.items():
                if isinstance(function, FunctionType | MethodType | type):
                    parameters = inspect.signature(function).parameters.items()
                    defaults = {key: one.default for key, one in parameters if one.default is not one.empty}
                    defaults = {key: default for key, default in defaults.items() if repr(default) != "<factory>"}
                    found[path] = defaults
                    wanted[path] = {key: {**USUAL, **OTHERS.get(path, {})}.get(key) for key in defaults}
    assert sum(map(len, found.values())) > 20
    assert found == wanted
