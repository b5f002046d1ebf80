"""Measures of evaluation scripts, by the arithmetic of each script, and of PyTorch Metric Learning, by the library."""

import json
import random
import statistics

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.names.parse import CUTOFFS


def lists(seed, number=60):
    """Relevance by rank, with every edge: nothing relevant, all, the first or the last alone."""
    rng = random.Random(seed)
    yield from ([0, 0, 0], [1], [1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0])
    for _ in range(number):
        share = rng.random()
        yield [int(rng.random() < share) for _ in range(rng.randint(1, 30))]


# ---- images and news: the order of a list and the places of its relevant candidates


def oxford(flags):
    """``compute_ap.cpp`` of Oxford Buildings, with its variables."""
    wanted = {place for place, flag in enumerate(flags) if flag}
    old_recall, old_precision, ap, intersect_size = 0.0, 1.0, 0.0, 0
    for j in range(len(flags)):
        intersect_size += j in wanted
        recall, precision = intersect_size / len(wanted), intersect_size / (j + 1.0)
        ap += (recall - old_recall) * ((old_precision + precision) / 2.0)
        old_recall, old_precision = recall, precision
    return ap


def revisited(flags):
    """``compute_ap`` of revisitop: over the ranks of the relevant images, which begin at 0."""
    ranks, ap = [rank for rank, flag in enumerate(flags) if flag], 0.0
    recall_step = 1.0 / len(ranks)
    for j, rank in enumerate(ranks):
        precision_0 = 1.0 if rank == 0 else j / rank
        ap += (precision_0 + (j + 1) / (rank + 1)) * recall_step / 2.0
    return ap


def fast_reid(flags):
    """INP in ``eval_market1501`` of FastReID and of the authors' AGW."""
    raw_cmc = np.array(flags)
    last = np.max(np.where(raw_cmc == 1)[0])
    return raw_cmc.cumsum()[last] / (last + 1.0)


def mind(flags):
    """``mrr_score`` of MIND's ``evaluate.py``, of labels and scores."""
    y_true, y_score = np.array(flags), -np.arange(len(flags))
    y_true = np.take(y_true, np.argsort(y_score)[::-1])
    return np.sum(y_true / (np.arange(len(y_true)) + 1)) / np.sum(y_true)


SCRIPTS = {"compute_ap": oxford, "compute_AP": revisited, "mINP": fast_reid, "mrr_score": mind}


@cases("name", SCRIPTS)
def test_a_list_has_the_number_of_the_script(name):
    metric = tr.parse(name)
    for flags in lists(3):
        found = metric.score(torch.arange(len(flags), 0, -1.0)[None], torch.tensor([flags])).item()
        # the scripts divide by 0 if nothing is relevant, and leave such queries out before
        assert found == pytest.approx(SCRIPTS[name](flags) if any(flags) else 0, abs=1e-12), flags


# ---- PyTorch Metric Learning


@pytest.mark.parametrize("name", ["mean_average_precision_at_r", "r_precision", "precision_at_1"])
def test_embeddings_have_the_numbers_of_pytorch_metric_learning(name):
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator").AccuracyCalculator
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.inference import CustomKNN

    generator = torch.Generator().manual_seed(4)
    labels = torch.cat([torch.randint(0, 9, (80,), generator=generator), torch.tensor([77])])  # the last is alone
    points = torch.randn(len(labels), 3, generator=generator) + labels.unsqueeze(-1) / 3
    theirs = calculator(include=(name,), knn_func=CustomKNN(LpDistance(normalize_embeddings=False)), kmeans_func=len)
    want = theirs.get_accuracy(points, labels)[name]
    others = ~torch.eye(len(labels), dtype=torch.bool)
    metric = tr.parse(name, empty_target_action="skip")
    metric.update(-torch.cdist(points, points), labels.unsqueeze(-1) == labels, mask=others)
    assert metric.compute().item() == pytest.approx(want, rel=1e-6)
    assert 0.1 < want < 0.9
    assert metric.num_empty == 1


# ---- LongMemEval


def log(seed, questions=40):
    """Questions as ``run_retrieval.py`` has them with turns: ids of turns in ranked order; some have no answer."""
    rng, found = random.Random(seed), []
    for number in range(questions):
        ids = []
        for session in range(rng.randint(1, 12)):
            answers = rng.random() < 0.3
            for turn in range(1, rng.randint(2, 6)):
                kind = "other" if not answers else "answer" if rng.random() < 0.5 else "noans"
                ids.append(f"{kind}_{number}_{session}_{turn}")
        rng.shuffle(ids)
        found.append((f"question{number}{'_abs' * (number % 7 == 0)}", ids))
    return found


def dcg(relevances, k):
    relevances = np.asarray(relevances, dtype=float)[:k]
    if relevances.size:
        return relevances[0] + np.sum(relevances[1:] / np.log2(np.arange(2, relevances.size + 1)))
    return 0.0


def evaluate_retrieval(ranked, right, k):
    """``evaluate_retrieval`` of LongMemEval's ``eval_utils.py``, of ids in ranked order."""
    recalled = set(ranked[:k])
    relevances = [1 if one in right else 0 for one in ranked]
    ideal = dcg(sorted(relevances, reverse=True), k)
    ndcg = dcg(relevances[:k], k) / ideal if ideal else 0.0
    return float(any(one in recalled for one in right)), float(all(one in recalled for one in right)), ndcg


def session_of(turn):
    return turn.rpartition("_")[0]


def of_sessions(ranked, right, k):
    """``evaluate_retrieval_turn2session``: k grows until the first k turns are of k sessions."""
    sessions, effective = [*map(session_of, ranked)], k
    while effective <= len(sessions) and len({*sessions[:effective]}) < k:
        effective += 1
    return evaluate_retrieval(sessions, {*map(session_of, right)}, effective)


def by_longmemeval(questions, measure, leave_out_without_target=True):
    """The means over questions that ``run_retrieval.py`` prints."""
    rows = []
    for question, ids in questions:
        right = {one for one in ids if "answer" in one}
        if "_abs" not in question and (right or not leave_out_without_target):
            rows.append({k: measure(ids, right, k) for k in CUTOFFS["longmemeval"]})
    names = ("recall_any", "recall_all", "ndcg_any")
    places = [(i, name, k) for i, name in enumerate(names) for k in CUTOFFS["longmemeval"]]
    return {f"{name}@{k}": statistics.fmean(row[k][i] for row in rows) for i, name, k in places}


def files(folder, questions):
    """Judgments without the questions that the script leaves out, and the run, as files."""
    qrels, run = folder / "qrels.jsonl", folder / "run.trec"
    judged = [(q, {one: int("answer" in one) for one in ids}) for q, ids in questions if "_abs" not in q]
    lines = [json.dumps({"query_id": q, "doc_id": d, "relevance": g}) for q, row in judged for d, g in row.items()]
    qrels.write_text("\n".join(lines))
    run.write_text("".join(f"{q} Q0 {d} {n} {-n} r\n" for q, ids in questions for n, d in enumerate(ids, 1)))
    return qrels, run


def test_turns_have_the_numbers_of_longmemeval(tmp_path):
    questions = log(1)
    found = tr.evaluate(*files(tmp_path, questions), preset="longmemeval").means["run"]
    assert found == pytest.approx(by_longmemeval(questions, evaluate_retrieval), abs=1e-12)
    assert 0 < found["recall_all@10"] < found["recall_any@10"] < 1
    # print_retrieval_metrics.py keeps questions without a target, and all of no documents are found
    printed = by_longmemeval(questions, evaluate_retrieval, leave_out_without_target=False)
    assert printed["recall_all@1"] > found["recall_all@1"]
    kept = tr.evaluate(*files(tmp_path, questions), {"all": "allhit(empty_target_action=pos)@1"}).means["run"]
    assert kept["all"] == pytest.approx(printed["recall_all@1"])


def test_sessions_from_turns_have_the_recall_of_longmemeval(tmp_path):
    questions = log(2)
    found = tr.evaluate(*files(tmp_path, questions), preset="longmemeval", parent="_").means["run"]
    want = by_longmemeval(questions, of_sessions)
    recall = [name for name in want if name.startswith("recall")]
    assert [found[name] for name in recall] == pytest.approx([want[name] for name in recall], abs=1e-12)
    assert found["recall_all@3"] < found["recall_any@3"]
    assert found["ndcg_any@5"] != pytest.approx(want["ndcg_any@5"])  # each turn of a session gains there


# ---- the probability that ties leave open, exactly
