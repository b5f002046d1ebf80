"""Runs evaluated with judgments: the numbers of pytrec_eval, coverage, and comparisons."""

import json
import math
import random
import warnings

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas, pyarrow, pytrec_eval, sklearn_metrics, stats
from tests.support.trec_files import two_runs


def theirs(qrels, run):
    return pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut", "map", "recip_rank", "recall"}).evaluate(run)


@cases(
    ("measures", "level", "depth"),
    [
        ("ndcg", 1, 10),
        ("map mrr", 1, 10),
        ("map(relevance_level=2) ndcg@3,5", 2, 3),
        ("map(relevance_level=2) mrr", 1, 10),
        ("precision(relevance_level=3)@12", 3, 12),
    ],
)
def test_coverage_has_the_lowest_level_and_the_smallest_cutoff_of_all_measures(measures, level, depth):
    grades = [0, 1, 2, 3, 1]
    qrels = {f"q{n}": {"d0": grade, "d5": 0, "d10": 0} for n, grade in enumerate(grades)}
    run = {query: {f"d{rank}": -rank for rank in range(13)} for query in qrels}
    (row,) = tr.evaluate(qrels, run, measures).coverage.rows
    assert row["no relevant"] == sum(grade < level for grade in grades)
    assert row[f"unjudged@{depth}"] == pytest.approx(1 - sum(place < depth for place in (0, 5, 10)) / depth)


@cases("measures", ["map", "bpref", "map bpref"])
@cases("ties", ["expected", "document"])
def test_unjudged_documents_are_those_of_judged_and_values_are_those_of_measures_alone(measures, ties):
    draw = random.Random(0)
    qrels, run = (
        {q: {d: draw.choice(values) for d in draw.sample(range(40), 20)} for q in range(30)}
        for values in ((-1, 0, 0, 0, 1, 2), (0.1, 0.2, 0.3, 0.4))
    )
    found = tr.evaluate(qrels, run, measures, ties=ties)
    ranking = tr.Ranking.from_run(qrels, tr.read_run(run, ties=ties))
    share = tr.Judged(top_k=10).score(ranking).mean().item()
    assert found.coverage.rows[0]["unjudged@10"] == pytest.approx(1 - share, rel=1e-12)
    for label in measures.split():
        assert found.means["run"][label] == tr.evaluate(qrels, run, label, ties=ties).means["run"][label]
        assert found["run"][label] == pytest.approx(tr.parse(label).score(ranking).numpy(), rel=1e-14)


def test_coverage_counts_queries_and_documents():
    qrels = {"q1": {"a": 1}, "q2": {"b": 0}, "q3": {"c": 1}}
    run = {"q1": {"a": 2.0, "q1": 1.0}, "q2": {"x": 1.0}, "other": {"a": 1.0}}
    (row,) = tr.evaluate(qrels, run, "mrr precision@2").coverage.rows
    assert row == {
        "run": "run", "queries": 3, "judged": 3, "missing": 1, "not in the judgments": 1, "no relevant": 1,
        "unjudged@2": pytest.approx(1 - (0.5 + 0) / 2), "not retrieved": 2, "same id as query": 1,
    }  # fmt: skip


@cases("frame", [False, True])
def test_documents_with_the_id_of_their_query_can_be_left_out(frame):
    run = {"a": {"a": 9.0, "b": 1.0}, "b": {"c": 3.0, "b": 2.0, "d" if frame else 7: 1.5, "a": 1.0}}
    source = [(q, d, s) for q, scores in run.items() for d, s in scores.items()] if frame else run
    for ignore, values in ((False, [1 / 2, 1 / 4]), (True, [1, 1 / 3])):
        found = tr.evaluate({"a": {"b": 1}, "b": {"a": 1}}, source, "mrr", ignore_identical_ids=ignore)
        assert found["run"].columns["mrr"].tolist() == pytest.approx(values)
        (note,) = (note for note in found.coverage.notes if "retrieved a document with the same id" in note)
        assert ("ignore_identical_ids=True" in note) == (not ignore)
    assert run["a"] == {"a": 9.0, "b": 1.0}


@cases(
    ("names", "same", "noted"),
    [
        *((names, 2, noted) for names, noted in (("ab", True), ("a1", True), ("1a", True), ("12", False))),
        *(([f"a{n}" for n in range(200)], same, same > 2) for same in (2, 3)),  # more than one of a hundred
    ],
)
def test_queries_that_retrieve_themselves_are_told_if_they_are_many_and_have_names(names, same, noted):
    run = {name: {name if n < same else "c": 2.0, "x": 1.0} for n, name in enumerate(names)}
    notes = tr.evaluate({name: {"x": 1} for name in names}, run, "mrr").coverage.notes
    assert any(f"{same} queries have retrieved a document with the same id" in note for note in notes) == noted


def test_single_precision_ties_scores_as_pytrec_eval_does():
    qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"a": 1.00000001, "b": 1.0}}
    assert tr.evaluate(qrels, run, "mrr").means["run"]["mrr"] == 1.0
    single = tr.evaluate(qrels, run, "mrr", precision="single").means["run"]["mrr"]
    assert single == theirs(qrels, run)["q"]["recip_rank"] == 0.5


def test_runs_are_compared_query_by_query():
    qrels, runs = two_runs()
    (row,) = tr.evaluate(qrels, runs, "map").compare("bm25").table
    of_runs = [theirs(qrels, run) for run in runs.values()]
    values = [[found.get(query, {}).get("map", 0.0) for query in qrels] for found in of_runs]
    assert row["p"] == pytest.approx(stats.ttest_rel(values[1], values[0]).pvalue, rel=1e-9)
    assert (row["a"], row["b"], row["n"]) == ("bm25", "dense", 30)
    with pytest.raises(ValueError, match="two or more runs"):
        tr.evaluate(qrels, runs["bm25"], "mrr").compare()


def test_reports_have_all_numbers():
    qrels, runs = two_runs()
    found = tr.evaluate(qrels, runs, ["map", tr.MRR(aggregation="median")])
    kept = json.loads(found.to_json())
    assert kept["summary"]["value"][0] == found.means["bm25"]["map"]
    assert kept["per_query"]["dense"]["map"] == found["dense"].columns["map"].tolist()
    assert kept["coverage"]["missing"] == [3, 3]
    low, high = found.intervals(0.9)["bm25"]["map"]
    assert low < found.means["bm25"]["map"] < high
    for text in (repr(found), found.to_markdown(), found._repr_html_()):
        assert "bm25" in text
        assert "missing" in text
    with pytest.raises(KeyError, match="did you mean 'dense'"):
        found["dence"]
    with pytest.raises(KeyError, match=r"got the measure 'map'; its value is means\['bm25'\]\['map'\]"):
        found["map"]


@cases(
    ("qrels", "run", "options", "message"),
    [
        ({"q1": {"a": 1}}, {"1": {"a": 1.0}}, {}, "'1', a judged query is 'q1'"),
        ({"q": {"a": 1}}, {"q": {"a": 1.0}}, {"queries": "all"}, "queries to be one of"),
        ({"q": {"a": 1}}, {"q": {"a": 1.0}}, {"precision": "half"}, "precision to be one of"),
        ({"q": {"a": 1}}, {"q": {"a": 1.0}}, {"measures": "mrrr"}, "did you mean"),
        (torch.rand(3), torch.ones(3), {}, r"tensors \[query, candidate\] to a metric"),
        ({"q": {"a": 1}}, {"q": {"a": math.nan}}, {}, "NaN"),
        ({}, {"q": {"a": 1.0}}, {}, "judgments of at least one document"),
        ({"q": {1: 1}}, {"q": {"1": 1.0}}, {}, "the run is '1', a judged document is 1"),
        ({"a": {"b": 1}}, {"a": {"b": 2.0}}, {"ignore_identical_ids": 1}, "to be True or False, got 1"),
        ({1: {"a": 1}, "b": {"a": 1}}, {1: {"a": 1.0}}, {}, "query ids of one type, got 1 and 'b'"),
    ],
)
def test_wrong_calls_raise(qrels, run, options, message):
    with pytest.raises(ValueError, match=message):
        tr.evaluate(qrels, run, **{"measures": "mrr", **options})


def test_several_runs_may_be_empty_or_data_frames():
    qrels, runs = two_runs()
    wanted = tr.evaluate(qrels, runs, "mrr").means
    assert tr.evaluate(qrels, {"none": {}, **runs}, "mrr").means == {"none": {"mrr": 0.0}, **wanted}
    rows = {name: [(q, d, s) for q, found in run.items() for d, s in found.items()] for name, run in runs.items()}
    frames = {name: pandas.DataFrame(one, columns=["query", "item", "score"]) for name, one in rows.items()}
    assert tr.evaluate(qrels, frames, "mrr").means == tr.evaluate(qrels, rows, "mrr").means == wanted
    assert tr.evaluate(qrels, frames["bm25"].to_dict("list"), "mrr").means["run"] == wanted["bm25"]


def test_dictionaries_of_empty_runs_are_runs_unless_their_keys_are_judged_queries():
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    assert tr.evaluate(qrels, {"x": {}, "y": {}}, "mrr").means == {"x": {"mrr": 0.0}, "y": {"mrr": 0.0}}
    assert tr.evaluate(qrels, {"q1": {}, "z": {}}, "mrr").runs == ["run"]
    rows = {"x": [{"query": "q1", "item": "a", "score": 1.0}], "y": [{"query": "q2", "item": "b", "score": 1.0}]}
    assert tr.evaluate(qrels, rows, "mrr").means == {"x": {"mrr": 0.5}, "y": {"mrr": 0.5}}


def test_ids_of_any_type_with_an_order_are_kept():
    for first, second in (((1, "x"), (2, "y")), (1.5, 2.5), (False, True)):
        found = tr.evaluate({first: {"a": 1}, second: {"a": 1}}, {second: {"a": 1.0}}, "mrr")["run"]
        assert dict(zip(found.ids.tolist(), found.columns["mrr"].tolist())) == {first: 0.0, second: 1.0}


def test_scores_below_the_range_of_float32_are_retrieved():
    found = tr.evaluate({"q": {"a": 1}}, {"q": {"b": 1.0, "a": -1e39, "c": -math.inf}}, "mrr mr", precision="single")
    assert found.means["run"] == {"mrr": 0.5, "mr": 2.0}


@cases("name", ["mr(average=positive)", "mr(adjusted=z)", "mrr(adjusted=index)", "ips(self_normalized=True)@3"])
def test_results_of_measures_with_weights_of_queries_are_those_of_the_metrics(name):
    qrels, runs = two_runs(queries=9)
    run = {query: found for query, found in runs["dense"].items() if query in qrels}
    ranking = tr.Ranking.from_run({query: qrels[query] for query in run}, run)
    metric = tr.parse(name)
    metric.update(ranking)
    assert tr.QueryTable.of(ranking, name).other_results == [metric.label]
    for queries in ("judged", "both"):
        whole = tr.evaluate(qrels, run, name, queries=queries)
        parts = ({query: run[query] for query in list(run)[start::3]} for start in range(3))
        merged = tr.merge(tr.partial(qrels, part, name, queries=queries) for part in parts)
        assert (merged.means, merged.intervals()) == (whole.means["run"], whole.intervals()["run"])
    assert whole.means["run"][metric.label] == pytest.approx(metric.compute().item(), rel=1e-6)


def test_a_measure_with_weights_has_the_weight_1_for_a_query_that_the_run_lacks():
    # Unequal weights come from the run alone: q counts its two positives, p, which is missing, counts as one query.
    qrels, run = {"q": {"a": 1, "b": 1}, "p": {"c": 1}}, {"q": {"a": 2.0, "x": 1.0, "b": 0.5}}
    one = tr.parse("mrr(filtered=True,average=positive)")
    one.update(tr.Ranking.from_run(qrels, run))
    assert one.compute().item() == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert tr.evaluate(qrels, run, one.label).means["run"][one.label] == pytest.approx((1 + 1 / 2 + 0) / 3)


def test_the_winner_is_found_by_the_direction_of_the_values_of_queries():
    qrels = {f"q{n}": {"a": 1} for n in range(30)}
    good = {query: {"a": 1.0, "b": 0.5} for query in qrels}
    bad = {query: {"a": 0.1, "b": 0.5, "c": float(n % 2)} for n, query in enumerate(qrels)}
    found = tr.evaluate(qrels, {"good": good, "bad": bad}, "mr(inverse=True)")
    assert found.compare("good").rows[0].pair.losses == 30
    assert found.differences("good", "bad", "mr(inverse=True)")["delta"][0] == 2.0
    assert "good is best" in found.to_html()
    (note,) = (line for line in found.compare().warnings if "plain means" in line)
    assert "not the results of mr(inverse=True)" in note
    few = tr.evaluate(qrels, {"q0": {"a": 1.0}}, "mr(inverse=True)")["run"]
    assert np.isnan(few.columns["mr(inverse=True)"]).sum() == 29
    assert not any("plain means" in line for line in tr.evaluate(qrels, {"a": good, "b": bad}, "mr").compare().warnings)


@cases("queries", ["abcd", "b", "cd"])
def test_queries_with_nothing_to_measure_are_empty_in_every_table(queries):
    qrels = {"a": {"x": 1}, "b": {"x": 0}, "c": {"y": 1, "z": 0}, "d": {"y": 1}}
    run = {"a": {"x": 1.0, "y": 0.5}, "b": {"x": 1.0, "y": 0.5}, "c": {}, "d": {"z": 1.0, "y": 0.5}}
    qrels = {query: qrels[query] for query in queries}
    skipped = ["mrr(empty_target_action=skip)", "map(empty_target_action=pos)", "auroc"]
    measures = ["mrr", "ndcg@5", *skipped, "mr", "mr(empty_target_action=neg)", "fallout@2", "kendalltau"]
    ranking = tr.Ranking.from_run(qrels, run)
    suite, kept, sliced = tr.RankingCollection(measures), tr.PerQuery(measures), tr.Sliced(measures, ["all"])
    for metric, more in ((suite, {}), (kept, {}), (sliced, {"slices": ["all"] * len(queries)})):
        metric.update(ranking, **more)
    halves = [tr.partial(qrels, {q: x for q, x in run.items() if (q in "ac") == half}, measures) for half in (0, 1)]
    found = tr.evaluate(qrels, run, measures)
    wanted = [(row["measure"], row["queries"], row["empty"]) for row in suite.summary()]
    for rows in (
        found.summary(),
        found.by(dict.fromkeys(queries, "all")),
        kept.compute().summary(),
        kept.compute().where(np.ones(len(queries), dtype=bool)).sliced(dict.fromkeys(queries, "all")).summary(),
        tr.QueryTable.of(ranking, measures).summary(),
        tr.merge(halves).summary(),
        [row for row in sliced.summary() if row["measure"].endswith("/all")],
    ):
        shown = {row["measure"].removesuffix("/all"): (row["queries"], row["empty"]) for row in rows}
        assert [(measure, *shown[measure]) for measure in measures] == wanted
    plain = [queries.count("b")] * 7  # "b" has no relevant document
    assert [empty for *_, empty in wanted][:7] == plain
    assert [count for _, count, _ in wanted][:6] == [len(queries)] * 5 + [len(queries.replace("c", ""))]


def test_missing_queries_have_no_value_where_low_values_are_good():
    qrels, runs = two_runs()
    found, both = (tr.evaluate(qrels, runs, "mrr mr", queries=queries) for queries in ("judged", "both"))
    for name in runs:
        table, lacking = found[name], np.array([query not in runs[name] for query in found[name].ids])
        assert lacking.sum() == 3
        np.testing.assert_array_equal(np.isnan(table["mr"]), lacking)
        assert not table["mrr"][lacking].any()
        assert found.means[name]["mr"] == pytest.approx(both.means[name]["mr"], rel=1e-12)
        assert found.means[name]["mrr"] < both.means[name]["mrr"]
    # A list without documents is no better than a query that is missing.
    for nothing in ({}, {"d1": -math.inf}):
        run = {query: runs["bm25"].get(query, nothing) for query in qrels}
        again = tr.evaluate(qrels, run, "mrr mr")["run"]
        for label, column in found["bm25"].columns.items():
            np.testing.assert_array_equal(again.columns[label], column)
    for measures, warned in (("mrr mr", True), ("mrr", False)):
        notes = tr.evaluate(qrels, runs["bm25"], measures).summary().notes
        assert any("lacks 3 judged queries" in note for note in notes) == warned


# ---- one frame with scores and grades --------------------------------------------------------------------------------


def rated(users=12, items=8):
    """Columns of scores with ties, and grades."""
    generator = np.random.default_rng(0)
    user = np.arange(users).repeat(items)
    return {
        "user_id": user,
        "item_id": np.tile(np.arange(items), users),
        "score": generator.integers(0, 5, size=users * items) / 4,
        "label": generator.integers(0, 3, size=users * items),
        "country": np.where(user % 3 == 0, "fr", "de"),
    }


def test_one_frame_has_the_ndcg_of_scikit_learn_for_each_user_over_all_and_by_country():
    frame, shape = rated(30), (30, 8)
    found = tr.evaluate(frame, "ndcg@5", by="country")
    scores, grades = frame["score"].reshape(shape), frame["label"].reshape(shape)
    want = [sklearn_metrics.ndcg_score([t], [s], k=5) for s, t in zip(scores, grades)]
    assert found["run"].ids.tolist() == list(range(30))
    assert found["run"].columns["ndcg@5"].tolist() == pytest.approx(want, abs=1e-12)
    assert found.means["run"]["ndcg@5"] == pytest.approx(np.mean(want), abs=1e-12)
    french = np.arange(30) % 3 == 0
    assert [row["measure"] for row in found.by().rows] == ["ndcg@5/de", "ndcg@5/fr"]
    assert found.by()["value"] == pytest.approx([np.mean(np.array(want)[x]) for x in (~french, french)])
    assert "ndcg@5/fr" in repr(found)
    assert repr(found).count("equal scores have the mean over all of their orders") == 1


def test_one_frame_takes_the_columns_ties_and_options_of_tables_and_runs():
    frame = rated()
    renamed = {"who": frame["user_id"], "what": frame["item_id"], "p": frame["score"], "y_true": frame["label"]}
    names = {"query": "who", "item": "what", "score": "p", "grade": "y_true"}
    assert tr.evaluate(renamed, "map", **names).means == tr.evaluate(frame, "map").means
    options = {"ties": "document", "depth": 3, "precision": "single"}
    assert tr.evaluate(frame, "map ndcg@5", **options).means == tr.evaluate(frame, frame, "map ndcg@5", **options).means
    assert tr.evaluate(frame, preset="trec_eval").means == tr.evaluate(frame, frame, preset="trec_eval").means


NAMES = ["ndcg@5", "map"]


@cases(
    "measures",
    [
        *(lambda form=form: form(NAMES) for form in (set, np.array, pandas.Series, lambda x: dict.fromkeys(x).keys())),
        lambda: iter([tr.NDCG(5), "map"]),
        lambda: tr.RankingCollection("ndcg@5, map"),
    ],
)
def test_any_iterable_of_names_and_metrics_has_the_measures_of_one_frame(measures):
    want = tr.evaluate(rated(), "ndcg@5 map").means
    assert tr.evaluate(rated(), measures()).means == tr.evaluate(rated(), measures=measures()).means == want


@cases("form", ["records", "tuple", "generator", "named tuples", "array", "recarray"])
def test_records_and_arrays_with_named_columns_are_one_frame(form):
    frame = pandas.DataFrame(rated())
    source = {
        "records": lambda: frame.to_dict("records"),
        "tuple": lambda: tuple(frame.to_dict("records")),
        "generator": lambda: iter(frame.to_dict("records")),
        "named tuples": lambda: list(frame.itertuples(index=False)),
        "array": lambda: np.array(frame.astype({"country": "S2"}).to_records(index=False)),
        "recarray": lambda: frame.to_records(index=False),
    }[form]
    want = tr.evaluate(frame, "ndcg@5 map")
    assert tr.evaluate(source(), "ndcg@5 map").means == tr.evaluate(source(), measures="ndcg@5 map").means == want.means
    assert tr.evaluate(source(), source(), "map", ties="expected").means["run"]["map"] == want.means["run"]["map"]
    if form != "generator":
        table = tr.QueryTable.of(tr.Ranking.from_table(source()), "map")
        assert table["map"].tolist() == pytest.approx(want["run"]["map"].tolist(), rel=1e-15)
    assert tr.evaluate([{"user": 1, "score": 0.5, "label": 1}, {"user": 1, "score": 0.7, "label": 0}], "mrr", by=None)


def test_a_second_argument_with_rows_is_a_run():
    frame = pandas.DataFrame(rated())
    rows = list(frame[["user_id", "item_id", "score"]].itertuples(index=False, name=None))
    want = tr.evaluate(frame, frame).means
    runs = [frame, frame.to_dict("records"), rows, iter(rows), tr.read_chunks([rows]), frame.to_records(index=False)]
    for run in runs:
        assert tr.evaluate(frame, run).means == want


def first_rows(frame, k=5):
    """NDCG@k and reciprocal ranks of each user in plain Python, whose sort keeps the order of equal scores."""
    found = {}
    for user in dict.fromkeys(frame["user_id"].tolist()):
        rows = np.flatnonzero(frame["user_id"] == user)
        grades = [int(frame["label"][row]) for row in sorted(rows, key=lambda row: -frame["score"][row])]
        dcg, best = (sum(g / math.log2(2 + n) for n, g in enumerate(x[:k])) for x in (grades, sorted(grades)[::-1]))
        found[user] = dcg / best if best else 0, next((1 / n for n, g in enumerate(grades, 1) if g), 0)
    return found


def test_equal_scores_rank_in_the_order_of_the_rows_if_asked(tmp_path):
    frame = rated()
    order = np.random.default_rng(0).permutation(len(frame["score"]))  # users are interleaved
    frame = {name: column[order] for name, column in frame.items()}
    want = {user: pytest.approx(values, abs=1e-12) for user, values in first_rows(frame).items()}
    rows = list(zip(*(frame[name].tolist() for name in ("user_id", "item_id", "score"))))
    nested = {user: {item: score for other, item, score in rows if other == user} for user in want}
    (tmp_path / "run.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{u}\t{i}\t{s}\n" for u, i, s in rows))
    texts = pandas.DataFrame(frame).astype({"user_id": str, "item_id": str})
    without_items = {name: column for name, column in frame.items() if name != "item_id"}
    kept = {"user_id": [*frame["user_id"], 0], "item_id": [*frame["item_id"], 0]}  # a row that is dropped
    kept |= {"score": [*frame["score"], -1.0], "label": [*frame["label"], 0]}
    for found in (
        tr.evaluate(frame, "ndcg@5 mrr", ties="rows"),
        tr.evaluate(without_items, "ndcg@5 mrr", ties="rows"),
        tr.evaluate(frame, frame, "ndcg@5 mrr", ties="rows"),
        tr.evaluate(frame, frame, "ndcg@5 mrr", ties="rows", depth=8),
        tr.evaluate(frame, tr.read_run(rows, ties="rows"), "ndcg@5 mrr"),
        tr.evaluate(frame, nested, "ndcg@5 mrr", ties="rows"),
        tr.evaluate(frame, tr.read_chunks([nested], ties="rows"), "ndcg@5 mrr"),
        tr.evaluate(texts, tmp_path / "run.tsv", "ndcg@5 mrr", ties="rows"),
        tr.evaluate(frame, frame, "ndcg@5 mrr", ties="rows", parent=lambda item: item),
        tr.evaluate(kept, "ndcg@5 mrr", ties="rows", duplicates="best"),
    ):
        table = found[found.runs[0]]
        assert dict(zip(map(int, table.ids), zip(table["ndcg@5"], table["mrr"]))) == want
        assert "equal scores rank in the order of the rows" in repr(found) or found.ties == "document"
    ranking = tr.Ranking.from_table(frame, ties="rows")
    assert tr.QueryTable.of(ranking, "mrr")["mrr"].tolist() == [mrr for _, mrr in first_rows(frame).values()]
    first = tr.evaluate(frame, "recall@5", ties="rows", depth=3)["run"]["recall@5"]
    assert first.tolist() == tr.evaluate(frame, "recall@3", ties="rows")["run"]["recall@3"].tolist()


def test_the_chunks_of_a_document_rank_where_its_first_chunk_is():
    run = tr.read_run([("q", "b#1", 0.5), ("q", "a#1", 1.0), ("p", "a#2", 1.0), ("q", "c", 1.0), ("q", "b#2", 1.0)])
    for doc, rank in {"b": 1, "a": 2, "c": 3}.items():
        means = tr.evaluate({"q": {doc: 1}}, run.with_ties("rows"), "mr", parent="#").means["run"]
        assert means["mr"] == rank


def test_rows_without_items_scores_or_grades_are_those_of_a_ranking():
    frame = {"user": [0, 0, 1, 2], "score": [0.5, 0.9, math.nan, 0.1], "label": [1, math.nan, 1, math.nan]}
    messages = ["1 of 2 rows with a grade have no score .* the score -inf", "2 of 4 rows have no grade .* the grade -1"]
    with pytest.warns(UserWarning, match=messages[0]), pytest.warns(UserWarning, match=messages[1]):
        found = tr.evaluate(frame, "mrr")
    with pytest.warns(UserWarning, match=messages[0]), pytest.warns(UserWarning, match=messages[1]):
        assert tr.MRR().score(tr.Ranking.from_table(frame)).tolist() == [0.5, 0, 0]
    filled = frame | {"score": [0.5, 0.9, -math.inf, 0.1], "label": [1, -1, 1, -1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tr.evaluate(filled, "mrr").means == found.means
    assert found["run"].columns["mrr"].tolist() == [0.5, 0, 0]
    assert found.coverage.rows[0]["same id as query"] == 0


def test_a_second_argument_is_a_run_if_it_has_an_ending_or_is_a_file(tmp_path, monkeypatch):
    frame = {"qid": ["q"], "docno": ["a"], "score": [1.0], "label": [1]}
    (tmp_path / "map").write_text("q Q0 b 1 2 t\nq Q0 a 2 1 t\n")
    assert tr.evaluate(frame, "map").means == {"run": {"map": 1}}
    monkeypatch.chdir(tmp_path)
    assert tr.evaluate(frame, "map").means["map"]["map"] == 0.5
    with pytest.raises(FileNotFoundError, match=r"bm25\.run"):
        tr.evaluate(frame, "bm25.run")
    with pytest.raises(ValueError, match="did you mean 'ndcg@10'"):
        tr.evaluate(frame, "ndgc@10")


@cases("convert", [list, np.array, pandas.Series], ids=lambda one: one.__name__)
def test_a_column_in_place_of_its_name_is_refused(convert):
    frame = rated()
    column = rf"got {type(convert([])).__name__}; pass the name of a column$"
    several = "96 names, 2 different ones; pass {system: column}" if convert is list else "pass the name of a column"
    for name, message in (("by", column), ("grade", column), ("score", several)):
        with pytest.raises(ValueError, match=message):
            tr.evaluate(frame, "mrr", **{name: convert(frame["country"])})
    assert tr.evaluate(frame, "mrr", by="country").by().rows


def test_a_preset_of_measures_alone_is_passed_as_the_measures():
    frame = rated()
    for given in ((frame,), ({"user": frame["user_id"]}, "map")):  # before columns are asked for
        with pytest.raises(ValueError, match=r"got 'lightgbm'; pass the measures tr\.preset\('lightgbm', 10\)"):
            tr.evaluate(*given, preset="lightgbm")
    assert set(tr.evaluate(frame, tr.preset("lightgbm", 10)).means["run"]) == {"map@10", "ndcg@10"}


def test_what_cannot_be_compared_names_a_way_that_can():
    frame, other = rated(), rated()
    other["score"] = [-score for score in frame["score"]]
    with pytest.raises(ValueError, match=r"tr\.evaluate\(qrels, {'a': run, 'b': other}\)\. A data frame can be both"):
        tr.evaluate(frame, "ndcg@3").compare()
    both = tr.evaluate(frame, {"a": frame, "b": other}, "ndcg@3", ties="expected")
    means = [tr.evaluate(one, "ndcg@3") for one in (frame, other)]
    assert [*both.means.values()] == [one.means["run"] for one in means]
    (row,) = both.compare().rows
    with pytest.raises(TypeError, match=r"or of evaluate\(\) one run, results\['run'\]"):
        tr.compare(dict(zip("ab", means)))
    (apart,) = tr.compare({name: one["run"] for name, one in zip("ab", means)}).rows
    assert apart.pair.difference == pytest.approx(row.pair.difference, abs=1e-15)


def test_a_frame_in_which_every_row_is_relevant_is_noticed():
    rated = {"userId": [1, 1, 2], "movieId": [1, 2, 3], "score": [0.1, 0.2, 0.3], "rating": [2, 5, 4]}
    with pytest.warns(UserWarning, match="relevant to map, mrr, because the lowest grade is 2; pass relevance_level="):
        assert tr.evaluate(rated, "map ndcg@3 mrr").means["run"]["map"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        level = tr.evaluate(rated | {"rating": [5, 2, 4]}, "map", relevance_level=4).means["run"]
        assert level == {"map(relevance_level=4)": 0.75}  # the means of 1/2 and 1
        more = {name: [*column, *row] for (name, column), row in zip(rated.items(), ([1], [4], [0.4], [0]))}
        assert tr.evaluate(more, "mrr").means["run"]["mrr"] == 0.75
        tr.evaluate(rated, "ndcg@3")  # whose gains differ
        tr.evaluate(rated | {"userId": [1, 3, 2]}, "mrr")  # one candidate each
        tr.evaluate({1: {1: 2, 2: 5}}, {1: {1: 0.1, 2: 0.2, 3: 0.3}}, "map")  # judgments of relevant items alone


def test_a_column_of_one_frame_is_refused_beside_a_run_and_judgments_alone_are_refused():
    frame, qrels = {"qid": ["q"], "docno": ["a"], "score": [1.0], "clicked": [1]}, {"q": {"a": 1}}
    both = qrels, {"one": {"q": {"a": 1}}}, "map"
    alone = r"got str alone; .* or, if a.parquet has .* as by polars.scan_parquet"
    for sources, options, message in (
        (both, {"score": "p"}, r"with score=, got a run, too; read each by tr\.read_qrels and tr\.read_run"),
        (both, {"by": "country"}, r"with by=, got a run, too; leave by= out, .*: \.by\({query: group}\)$"),
        (both, {"score": "p", "by": "country"}, r"with score= and by=, .* columns={...}, and leave by= out"),
        ((qrels,), {}, "got dict alone; pass the run as the second argument"),
        (("a.parquet", "map"), {"grade": "clicked"}, alone),
        (("a.parquet",), {}, alone),
        ((frame, "map"), {}, "pass grade= with the name of its column"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            tr.evaluate(*sources, **options)
    assert tr.evaluate(*both).by({"q": "fr"})["measure"] == ["map/fr"]
    assert tr.evaluate(frame, "map", grade="clicked").means == {"run": {"map": 1}}
    with pytest.raises(ValueError, match="table with groups"):
        tr.evaluate(frame, "map", grade="clicked").by()


@pytest.mark.needs("pandas", "polars")
def test_an_evaluation_has_the_doors_of_a_table_with_its_slices(tmp_path):
    frame = {"user": ["u1", "u1", "u2"], "item": [7, 8, 7], "score": [0.5, 0.9, 0.3], "label": [1, 0, 1]}
    found = tr.evaluate(frame | {"country": ["fr", "fr", "de"]}, "mrr", by="country")
    assert found.to_csv(tmp_path / "means.csv") == (tmp_path / "means.csv").read_text(encoding="utf-8")
    lines = found.to_csv().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        *(["run", "measure", "value"], ["run", "mrr", "0.75"], ["run", "mrr/de", "1.0"], ["run", "mrr/fr", "0.5"])
    ]
    assert found.to_dict()["by"] == found.by().to_dict()
    assert "mrr/de" in found.to_html()
    assert list(found.to_pandas()["value"]) == list(found.to_polars()["value"]) == [0.75, 1.0, 0.5]
    whole = tr.evaluate(frame, "mrr")
    assert len(whole.to_csv().splitlines()) == 2
    assert "by" not in whole.to_dict()
    assert "Slices" not in whole.to_html()


def test_a_reader_of_arrow_is_a_run_though_it_is_an_iterator():
    table = pyarrow.table({"query": ["q", "q"], "item": ["b", "a"], "score": [0.9, 0.8]})
    assert tr.evaluate({"q": {"a": 1}}, table.to_reader(), "mrr").means["run"]["mrr"] == 1 / 2


JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 2}}


def test_a_piece_without_a_judged_document_is_no_error_if_another_has_one():
    def evaluated(*rows):
        return tr.evaluate(JUDGED, tr.read_chunks([[(*row, 1.0)] for row in rows]), "mrr")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluated(("q1", "a"), ("q2", "z"), ("q3", "z"))
    for rows in ([("q1", "z"), ("q2", "z")], [("q1", "z"), ("other", "a")]):
        with pytest.raises(ValueError, match="document of the run is judged"):
            evaluated(*rows)


@cases("rows", [1, 2])
@cases("form", [list, tuple, np.array, torch.tensor])
def test_columns_of_one_run_are_told_from_runs_by_name(form, rows):
    queries, items, scores = (column[:rows] for column in (["q1", "q2"], ["a", "z"], [1.0, 2.0]))
    texts = list if form is torch.tensor else form
    columns = {"query": texts(queries), "item": texts(items), "score": form(scores)}
    wanted = {"mrr": pytest.approx(1 / 3)}
    assert tr.evaluate(JUDGED, columns, "mrr").means == {"run": wanted}
    records = [dict(zip(("query", "item", "score"), row)) for row in zip(queries, items, scores)]
    runs = {"query": form(records), "item": form(records)} if form in (list, tuple) else {"score": records}
    assert tr.evaluate(JUDGED, runs, "mrr").means == dict.fromkeys(runs, wanted)
    assert tr.evaluate(JUDGED, {"query": [], "item": [], "score": []}, "mrr").means == {"run": {"mrr": 0.0}}


def test_a_table_of_one_run_has_its_means_and_digits():
    found = tr.evaluate(JUDGED, {"q1": {"a": 1.0}, "q2": {"x": 2.0, "b": 1.0}}, "mrr P_1")
    table = found.table(digits=2)
    assert (table["system"], table["mrr"], table["P_1"]) == (["run"], [pytest.approx(0.5)], [pytest.approx(1 / 3)])
    assert table.formats == {"mrr": ".2f", "P_1": ".2f"}
    assert "0.50" in str(table)
    assert found.table().formats["mrr"] == ".4f"
    with pytest.raises(TypeError, match=r"got 'latex'; for LaTeX, .* call table\(\).to_latex\(\)"):
        found.table("latex")
    assert found.to_latex() == found.table().to_latex()
    assert "tabular" in found.to_latex()


# ---- groups of queries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "reduced"), [("min", min), ("mean", np.mean)])
def test_groups_of_queries_are_the_queries_of_means_comparisons_and_files(how, reduced, tmp_path):
    draw = np.random.default_rng(0)
    qrels = {query: {"d0": 1, "d1": 2} for query in [*(f"g_{n}_{m}" for n in range(12) for m in range(3)), "alone"]}
    runs = {name: {query: dict(zip(("d0", "d1", "d2"), draw.random(3))) for query in qrels} for name in ("old", "new")}
    for query in ("g_0_0", "g_3_0", "g_3_1", "g_3_2"):
        del runs["new"][query]
    plain = tr.evaluate(qrels, runs, "ndcg@3 mrr")
    found = plain.grouped(how, "_")
    groups = {query: query.rpartition("_")[0] or query for query in qrels}
    names, by_run = sorted(set(groups.values())), {}
    for run in runs:
        values = dict(zip(plain[run].ids.tolist(), plain[run]["ndcg@3"].tolist()))
        by_run[run] = [reduced([value for query, value in values.items() if groups[query] == name]) for name in names]
        assert found.means[run][f"ndcg@3/{how}"] == pytest.approx(np.mean(by_run[run]), rel=1e-12)
        assert sorted(found[run].ids.tolist()) == names
    (row,) = found.compare("old", test="t").table.rows[:1]
    assert (row["measure"], row["n"]) == (f"ndcg@3/{how}", 13)
    assert row["p"] == pytest.approx(stats.ttest_rel(by_run["new"], by_run["old"]).pvalue)
    assert found.missing("new") == ["g_3"]
    assert plain.grouped(how, groups).to_dict() == found.to_dict()
    assert found.summary().notes.count("queries: number of groups") == 1
    found.to_html(tmp_path / "report.html")
    assert f"ndcg@3/{how}" in (tmp_path / "report.html").read_text()
    assert "queries: number of groups" not in plain.summary().notes


def test_groups_of_one_frame_are_its_column_and_the_last_one_needs_an_order():
    frame = {"query": [1, 1, 2, 2, 3, 3], "score": [2.0, 1.0] * 3, "grade": [1, 0, 0, 1, 1, 0], "user": list("aaaabb")}
    found = tr.evaluate(frame, "mrr", by="user")
    assert found.grouped("min").means["run"] == {"mrr/min": 0.75}
    assert found.grouped("last", order={1: 5, 2: 4, 3: 0}).means["run"] == {"mrr/last": 1.0}
    with pytest.raises(ValueError, match="got none; pass order="):
        found.grouped("last")
    people = tr.evaluate({"q": {"a": 1}, "r": {"a": 0}}, {"q": {"a": 1.0}, "r": {"a": 1}}, "mrr", human={"q": {"a": 1}})
    for one, separator, message in ((found, "-", "'-', got 1"), (found, "", "''"), (people, "_", "groups")):
        with pytest.raises(ValueError, match=message):
            one.grouped("min", separator)


@cases("measures", ["ndcg@10 map recall@5 mrr rbp", "bpref ndcg@10"], ids=["relevant", "all"])
def test_queries_with_many_judged_documents_have_the_values_of_dense_scores(measures):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(40, (3, 100), generator=generator).double()  # ties
    grades = torch.randint(4, (3, 100), generator=generator) * (torch.rand(3, 100, generator=generator) < 0.2)
    frame = {"query": np.repeat(np.arange(3), 100), "item": np.tile(np.arange(100), 3)}
    frame |= {"score": scores.flatten().numpy(), "grade": grades.flatten().numpy()}
    table = tr.evaluate(frame, measures)["run"]
    for label in measures.split():
        np.testing.assert_allclose(table[label], tr.parse(label).score(scores, grades), rtol=1e-12, err_msg=label)
    merged = tr.merge([tr.partial(frame, measures)])
    assert merged.means == tr.evaluate(frame, measures).means["run"]
