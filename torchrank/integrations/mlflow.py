"""MLflow: metrics for ``mlflow.models.evaluate``, and scorers for ``mlflow.genai.evaluate``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mlflow.entities import SpanType
from mlflow.genai import scorer
from mlflow.metrics import MetricValue
from mlflow.metrics.base import standard_aggregations
from mlflow.models import make_metric

from torchrank.collection.collection import Metrics, RankingCollection
from torchrank.names.arguments import warn
from torchrank.tables.joining import Pairs, ranking_of
from torchrank.tables.sources import read_qrels, read_run
from torchrank.wrappers.per_query import QueryTable


def metrics(suite: Metrics) -> list[Any]:
    """Metrics of a retriever for ``mlflow.models.evaluate(extra_metrics=...)``.

    Predictions and targets are columns with a list in each row: the ids that were retrieved, the best first, and the
    relevant ids. A prediction may also be a dict of scores by id, and a target a dict of grades. An id that was
    retrieved several times, as for chunks of one document, counts at its best rank.

    Names are plain, because MLflow refuses ``@`` after all is computed. The results have ``ndcg_at_10/mean``,
    ``/variance`` and ``/p90``, and the table ``ndcg_at_10/score`` of each row. The mean is that of
    :func:`torchrank.evaluate`. Rows that a measure skips have no score.

    With ``model_type="retriever"`` these metrics take the place of MLflow's metrics of the same name. MLflow cuts the
    ideal list of nDCG to the length of the retrieved list: where one relevant document of five is retrieved, alone, its
    ``ndcg_at_5`` is 1.0 in place of 0.339.

    Args:
        suite: a metric, names of metrics, or a collection.

    Returns:
        A list of ``mlflow.models.EvaluationMetric``.

    Raises:
        ValueError: a name is unknown. When called: a row has something else than a list or a dict, or a measure has no
            value for each row.

    Example:
        >>> import pandas as pd, torchrank as tr
        >>> (ndcg,) = tr.integrations.mlflow.metrics("ndcg@5")
        >>> value = ndcg.eval_fn(pd.Series([["a"]]), pd.Series([["a", "b", "c", "d", "e"]]))
        >>> ndcg.name, round(value.aggregate_results["mean"], 3)
        ('ndcg_at_5', 0.339)
    """
    return [_metric(key, metric) for key, metric in _members(suite).items()]


def scorers(
    suite: Metrics, *, expected: str = "expected_retrieved_context", key: str = "doc_uri", **options: Any
) -> list[Any]:
    """Scorers of retrieved documents for ``mlflow.genai.evaluate(scorers=...)``.

    The documents are the outputs of the spans of type RETRIEVER in the trace, in the order of the spans, without spans
    inside another such span. If there is no such span, the documents are the output of the row. A document is an id, or
    a dict with its id in the field ``key``, which may be in its ``metadata``, as in ``mlflow.entities.Document``. A
    document that was retrieved several times counts at its best rank.

    MLflow logs the mean of the rows, ``ndcg_at_10/mean``. Rows that a measure skips have no feedback. If a scorer
    raises, MLflow warns, keeps the error in the assessment of the trace, and leaves the row out of the mean.

    Args:
        suite: a metric, names of metrics, or a collection.
        expected: the key of ``expectations`` with the relevant documents: a list of documents, or a dict of grades by
            id.
        key: the field of documents that has their id.
        options: further arguments of ``mlflow.genai.scorers.scorer``, such as ``aggregations=["mean", "p90"]``.

    Returns:
        A list of MLflow's ``Scorer``. MLflow cannot register them, because it would store their code alone.

    Raises:
        ValueError: a name is unknown. When called: expectations or documents do not have their key.

    Example:
        >>> import torchrank as tr
        >>> (mrr,) = tr.integrations.mlflow.scorers("mrr", expected="relevant")
        >>> mrr(outputs=["a", "b"], expectations={"relevant": {"b": 1}}, trace=None)
        0.5
    """
    return [_scorer(name, metric, expected, key, options) for name, metric in _members(suite).items()]


def _members(suite: Metrics) -> dict[str, Any]:
    """The metrics by names that are identifiers: MLflow refuses "@", and other metrics take names as arguments."""
    return dict(RankingCollection(suite, keys="identifier").items())


def _metric(name: str, metric: Any) -> Any:
    def values(predictions: Iterable[Any], targets: Iterable[Any] | None) -> MetricValue:
        if targets is None:
            raise ValueError("Expected the relevant ids of each row, got none; pass targets= to mlflow.models.evaluate")
        table = _table(dict(enumerate(predictions)), dict(enumerate(targets)), name, metric)
        # MLflow drops a metric whose scores are an array.
        scores: list[Any] = [None if math.isnan(score) else score for score in table[name].tolist()]
        numbers = [score for score in scores if score is not None]
        aggregates = standard_aggregations(numbers) if numbers else {}
        return MetricValue(scores=scores, aggregate_results={**aggregates, "mean": table.values()[name]})

    return make_metric(eval_fn=values, greater_is_better=metric.higher_is_better is not False, name=name)


def _scorer(name: str, metric: Any, expected: str, key: str, options: dict[str, Any]) -> Any:
    def value(outputs: Any, expectations: Any, trace: Any) -> float | None:
        if expected not in (expectations or {}):
            raise ValueError(f"Expected {expected!r} in expectations, got {[*(expectations or {})]}; pass expected=")
        relevant = expectations[expected]
        if not isinstance(relevant, Mapping):
            relevant = _ids(relevant, key)
        table = _table({0: _ids(_retrieved(trace, outputs), key)}, {0: relevant}, name, metric)
        (score,) = table[name].tolist()
        return None if math.isnan(score) else score

    return scorer(value, name=name, **options)


def _table(found: dict[int, Any], relevant: dict[int, Any], name: str, metric: Any) -> QueryTable:
    """The values of rows. MLflow tries the first row alone, in which nothing relevant may have been found."""
    pairs = Pairs.of(read_qrels(relevant, duplicates="first"), read_run(found, duplicates="first"))
    if pairs.disjoint and len(found) > 1:
        warn(pairs.disjoint)
    return QueryTable.of(ranking_of(pairs), {name: metric})


def _retrieved(trace: Any, outputs: Any) -> Any:
    """The documents of all retrievers of a trace that no other retriever has called; without any the output."""
    spans = trace.search_spans(span_type=SpanType.RETRIEVER) if trace else []
    if not spans:
        return outputs
    callers = {span.span_id: span.parent_id for span in trace.data.spans}
    retrievers = {span.span_id for span in spans}
    documents: list[Any] = []
    for span in spans:
        caller = span.parent_id
        while caller and caller not in retrievers:
            caller = callers.get(caller)
        if not caller:
            documents += span.outputs or []
    return documents


def _ids(documents: Any, key: str) -> list[Any]:
    if not isinstance(documents, list | tuple | set):
        way_out = "mark the retriever by mlflow.trace(span_type='RETRIEVER'), or return its documents"
        raise ValueError(f"Expected a list of documents, got {type(documents).__name__}; {way_out}")
    ids = []
    for document in documents:
        if isinstance(document, Mapping):
            fields = {**document, **(document.get("metadata") or {})}
            if key not in fields:
                raise ValueError(f"Expected documents with {key!r}, got {[*fields]}; pass key=")
            document = fields[key]
        ids.append(document)
    return ids
