"""Contenders from other libraries. Each library is imported by its contender only, so none has to be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import torchrank as tr
from benchmarks.contenders import from_rows
from benchmarks.plan import Contender, Data, Numbers, Prepared, UnavailableError, cuts, label


def _on_cpu(data: Data) -> None:
    if data.device != "cpu":
        raise UnavailableError("runs on CPUs only")


def _rows(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, target and the query of each row, all flat."""
    if hasattr(data, "indexes"):
        return data.scores, data.target, data.indexes
    query = torch.arange(len(data.scores), device=data.device).unsqueeze(1).expand_as(data.scores)
    return data.scores.flatten(), data.target.flatten(), query.flatten()


def _names(data: Data) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Judgments of relevant documents, and runs, as dictionaries of strings."""
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for number, (score, grade, query) in enumerate(zip(*(column.tolist() for column in _rows(data)))):
        run.setdefault(f"q{query}", {})[f"d{number}"] = score
        judged = qrels.setdefault(f"q{query}", {})
        if grade:
            judged[f"d{number}"] = grade
    return qrels, run


# ---- torchmetrics --------------------------------------------------------------------------------------------------


def bootstrapper(measure: str, replicates: int) -> Contender:
    """torchmetrics' bootstrap of one measure of torchrank: a copy of the metric for each replicate."""

    def prepare(data: Data) -> Prepared:
        from torchmetrics.wrappers import BootStrapper

        booted = BootStrapper(tr.parse(measure), num_bootstraps=replicates).to(data.device)
        return Prepared(lambda: booted.update(data.scores, data.target))

    return prepare


def torchmetrics(measures: str) -> Contender:
    """torchmetrics' retrieval metrics in one collection.

    Only the numbers of nDCG are compared, because several other metrics count scores of 0 and below as irrelevant.
    """
    classes = {
        "ndcg": "RetrievalNormalizedDCG",
        "mrr": "RetrievalMRR",
        "map": "RetrievalMAP",
        "recall": "RetrievalRecall",
        "precision": "RetrievalPrecision",
        "hitrate": "RetrievalHitRate",
    }

    def prepare(data: Data) -> Prepared:
        from torchmetrics import MetricCollection, retrieval

        made = {label(name, k): getattr(retrieval, classes[name])(top_k=k) for name, k in cuts(measures)}
        suite = MetricCollection(made).to(data.device)
        scores, target, indexes = _rows(data)

        def run() -> Mapping[str, Tensor]:
            suite.reset()  # otherwise the rows of all runs would add up
            suite.update(scores, target, indexes=indexes)
            return suite.compute()

        return Prepared(run, lambda found: {key: value for key, value in found.items() if key.startswith("ndcg")})

    return prepare


def torchmetrics_rows(names: str) -> Contender:
    """torchmetrics' retrieval classes with these names."""

    def prepare(data: Data) -> Prepared:
        from torchmetrics import retrieval

        return from_rows(retrieval, names, data)

    return prepare


def torchmetrics_kendall(data: Data) -> Prepared:
    """torchmetrics' function for all queries at once, one in each column."""
    from torchmetrics.functional import kendall_rank_corrcoef

    scores, target = data.scores.T.contiguous(), data.target.T.contiguous()
    return Prepared(
        lambda: kendall_rank_corrcoef(scores, target, variant="b"), lambda found: {"kendalltau": found.mean()}
    )


# ---- scipy ---------------------------------------------------------------------------------------------------------


def scipy(measure: str) -> Contender:
    """scipy's function of two rankings, called for each query."""
    names = {"kendalltau": "kendalltau", "weightedtau": "weightedtau", "spearman": "spearmanr"}

    def prepare(data: Data) -> Prepared:
        _on_cpu(data)
        from scipy import stats

        function, pairs = getattr(stats, names[measure]), list(zip(data.scores.numpy(), data.target.numpy()))
        return Prepared(
            lambda: [function(*pair).statistic for pair in pairs], lambda found: {measure: sum(found) / len(found)}
        )

    return prepare


# ---- evaluation of runs --------------------------------------------------------------------------------------------


def ranx(measures: str) -> Contender:
    """ranx after its compilation, with judgments and run already built."""

    def prepare(data: Data) -> Prepared:
        _on_cpu(data)
        from ranx import Qrels, Run, evaluate

        qrels, run = (kind(names) for kind, names in zip((Qrels, Run), _names(data)))
        asked = [label(name, k) for name, k in cuts(measures)]
        return Prepared(lambda: evaluate(qrels, run, asked), lambda found: found)

    return prepare


def pytrec_eval(measures: str) -> Contender:
    """trec_eval through pytrec_eval, with evaluator and run already built. Its reciprocal rank has no cutoff."""
    cut = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "hitrate": "success"}
    uncut = {"ndcg": "ndcg", "map": "map", "mrr": "recip_rank"}

    def prepare(data: Data) -> Prepared:
        _on_cpu(data)
        from pytrec_eval import RelevanceEvaluator

        qrels, run = _names(data)
        asked = [(name, k) for name, k in cuts(measures) if name in (uncut if k is None else cut)]
        names = {label(name, k): uncut[name] if k is None else f"{cut[name]}.{k}" for name, k in asked}
        evaluator = RelevanceEvaluator(qrels, {"recip_rank", *names.values()})

        def read(found: Mapping[str, Mapping[str, float]]) -> Numbers:
            return {
                ours: sum(row[theirs.replace(".", "_")] for row in found.values()) / len(run)
                for ours, theirs in names.items()
            }

        return Prepared(lambda: evaluator.evaluate(run), read)

    return prepare


# ---- link prediction -----------------------------------------------------------------------------------------------


def pyg(measures: str, retrieved: int, ids: bool = False) -> Contender:
    """PyTorch Geometric's collection. It takes ids: of scores by torch.topk first, which is part of its time."""
    classes = {"ndcg": "NDCG", "mrr": "MRR", "map": "MAP", "recall": "Recall", "precision": "Precision"}
    classes["hitrate"] = "HitRatio"

    def prepare(data: Data) -> Prepared:
        from torch_geometric import metrics

        made = {label(name, k): getattr(metrics, f"LinkPred{classes[name]}")(k) for name, k in cuts(measures)}
        suite = metrics.LinkPredMetricCollection(made).to(data.device)
        number = data.target.numel() // len(data.target)
        truth = torch.arange(len(data.target), device=data.device).repeat_interleave(number), data.target.flatten()

        def run() -> Any:
            suite.reset()
            suite.update(data.scores if ids else data.scores.topk(retrieved).indices, truth)
            return None if ids else suite.compute()

        return Prepared(run, lambda found: suite.compute())

    return prepare


def pykeen(data: Data) -> Prepared:
    """PyKEEN's ranks. The caller has to filter scores: this is not timed, but done before the numbers are compared."""
    from pykeen.evaluation.ranks import Ranks

    def ranks(scores: Tensor) -> Any:
        return Ranks.from_scores(scores.gather(1, data.relevant), scores)

    def read(_: Any) -> Numbers:
        scores = data.scores.clone()
        scores[data.exclude] = -torch.inf
        scores.scatter_(1, data.relevant, data.scores.gather(1, data.relevant))
        return {"mr": ranks(scores).realistic.double().mean()}

    return Prepared(lambda: ranks(data.scores), read)
