"""Collections with plain keys: the keys of every result, and the states that do not depend on them."""

import copy
import pickle
import re

import pytest
import torch
from torchmetrics import MeanAbsoluteError, MetricCollection

import torchrank as tr
from torchrank.collection.collection import RankingCollection

NAMES = ["ndcg@10", "rbp(p=0.8)@5", "rbp(p=0.85)", "mae"]
KEYS = {
    "label": NAMES,
    "plain": ["ndcg_at_10", "rbp_p_0.8_at_5", "rbp_p_0.85", "mae"],
    "identifier": ["ndcg_at_10", "rbp_p_0p8_at_5", "rbp_p_0p85", "mae"],
}
BATCH = (torch.tensor([[0.1, 0.9, 0.5], [0.4, 0.3, 0.2]]), torch.tensor([[0, 0, 1], [1, 0, 0]]))
IDS = torch.tensor([7, 8])


def build(style, **kwargs):
    return RankingCollection(NAMES, prefix="val/", postfix="!", keys=style, **kwargs)


@pytest.mark.parametrize("style", KEYS)
def test_all_results_have_the_keys_of_the_collection_and_the_values_of_labels(style):
    suite, labelled = build(style), build("label")
    keys = [f"val/{key}!" for key in KEYS[style]]
    for one in (suite, labelled):
        one.update(*BATCH)
    assert list(suite.keys()) == [key for key, _ in suite.items()] == list(suite.metric_state) == keys
    assert list(suite.intervals()) == suite.summary()["measure"] == list(suite.score(*BATCH)) == keys[:-1]
    assert suite.compute() == dict(zip(keys, labelled.compute().values()))
    assert list(suite(*BATCH)) == keys


@pytest.mark.parametrize("style", KEYS)
def test_a_metric_is_found_by_its_key_without_prefix_and_by_its_label(style):
    suite = build(style)
    for label, key in zip(NAMES, KEYS[style]):
        assert suite[f"val/{key}!"] is suite[key] is suite[label]
        assert key in suite
        assert label in suite
    assert list(suite.keys(keep_base=True)) == NAMES
    del suite["ndcg@10"]
    assert list(suite.keys()) == [f"val/{key}!" for key in KEYS[style][1:]]
    with pytest.raises(KeyError, match=re.escape(KEYS[style][1])):
        suite["ndcg@10"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: x.clone()])
def test_a_copy_has_the_same_keys(copied):
    assert list(copied(build("plain")).keys()) == list(build("plain").keys())
    assert next(iter(build("plain").clone(prefix="test/"))) == "test/ndcg_at_10!"


def test_a_pickle_of_a_collection_without_a_spelling_has_labels():
    suite = build("label")
    del suite.__dict__["_style"]
    assert list(pickle.loads(pickle.dumps(suite)).keys()) == [f"val/{name}!" for name in NAMES]


def test_a_checkpoint_fits_collections_of_any_spelling():
    suite = build("label")
    suite.update(*BATCH)
    suite.persistent(True)
    saved = suite.state_dict()
    for style in KEYS:
        twin = build(style)
        twin.persistent(True)
        assert list(twin.state_dict()) == list(saved)
        twin.load_state_dict(saved)
        assert list(twin.compute().values()) == list(suite.compute().values())


def test_collections_of_different_spellings_merge():
    first, second = build("plain"), build("label")
    for one in (first, second):
        one.update(*BATCH)
    before = first.compute()
    first.merge_state(second)
    assert first.compute() == before
    assert first["ndcg@10"].num_queries == 4


@pytest.mark.parametrize("style", ["plain", "identifier"])
def test_two_keys_with_one_spelling_are_refused_by_name(style):
    with pytest.raises(ValueError, match=r"'ndcg@10' and 'ndcg_at_10', both 'ndcg_at_10'"):
        RankingCollection({"ndcg@10": "ndcg@10", "ndcg_at_10": "mrr"}, keys=style)
    assert len(RankingCollection({"ndcg@10": "ndcg@10", "ndcg_at_10": "mrr"})) == 2


def test_two_labels_that_a_callable_makes_alike_are_refused():
    def exponential_at_10(grade):
        return grade

    metrics = ["ndcg(gain=exponential)@10", tr.NDCG(gain=exponential_at_10)]
    with pytest.raises(ValueError, match=r"'ndcg\(gain=exponential\)@10' and 'ndcg\(gain=exponential_at_10\)'"):
        RankingCollection(metrics, keys="plain")
    assert len(RankingCollection(metrics)) == 2


@pytest.mark.parametrize("more", [["mrr", "ndcg@10"], {"mrr": "mrr", "rbp_p_0.85": "map"}])
def test_metrics_that_do_not_fit_are_not_added(more):
    suite = build("plain")
    with pytest.raises(ValueError, match=r"ndcg@10|rbp_p_0\.85"):
        suite.add_metrics(more)
    assert list(suite.keys(keep_base=True)) == NAMES
    suite.add_metrics("recall@1,2")
    assert list(suite.keys())[-2:] == ["val/recall_at_1!", "val/recall_at_2!"]


def test_keys_of_a_dict_of_other_libraries_and_of_contained_collections_are_spelled_too():
    inside = RankingCollection("map(normalize=min)@3", keys="plain")
    given = {"NDCG@10": "ndcg@10", "train/a b": MeanAbsoluteError(), "in": MetricCollection({"x@y": tr.MRR()})}
    keys = ["NDCG_at_10", "train/a b", "in_x_at_y", "map_normalize_min_at_3"]
    suite = RankingCollection(given, inside, keys="plain")
    assert list(suite.keys()) == keys
    assert list(RankingCollection(inside).keys()) == ["map_normalize_min_at_3"]


def test_an_unknown_spelling_is_refused():
    with pytest.raises(ValueError, match="one of 'label', 'plain', 'identifier', got 'simple'"):
        RankingCollection("mrr", keys="simple")


def test_wrappers_and_evaluations_have_the_keys_of_their_collection():
    suite = RankingCollection(NAMES[:3], prefix="val/", keys="plain")
    ours = list(suite.keys())
    sliced, booted = tr.Sliced(suite, ["new", "old"]), tr.Bootstrapped(suite, replicates=5, seed=0)
    kept, paired = tr.PerQuery(suite), tr.Compared(suite, ["a", "b"])
    sliced.update(*BATCH, slices=torch.tensor([0, 1]))
    booted.update(*BATCH, query_ids=IDS)
    kept.update(*BATCH, query_ids=IDS)
    paired.update({"a": BATCH[0], "b": -BATCH[0]}, BATCH[1])
    for wrapper in (sliced, booted, paired):
        assert {re.sub(r"/(new|old|macro|low|high|a|b|b-a)$", "", key) for key in wrapper.compute()} == set(ours)
    assert kept.compute().summary()["measure"] == ours
    result = tr.evaluate({"q": {"d": 1}, "r": {"d": 1}}, {"run": {"q": {"d": 0.5}, "r": {"e": 0.5, "d": 0.2}}}, suite)
    assert list(result.means["run"]) == ours


def test_lines_over_cutoffs_are_the_same_for_plain_keys():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    suite = RankingCollection("ndcg@1-3", keys="plain")
    suite.update(*BATCH)
    figure, axes = suite.plot(over_k=True)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ndcg@k"]
    pyplot.close(figure)
