"""The public names, for :mod:`torchrank`, which imports this module when the first of them is used."""

from contextlib import suppress
from typing import TYPE_CHECKING

from torchrank import extend, integrations, retrieval
from torchrank.collection.collection import RankingCollection
from torchrank.display import Table
from torchrank.engine.judged import use_compiled
from torchrank.engine.neighbors import exact_neighbors
from torchrank.evaluation.agree import agree
from torchrank.evaluation.evaluate import evaluate
from torchrank.evaluation.evaluation import Evaluation
from torchrank.evaluation.nuggets import evaluate_nuggets, nugget_scores, read_nuggets
from torchrank.evaluation.partial import PartialEvaluation, merge, partial
from torchrank.evaluation.spans import evaluate_spans, judge_spans
from torchrank.formulas.random_ranking import expected_median_rank
from torchrank.integrations.workers import UnpaddedSampler
from torchrank.metrics import public
from torchrank.metrics.public import *  # noqa: F403
from torchrank.names.arguments import did_you_mean
from torchrank.names.labels import plain
from torchrank.names.parse import parse, preset, required, resolve
from torchrank.names.registry import measures
from torchrank.ranking.ranking import Ranking
from torchrank.statistics.comparison import Comparison, best_of, compare
from torchrank.statistics.intervals import queries_needed
from torchrank.tables.pair_tables import Qrels, ReadingError, Run
from torchrank.tables.sources import read_chunks, read_qrels, read_run
from torchrank.wrappers.abstention import Abstention
from torchrank.wrappers.compared import Compared, Rectified
from torchrank.wrappers.grouped import Grouped
from torchrank.wrappers.per_query import PerQuery, QueryTable
from torchrank.wrappers.sampled_ranks import SampledRanks
from torchrank.wrappers.suite_metric import Bootstrapped, Sliced, hash_ids
from torchrank.wrappers.tie_report import TieReport, difference_bounds

__all__ = [
    "Abstention",
    "Bootstrapped",
    "Compared",
    "Comparison",
    "Evaluation",
    "Grouped",
    "PartialEvaluation",
    "PerQuery",
    "Qrels",
    "QueryTable",
    "Ranking",
    "RankingCollection",
    "ReadingError",
    "Rectified",
    "Run",
    "SampledRanks",
    "Sliced",
    "Table",
    "TieReport",
    "UnpaddedSampler",
    "agree",
    "best_of",
    "compare",
    "difference_bounds",
    "evaluate",
    "evaluate_nuggets",
    "evaluate_spans",
    "exact_neighbors",
    "expected_median_rank",
    "extend",
    "hash_ids",
    "integrations",
    "judge_spans",
    "merge",
    "nugget_scores",
    "parse",
    "partial",
    "plain",
    "preset",
    "queries_needed",
    "read_chunks",
    "read_nuggets",
    "read_qrels",
    "read_run",
    "retrieval",
    "use_compiled",
]
if not TYPE_CHECKING:
    __all__ += public.__all__


def way_to(name: str) -> str:
    """The end of the error message for a name that torchrank lacks: where to find what it means."""
    for module in (retrieval, extend):
        if name in module.__all__:
            return f"use {module.__name__}.{name}"
    with suppress(ValueError):
        measure = measures()[resolve(name)[0].name]
        if measure.__name__ in __all__:
            return f"use torchrank.{measure.__name__}{_function(measure)}"
    return did_you_mean(name, __all__).removeprefix("; ") or f"measures are classes{_function(public.NDCG)}"


def _function(measure: type) -> str:
    """A clause that shows how to call a measure as a function; empty if it needs data about a catalogue."""
    if required(measure) or not issubclass(measure, public.RankingMetric):
        return ""
    cutoff = "top_k=10" if measure.takes_top_k else ""
    return f"; as a function, torchrank.{measure.__name__}({cutoff}).score(preds, target)"
