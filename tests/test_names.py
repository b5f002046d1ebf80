"""Other libraries' names of the measures, and the name under which this library is installed."""

import math
import re
import tomllib
from pathlib import Path

import pytest

import torchrank as tr
from torchrank.metrics.labels import read
from torchrank.metrics.parse import parse_all, resolve
from torchrank.metrics.spellings import SPELLINGS

# What is there whatever measures are, by library.
LABELS = {
    # ir_measures
    "nDCG": "ndcg",
    "nDCG@10": "ndcg@10",
    "nDCG(dcg='exp-log2')@10": "ndcg(gain=exponential)@10",
    "nDCG(dcg=log2,cutoff=7)": "ndcg@7",
    "RR": "mrr",
    "RR(rel=2)@10": "mrr(relevance_level=2)@10",
    "P@5": "precision@5",
    "R@10": "recall@10",
    "AP(rel=2)@100": "map(relevance_level=2)@100",
    "AP(judged_only=False)": "map",
    "Rprec": "rprecision",
    "RPrec": "rprecision",
    "SetP": "precision",
    "SetR(rel=3)": "recall(relevance_level=3)",
    "SetF": "f1",
    "SetF(beta=4)": "fbeta(beta=2)",
    "Success@1": "hitrate@1",
    "Precision@3": "precision@3",
    # trec_eval
    "ndcg_cut_10": "ndcg@10",
    "ndcg_cut.10": "ndcg@10",
    "P_5": "precision@5",
    "recall_5": "recall@5",
    "map": "map",
    "map_cut_100": "map@100",
    "recip_rank": "mrr",
    "success_10": "hitrate@10",
    "set_P": "precision",
    "set_recall": "recall",
    "set_F": "f1",
    "set_F_0.25": "fbeta(beta=0.5)",
    "set_F.4": "fbeta(beta=2)",
    "P_5(rel=2)": "precision(relevance_level=2)@5",
    # the others
    "hits@3": "hitrate@3",
    "HR@10": "hitrate@10",
    "hit_rate@10": "hitrate@10",
    "r-precision": "rprecision",
    "hits_at_10": "hitrate@10",
    "arithmetic_mean_rank": "mr",
    "inverse_harmonic_mean_rank": "mrr",
    "AUC": "auroc",
    "f1@5": "f1@5",
    "F2@5": "fbeta(beta=2)@5",
    "f0.5": "fbeta(beta=0.5)",
    "ndcg_burges@3": "ndcg(gain=exponential)@3",
    "mean_reciprocal_rank": "mrr",
    "Fall-Out@5": "fallout@5",
    "MRR(filtered=true)": "mrr(filtered=True)",
    "Recall(Normalize=min)@5": "recall(normalize=min)@5",
}


@pytest.mark.parametrize("name", LABELS)
def test_a_spelling_is_a_label(name):
    metric = tr.parse(name)
    assert metric.label == LABELS[name]
    assert tr.parse(metric.label).label == metric.label
    assert list(tr.RankingCollection([name])) == [LABELS[name]]
    if "(" not in name:
        assert tr.parse(name.upper()).label == tr.parse(name.lower()).label == metric.label


def test_lists_of_cut_offs_are_for_collections():
    names = ["ndcg_cut_5,10", "P.1,2", "recall@5, 10"]
    want = ["ndcg@5", "ndcg@10", "precision@1", "precision@2", "recall@5", "recall@10"]
    assert list(tr.RankingCollection(names)) == want
    assert len(parse_all("ndcg_cut")) == 9
    for name in (*names, "map_cut"):
        with pytest.raises(ValueError, match="one cut-off"):
            tr.parse(name)


def test_arguments_win_over_what_the_name_says():
    assert tr.parse("AP(rel=2)@100", relevance_level=3, top_k=5, ties="optimistic").label == (
        "map(relevance_level=3,ties=optimistic)@5"
    )
    assert tr.parse("set_F_4", beta=3).label == "fbeta(beta=3)"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ndgc@10", "ndcg"),
        ("ndcg_cutt_10", "ndcg_cut_10"),
        ("recip_rnk", "recip_rank"),
        ("arithmetic_meanrank", "arithmetic_mean_rank"),
        ("precison@5", "precision"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_of_all_names(name, nearest):
    with pytest.raises(ValueError, match=f"did you mean '{nearest}'"):
        tr.parse(name)


@pytest.mark.parametrize(
    "name", ["P_5@10", "ndcg_cut_5@3", "ndcg_cut_x", "nDCG(dcg=ln)", "set_F_x", "P_5(rel=2", "map@0.5"]
)
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="Expected"):
        tr.parse(name)


@pytest.fixture
def all_measures(monkeypatch):
    """Every measure that a spelling names is there, as it will be."""
    names = []
    for value in SPELLINGS.values():
        names += [read(label).name for label in ([value] if isinstance(value, str) else value)]
    registry = dict.fromkeys(names, tr.MAP) | tr.RankingMetric.registry
    monkeypatch.setattr(tr.RankingMetric, "registry", registry)


# Names of measures that may not be there, and the label that each stands for.
FURTHER = {
    "set_map": ("setap", {}, ""),
    "SetP(relative=True)": ("relprecision", {}, ""),
    "relative_P_10": ("relprecision", {}, "10"),
    "SetP(relative=False,rel=2)": ("precision", {"rel": 2}, ""),
    "Rprec_mult_0.80": ("rprecision", {"multiple": 0.8}, ""),
    "iprec_at_recall_0.30": ("iprec", {"recall": 0.3}, ""),
    "IPrec@0.1": ("iprec", {"recall": 0.1}, ""),
    "IPrec(rel=2)@.1": ("iprec", {"recall": 0.1, "rel": 2}, ""),
    "iprec(recall=0.1)": ("iprec", {"recall": 0.1}, ""),
    "11pt_avg": ("elevenpoint", {}, ""),
    "gm_map": ("map", {"aggregation": "geometric"}, ""),
    "gm_bpref": ("bpref", {"aggregation": "geometric"}, ""),
    "rbp_0.8": ("rbp", {"p": 0.8}, ""),
    "rbp.p=0.9": ("rbp", {"p": 0.9}, ""),
    "rbp.95": ("rbp", {"p": 0.95}, ""),
    "RBP(p=0.8)": ("rbp", {"p": 0.8}, ""),
    "utility_1.0,-1.0,0,.5": ("utility", {"hit": 1, "false_alarm": -1, "miss": 0, "rejection": 0.5}, ""),
    "INST(max_rel=3)": ("cwl", {"user": "inst", "max_rel": 3}, ""),
    "SDCG(max_rel=3)@10": ("cwl", {"user": "sdcg", "max_rel": 3}, "10"),
    "\N{GREEK SMALL LETTER ALPHA}_nDCG(alpha=0.4)@10": ("alphandcg", {"alpha": 0.4}, "10"),
    "hits_at_5": ("hitrate", {}, "5"),
    "adjusted_hits_at_5": ("hitrate", {"adjusted": "index"}, "5"),
    "z_arithmetic_mean_rank": ("mr", {"adjusted": "z"}, ""),
    "amri": ("mr", {"adjusted": "index"}, ""),
    "inverse_geometric_mean_rank": ("mr", {"aggregation": "geometric", "inverse": True}, ""),
    "NumRet(rel=2)": ("numrelret", {"relevance_level": 2}, ""),
    "num_rel_ret": ("numrelret", {}, ""),
}


@pytest.mark.parametrize("name", FURTHER)
def test_spellings_of_further_measures(all_measures, name):
    (label,) = resolve(name)
    assert (label.name, label.parameters, label.at) == FURTHER[name]


def test_every_spelling_has_a_form_that_fits(all_measures):
    for text, labels in SPELLINGS.items():
        for hole, value in (("{k}", "10"), ("{x}", "0.25")):
            text = text.replace(hole, value)
        name = text if "{" not in text else None
        if name is not None and read(name).name not in tr.RankingMetric.registry:
            assert (
                next(label.name for label in resolve(name))
                == read(labels if isinstance(labels, str) else labels[0]).name
            )


def test_spellings_of_measures_that_are_not_there_are_unknown_names(monkeypatch):
    registry = {"map": tr.MAP}
    monkeypatch.setattr(tr.RankingMetric, "registry", registry)
    with pytest.raises(ValueError, match="Expected the name of a measure"):
        tr.parse("ndcg_cut_10")
    registry["ndcg"] = tr.NDCG
    assert tr.parse("ndcg_cut_10").top_k == 10


def test_the_parameter_of_set_f_is_the_square_of_beta():
    assert tr.parse("set_F_2").beta == math.sqrt(2)


def test_the_distribution_has_the_name_that_every_page_and_message_installs():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["name"] == "torchrank-metrics"
    assert "torchrank-metrics[bench,demo]" in project["optional-dependencies"]["test"]
    files = [
        root / "README.md",
        root / "pyproject.toml",
        *root.glob("notebooks/*.ipynb"),
        *root.rglob("torchrank/**/*.py"),
    ]
    named = [name for file in files for name in re.findall(r"(torchrank[\w-]*)\[\w+(?:,\w+)*\]", file.read_text())]
    named += [name for file in files for name in re.findall(r"pip install \W*(torchrank[\w-]*)", file.read_text())]
    assert set(named) == {"torchrank-metrics"}
