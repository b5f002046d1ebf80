"""Sources of runs, their names and warnings; a state of no common query; axes of charts."""

import io
import math
import warnings

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.system_values import evaluation_of
from torchrank import partial
from torchrank.evaluation.evaluate import identical
from torchrank.tables import sources
from torchrank.tables.sources import QueryReturnsError

QRELS = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 2}}
LINES = "q1 Q0 a 1 2 t\nq1 Q0 x 2 1 t\nq2 Q0 x 1 2 t\nq2 Q0 b 2 1 t\n"


@pytest.fixture
def pieces(monkeypatch):
    """Files are read in pieces of few lines, as large ones are."""
    monkeypatch.setattr(sources, "LARGE", 1)
    monkeypatch.setattr(sources, "LARGE_COMPRESSED", 1)
    monkeypatch.setattr(sources.read_chunks, "__kwdefaults__", {**sources.read_chunks.__kwdefaults__, "lines": 1})


def test_a_large_file_whose_queries_return_is_read_as_a_whole_unless_pieces_were_asked_for(tmp_path, pieces):
    path = tmp_path / "mine.run"
    path.write_text(LINES + "q1 Q0 y 3 0.5 t\n")
    found = tr.evaluate(QRELS, path, "mrr recall@5")
    assert found.means == {"mine": {"mrr": pytest.approx(0.5), "recall@5": pytest.approx(2 / 3)}}
    with pytest.raises(QueryReturnsError, match="q1"):
        tr.evaluate(QRELS, tr.read_chunks(path, lines=1), "mrr")


def test_a_piece_without_a_judged_document_is_no_error_if_another_has_one():
    def rows(*documents):
        return tr.read_chunks([[(query, item, 1.0)] for query, item in zip(QRELS, documents)])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tr.evaluate(QRELS, rows("a", "z", "z"), "mrr")
    with pytest.raises(ValueError, match="document"):
        tr.evaluate(QRELS, rows("z", "z", "z"), "mrr")


def test_a_piece_without_judged_queries_does_not_hide_that_no_document_is_judged():
    with pytest.raises(ValueError, match="document of the run is judged"):
        tr.evaluate(QRELS, tr.read_chunks([[("q1", "z", 1.0)], [("other", "a", 1.0)]]), "mrr")


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor])
def test_columns_of_one_run_are_told_from_runs_by_name(form, rows):
    queries, items, scores = (column[:rows] for column in (["q1", "q2"], ["a", "z"], [1.0, 2.0]))
    texts = list if form is torch.tensor else form
    columns = {"query": texts(queries), "item": texts(items), "score": form(scores)}
    wanted = {"mrr": pytest.approx(1 / 3)}
    assert tr.evaluate(QRELS, columns, "mrr").means == {"run": wanted}
    assert tr.evaluate(QRELS, {"query": [], "item": [], "score": []}, "mrr").means == {"run": {"mrr": 0.0}}
    records = [dict(zip(("query", "item", "score"), row)) for row in zip(queries, items, scores)]
    runs = {"query": form(records), "item": form(records)} if form in (list, tuple) else {"score": records}
    assert tr.evaluate(QRELS, runs, "mrr").means == dict.fromkeys(runs, wanted)
    for docs in (["a"], ("a",), [("a", 1.0)], ["a", "z"]):
        assert tr.evaluate(QRELS, {"q1": docs, "q2": []}, "mrr").means == {"run": wanted}
        assert tr.evaluate(QRELS, {"x": {"q1": docs}, "y": {"q1": ["z", "a"]}}, "mrr").means["x"] == wanted


def test_pieces_have_the_name_of_their_file_or_none(tmp_path):
    (tmp_path / "mine.run").write_text(LINES)
    rows = [[("q1", "a", 2.0), ("q1", "x", 1.0)], [("q2", "x", 2.0), ("q2", "b", 1.0)]]
    named = {"mine": tr.read_chunks(tmp_path / "mine.run", lines=1), "run": tr.read_chunks(iter(rows))}
    for name, source in named.items():
        assert tr.evaluate(QRELS, source, "mrr").means == {name: {"mrr": pytest.approx(0.5)}}


def test_measures_of_subtopics_warn_if_judgments_have_none():
    run = {"q1": {"a": 1.0}}
    with pytest.warns(UserWarning, match="no subtopics, so alphandcg@5, erria counts each query as one subtopic; pass"):
        tr.evaluate(QRELS, run, "alphandcg@5 mrr erria")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tr.evaluate(QRELS, run, "mrr")
        tr.evaluate([("q1", 1, "a", 1), ("q1", 2, "x", 1)], run, "alphandcg@5")


def test_measures_that_are_objects_are_evaluated_as_their_names():
    run = {"q1": {"a": 1.0, "x": 2.0}}
    suite = tr.RankingCollection(["mrr", "ndcg@3"])
    assert tr.evaluate(QRELS, run, suite).means == tr.evaluate(QRELS, run, "mrr ndcg@3").means
    assert tr.evaluate(QRELS, run, [tr.MRR(), "ndcg@3"]).means == tr.evaluate(QRELS, run, "mrr ndcg@3").means
    keys = {"P_1 recip_rank": ["P_1", "recip_rank"], tr.MRR(): ["mrr"], "ndcg@1,3": ["ndcg@1", "ndcg@3"]}
    for asked in ("P_1 recip_rank", [*keys][:2], [*keys][1:], [*keys][::-1], tuple(keys), iter(keys), [tr.MRR()]):
        every = [asked] if isinstance(asked, str) else asked if isinstance(asked, list) else [*keys]
        assert [*tr.evaluate(QRELS, run, asked).means["run"]] == [
            key for one in every for key in keys.get(one, ["mrr"])
        ]


@pytest.mark.parametrize(
    ("run", "want"),
    [
        ({"a": {"a": 1.0, "b": 2.0}, "b": {"a": 1.0}}, [True, False, False]),
        ({"a": {"b": 2.0}}, [False]),
        ({1: {1: 1.0, 2: 2.0}, 2: {1: 1.0}}, [True, False, False]),
        ({1: {"1": 1.0, "2": 2.0}}, [False, False]),
        ({(1, 2): {(1, 2): 1.0, "2": 2.0}}, [True, False]),
        ({"2": {(1, 2): 1.0, "2": 2.0}}, [False, True]),
    ],
)
def test_documents_with_the_id_of_their_query_are_found_whatever_ids_are(run, want):
    read = tr.read_run(run)
    rows = [(query, item) for query, scores in run.items() for item in scores]
    found = {(q, d): same for (q, d), same in zip(rows, identical(read).tolist(), strict=True)}
    assert sorted(found.values()) == sorted(want)
    assert all(same == (q == d and type(q) is type(d)) for (q, d), same in found.items())


def test_a_table_of_one_run_has_its_means_and_digits():
    found = tr.evaluate(QRELS, {"q1": {"a": 1.0}, "q2": {"x": 2.0, "b": 1.0}}, "mrr P_1")
    table = found.table(digits=2)
    assert (table["system"], table["mrr"], table["P_1"]) == (["run"], [pytest.approx(0.5)], [pytest.approx(1 / 3)])
    assert table.formats == {"mrr": ".2f", "P_1": ".2f"}
    assert "0.50" in str(table)
    assert found.table().formats["mrr"] == ".4f"
    with pytest.raises(TypeError, match=r"got 'latex'; for LaTeX, .* call table\(\).to_latex\(\)"):
        found.table("latex")
    assert found.to_latex() == found.table().to_latex()
    assert "tabular" in found.to_latex()


def test_a_state_without_a_common_query_or_document_says_so():
    other = partial(QRELS, {"z": {"a": 1.0}}, "mrr")
    with pytest.raises(ValueError, match="'z'"):
        other.estimates()
    apart = partial(QRELS, {"q1": {"z": 1.0}}, "mrr mr")
    assert apart.labels == ["mrr", "mr"]
    with pytest.raises(ValueError, match=r"document"):
        apart.estimates()
    with pytest.raises(ValueError, match=r"document"):
        tr.merge([apart, partial(QRELS, {}, "mrr mr"), partial(QRELS, {"z": {"a": 1.0}}, "mrr mr")]).estimates()
    both = tr.merge([partial(QRELS, {"q2": {"b": 1.0}}, "mrr mr"), apart])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(both) == f"{both.summary()}\n\n{both.coverage}"
    assert both.means["mrr"] == pytest.approx(1 / 3)


def test_ids_of_any_type_are_told_apart_in_parts():
    qrels = {(1, 2): {"a": 1}, (2, 1): {"b": 1}}
    parts = [partial(qrels, {query: {"a": 1.0, "b": 0.5}}, "mrr") for query in qrels]
    assert tr.merge(parts).means == tr.evaluate(qrels, {key: {"a": 1.0, "b": 0.5} for key in qrels}, "mrr").means["run"]
    assert tr.merge(parts).means["mrr"] == pytest.approx(0.75)
    with pytest.raises(ValueError, match="Expected"):
        tr.merge([parts[0], partial({"x": {"a": 1}}, {}, "mrr")])


# ---- ranks and axes --------------------------------------------------------------------------------------------------


def test_ranks_between_two_bins_and_behind_the_last_one_are_counted():
    ranking = tr.Ranking.from_ranks(torch.tensor([1, 3, 5, 2, 4]), num_candidates=9)
    (found,) = evaluation_of(ranking).first_ranks([2, 4])
    assert (found.ranks, found.bins, found.counts) == ((1, 3, 5, 2, 4), (2, 4, 5), (2, 2, 1))
    half = tr.Ranking.from_scores(torch.tensor([[1.0, 1.0], [2.0, 1.0]]), torch.tensor([[1, 0], [0, 1]]))
    (found,) = evaluation_of(half).first_ranks([1])
    assert (found.ranks, found.bins, found.counts, found.not_retrieved) == ((1.5, 2), (1, 2), (0, 2), 0)
    scores = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0]])
    (found,) = evaluation_of(tr.Ranking.from_label(scores, torch.tensor([0, -100, 0]))).first_ranks([1, 2])
    assert (found.ranks, found.counts) == ((2, 1), (1, 1))
    evaluation = tr.evaluate(QRELS, {"q1": {"a": 1.0}, "q2": {"x": 2.0, "b": 1.0}}, "mrr")
    (found,) = evaluation.first_ranks()
    assert sorted(found.ranks) == [1, 2, math.inf]
    assert found.not_retrieved == 1


@pytest.mark.needs("matplotlib")
def test_bins_of_large_ranks_are_named_in_thousands_and_millions():
    ranking = tr.Ranking.from_ranks(torch.tensor([1, 3]), num_candidates=5_000_000)
    axes = evaluation_of(ranking).plot_ranks(bins=[1, 3, 9, 9_999, 10_000, 999_999, 3_000_000])
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names == ["1", "2-3", "4-9", "10-9999", "10k", "10k-999k", "1M-3M", "not retrieved"]
    assert {text.get_rotation() for text in axes.get_xticklabels()} == {35}
    few = evaluation_of(ranking).plot_ranks(bins=[1, 2, 3, 4, 5, 6])
    assert {text.get_rotation() for text in few.get_xticklabels()} == {0}


def test_a_run_on_a_stream_is_read():
    assert tr.read_run(io.BytesIO(LINES.encode())).to_dict()["q1"] == {"a": 2.0, "x": 1.0}


def test_measures_are_told_from_runs(tmp_path):
    from torchrank.evaluation.evaluate import _are_measures

    (tmp_path / "mrr").write_text("")
    for measures in (
        "mrr",
        "ndcg@10 map",
        ["mrr", "P_5"],
        {"a": "mrr"},
        tr.MRR(),
        [tr.MRR(), "map"],
        tr.RankingCollection("mrr"),
    ):
        assert _are_measures(measures)
    for run in (
        "-",
        "a.run",
        "a/b",
        str(tmp_path / "mrr"),
        ["mrr", "a.run"],
        ["a.run", "mrr"],
        [],
        {},
        {"q": {}},
        ("mrr", 3),
        3,
        None,
    ):
        assert not _are_measures(run)


def test_the_best_value_is_bold_where_values_differ():
    runs = {name: {"q1": {"a": 1.0, "x": score}} for name, score in (("one", 0.5), ("two", 2), ("three", 0.6))}

    def bold(runs):
        text = tr.evaluate(QRELS, runs, "mrr").to_html().partition("<caption>Summary")[2].partition("</table>")[0]
        return text.count("<b>")

    assert bold(runs) == 2  # two runs have the largest value
    assert bold(runs["one"]) == bold({key: runs[key] for key in ("one", "three")}) == 0
