"""A name of another library has the number of that library, without a preset: compared with the library itself."""

import math

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pytrec_eval
from tests.support.peer_queries import assert_agree, collections, edges
from torchrank.names.parse import parse_all

GRADED = (0, 0, 0, 1, 1, 2, 3)


def queries(grades=GRADED, tied=False, seeds=range(1)):
    """Judgments and a run: long lists, and short ones with every edge."""
    many, few = collections(tied, seeds, grades=grades), edges(grades)
    return many[0] | few[0], many[1] | few[1]


# ---- trec_eval and pytrec_eval ---------------------------------------------------------------------------------------

#: names with parameters, as on the command line of trec_eval. pytrec_eval shows set_F and 11pt_avg without theirs.
WITH_PARAMETERS = [
    *("P.1,2,7", "recall.1,2,7", "ndcg_cut.1,2,7", "map_cut.1,2,7", "success.2,7", "relative_P.1,2,7"),
    *("iprec_at_recall.0.4,0.45,.33", "Rprec_mult.0.5,0.33,1.7"),
]
ALONE = ["set_F.0.5", "set_F.2"]
#: measures for which version 10, whose names are read, rounds in another way than version 9, which pytrec_eval has
VERSION_9 = {"rounding": "up"}
NOT_NUMBERS = {"runid", "relstring"}


@pytest.mark.parametrize(("tied", "grades"), [(False, GRADED), (True, GRADED), (False, (-1, 0, 0, 1, 2))])
def test_every_name_in_the_output_of_pytrec_eval(tied, grades):
    qrels, run = queries(grades, tied)
    ranking = tr.Ranking.from_run(qrels, run)
    results = pytrec_eval.RelevanceEvaluator(qrels, pytrec_eval.supported_measures - NOT_NUMBERS).evaluate(run)
    for names in WITH_PARAMETERS:
        for query, values in pytrec_eval.RelevanceEvaluator(qrels, {names}).evaluate(run).items():
            results[query] |= values
    names = set(next(iter(results.values())))
    assert len(names) > 90
    for name in names:
        metric = tr.parse(name, **(VERSION_9 if name.startswith(("iprec", "11pt")) else {}))
        want = [results[query][name] for query in qrels]
        if name.startswith("gm_"):  # pytrec_eval has the logarithms here
            want = [math.exp(value) for value in want]
            assert_agree(metric.score(ranking).clamp_min(1e-5), want, name)
            continue
        # an empty list has an interpolated precision of 0 / 0 there
        assert_agree(metric.score(ranking), [0 if math.isnan(value) else value for value in want], name)


@pytest.mark.parametrize("name", ALONE)
def test_names_with_a_parameter_that_pytrec_eval_does_not_show(name):
    qrels, run = queries()
    results = pytrec_eval.RelevanceEvaluator(qrels, {name}).evaluate(run)
    metric = tr.parse(name)
    assert_agree(metric.score(tr.Ranking.from_run(qrels, run)), [results[q][name[:5]] for q in qrels], name)


@cases("name", sorted(pytrec_eval.supported_measures))
def test_a_bare_name_of_trec_eval_stands_for_the_same_cutoffs_and_parameters(name):
    qrels, run = {"q": {"d": 1}}, {"q": {"d": 1.0}}
    if name in NOT_NUMBERS:
        with pytest.raises(ValueError, match="Expected the name of a measure"):
            parse_all(name)
    elif name != "recall":  # our own name, of the complete list
        shown = pytrec_eval.RelevanceEvaluator(qrels, {name}).evaluate(run)["q"]
        assert {m.label for m in parse_all(name)} == {tr.parse(one).label for one in shown}


# ---- interpolated precision: the first 0.4 of three relevant documents -----------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("IPrec@0.4", 3 / 11),
        ("IPrec(rel=1)@0.4", 3 / 11),
        ("interpolated_precision_at_recall_0.4", 3 / 11),
        ("iprec(recall=0.4, rounding=up)", 3 / 11),
        ("iprec_at_recall_0.40", 1.0),  # trec_eval 10 rounds 1.2 documents to 1, all others to 2
        ("iprec(recall=0.4)", 1.0),
    ],
)
def test_the_rounding_of_a_recall_is_that_of_the_library(name, number):
    scores = torch.arange(12, 0, -1.0).unsqueeze(0)
    target = torch.zeros(1, 12, dtype=torch.int64)
    target[0, [0, 9, 10]] = 1
    assert tr.parse(name).score(scores, target).item() == pytest.approx(number)


# ---- ir_measures -----------------------------------------------------------------------------------------------------

IR_MEASURES = """AP AP@1 AP@5 AP(rel=2) AP(rel=2)@3 MAP@3 nDCG nDCG@3 NDCG@30 nDCG(gains={1:3,2:5})@3 RR RR@3 MRR@10
    nDCG(gains={0:1,1:4})@2 nDCG(gains={0:1,1:4})
    RR(rel=2) P@1 P@5 P@30 Precision@3 P(rel=2)@3 R@3 Recall@30 R(rel=2)@3 Rprec RPrec(rel=2) Bpref BPref(rel=2) infAP
    SetP SetP(rel=2) SetP(relative=True) SetRelP SetR SetR(rel=2) SetF SetF(beta=2.0) SetF(rel=2,beta=0.5) SetAP
    Success@1 Success@5 Success(rel=2)@3 IPrec@0.0 IPrec@0.1 IPrec@0.4 IPrec@0.45 IPrec@0.9 IPrec@1.0 IPrec(rel=2)@0.4
    NumRet NumRet(rel=2) NumRelRet NumRel AP(judged_only=True) nDCG(judged_only=True)@3 P(judged_only=True)@3"""
THROUGH_CWL_EVAL = """RBP(rel=1) RBP(rel=2) RBP(rel=1,p=0.9) INST(max_rel=3) INST(T=2.0,max_rel=3) INSQ(max_rel=3)
    BPM(max_rel=3)@5 SDCG(max_rel=3)@5 NERR8(max_rel=3)@5 NERR9(max_rel=3)@5 NERR10(max_rel=3) NERR10(p=0.7,max_rel=3)
    NERR11(max_rel=3) NERR11(T=2.0,max_rel=3)"""


@pytest.mark.parametrize("names", [IR_MEASURES, THROUGH_CWL_EVAL], ids=["own", "cwl_eval"])
def test_names_of_ir_measures(names):
    ir_measures = pytest.importorskip("ir_measures")
    if names is THROUGH_CWL_EVAL:
        pytest.importorskip("cwl")
    qrels, run = queries()
    ranking = tr.Ranking.from_run(qrels, run)
    for name in names.split():
        theirs = ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)
        found = {one.query_id: one.value for one in theirs}
        assert_agree(tr.parse(name).score(ranking), [found[query] for query in qrels], name)


COUNTS = {"NumQ": 2, "NumRel": 3, "NumRet": 4, "NumRet(rel=1)": 2, "NumRelRet": 2}


def test_counts_of_ir_measures_are_sums_over_the_queries_of_the_run():
    qrels = {"a": {"x": 1, "y": 2, "z": 1}, "b": {"x": 0, "z": 0}, "not in the run": {"x": 1}}
    run = {"a": {"x": 2.0, "y": 1.0}, "b": {"x": 1.0, "w": 0.5}, "not judged": {"x": 1.0}}
    found = tr.evaluate(qrels, run, " ".join(COUNTS))
    assert found.means["run"] == COUNTS
    assert found.means["run"] != tr.evaluate(qrels, run, " ".join(COUNTS).lower()).means["run"]  # means, our own
    ir_measures = pytest.importorskip("ir_measures")
    for name, want in COUNTS.items():
        measure = ir_measures.parse_measure(name)
        assert ir_measures.calc_aggregate([measure], qrels, run)[measure] == want


# ---- ranx ------------------------------------------------------------------------------------------------------------

RANX = """hit_rate@3 precision@3 recall@3 f1@3 r-precision mrr@3 map@3 dcg@3 dcg_burges ndcg@3 ndcg_burges@3 map@3-l2
    f1-l2"""


def test_names_of_ranx():
    ranx = pytest.importorskip("ranx")
    qrels, run = queries()
    ranking, both = tr.Ranking.from_run(qrels, run), (ranx.Qrels(qrels), ranx.Run(run))
    for name in RANX.split():
        ranx.evaluate(*both, name)
        assert_agree(tr.parse(name).score(ranking), [both[1].scores[name][query] for query in qrels], name)


# ---- PyG and RecBole: measures of lists ------------------------------------------------------------------------------


def lists_of(users=30, items=25, k=6):
    generator = torch.Generator().manual_seed(11)
    popular = torch.rand(items, generator=generator).pow(3)  # so that some items are recommended to nobody
    lists = torch.multinomial(popular.expand(users, items), k, generator=generator)
    interactions = torch.randint(0, 9, (items,), generator=generator)
    return lists, interactions, torch.randint(0, items, (users,), generator=generator)


@pytest.mark.xdist_group("processes")  # whose process imports all that takes long
@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_preset_of_pyg_with_a_catalogue_has_its_measures_of_lists(k):
    link_pred = pytest.importorskip("torch_geometric.metrics.link_pred")
    lists, interactions, target = lists_of()
    arguments = {
        "LinkPredCoverage": {"num_dst_nodes": len(interactions)},
        "LinkPredAveragePopularity": {"popularity": interactions},
        "LinkPredPersonalization": {},
    }
    suite = tr.RankingCollection(tr.preset("pyg", k, num_items=len(interactions), interactions=interactions))
    suite.update(lists, target)
    values = suite.compute()
    for name, given in arguments.items():
        theirs = getattr(link_pred, name)(k=k, **given)
        theirs.update(lists, torch.stack([torch.arange(len(lists)), target]))
        assert values[f"{name}@{k}"].item() == pytest.approx(theirs.compute().item(), abs=1e-6), name
    if k > 1:  # one item has no pair
        kinds = interactions % 4
        theirs, ours = link_pred.LinkPredDiversity(k, category=kinds), tr.IntraListDiversity(k, categories=kinds)
        theirs.update(lists, torch.stack([torch.arange(len(lists)), target]))
        ours.update(lists)
        assert ours.compute().item() == pytest.approx(theirs.compute().item(), abs=1e-6)


def recbole(lists, interactions):
    """RecBole's measures beyond accuracy of lists of k, from its formulas."""
    shown = [item for row in lists for item in row]
    times = sorted(shown.count(item) for item in set(shown))
    n, total = len(interactions), len(shown)
    used = sorted((item for item in range(n) if interactions[item] > 0), key=lambda item: (interactions[item], item))
    tail = set(used[: max(1, int(len(used) * 0.1))])
    places = range(n - len(times) + 1, n + 1)
    return {
        "itemcoverage": len(set(shown)) / n,
        "averagepopularity": sum(interactions[item] for item in shown) / total,
        "shannonentropy": -sum(m / total * math.log(m / total) for m in times) / len(times),
        "giniindex": sum((2 * i - n - 1) * m for i, m in zip(places, times)) / total / n,
        "tailpercentage": sum(item in tail for item in shown) / total,
    }


@pytest.mark.parametrize("k", [1, 3, 6])
def test_a_preset_of_recbole_with_a_catalogue_has_its_measures_beyond_accuracy(k):
    lists, interactions, target = lists_of()
    plain, items = tr.preset("recbole", k), {"num_items": len(interactions)}
    preset = tr.preset("recbole", k, **items, interactions=interactions)
    suite = tr.RankingCollection(preset)
    for part in torch.arange(len(lists)).split(7):
        suite.update(lists[part], target[part])
    values, want = suite.compute(), recbole(lists[:, :k].tolist(), interactions.tolist())
    assert preset.keys() == values.keys() == plain.keys() | {f"{name}@{k}" for name in want}
    for name, number in want.items():
        assert values[f"{name}@{k}"].item() == pytest.approx(number, rel=1e-6), name
    only_items = tr.preset("recbole", k, **items).keys() - plain.keys()
    assert only_items == {f"{name}@{k}" for name in ("itemcoverage", "shannonentropy", "giniindex")}
    assert tr.preset("recbole", k, interactions=interactions).keys() == preset.keys() - only_items
