"""Other libraries' names of the measures, and the name under which this library is installed."""

import gc
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import ClassVar

import numpy
import pytest
import torch

import torchrank as tr
from docs.spelling_list import tables
from tests.support.cases import cases
from tests.support.descriptions import also_in, read_here, read_there
from torchrank.names.arguments import did_you_mean, imported
from torchrank.names.labels import read
from torchrank.names.parse import parse_all, resolve
from torchrank.names.registry import known, measures, without_optional

# The spellings of each label, by all libraries, and with a cutoff, k or the level in the name.
SPELLINGS = {
    "ndcg@10": "nDCG@10 | ndcg_cut_10 | ndcg_cut.10 | ndcg_at_10 | ndcg_10 | ndcg@10 | nDCG-10 | ndcg @ 10",
    "ndcg(gain=exponential)@10": "nDCG(dcg='exp-log2')@10",
    "ndcg@7": "nDCG(dcg=log2,cutoff=7)",
    "mrr": "RR | recip_rank | inverse_harmonic_mean_rank | mean_reciprocal_rank | retrieval_reciprocal_rank",
    "mrr(relevance_level=2)@10": "RR(rel=2)@10",
    "precision@5": "P@5 | P_5 | P5 | precision_at_k@5",
    "map(relevance_level=2)@100": "AP(rel=2)@100",
    "map": "AP(judged_only=False) | map | MeanAveragePrecisionMetric",
    "recall(relevance_level=3)": "SetR(rel=3)",
    "fbeta(beta=2)": "SetF(beta=4) | set_F.4",
    "recall@5": "recall_5 | Recall_At_5 | RECALL_K@5",
    "map@100": "map_cut_100 | map_at_100",
    "fbeta(beta=0.5)": "set_F_0.25 | f0.5",
    "precision(relevance_level=2)@5": "P_5(rel=2)",
    "ndcg(gain={1:0,2:0.01})": "ndcg.1=0,2=0.01",
    "ndcg(gain={1:2})": "ndcg_1=2",
    "rndcg(gain={1:3.5,2:9,4:7})": "Rndcg.1=3.5,2=9.0,4=7",
    "ndcgrel(gain={0:1})": "ndcg_rel.0=1",
    "g(gain={1:2,3:5})": "G.3=5,1=2",
    "mrr(filtered=True)": "MRR(filtered=true)",
    "recall(normalize=min)@5": "Recall(Normalize=min)@5",
    "alphandcg(alpha=0.4)@10": "\N{GREEK SMALL LETTER ALPHA}_nDCG(alpha=0.4)@10",
    "precision(relevance_level=2)": "SetP(relative=False,rel=2)",
    "rbp(p=0.8)": "rbp_0.8",
    "rbp": "rbp.p=0.9",
    "rbp(p=0.95)": "rbp.95",
    "rbp(p=0.8,relevance_level=2)@3": "RBP(rel=2)@3",
    "auroc(relevance_level=2)": "Accuracy(rel=2)",
    "utility(rejection=0.5,collection_size=0)": "utility_1,-1,0,.5",
    "elevenpoint(points={0.25,0.5,0.75})": "11pt_avg_.25,.5,.75",
    "map(relevance_level=2)@10": "map@10-l2",
    "rprecision(relevance_level=2)": "r-precision-l2",
    "rbp(p=0.95,relevance_level=3)": "rbp.95-l3",
    "ndcg(gain={0:1,1:4})@10": "nDCG(gains={0:1, 1:4})@10",
    "ndcg(gain={1:1,2:4.5},unjudged=condensed)": "nDCG(gains={2:4.5,1:1},judged_only=True)",
    "allhit@10": "recall_all@10 | full_recall@10 | complete_recall@10 | recall_all_at_10 | RecallAll@10",
    "allhit(enough=2)@10": "allhit(need=2)@10 | recall_all(need=2)@10",
    "pfound(p=0.9)@10": "PFound:top=10;decay=0.9",
}
LABELS = {name: label for label, names in SPELLINGS.items() for name in names.split(" | ")}

COUNTS = {"interactions": torch.tensor([3, 1]), "num_users": 4}


@cases("name", LABELS)
def test_a_spelling_is_a_label(name):
    metric = tr.parse(name)
    assert metric.label == LABELS[name]
    assert tr.parse(metric.label).label == metric.label
    assert list(tr.RankingCollection([name])) == [LABELS[name]]
    if "(" not in name:
        assert tr.parse(name.upper()).label == tr.parse(name.lower()).label == metric.label


#: names in one string, and their labels
LISTS = {
    "ndcg@10, mrr": "ndcg@10 mrr",
    "ndcg@10 map": "ndcg@10 map",
    " ndcg@5,10,mrr ": "ndcg@5 ndcg@10 mrr",
    "recall@1, 10 precision @ 5": "recall@1 recall@10 precision@5",
    "map(normalize=min, relevance_level=2)@3,5, ndcg(gain={0:1, 1:4})@3": (
        "map(normalize=min,relevance_level=2)@3 map(normalize=min,relevance_level=2)@5 ndcg(gain={0:1,1:4})@3"
    ),
    "P.1,2 11pt_avg, mae rbp.8, f0.5": "precision@1 precision@2 elevenpoint mae rbp(p=0.8) fbeta(beta=0.5)",
    "ndcg_cut_1-3": "ndcg@1 ndcg@2 ndcg@3",
    "recall@1-3,10 mrr": "recall@1 recall@2 recall@3 recall@10 mrr",
    "ndcg.1=0,2=0.01,mrr ndcg.2=3": "ndcg(gain={1:0,2:0.01}) mrr ndcg(gain={2:3})",
}


@cases("names", LISTS)
def test_a_list_of_names_in_one_string_is_for_collections(names):
    assert list(tr.RankingCollection(names)) == list(tr.RankingCollection([names])) == LISTS[names].split()
    if "mae" not in names:
        what = "cutoff" if names == "ndcg_cut_1-3" else "metric"
        with pytest.raises(ValueError, match=f"Expected one {what} in .*RankingCollection"):
            tr.parse(names)
    with pytest.raises(ValueError, match=r"Expected num_items for .*; pass tr.Coverage\(top_k=5, num_items=\.\.\.\)"):
        parse_all("coverage@5,10")


def test_a_range_of_cut_offs_is_for_collections():
    assert list(tr.RankingCollection("recall@1-100")) == [f"recall@{k}" for k in range(1, 101)]
    assert list(tr.RankingCollection("precision@100%,3,2000tok")) == [f"precision@{k}" for k in ("100%", 3, "2000tok")]
    with pytest.raises(ValueError, match=r"one cutoff.*got 100.*RankingCollection"):
        tr.parse("recall@1-100")
    assert tr.parse("recall@7-7").label == "recall@7"
    ranges = ("recall@5-3", "recall@1-2-3", "recall@1-", "recall@-3", "recall@1-1000000000000", "recall@0-5")
    for names in (*ranges, "ndcg@10,", "ndcg@10,,mrr", "", ", mrr"):
        with pytest.raises(ValueError, match="Expected"):
            tr.RankingCollection(names)


def test_arguments_win_over_what_the_name_says():
    assert tr.parse("AP(rel=2)@100", relevance_level=3, top_k=5, ties="optimistic").label == (
        "map(relevance_level=3,ties=optimistic)@5"
    )
    assert tr.parse("set_F_4", beta=3).label == "fbeta(beta=3)"
    assert tr.parse("P", top_k=5).label == tr.parse("precision@1,2", top_k=5).label == "precision@5"


@cases(
    ("name", "nearest"),
    [
        ("ndgc@10", "ndcg@10"),
        ("ndcg_cutt_20", "ndcg_cut_20"),
        ("ngcd_10", "ndcg@10"),
        ("precison(rel=2)@5", "precision(rel=2)@5"),
        ("recal-10", "recall@10"),
        ("mrs@10", "mr"),
        *((f"{name}10", f"{name}@10") for name in ("ndcg", "mrr", "map", "hits", "hr", "precision", "ap", "rr")),
        ("ndcg_at_k", "ndcg"),
        ("bpref-10", "bpref"),  # a measure of its own, which counts 10 more irrelevant candidates
        ("f_2", "f"),
        ("NDCGAtK@5", "ndcg_at@5"),  # metrax has another gain
    ],
)
def test_an_unknown_name_suggests_names_that_work_and_keep_its_cutoff(name, nearest):
    with pytest.raises(ValueError, match=f"did you mean '{re.escape(nearest)}'") as raised:
        tr.parse(name)
    assert str(raised.value).count(" or ") <= 2
    assert len(str(raised.value)) < 200
    tr.parse(nearest)


@pytest.mark.parametrize("name", ["cv_recall@5", "recall_each@5", "soft_hit_rate@3", "graded_recall_at_5"])
def test_a_name_with_a_word_more_is_another_measure_and_has_no_hint(name):
    with pytest.raises(ValueError, match=f"got '{name}': `torchrank measures` lists them"):
        tr.parse(name)


@pytest.mark.parametrize("wrong", ["10", 10.0, 0, 1.5, "ten", True])
def test_a_wrong_cutoff_of_any_type_has_one_list_of_what_is_allowed(wrong):
    allowed = "Expected top_k to be an integer >= 1, a share as '10%', a cost as '2000tok', or None, got "
    with pytest.raises(ValueError, match=re.escape(f"{allowed}{wrong!r}")) as raised:
        tr.NDCG(wrong)
    assert str(raised.value).endswith("; pass 10") == (wrong in ("10", 10.0))


@pytest.mark.parametrize("name", [None, 3, b"ndcg", ["ndcg"], tr.NDCG(), ("recbole",)])
def test_a_name_that_is_no_text_is_an_error_that_says_so(name):
    for function in (tr.parse, tr.preset):
        with pytest.raises(TypeError, match=rf"Expected the name of a .* got {type(name).__name__}"):
            function(name)


def test_a_table_of_gains_may_have_one_for_judged_candidates_of_grade_0():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]])
    grades = torch.tensor([[0, 1, -1, 2, 0]])
    gains = [1, 4, 0, 2, 1]  # of grade 2, which the table lacks, itself; nothing of the unjudged
    metric = tr.parse("nDCG(gains={1:4,0:1})@4")
    assert metric.label == "ndcg(gain={0:1,1:4})@4"
    discounts = [1 / math.log2(1 + rank) for rank in range(1, 6)]
    ideal = sum(g * d for g, d in zip([4, 2, 1, 1], discounts))
    dcg = sum(g * d for g, d in zip(gains[:4], discounts))
    assert metric.score(scores, grades).item() == pytest.approx(dcg / ideal)
    suite = tr.RankingCollection([metric, "mrr@1", "ndcg@2"])  # which need less of the ranking
    suite.update(scores, grades)
    assert suite.compute()[metric.label].item() == pytest.approx(dcg / ideal)
    assert tr.CG(gain={0: 1, 1: 4}).score(scores, grades).item() == 8
    assert tr.CG(gain={0: 1, 1: 4}).score(scores, (torch.tensor([0, 0]), torch.tensor([0, 3]))).item() == 8
    assert tr.CG(gain={0: 0, 2: 0.5}).score(scores, grades).item() == 1.5
    assert tr.CG(gain={1: 4, 0: 1}).label == tr.CG(gain={0: 1.0, 1: 4.0}).label == "cg(gain={0:1,1:4})"


def test_gains_of_trec_eval_are_read_from_its_names():
    scores, grades = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]), torch.tensor([[1, 2, 0, -1, 3]])
    # as printed by trec_eval 10
    for name, want in {"ndcg": 0.5988, "ndcg_rel": 0.3796, "Rndcg": 0.3702, "G": 0.4432, "dcg": 6.7435}.items():
        assert tr.parse(f"{name}.1=2,3=9").score(scores, grades).item() == pytest.approx(want, abs=5e-5)


@pytest.mark.parametrize("gain", [[0, 1, 3.5], (0, 1, 3.5), numpy.array([0, 1, 3.5]), torch.tensor([0, 1, 3.5])])
def test_a_table_of_gains_may_be_a_list_from_grade_0_on(gain):
    for measure in (tr.NDCG, tr.MAP, tr.CG):
        assert measure(gain=gain).label == measure(gain={0: 0, 1: 1, 2: 3.5}).label
    assert tr.parse("cg(gain=[0, 1,3.5])@3").label == "cg(gain={0:0,1:1,2:3.5})@3"
    values = tr.CG(gain=gain).score(torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[2, 2, 1, 5]]))
    assert values.item() == 3.5 + 3.5 + 1 + 5  # the list has none for grade 5


WRONG = [[], [[0, 1]], [0, -1], ["a"], numpy.zeros((2, 2)), torch.tensor(3.0)]


@cases("gain", [*WRONG, {}, {1: -1}, {-1: 1}, {1: math.nan}, {"a": 1}, {1: True}])
def test_gains_are_a_number_for_each_grade_that_is_not_negative(gain):
    with pytest.raises(ValueError, match=r"Expected .*gain"):
        tr.NDCG(gain=gain)


@pytest.mark.parametrize(
    "name",
    [
        *("P_5@10", "ndcg_cut_5@3", "ndcg_cut_x", "nDCG(dcg=ln)", "set_F_x", "P_5(rel=2", "map@0.5"),
        *("f_2", "fbeta_2", "rbo_9", "mr_5", "ndcg@10-l2", "xyzzy"),
        *("ndcg(gain exponential)@10", "ndcg(ties=maybe)@10", "rbp(p=0.5 ties)"),
    ],
)
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="Expected"):
        tr.parse(name)
    with pytest.raises(ValueError, match="Expected one value of"):  # two spellings of one parameter
        tr.parse("AP(relevance_level=1,rel=2)")


def squashed(name):
    return re.sub("[^a-z0-9]", "", name.lower())


def test_a_name_that_one_library_has_is_read_as_there_or_refused():
    every = [(m, one) for m in measures().values() for one in known(m) if one.theirs]
    owners = {}
    for measure, one in every:
        owners.setdefault(squashed(without_optional(one.theirs)), set()).add((one.library, measure.name, one.settings))
    alone = 0
    for measure, one in every:
        name = squashed(without_optional(one.theirs))
        if squashed(read(without_optional(one.theirs)).name) in measures() or len(owners[name]) > 1:
            continue  # our own name, or one that libraries share
        alone += 1
        here = read_here(measure.name, one)
        assert here == (read_there(measure.name, one) if one.same else []), one
    assert alone > 100


def test_the_page_of_spellings_promises_what_is_read():
    page, others = tables().split("Names that mean something else in a library:")
    rows = [re.findall(r"`([^`]*)`", line) for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    numbers = {"k": 10, "x": 0.5, "root": math.sqrt(0.5)}
    for label, *names in rows:
        for name in names:
            values = {hole: numbers.get(hole, 0.5) for hole in re.findall(r"{(\w+)}", name + label)}
            want = [(x.name, x.parameters, x.cutoff) for x in map(read, re.split(r",\s", label.format(**values)))]
            cuts = ("", "@10") if "@" not in label and measures()[want[0][0]].takes_top_k else ("",)
            found = {cut: read_or_none(name.format(**values) + cut) for cut in cuts}
            assert any(found[cut] == [(n, p, at or cut[1:]) for n, p, at in want] for cut in cuts), (label, name)
    assert "| `NDCG` | `ndcg` | RecTools: `ndcg(normalize=k)`; LensKit: `ndcg(discount=clipped)` |" in others
    assert "| `11pt_avg` | `elevenpoint` | pytrec_eval: `elevenpoint(rounding=up)` |" in others
    assert "AtK`" not in page


def read_or_none(name):
    try:
        return [(one.name, one.parameters, one.cutoff) for one in resolve(name)]
    except ValueError:
        return None


def test_defaults_are_for_the_measures_that_have_such_an_argument():
    metrics = parse_all("ndcg@5 mrr", {"gain": "exponential"})
    assert [metric.label for metric in metrics] == ["ndcg(gain=exponential)@5", "mrr"]


def test_every_suggestion_is_a_name():
    every = [without_optional(one.theirs) for m in measures().values() for one in known(m) if one.theirs]
    suggested = []
    for number, name in enumerate([*measures(), *every][::20]):
        name = re.sub("{.*?}", "7", read(name).name)
        wrong = (f"{name}{name[-1]}@3,4", f"{name[0]}{name}_5", f"{name[:-1]}(ties=optimistic)")[number % 3]
        try:
            resolve(wrong)
        except ValueError as error:
            suggested += re.findall(r"'([^']*)'", str(error).partition("did you mean ")[2])
    assert len(suggested) > 10
    for name in suggested:
        resolve(name)


def test_the_distribution_has_the_name_that_every_page_and_message_installs():
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["name"] == "torchrank-metrics"
    assert (
        "torchrank-metrics[bench,demo,dev,docs,files,plot,ray,report,stats]" in project["optional-dependencies"]["test"]
    )
    files = [root / "README.md", root / "pyproject.toml"]
    files += [*root.glob("notebooks/*.ipynb"), *root.glob("torchrank/**/*.py")]
    named = [name for file in files for name in re.findall(r"(torchrank[\w-]*)\[\w+(?:,\w+)*\]", file.read_text())]
    named += [name for file in files for name in re.findall(r"pip install \W*(torchrank[\w-]*)", file.read_text())]
    assert set(named) == {"torchrank-metrics"}


def test_one_function_names_a_missing_package_and_the_extra_that_installs_it(monkeypatch):
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    checked = set()
    for file in root.glob("torchrank/**/*.py"):
        text = file.read_text()
        assert file.name == "arguments.py" or not re.search(r"raise (ImportError|ModuleNotFoundError)", text), file
        for package, extra in re.findall(r"\bimported\(\"(\w+)[\w.]*\", \"(\w+)\"", text):
            assert package in {re.split(r"\W", requirement)[0] for requirement in extras[extra]}, file
            monkeypatch.setitem(sys.modules, package, None)
            message = f"run `pip install {package}` (the extra '{extra}' of torchrank installs it)"
            with pytest.raises(ImportError, match=re.escape(message)):
                imported(package, extra)
            checked.add(extra)
    assert {"plot", "report", "stats"} <= checked


def test_functions_of_one_name_have_states_of_their_own_after_one_is_gone():
    def make():
        def middle(values):
            return values.median()

        return middle

    first, second = make(), make()
    metrics = [tr.MRR(aggregation=first), tr.MRR(aggregation=second)]
    del metrics[0], first
    gc.collect()
    metrics.append(tr.MRR(aggregation=make()))
    assert metrics[0].metric_state.keys().isdisjoint(metrics[1].metric_state)


@cases("text", ["a_1", "x-l", "a-l1", "-l1", "a_", "(a", "a@", "a(b)", "[", "1,", "{", "'", "a "])
@cases("form", ["{}", "map{}", "a(b={})", "a(b=1,{})", "mrr{}x", "a@{}-", "a{}(", "a(b{}'"])
@cases("size", [4_980, 90])  # with as many blanks, within the largest length
def test_a_long_name_is_refused_at_once(text, form, size):
    with pytest.raises(ValueError, match="Expected"):
        tr.parse(form.format((text * size)[:size]) + " " * size + "(")


def test_brackets_and_signs_nested_deeply_are_text():
    for text in ("-" * 5000 + "1", "[" * 5000, "{" + "-" * 5000 + "1:2}"):
        with pytest.raises(ValueError, match="Expected"):
            tr.parse(f"ndcg(gain={text})")


def test_a_name_has_one_relevance_level_and_its_numbers_have_a_largest_length():
    assert tr.parse("map-l2").label == "map(relevance_level=2)"
    with pytest.raises(ValueError, match=r"Expected one relevance level, .* got several in 'map-l1-l2'"):
        tr.parse("map-l1-l2")
    for name in ("map" + "-l1" * 3000, f"ndcg@{'9' * 5000}", f"map-l{'9' * 5000}", f"ndcg@1-{'9' * 5000}"):
        with pytest.raises(ValueError, match="Expected"):
            tr.parse(name)


def test_an_unknown_name_of_another_type_is_compared_by_its_text():
    assert did_you_mean(10, ["10", "ndcg"]) == "; did you mean '10'?"
    assert did_you_mean(None, ["none", "ndcg"]) == "; did you mean 'none'?"
    assert did_you_mean(b"\xff", ["ndcg"]) == ""


def test_a_measure_of_the_user_has_the_names_of_its_class_and_no_others(monkeypatch):
    monkeypatch.setattr(tr.RankingMetric, "registry", {**tr.RankingMetric.registry})
    monkeypatch.setattr("torchrank.names.registry.KINDS", [tr.RankingMetric.registry])
    monkeypatch.setattr("torchrank.state.metric.KINDS", [])

    class Own(tr.NDCG):
        name = "ownndcg"
        known_as: ClassVar = {"parse": {"own_gain_{k}": "@{k}"}, "recbole": "theirs", "pyg": {"Mine": "~ other"}}

    class Silent(Own):
        name = "silent"

    assert tr.parse("OwnGain_5").label == "ownndcg@5"
    assert tr.preset("recbole", 3)["theirs@3"] == "ownndcg(empty_target_action=skip)@3"
    assert also_in(Own) == "RecBole (`theirs`); PyG (`Mine`) differs: other."
    assert also_in(Silent) == "none of the libraries compared."
    assert tr.NDCG.known_as["beir"] == "NDCG"

    class Namesake(tr.RankingMetric):
        registry: ClassVar = {}
        name = "ndcg"

    assert also_in(Namesake) == "none of the libraries compared."


def test_names_have_a_largest_length_and_number_of_cutoffs():
    assert len(tr.RankingCollection("ndcg@1-1000")) == 1000
    with pytest.raises(ValueError, match="Expected at most 1000 cutoffs after ndcg, got '@1-1001'"):
        tr.RankingCollection("ndcg@1-1001")
    assert list(tr.RankingCollection(f"ndcg@{2**53}")) == [f"ndcg@{2**53}"]
    with pytest.raises(ValueError, match=r"Expected top_k to be an integer <= 9007199254740992, .*, or None"):
        tr.RankingCollection("ndcg@" + "9" * 18)
    with pytest.raises(ValueError, match="Expected cutoffs like '@10', '@5,10' or '@1-5' after ndcg"):
        tr.RankingCollection("ndcg@" + "9" * 19)
    with pytest.raises(ValueError, match="Expected a name of at most 10,000 characters, got 10,001: 'aaa"):
        tr.parse("a" * 10_001)
    with pytest.raises(ValueError, match="Expected the name of a measure, got 10,000 characters"):
        tr.parse("a" * 10_000)


def test_a_parameter_of_another_measure_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"Expected ndcg to have parameters .*, got 'beta' in 'ndcg\(beta=1\)@10'"):
        tr.parse("ndcg(beta=1)@10")
