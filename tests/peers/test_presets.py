"""The table of presets against the libraries themselves; a library that is not installed is skipped."""

import math
from functools import cache
from importlib.metadata import version

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pytrec_eval
from tests.support.peer_queries import assert_agree, graded_batch
from torchrank.names.parse import ALWAYS, CUTOFFS, EXCEPT, LIBRARIES, rows

CUTS = (1, 3, 40)
NAN = math.nan


def cells_of(library):
    return [cell for row in rows().values() for cell in row.get(library, [])]


def rows_of(*libraries, cuts=CUTS):
    """Every row of presets, without and with cut-offs."""
    found = {}
    for library in libraries:
        optional = any("[" in cell.theirs for cell in cells_of(library))
        rows = [*preset_rows(library, cuts), *(preset_rows(library) if optional else ())]
        found |= dict.fromkeys((library, *row) for row in rows)
    return cases(("library", "theirs", "ours"), found)


def preset_rows(library, cuts=()):
    return list(tr.preset(library, *cuts).items())


def name_and_cut(theirs):
    name, _, k = theirs.partition("@")
    return name, int(k) if k else None


# ---- the table -------------------------------------------------------------------------------------------------------


@cases("library", LIBRARIES)
def test_rows_are_labels_that_a_collection_takes(library):
    labels = tr.preset(library, *CUTS)
    suite = tr.RankingCollection(labels)
    assert list(suite) == list(labels)
    suite.update(torch.rand(3, 9), torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 1]] * 3))
    assert all(value.isfinite() for value in suite.compute().values())
    assert len(tr.preset(library, 5)) < len(tr.preset(library, 5, 10))


@cases("library", LIBRARIES)
def test_every_cell_is_a_label_or_says_why_not(library):
    cells = cells_of(library)
    assert cells
    assert len({theirs for theirs, _, _ in cells}) == len(cells)
    for theirs, ours, why in cells:
        assert theirs
        assert (ours is None) == bool(why)
    assert {library for row in rows().values() for library in row} | set(ALWAYS) <= set(LIBRARIES)


@pytest.mark.parametrize("library", ["trec_eval", "trec_eval9", "pykeen"])
def test_names_of_a_preset_are_understood_as_such(library):
    for theirs, ours in preset_rows(library, CUTS):
        rounding = {"rounding": "up"} if library == "trec_eval9" and theirs.startswith(("iprec", "11pt")) else {}
        assert tr.parse(theirs, **ALWAYS.get(library, {}), **rounding).label == tr.parse(ours).label


def test_errors():
    with pytest.raises(ValueError, match=r"one of trec_eval.*'ranx'"):
        tr.preset("ranx")
    with pytest.raises(ValueError, match="at least one cutoff for recbole"):
        tr.preset("recbole")
    with pytest.raises(ValueError, match=r"got \[5, 10\]; pass preset\('recbole', 5, 10\)"):
        tr.preset("recbole", [5, 10])
    nearest = {"RecBole": "recbole", "scikit-learn": "sklearn", "pytrec_eval": "trec_eval9", "LGB": "lightgbm"}
    for name, near in nearest.items():
        with pytest.raises(ValueError, match=f"did you mean '{near}'"):
            tr.preset(name, 5)
    for k in (0, 2.0, True, "3"):
        with pytest.raises(ValueError, match="integers >= 1"):
            tr.preset("recbole", k)


# ---- one list, as libraries that the tests do not install were seen to measure it ------------------------------------

PROBE = {
    "rax": {
        "precision_metric@10": 0.6, "recall_metric@2": 0.3333, "ap_metric@2": 0.3333, "ap_metric@4": 0.5,
        "ap_metric": 0.7, "ndcg_metric@2": 0.6131, "ndcg_metric@5": 0.8529, "ndcg_metric@10": 0.8529,
    },
    "recbole": {
        "recall@2": 0.3333, "map@2": 0.5, "map@4": 0.5, "map@5": 0.7, "ndcg@2": 0.6131, "ndcg@5": 0.8529,
    },
    "rectools": {
        "Precision(k=10)": 0.3, "Recall(k=2)": 0.3333, "MAP(k=2)": 0.3333, "MAP(k=4)": 0.5, "MAP(k=5)": 0.7,
        "NDCG(k=2)": 0.6131, "NDCG(k=5)": 0.6164, "NDCG(k=10)": 0.4, "F1Beta(k=10)": 0.4615,
        "Precision(k=10, r_precision=True)": 1.0, "MAP(k=2, divide_by_k=True)": 0.5,
        "MAP(k=4, divide_by_k=True)": 0.375, "MAP(k=5, divide_by_k=True)": 0.42,
        "NDCG(k=2, divide_by_achievable=True)": 0.6131, "NDCG(k=5, divide_by_achievable=True)": 0.8529,
        "NDCG(k=10, divide_by_achievable=True)": 0.8529,
    },
    "lenskit": {
        "Precision@10": 0.6, "Recall@2": 0.5, "AveragePrecision@2": 0.5, "AveragePrecision@4": 0.5,
        "AveragePrecision": 0.7, "NDCG@2": 0.5, "NDCG@5": 0.7338, "NDCG@10": 0.7338,
    },
}  # fmt: skip
# With a relevant candidate besides that was not retrieved.
MISSING = {"rectools": {"MAP(k=2)": 0.25}, "recbole": {"map@2": 0.5}}


@cases(
    ("library", "theirs", "number", "missing"),
    [
        (library, theirs, number, missing)
        for missing, probe in ((False, PROBE), (True, MISSING))
        for library, cells in probe.items()
        for theirs, number in cells.items()
    ],
)
def test_probe(library, theirs, number, missing):
    optional = any("[" in cell.theirs for cell in cells_of(library))
    labels = tr.preset(library, 2, 4, 5, 10) | (tr.preset(library) if optional else {})
    scores = torch.tensor([[5.0, 4, 3, 2, 1, -torch.inf if missing else 0]])[:, : 6 if missing else 5]
    target = torch.tensor([[1, 0, 0, 1, 1, 1]])[:, : scores.shape[1]]
    assert tr.parse(labels[theirs]).score(scores, target).item() == pytest.approx(number, abs=5e-5)


# ---- frameworks for RAG, by their formulas ---------------------------------------------------------------------------

# The verdicts on the contexts of each query, best first, and how many relevant ones lack.
VERDICTS = [([1, 0, 1, 0], 0), ([0, 1, 1], 2), ([0, 0], 1), ([0, 0, 0], 0), ([], 2), ([1], 0)]


def precision_at_hits(verdicts):
    """As ragas and DeepEval: the mean precision at the contexts of verdict 1, 0 without any."""
    return sum(sum(verdicts[:k]) / k for k, one in enumerate(verdicts, 1) if one) / max(1, sum(verdicts))


def gained(verdicts):
    return sum(one / math.log2(k + 1) for k, one in enumerate(verdicts, 1))


#: of the verdicts on the first k contexts, how many relevant ones there are, and k
RAG = {
    ("ragas", "context_precision"): lambda found, whole, k: precision_at_hits(found),
    ("ragas", "id_based_context_precision"): lambda found, whole, k: sum(found) / len(found) if found else NAN,
    ("ragas", "id_based_context_recall"): lambda found, whole, k: sum(found) / whole if whole else NAN,
    ("deepeval", "ContextualPrecisionMetric"): lambda found, whole, k: precision_at_hits(found),
} | {
    ("trulens", f"GroundTruthAgreement.{name}"): lambda found, whole, k, of=of: of(found, whole, k) if whole else NAN
    for name, of in {
        "precision_at_k": lambda found, whole, k: sum(found) / max(1, len(found)),
        "recall_at_k": lambda found, whole, k: sum(found) / whole,
        "ndcg_at_k": lambda found, whole, k: gained(found) / gained([1] * min(whole, k)),
        "mrr": lambda found, whole, k: 1 / (1 + found.index(1)) if 1 in found else 0,
        "ir_hit_rate": lambda found, whole, k: float(any(found)),
    }.items()
}


@cases("cut", [None, 2])
@cases(("library", "theirs"), [*RAG])
def test_presets_of_rag_frameworks_equal_their_formulas_on_the_retrieved_contexts(library, theirs, cut):
    names = tr.preset(library, *([cut] if cut else []))
    if (name := theirs + (f"@{cut}" if cut else "")) not in names:
        assert theirs.endswith("ndcg_at_k")  # without k, its ideal order ends where the list does
        return
    for verdicts, lack in VERDICTS:
        contexts = torch.tensor([[*range(len(verdicts)), *[-1] * (4 - len(verdicts))]])
        relevant = torch.tensor([*(i for i, one in enumerate(verdicts) if one), *range(10, 10 + lack)]).long()
        want = RAG[library, theirs](verdicts[:cut], sum(verdicts) + lack, cut)
        got = tr.parse(names[name]).score(contexts, [relevant]).item()
        assert got == pytest.approx(want, abs=1e-9, nan_ok=True)


# ---- edges, as the libraries were seen to measure them; they need not be installed -----------------------------------

# Lists of the ids 1, 2, 3 and an empty one, cut at 2, of which 2 and 9, or nothing, is relevant.
LISTS = torch.tensor([[1, 2, 3], [-1, -1, -1], [1, 2, 3], [-1, -1, -1]])
RELEVANT = [torch.tensor([2, 9]), torch.tensor([2, 9]), torch.tensor([], dtype=torch.int64)]
RELEVANT.append(RELEVANT[2])
EDGES = {
    "lenskit": {
        "Precision@2": [0.5, NAN, 0, NAN], "Recall@2": [0.5, 0, NAN, NAN], "Hit@2": [1, 0, NAN, NAN],
        "RecipRank@2": [0.5, 0, NAN, NAN], "AveragePrecision@2": [0.25, NAN], "NDCG@2": [0.5, 0, NAN, NAN],
        "DCG@2": [1, 0, NAN, NAN], "RBP@2": [0.1275, 0, NAN, NAN],
    },
    # A list of which all items are masked has no part in a mean.
    "rax": {
        "precision_metric@2": [0.5, NAN, 0, NAN], "recall_metric@2": [0.5, NAN, 0, NAN],
        "mrr_metric@2": [0.5, NAN, 0, NAN], "ap_metric@2": [0.25, NAN, 0, NAN],
    },
}  # fmt: skip


@cases(("library", "theirs"), [(library, name) for library in EDGES for name in EDGES[library]])
def test_edges(library, theirs):
    metric, want = tr.parse(tr.preset(library, 2)[theirs]), torch.tensor(EDGES[library][theirs], dtype=torch.float64)
    number = len(want)
    torch.testing.assert_close(metric.score(LISTS[:number], RELEVANT[:number]), want, equal_nan=True)
    metric.update(LISTS[:number], RELEVANT[:number])
    scored = want[~want.isnan()]
    assert metric.compute().item() == pytest.approx(scored.mean().item())
    if len(scored) > 1:
        assert metric.standard_error.item() == pytest.approx(scored.std().item() / len(scored) ** 0.5)
    if "listed" in metric.label:
        assert metric.num_queries == len(scored)


def test_grades_of_which_none_is_positive_are_0_in_lenskits_ndcg():
    for name in ("NDCG(gain=rating)@2", "DCG(gain=rating)@2"):
        metric = tr.parse(tr.preset("lenskit", 2)[name])
        target = (torch.tensor([0, 0]), torch.tensor([2, 9]), torch.tensor([0.0, -1.0]))
        assert metric.score(torch.tensor([[1, 2, 3]]), target).item() == 0


def test_one_class_has_no_area_in_scikit_learn():
    scores, target = torch.tensor([[0.3, 0.2, 0.1]] * 3), torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 0]])
    area = tr.parse(tr.preset("sklearn")["roc_auc_score"]).score(scores, target)
    torch.testing.assert_close(area, torch.tensor([1.0, NAN, NAN], dtype=torch.float64), equal_nan=True)
    zeros = tr.parse(tr.preset("torchmetrics")["RetrievalAUROC"]).score(scores, target)
    assert zeros.tolist() == [1, 0, 0]


# ---- the libraries ---------------------------------------------------------------------------------------------------


@rows_of("sklearn")
@pytest.mark.filterwarnings("ignore:Only one class|No positive class")
@pytest.mark.parametrize("tied", [False, True])
def test_scikit_learn(library, theirs, ours, tied):
    metrics = pytest.importorskip("sklearn.metrics")
    metric, (name, k) = tr.parse(ours), name_and_cut(theirs)
    preds, target = graded_batch(0, tied)
    if name in ("ndcg_score", "dcg_score"):
        want = [getattr(metrics, name)([t], [p], k=k) for t, p in zip(target, preds)]
    else:
        target = (target >= 2).astype(int)
        target[0] = 0
        target[2] = 1
        target[1] = 0
        target[1, 3] = 1
        rows = zip(target, preds)
        per_list = name in ("average_precision_score", "roc_auc_score")
        function = getattr(metrics, name)
        want = [function(t, p) if per_list else function([t], [p]) for t, p in rows]
    found = metric.score(torch.from_numpy(preds), torch.from_numpy(target))
    want = torch.tensor(want, dtype=torch.float64)
    torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6, equal_nan=True)


def binary_batch(seed, queries=50, candidates=25):
    """Scores that are positive and distinct, even in single precision, and relevance; one query without any."""
    generator = np.random.default_rng(seed)
    preds = np.stack([generator.permutation(candidates) + 1 for _ in range(queries)]) / 64
    target = (generator.random(preds.shape) < generator.random((queries, 1)) / 2).astype(int)
    target[0] = 0
    target[1] = 1
    return torch.from_numpy(preds).float(), torch.from_numpy(target)


@rows_of("torchmetrics")
def test_torchmetrics(library, theirs, ours):
    import torchmetrics

    metric, (name, k) = tr.parse(ours), name_and_cut(theirs)
    preds, target = binary_batch(4)
    if name.startswith("Retrieval"):
        other = getattr(torchmetrics.retrieval, name)(**({} if k is None else {"top_k": k}))
        rows = torch.arange(len(preds)).repeat_interleave(preds.shape[1])
        other.update(preds.flatten(), target.flatten(), rows)
    else:
        other = getattr(torchmetrics.classification, name)(num_labels=preds.shape[1])
        other.update(preds, target)
    metric.update(preds, target)
    assert metric.compute().item() == pytest.approx(other.compute().item(), abs=1e-6)


@pytest.mark.xdist_group("processes")  # whose process imports all that takes long
@rows_of("pyg")
def test_pyg(library, theirs, ours):
    link_pred = pytest.importorskip("torch_geometric.metrics.link_pred")
    metric, (name, k) = tr.parse(ours), name_and_cut(theirs)
    preds, target = binary_batch(5)
    weighted = name.startswith("Weighted")  # as PyG's collections write weighted=True
    other = getattr(link_pred, name.removeprefix("Weighted"))(k=k, **({"weighted": True} if weighted else {}))
    target = target * torch.rand(target.shape, generator=torch.Generator().manual_seed(2)) if weighted else target

    def pairs(target):
        return target.nonzero().T, *([target[target > 0]] if weighted else [])

    order = preds.argsort(dim=-1, descending=True)
    # PyG takes k ids of each list: those that there are not are no items at all.
    ids = torch.nn.functional.pad(order, (0, max(0, k - order.shape[1])), value=10**6)[:, :k]
    other.update(ids, *pairs(target))
    metric.update(preds, target)
    assert metric.compute().item() == pytest.approx(other.compute().item(), abs=1e-6)
    assert metric.num_empty == (~target.any(-1)).sum() > 0
    other.reset()
    metric.reset()
    other.update(ids[:1], *pairs(target[:1]))  # the query without ground truth alone
    metric.update(preds[:1], target[:1])
    assert other.compute().item() == 0  # which EXCEPT["pyg"] says
    assert metric.compute().isnan()


def pandas_frames(pandas, preds, target):
    query, item = np.nonzero(target.numpy())
    order = preds.argsort(dim=-1, descending=True)
    users = np.repeat(np.arange(len(preds)), preds.shape[1])
    ranks = np.tile(np.arange(1, preds.shape[1] + 1), len(preds))
    reco = pandas.DataFrame({"user_id": users, "item_id": order.flatten().numpy(), "rank": ranks})
    return reco, pandas.DataFrame({"user_id": query, "item_id": item})


@rows_of("rectools")
def test_rectools(library, theirs, ours):
    rectools = pytest.importorskip("rectools.metrics")
    metric = tr.parse(ours)
    preds, target = binary_batch(7)
    reco, interactions = pandas_frames(pytest.importorskip("pandas"), preds, target)
    other = eval(theirs, vars(rectools))
    users = sorted(set(interactions["user_id"]))
    if not theirs.startswith(("Accuracy", "MCC")):
        frames = (reco,) if theirs.startswith("SufficientReco") else (reco, interactions)
        want = other.calc_per_user(*frames)
        assert_agree(metric.score(preds, target)[users], want.loc[users].to_numpy(), theirs)
        return
    if other.k > preds.shape[1]:
        pytest.skip("counts candidates that there are not, as EXCEPT says")
    want = other.calc_per_user(reco, interactions, catalog=range(preds.shape[1]))
    assert_agree(metric.score(preds, target)[users], want.loc[users].to_numpy(), theirs)
    # Lists of ids do not tell how many items there are.
    ids = preds.argsort(dim=-1, descending=True)[:, :5]
    want = other.calc_per_user(reco[reco["rank"] <= 5], interactions, catalog=range(1000))
    metric = tr.parse(ours, collection_size=1000)
    assert_agree(metric.score(ids, tuple(target.nonzero().T))[users], want.loc[users].to_numpy(), theirs)


@rows_of("lenskit")
def test_lenskit(library, theirs, ours):
    lenskit = pytest.importorskip("lenskit.metrics")
    from lenskit.data import ItemList

    metric, (name, k) = tr.parse(ours), name_and_cut(theirs)
    name, graded = name.removesuffix("(gain=rating)"), "gain" in name
    if not hasattr(lenskit, name):
        pytest.skip(f"this version of LensKit has no {name}")
    preds, target = binary_batch(8)
    if graded:
        target = target * (torch.arange(target.shape[1]) % 3 + 1)
        if tuple(map(int, version("lenskit").split(".")[:2])) >= (2026, 2):  # since then no gain is negative
            target[5:8] *= -1
            target[8:20, ::2] *= -1
    want = []
    for row, (scores, grades) in enumerate(zip(preds, target)):
        length = 0 if row in (3, 4) else len(scores) - row % 20  # lists of different lengths, two empty
        order = scores.argsort(descending=True)
        preds[row, order[length:]] = -torch.inf
        items = grades.nonzero().flatten()
        rating = {"rating": grades[items].double().numpy()} if graded else {}
        recs, test = ItemList(item_ids=order[:length].numpy(), ordered=True), ItemList(item_ids=items.numpy(), **rating)
        try:
            with np.errstate(invalid="ignore"):
                value = getattr(lenskit, name)(n=k, **({"gain": "rating"} if graded else {})).measure_list(recs, test)
        except ZeroDivisionError:
            value = None
        # AveragePrecision divides by 0 where nothing is relevant, and its DCG has changed.
        told = len(items) > 0 or not (graded or name in ("AveragePrecision", "DCG"))
        want.append(value if told else None)
    rows = [row for row, value in enumerate(want) if value is not None]
    found, want = metric.score(preds, target)[rows], torch.tensor([want[row] for row in rows], dtype=torch.float64)
    torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6, equal_nan=True)


@rows_of("rax")
def test_rax(library, theirs, ours):
    rax = pytest.importorskip("rax")
    metric, (name, k) = tr.parse(ours), name_and_cut(theirs)
    preds, target = binary_batch(9)
    if name in ("ndcg_metric", "dcg_metric", "opa_metric"):
        target = target * (torch.arange(target.shape[1]) % 4)
    mask = torch.rand(preds.shape, generator=torch.Generator().manual_seed(9)) < 0.8
    mask[[3, 7]] = False
    preds[5, ::2] = -torch.inf
    given = {"where": mask.numpy(), **({"topn": k} if k else {})}
    theirs = getattr(rax, name)(preds.numpy(), target.numpy().astype(float), reduce_fn=None, **given)
    found, counted = metric.score(preds, target, mask=mask), mask.any(-1)
    theirs = torch.tensor(np.array(theirs, dtype=float))
    torch.testing.assert_close(found[counted], theirs[counted], rtol=1e-5, atol=1e-5)
    metric.update(preds, target, mask=mask)
    mean = getattr(rax, name)(preds.numpy(), target.numpy().astype(float), **given)
    assert metric.compute().item() == pytest.approx(float(mean), abs=1e-5)


def test_the_cutoffs_of_tools_are_those_that_they_print():
    found = pytrec_eval.RelevanceEvaluator({"q": {"d": 1}}, {"ndcg_cut"}).evaluate({"q": {"d": 1.0}})["q"]
    assert CUTOFFS["trec_eval9"] == CUTOFFS["trec_eval"] == tuple(sorted(int(name.split("_")[-1]) for name in found))
    assert CUTOFFS["beir"] == CUTOFFS["beir_custom"] == (1, 3, 5, 10, 100, 1000)
    assert CUTOFFS["mteb"] == (1, 3, 5, 10, 20, 100, 1000)
    assert CUTOFFS["msmarco"] == (10,)


# ---- learning to rank: flat rows, and the sizes of their groups ------------------------------------------------------


@cache
def rows_with_groups(tied, top=4):
    """Scores that are exact in single precision, grades and sizes of 40 lists, two of them without a relevant row."""
    generator = np.random.default_rng(11)
    sizes = generator.integers(1, 12, size=40)
    number = sizes.sum()
    scores = generator.integers(0, 4, size=number) / 4 if tied else generator.permutation(number) / 512
    grades = generator.integers(0, top + 1, size=number)
    grades[: sizes[0]] = grades[-sizes[-1] :] = 0
    return scores, grades, sizes


def by_lightgbm(theirs, scores, grades, sizes):
    lightgbm = pytest.importorskip("lightgbm")
    name, k = name_and_cut(theirs)
    quiet = {"verbose": -1, "num_threads": 1}
    rows = lightgbm.Dataset(np.zeros((len(scores), 1)), grades, group=sizes, init_score=scores, params=quiet)
    objective = "lambdarank" if (grades == grades.round()).all() else "regression"  # which takes labels with fractions
    settings = {"objective": objective, "metric": name, "eval_at": [k], **quiet}
    return lightgbm.Booster(settings, rows).eval_train()[0][2]


def by_xgboost(theirs, scores, grades, sizes):
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(np.zeros((len(scores), 1)), grades, base_margin=scores)
    rows.set_group(sizes)
    settings = {"objective": "rank:pairwise", "eval_metric": theirs, "base_score": 0.0, "nthread": 1}
    return float(xgboost.Booster(settings, [rows]).eval(rows).split(":")[1])


def by_catboost(theirs, scores, grades, sizes):
    pytest.importorskip("catboost")
    from catboost.utils import eval_metric

    query = np.arange(len(sizes)).repeat(sizes)
    return eval_metric(grades.astype(float), scores, theirs, group_id=query, thread_count=1)[0]


LEARNING_TO_RANK = {"lightgbm": by_lightgbm, "xgboost": by_xgboost, "catboost": by_catboost}


@rows_of(*LEARNING_TO_RANK)
@pytest.mark.parametrize("tied", [False, True])
def test_learning_to_rank(library, theirs, ours, tied):
    graded = "dcg" in theirs.lower() or library == "lightgbm"  # XGBoost takes other grades than 0 and 1 for NDCG only
    scores, grades, sizes = rows_with_groups(tied, top=4 if graded else 1)
    metric = tr.parse(ours)
    # CatBoost puts low grades first. Equal scores have the order of rows in the others, as EXCEPT says.
    order = {} if library == "catboost" else {"tie_break": -np.arange(len(scores))}
    metric.update(scores, grades, group_sizes=sizes, **order)
    want = LEARNING_TO_RANK[library](theirs, scores, grades, sizes)
    assert metric.compute().item() == pytest.approx(want, abs=1e-6)
    if library != "catboost":
        frame = {"qid": np.arange(len(sizes)).repeat(sizes), "score": scores, "label": grades}
        (value,) = tr.evaluate(frame, [metric], ties="rows").means["run"].values()
        assert value == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("names", ["ndcg@10 ndcg@10-", "NDCG@5, mrr ndcg@10-", "map@10- map@10", "map ndcg@3 map@3-"])
def test_names_that_only_xgboost_has_are_not_mixed_with_others(names):
    qrels, run = {"q": {"a": 2, "b": 1}}, {"q": {"a": 1.0, "b": 2.0}}
    for given in (names, names.replace(",", "").split(), dict(enumerate(names.replace(",", "").split()))):
        for call in (tr.RankingCollection, lambda given: tr.evaluate(qrels, run, given)):
            with pytest.raises(ValueError, match=r"differ in .* only, got .* and .*; pass tr.preset\('xgboost', \d+\)"):
                call(given)
    assert list(tr.RankingCollection("ndcg@10- mrr map")) == ["ndcg(gain=exponential)@10", "mrr", "map"]
    assert list(tr.RankingCollection("ndcg@5- ndcg@10-"))[1] == "ndcg(gain=exponential)@10"
    assert {"ndcg@10", "ndcg@10-"} <= {*tr.RankingCollection(tr.preset("xgboost", 10))}


ABOVE = float(np.nextafter(np.float32(0.5), np.float32(1)))  # the next number that labels there, float32, can have


@rows_of("lightgbm", "catboost")
def test_labels_with_fractions_have_the_numbers_of_catboost_and_lightgbm(library, theirs, ours):
    if library == "lightgbm" and "ndcg" in theirs:
        pytest.skip("LightGBM's NDCG refuses them")
    scores, grades, sizes = rows_with_groups(tied=False)
    grades = np.random.default_rng(5).choice([0, 0.2, 0.5, ABOVE, 0.6, 1], size=len(grades)) * (grades > 0)
    metric = tr.parse(ours)
    metric.update(scores, grades, group_sizes=sizes, tie_break=-np.arange(len(scores)))
    want = LEARNING_TO_RANK[library](theirs, scores, grades, sizes)
    assert metric.compute().item() == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_label_is_relevant_in_catboost_and_lightgbm_if_it_is_above_one_half(dtype):
    scores = torch.tensor([[3.0, 2.0, 1.0]])
    for label, relevant in ((0.5, 0), (ABOVE, 1), (0.6, 1), (1, 1), (2, 1)):
        target = torch.tensor([[0.2, label, 0]], dtype=dtype)
        for library, name, want in (
            ("catboost", "MRR:top=2", relevant / 2),
            ("catboost", "MAP", relevant / 2),
            ("catboost", "MAP:top=2", relevant / 2),
            ("catboost", "PrecisionAt:top=2", relevant / 2),
            ("catboost", "RecallAt:top=2", 1),  # 1 also without a relevant row
            ("catboost", "RecallAt:top=1", 1 - relevant),
            ("lightgbm", "map@2", relevant / 2 or 1),
        ):
            metric = tr.parse(tr.preset(library, 1, 2)[name])
            assert metric.score(scores, target).item() == pytest.approx(want), (label, name)
            if library == "catboost" and ":" in name:  # a name that only CatBoost has
                assert tr.parse(name).relevance_level == metric.relevance_level


def test_weights_of_groups_count_in_catboost_but_for_three_measures():
    pytest.importorskip("catboost")
    from catboost.utils import eval_metric

    scores, grades, weights = np.array([3.0, 2, 1] * 2), np.array([1.0, 0, 0, 0, 0, 1]), np.array([1.0, 3])
    for theirs, ours in tr.preset("catboost", 1, 2).items():
        given = {"group_id": [0] * 3 + [1] * 3, "group_weight": weights.repeat(3), "thread_count": 1}
        metric, ignored = tr.parse(ours), theirs.startswith(("MAP", "PrecisionAt", "RecallAt"))
        metric.update(scores, grades, group_sizes=[3, 3], **({} if ignored else {"weights": weights}))
        assert metric.compute().item() == pytest.approx(eval_metric(grades, scores, theirs, **given)[0], abs=1e-6)
    assert all(f"`{name}`" in EXCEPT["catboost"] for name in ("MAP", "PrecisionAt", "RecallAt"))


#: names of CatBoost whose parameters are in another order, or are those that it takes by itself
CATBOOST = {
    "NDCG:top=2;type=Base": "ndcg@2",
    "NDCG:type=Base": "ndcg",
    "NDCG:type=Exp;top=3": "ndcg(gain=exponential)@3",
    "NDCG:top=3;denominator=LogPosition": "ndcg@3",
    "NDCG:top=3;denominator=Position;type=Exp": "ndcg(discount=reciprocal,gain=exponential)@3",
    "DCG:denominator=Position": "dcg(discount=reciprocal)",
    "DCG:top=2;type=Base;denominator=LogPosition": "dcg@2",
    "ERR:top=10": "err(max_grade=1,gain=linear)@10",
    "ERR:top=2": "err(max_grade=1,gain=linear)@2",
    "PFound:top=3;decay=0.5": "pfound(p=0.5)@3",
    "PFound:decay=0.9": "pfound(p=0.9)",
}


@cases("theirs", CATBOOST)
@pytest.mark.parametrize("tied", [False, True])
def test_names_of_catboost_are_read_with_their_parameters(theirs, tied):
    assert tr.parse(theirs).label == CATBOOST[theirs]
    assert list(tr.RankingCollection(f"mrr, {theirs} map")) == ["mrr", CATBOOST[theirs], "map"]
    scores, grades, sizes = rows_with_groups(tied)
    grades = grades / 4 if theirs.startswith(("ERR", "PFound")) else grades
    metric = tr.parse(theirs, **{**ALWAYS["catboost"], "empty_target_action": "pos" if "NDCG" in theirs else "neg"})
    metric.update(scores, grades, group_sizes=sizes)
    assert metric.compute().item() == pytest.approx(by_catboost(theirs, scores, grades, sizes), abs=1e-6)


@pytest.mark.parametrize(
    "name", ["NDCG:type=Cubic", "NDCG:top=-1", "MRR:hints=skip_train~false", "NDCG:top", "NDCG:=2"]
)
def test_other_parameters_of_catboost_are_refused(name):
    with pytest.raises(ValueError, match="Expected"):
        tr.parse(name)
