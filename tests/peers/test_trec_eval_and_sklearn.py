"""The same numbers as trec_eval (through pytrec_eval) and scikit-learn, where they mean the same."""

import numpy as np
import torch

import torchrank as tr
from tests.support.optional import sklearn_metrics
from tests.support.oracle_comparison import scored
from tests.support.peer_queries import assert_agree, by_trec_eval, collections, dense

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


def test_trec_eval_on_scores():
    qrels, run = collections(tied=False)
    preds, target = dense(qrels, run, 0)
    measures = {**TREC, **TREC_GRADED}
    theirs = by_trec_eval(qrels, run, measures)
    metrics = {name: tr.parse(label) for name, label in measures.items()}
    values = scored(metrics.values(), preds, target)
    for name, metric in metrics.items():
        assert_agree(values[metric.label], [query[name] for query in theirs], name)


# ---- scikit-learn ---------------------------------------------------------------------------------------------------


def test_float_gains_of_scikit_learn():
    generator = np.random.default_rng(0)
    preds, target = generator.integers(0, 5, (30, 12)), generator.random((30, 12))
    ours = tr.NDCG(top_k=5).score(torch.from_numpy(preds).double(), torch.from_numpy(target))
    assert_agree(
        ours, [sklearn_metrics.ndcg_score([t], [p], k=5) for t, p in zip(target, preds)], "ndcg of float gains"
    )
