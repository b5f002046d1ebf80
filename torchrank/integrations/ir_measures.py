"""ir_measures and PyTerrier: any measure of this library beside theirs, and their measures on this engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import ir_measures
from ir_measures import Metric, providers
from ir_measures.util import QrelsConverter, RunConverter

from torchrank.collection.collection import keyed
from torchrank.evaluation.evaluate import evaluate
from torchrank.names.parse import parse
from torchrank.tables.pair_tables import Ties
from torchrank.tables.sources import read_qrels


def measure(name: str, *, ties: Ties | None = None, **options: Any) -> Any:
    """A measure for ``ir_measures.calc``, ``calc_aggregate``, ``iter_calc`` and PyTerrier's ``pt.Experiment``.

    ir_measures passes whole frames, so all queries are ranked at once. Judged queries that the run lacks count as in
    :func:`torchrank.evaluate`; queries that are not judged do not count. Subtopics are the column ``iteration`` of the
    judgments, as in ir_measures' own measures.

    Args:
        name: a measure, in any spelling of :func:`torchrank.parse`. A cutoff is part of the name: ``measure(...) @ 5``
            raises, because ir_measures would cut tied documents before they are ranked.
        ties: the order of equal scores: "document" (None), as in trec_eval, "rows", or "expected", the mean over all
            orders.
        options: further arguments of :func:`torchrank.evaluate`, such as ``parent``.

    Returns:
        An object of ir_measures, whose name is the label of the measure; with "expected" or "rows" followed by it.
        ir_measures takes two of one name for the same measure.

    Raises:
        ValueError: there is no such measure.

    Source:
        MacAvaney, Macdonald and Ounis, Streamlining evaluation with ir-measures, ECIR 2022.

    Example:
        >>> import ir_measures, torchrank as tr
        >>> qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"b": 0.9, "a": 0.5}}
        >>> ir_measures.calc_aggregate([tr.integrations.ir_measures.measure("rbp(p=0.5)")], qrels, run)
        {rbp(p=0.5): 0.25}
    """
    metric = parse(name)
    label = metric.label if ties in (None, "document") else f"{metric.label} {ties}"

    def values(qrels: Any, run: Any) -> Iterator[tuple[str, float]]:
        yield from _values(qrels, run, {label: metric}, ties=ties, **options)[label]

    inputs = ["query_id", "doc_id", "relevance", "iteration"]
    defined = ir_measures.define(values, label, support_cutoff=False, qrel_inputs=inputs)

    def cut(self: Any, cutoff: Any) -> Any:
        raise ValueError(f"Expected the cutoff in the name, got {label!r} @ {cutoff}; pass measure('{name}@{cutoff}')")

    return type(label, (type(defined),), {"__matmul__": cut})()


def _values(qrels: Any, run: Any, suite: Any, **options: Any) -> dict[str, list[tuple[str, float]]]:
    """The values of the judged queries, by key of the suite; without those that have none."""
    table = evaluate(read_qrels(qrels), run[["query_id", "doc_id", "score"]], suite, **options)["run"]
    ids = table.ids.tolist()
    return {
        key: [(query, value) for query, value in zip(ids, table[key].tolist()) if not math.isnan(value)]
        for key in suite
    }


class Provider(providers.Provider):
    """ir_measures' own measures, computed by this library: all of a suite from one ranking.

    It is called explicitly: ``Provider().calc_aggregate([nDCG @ 10, AP], qrels, run)``. It supports every measure whose
    name :func:`torchrank.parse` knows but ``Accuracy``, and ranks equal scores as trec_eval.

    Example:
        >>> import ir_measures, torchrank as tr
        >>> qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"b": 0.9, "a": 0.5}}
        >>> tr.integrations.ir_measures.Provider().calc_aggregate([ir_measures.RR], qrels, run)
        {RR: 0.5}
    """

    NAME = "torchrank"

    def supports(self, measure: Any) -> bool:
        measure.validate_params()
        try:
            parse(str(measure))
        except ValueError:
            return False
        return bool(measure.NAME != "Accuracy")  # which is another measure here

    def _evaluator(self, measures: Iterable[Any], qrels: Any) -> providers.Evaluator:
        return _Evaluator(list(measures), QrelsConverter(qrels).as_pd_dataframe())


class _Evaluator(providers.Evaluator):
    def __init__(self, measures: list[Any], qrels: Any) -> None:
        super().__init__(measures, set(qrels["query_id"].unique()))
        self.qrels = qrels

    def _iter_calc(self, run: Any) -> Iterator[Any]:
        names = {str(measure): measure for measure in self.measures}
        suite = dict(keyed(dict(zip(names, names))))
        frame = RunConverter(run).as_pd_dataframe()
        for name, values in _values(self.qrels, frame, suite).items():
            for query, value in values:
                yield Metric(query_id=query, measure=names[name], value=value)
