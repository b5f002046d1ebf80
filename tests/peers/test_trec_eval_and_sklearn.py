"""The same numbers as trec_eval (through pytrec_eval) and scikit-learn, where they mean the same."""

import math

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.optional import pytrec_eval, sklearn_metrics
from tests.support.oracle_comparison import scored
from tests.support.peer_queries import assert_agree, by_trec_eval, collection, collections, dense, graded_batch

CUTS = (1, 2, 3, 5, 10, 30)

# trec_eval's name of a measure, and ours
TREC = {
    **{f"P_{k}": f"precision@{k}" for k in CUTS},
    **{f"recall_{k}": f"recall@{k}" for k in CUTS},
    **{f"map_cut_{k}": f"map@{k}" for k in CUTS},
    **{f"success_{k}": f"hitrate@{k}" for k in CUTS},
    "map": "map",
    "recip_rank": "mrr",
    "Rprec": "rprecision",
    "set_P": "precision",
    "set_recall": "recall",
    "set_F": "f1",
}
TREC_GRADED = {"ndcg": "ndcg", **{f"ndcg_cut_{k}": f"ndcg@{k}" for k in CUTS}}


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_trec_eval_on_a_run(tied, level):
    # trec_eval orders equal scores by the names of the documents, and so does a Ranking of a run.
    qrels, run = collections(tied)
    ranking = tr.Ranking.from_run(qrels, run)
    measures = TREC if level > 1 else {**TREC, **TREC_GRADED}  # the level does not affect its graded measures
    theirs = by_trec_eval(qrels, run, measures, level)
    for name, label in measures.items():
        metric = tr.parse(label, relevance_level=level) if name in TREC else tr.parse(label)
        assert_agree(metric.score(ranking), [query[name] for query in theirs], name)


def test_trec_eval_on_scores():
    qrels, run = collections(tied=False)
    preds, target = dense(qrels, run, 0)
    measures = {**TREC, **TREC_GRADED}
    theirs = by_trec_eval(qrels, run, measures)
    metrics = {name: tr.parse(label) for name, label in measures.items()}
    values = scored(metrics.values(), preds, target)
    for name, metric in metrics.items():
        assert_agree(values[metric.label], [query[name] for query in theirs], name)


@pytest.mark.parametrize(("parameter", "beta"), [("4", 2), ("0.25", 0.5)])
def test_the_parameter_of_trec_evals_f_stands_for_the_square_of_beta(parameter, beta):
    qrels, run = collection(3, True)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {f"set_F.{parameter}"}).evaluate(run)
    ours = tr.FBeta(beta=beta).score(tr.Ranking.from_run(qrels, run))
    assert_agree(ours, [theirs[query]["set_F"] for query in qrels], "set_F")


def test_trec_eval_on_negative_judgments():
    qrels, run = collection(1, True, grades=(-1, 0, 0, 1, 2))
    theirs = by_trec_eval(qrels, run, TREC)
    ranking = tr.Ranking.from_run(qrels, run)
    for name, label in TREC.items():
        assert_agree(tr.parse(label).score(ranking), [query[name] for query in theirs], name)


def test_trec_eval_averages_over_the_queries_that_a_run_has():
    qrels, run = collection(2, True)
    missing = list(run)[:20]
    shorter = {query: documents for query, documents in run.items() if query not in missing}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(shorter)
    metric = tr.MAP()
    metric.update(tr.Ranking.from_run(qrels, shorter))
    # Ours averages over all that are judged, as trec_eval -c does: one that lacks scores 0.
    assert len(theirs) == len(qrels) - 20
    assert metric.compute().item() == pytest.approx(sum(x["map"] for x in theirs.values()) / len(qrels), abs=1e-6)
    assert metric.num_queries == len(qrels)


# ---- scikit-learn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("k", [None, 1, 4, 10, 40])
def test_gains_of_scikit_learn(tied, k):
    preds, target = graded_batch(0, tied)
    scores, grades = torch.from_numpy(preds), torch.from_numpy(target)
    each = list(zip(target, preds))[:20]  # theirs takes long for each query, and ours for each call
    wanted = [
        (tr.NDCG(top_k=k), [sklearn_metrics.ndcg_score([t], [p], k=k) for t, p in each]),
        (tr.DCG(top_k=k), [sklearn_metrics.dcg_score([t], [p], k=k) for t, p in each]),
        (
            tr.DCG(top_k=k, log_base=math.e),
            [sklearn_metrics.dcg_score([t], [p], k=k, log_base=math.e) for t, p in each],
        ),
        (tr.NDCG(top_k=k, gain="exponential"), [sklearn_metrics.ndcg_score([2.0**t - 1], [p], k=k) for t, p in each]),
    ]
    for metric, want in wanted:
        assert_agree(metric.score(scores, grades)[:20], want, metric.label)
    metric = tr.NDCG(top_k=k)
    metric.update(scores, grades)
    assert metric.compute().item() == pytest.approx(sklearn_metrics.ndcg_score(target, preds, k=k), rel=1e-6)


def test_float_gains_of_scikit_learn():
    generator = np.random.default_rng(0)
    preds, target = generator.integers(0, 5, (30, 12)), generator.random((30, 12))
    ours = tr.NDCG(top_k=5).score(torch.from_numpy(preds).double(), torch.from_numpy(target))
    assert_agree(
        ours, [sklearn_metrics.ndcg_score([t], [p], k=5) for t, p in zip(target, preds)], "ndcg of float gains"
    )


@pytest.mark.parametrize("tied", [False, True])
def test_area_under_the_roc_curve_of_scikit_learn(tied):
    preds, target = graded_batch(0, tied)
    for level in (1, 3):
        both = [(p, t >= level) for p, t in zip(preds, target) if 0 < (t >= level).sum() < len(t)]
        scores, grades = (torch.from_numpy(np.stack(x)) for x in zip(*both))
        ours = tr.AUROC().score(scores, grades)
        assert_agree(ours, [sklearn_metrics.roc_auc_score(t, p) for p, t in both], "auroc")
    ours = tr.AUROC(relevance_level=2).score(torch.from_numpy(preds), torch.from_numpy(target))
    assert_agree(ours, [sklearn_metrics.roc_auc_score(t >= 2, p) for p, t in zip(preds, target)], "auroc at level 2")
