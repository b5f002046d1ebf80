"""Evaluations of parts of a run, which add up to the evaluation of the whole run to the bit."""

import functools
import importlib
import json
import math
import pickle
import random
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas
from tests.support.trec_files import collection_with_ties
from torchrank import PartialEvaluation, merge, partial
from torchrank.evaluation.partial import FORMAT, MAGIC, SAMPLE

evaluation_of_parts = importlib.import_module("torchrank.evaluation.partial")  # of the name of a function

MEASURES = "ndcg ndcg(gain=exponential)@10 map mrr recall@100 err(max_grade=3) rbp(p=0.8) map(aggregation=geometric) mr"


def made(seed=0, missing=5):
    """Judgments, one of whose queries has nothing relevant, and a run that lacks some queries and has two others."""
    return collection_with_ties(seed, 60, unjudged_queries=2, missing=missing)


QRELS, RUN = made()
ONE_QUERY = {"q": {"a": 1}}
JUDGMENTS = tr.read_qrels([(q, d, grade) for q, grades in QRELS.items() for d, grade in grades.items()])


def split(run, parts):
    """The queries of a run by the number of their part."""
    found = {}
    for (query, scores), part in zip(run.items(), parts, strict=True):
        found.setdefault(part, {})[query] = scores
    return list(found.values())


def bits(found):
    """All numbers of an evaluation; NaN equals itself."""
    return repr([found.means, found.intervals(), found.summary().to_dict(), found.coverage.to_dict()])


FEW = "ndcg map err(max_grade=3) map(aggregation=geometric)"
of_few = functools.cache(lambda: partial(JUDGMENTS, RUN, FEW))


@settings(max_examples=3)
@given(st.lists(st.integers(0, 4), min_size=len(RUN), max_size=len(RUN)), st.randoms(use_true_random=False))
def test_any_partition_merged_in_any_order_is_one_process_to_the_bit(parts, draw):
    states = [partial(JUDGMENTS, part, FEW) for part in split(RUN, parts)]
    while len(states) > 1:  # merges of merges
        states.append(merge([states.pop(draw.randrange(len(states))), states.pop()]))
    assert bits(states[0]) == bits(of_few())


def test_empty_parts_and_parts_without_judged_queries_add_nothing_but_counts():
    nothing = {}, {"other": {"d1": 1.0}}, pandas.DataFrame(columns=["qid", "docid", "score"])
    rest = [partial(QRELS, part, "mrr") for part in nothing]
    merged = merge([*rest, partial(QRELS, RUN, "mrr")])
    assert merged.means == partial(QRELS, RUN, "mrr").means
    assert merged.coverage.rows[0]["not in the judgments"] == 3
    assert merge([rest[0]]).means == tr.evaluate(QRELS, {}, "mrr").means["run"]


@cases(
    ("name", "changed"),
    [
        ("measures", {"measures": "mrr@5"}),
        ("judgments", {"qrels": {**QRELS, "q1": {"d1": 3}}}),
        *((name, {name: x}) for name, x in (("queries", "both"), ("precision", "single"), ("ties", "expected"))),
    ],
)
def test_states_of_other_measures_options_or_judgments_are_refused(name, changed):
    given = {"qrels": QRELS, "measures": "mrr", **changed}
    other = partial(given.pop("qrels"), {}, **given)
    with pytest.raises(ValueError, match=f"states of the same {name}"):
        merge([partial(QRELS, RUN, "mrr"), other])


def test_the_order_and_the_source_of_judgments_do_not_matter():
    rows = [(q, d, grade) for q, grades in QRELS.items() for d, grade in grades.items()]
    random.Random(0).shuffle(rows)
    first, second = split(RUN, [number % 2 for number in range(len(RUN))])
    assert bits(merge([partial(rows, first, FEW), partial(QRELS, second, FEW)])) == bits(of_few())


@cases(
    ("call", "message"),
    [
        (lambda: merge([]), "at least one part"),
        (lambda: merge([{"mrr": 1.0}]), "got dict"),
        (lambda: partial(QRELS, RUN, [tr.MRR(aggregation="median")]), "computed from sums"),
        (lambda: partial(JUDGMENTS, RUN, "mrr", by={}), "closed=True"),
        (lambda: partial(ONE_QUERY, {}, "mrr", closed=True, by={"q2": "x"}), "none for 'q'"),
        (lambda: partial(ONE_QUERY, {}, "mrr", closed=True, by={"q": (1, 2)}), r"or numbers, got \(1, 2\)"),
        (lambda: partial(QRELS, RUN, "mrr").by(), "pass by= when you evaluate the parts"),
        (lambda: partial(QRELS, RUN, "mrr").by(level={}), "pass by= when you evaluate the parts"),
        (lambda: partial(JUDGMENTS, RUN, "mrr", clusters={}), "closed part with clusters="),
        (lambda: partial(ONE_QUERY, {}, "mrr", closed=True, clusters={"q": None}), "got None for query 'q'"),
    ],
)
def test_wrong_states_and_options_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_parts_that_are_given_twice_are_refused():
    for missing in (0, 5):  # a part is given twice
        qrels, run = made(missing=missing)
        parts = [partial(qrels, part, "mrr") for part in split(run, [number % 3 for number in range(len(run))])]
        with pytest.raises(ValueError, match="every query in one part"):
            merge([*parts, parts[1]])


def test_metrics_with_and_beside_names_have_their_values_for_queries_without_a_run():
    qrels, run = tr.read_qrels({"a": {"x": 1}, "b": {"x": 1, "y": 1}}), {"a": {"z": 2.0, "x": 1.0}}
    for measures, means in (
        *(({"own": metric}, {"own": mean}) for metric, mean in ((tr.NumRel(), 1.5), (tr.MRR(), 0.25))),
        *((["numrel", tr.MRR(top_k=k)], {"numrel": 1.5, f"mrr@{k}": 0.25 * (k - 1)}) for k in (1, 2)),
    ):
        assert merge([partial(qrels, run, measures)]).means == means


@cases("seen", [("x", "y"), ("x", None), (None, "y", "z")])
def test_merged_parts_without_a_judged_query_name_the_first_query_of_the_run_and_a_judged_one(seen):
    parts = [partial({"judged": {"a": 1}}, {query: {"a": 1.0}} if query else {}, "mrr") for query in seen]
    first = next(query for query in seen if query)
    wanted = rf"a query of the run is '{first}', a judged query is 'judged'"
    for merged in (merge(parts), merge([merge(parts[:1]), merge(parts[1:])])):
        for result in (merged.summary, merged.estimates):
            with pytest.raises(ValueError, match=wanted):
                result()


JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 2}}


def test_a_state_without_a_common_query_or_document_says_so():
    apart = partial(JUDGED, {"q1": {"z": 1.0}}, "mrr mr")
    assert apart.labels == ["mrr", "mr"]
    with pytest.raises(ValueError, match=r"document"):
        apart.estimates()
    both = tr.merge([partial(JUDGED, {"q2": {"b": 1.0}}, "mrr mr"), apart])
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


# ---- parts that stand alone ------------------------------------------------------------------------------------------

SYSTEMS = {"old": "by_old", "new": "by_new", "worst": "by_worst"}
WEIGHTED = "ndcg@10 map mr(average=positive) mrr(aggregation=geometric) mr"


def logged(seed=0, users=48):
    """A log of users with grades in its rows, the scores of three systems, and a country of each user."""
    draw, rows = random.Random(seed), []
    for user in range(users):
        country = draw.choice(["fr", "de", "it", None])
        for item in draw.sample(range(50), draw.choice([1, 2, 5, 20])):
            grade = draw.choice([0, 0, 0, 1, 2])
            scores = [round(grade * weight + draw.random(), 2) for weight in (0.5, 1, 0)]
            rows.append((f"u{user}", item, *scores, grade, country))
    names = ("user", "item", *SYSTEMS.values(), "label", "country")
    return dict(zip(names, map(list, zip(*rows))))


def rows_of(frame, users):
    """The rows of some users."""
    inside = [row for row, user in enumerate(frame["user"]) if user in users]
    return {name: [column[row] for row in inside] for name, column in frame.items()}


def parts_of(frame, number):
    """The frame in parts with all rows of a user."""
    users = list(dict.fromkeys(frame["user"]))
    return [rows_of(frame, set(users[start::number])) for start in range(number)]


FRAME = logged()
OPTIONS = {"score": SYSTEMS, "by": "country"}
of_all = functools.cache(lambda: partial(FRAME, WEIGHTED, **OPTIONS))


@settings(max_examples=3)
@given(st.lists(st.integers(0, 3), min_size=48, max_size=48), st.randoms(use_true_random=False))
def test_any_partition_of_a_frame_has_the_same_bytes_in_any_order(parts, draw):
    frames = [rows_of(FRAME, {f"u{user}" for user in range(48) if parts[user] == part}) for part in range(4)]
    states = [partial(frame, WEIGHTED, **OPTIONS) for frame in frames]
    states = [state.to_bytes() if draw.random() < 0.5 else state for state in states]
    while len(states) > 1:
        states.append(merge([states.pop(draw.randrange(len(states))), states.pop(draw.randrange(len(states)))]))
    assert states[0].to_bytes() == of_all().to_bytes()


@pytest.mark.filterwarnings("ignore:.*rows have no grade")
def test_the_order_of_the_rows_of_a_frame_changes_no_bit():
    draw, rows = np.random.default_rng(0), 400
    frame = {
        "user": draw.integers(0, 8, rows),
        "item": np.arange(rows),
        "score": draw.integers(0, 6, rows) / 3,  # most are tied
        "grade": draw.choice([0, 0, 0, 1, 2, 3, np.nan], rows),
    }
    order = draw.permutation(rows)
    mixed = {name: column[order] for name, column in frame.items()}
    states = [partial(source, f"{MEASURES} bpref") for source in (frame, mixed)]
    assert states[0].means == states[1].means == tr.evaluate(mixed, f"{MEASURES} bpref").means["run"]
    assert states[0].coverage == states[1].coverage


def near(row):
    """A row whose numbers may have been added in another order."""
    near = {key: pytest.approx(x, rel=1e-9, abs=1e-12, nan_ok=True) for key, x in row.items() if isinstance(x, float)}
    return row | near


def same_comparison(ours, theirs):
    """Whether two comparisons have the same numbers, but for the order in which they were added."""
    for one, other in zip(ours.table.rows, theirs.table.rows, strict=True):
        assert one == near(other)
    for one, other in zip(ours.rows, theirs.rows, strict=True):
        for name in ("standard_error", "relative_standard_error", "sd", "skewness"):
            assert {name: getattr(one.pair, name)} == near({name: getattr(other.pair, name)})
    assert (ours.notes, ours.warnings) == (theirs.notes, theirs.warnings)


def test_parts_of_a_frame_with_several_systems_and_slices_are_evaluate_on_the_whole():
    whole = tr.evaluate(FRAME, WEIGHTED, **OPTIONS)
    merged = merge(partial(part, WEIGHTED, **OPTIONS) for part in parts_of(FRAME, 3))
    assert (merged.means, merged.intervals(0.9)) == (whole.means, whole.intervals(0.9))
    assert merged.means["new"]["nDCG@10"] == whole.means["new"]["ndcg@10"]
    assert merged.summary().rows == whole.summary().rows
    assert merged.by(0.8).rows == whole.by(level=0.8).rows
    assert merged.coverage.rows == whole.coverage.rows
    assert (merged.runs, merged.slices, merged.num_queries) == (["old", "new", "worst"], ["de", "fr", "it"], 48)
    assert [merged.estimates()["old"][label].value for label in merged.labels] == list(whole.means["old"].values())
    for options in ({}, {"baseline": "new"}, {"test": "anytime", "margin": 0.01}, {"family": "all", "alpha": 0.01}):
        same_comparison(merged.compare(**options), whole.compare(**options))
    countries = dict(zip(FRAME["user"], FRAME["country"]))
    same_comparison(merged.compare("old", by=True), whole.compare("old", by=countries))
    assert str(whole.compare("old", by=True)) == str(whole.compare("old", by=countries))
    assert str(merged.by()) in repr(merged)


def test_tukeys_test_of_parts_is_that_of_evaluate():
    pytest.importorskip("scipy")
    found = [one.compare(test="tukey").table.rows for one in (of_all(), tr.evaluate(FRAME, WEIGHTED, **OPTIONS))]
    for one, other in zip(*found, strict=True):
        if other["n"] == 48:  # of measures that skip queries evaluate drops those that any system lacks
            assert one["p"] == pytest.approx(other["p"], rel=1e-6)


def test_equal_differences_have_no_spread_as_in_evaluate():
    qrels = {f"q{n}": {"a": 1} for n in range(30)}
    runs = {"a": {q: ["x", "y", "a"] for q in qrels}, "b": {q: ["x", "a"] for q in qrels}}
    whole, part = tr.evaluate(qrels, runs, "mrr"), partial(qrels, runs, "mrr", closed=True)
    assert part.compare().rows[0].pair.standard_error == whole.compare().rows[0].pair.standard_error == 0
    assert part.compare().table["winner"] == whole.compare().table["winner"]


@pytest.mark.parametrize(("queries", "closed"), [("judged", False), ("judged", True), ("both", True)])
def test_parts_of_several_runs_that_lack_queries_are_evaluate_on_the_whole(queries, closed):
    other = {query: scores for query, scores in made(seed=3)[1].items() if query != "q7"}
    runs = {"bm25": RUN, "dense": other}
    whole = tr.evaluate(JUDGMENTS, runs, MEASURES, queries=queries)
    states = []
    for part in range(3):
        ours = {name: {q: docs for q, docs in run.items() if int(q[1:]) % 3 == part} for name, run in runs.items()}
        qrels = {q: grades for q, grades in QRELS.items() if int(q[1:]) % 3 == part} if closed else JUDGMENTS
        states.append(partial(qrels, ours, MEASURES, queries=queries, closed=closed))
    merged = merge(states)
    assert (merged.means, merged.intervals()) == (whole.means, whole.intervals())
    assert merged.summary().rows == whole.summary().rows
    assert merged.coverage.rows == whole.coverage.rows
    assert merged.num_queries == len(QRELS.keys() & (RUN | other) if queries == "both" else QRELS)
    same_comparison(merged.compare(), whole.compare())
    assert merge(states[::-1]).to_bytes() == merged.to_bytes()


def test_slices_of_judgments_and_runs_are_a_dictionary():
    slices = {q: ("even", "odd")[int(q[1:]) % 2] if q != "q4" else None for q in QRELS}
    whole = tr.evaluate(JUDGMENTS, RUN, "mrr map")
    states = []
    for part in range(2):
        qrels = {q: grades for q, grades in QRELS.items() if (int(q[1:]) // 3) % 2 == part}
        states.append(partial(qrels, {q: RUN[q] for q in qrels if q in RUN}, "mrr map", closed=True, by=slices))
    assert merge(states).by().rows == whole.by(slices).rows


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "beir"},
        {"depth": 3, "ties": "document"},
        {"parent": lambda item: f"p{int(item) % 7}"},
        {"exclude": {f"u{n}": [n % 50] for n in range(48)}},
        {"measures": "map mrr", "relevance_level": 2, "unjudged": "condensed"},
        {"measures": "map mrr", "ties": "rows", "precision": "single", "ignore_identical_ids": True},
        {"measures": [tr.NDCG(top_k=5), "mrr"]},
        {"measures": {"mine": "mrr@3"}},
    ],
    ids=lambda options: " ".join(options),
)
def test_options_of_a_frame_are_those_of_evaluate(options):
    frame, options = rows_of(FRAME, {f"u{user}" for user in range(30)}), {"score": SYSTEMS} | options
    whole = tr.evaluate(frame, **options)
    merged = merge(partial(part, **options) for part in parts_of(frame, 2))
    assert (merged.means, merged.coverage.rows) == (whole.means, whole.coverage.rows)
    assert PartialEvaluation.from_bytes(merged.to_bytes()).means == whole.means


@cases("convert", [dict, pandas.DataFrame], ids=lambda one: one.__name__)
def test_an_empty_frame_is_a_part_and_adds_nothing(convert):
    frame, nothing = convert(FRAME), convert({name: [] for name in FRAME})
    empty = partial(nothing, WEIGHTED, **OPTIONS)
    assert merge([empty, partial(frame, WEIGHTED, **OPTIONS), empty]).to_bytes() == of_all().to_bytes()
    with pytest.raises(tr.ReadingError, match="judgments of at least one document, got none"):
        merge([empty, empty]).means  # noqa: B018


def test_score_columns_are_systems_in_evaluate():
    one = {name: tr.evaluate(FRAME, "map mrr", score=column) for name, column in SYSTEMS.items()}
    several = tr.evaluate(FRAME, "map mrr", score=SYSTEMS, by="country")
    assert several.means == {name: found.means["run"] for name, found in one.items()}
    listed = tr.evaluate(FRAME, "map mrr", score=list(SYSTEMS.values()))
    assert list(listed.means) == list(SYSTEMS.values())
    assert [*listed.means.values()] == [*several.means.values()]
    twice = {name: column * 2 for name, column in FRAME.items()}
    for options, message in (
        ({"score": ["by_old", "by_new"], "duplicates": "best"}, "one column of scores with duplicates='best', got 2"),
        ({"score": ["by_old", "other"]}, "got 'other'"),
        ({"score": []}, "each once"),
    ):
        with pytest.raises(ValueError, match=message):
            tr.evaluate(twice, "map", item="item", **options)


def test_a_state_of_bytes_is_small_and_needs_no_pickle():
    frame = logged(users=500)
    two = {"score": {"old": "by_old", "new": "by_new"}, "by": "country"}
    state = partial(frame, "ndcg@10 map", **two)
    data = state.to_bytes()
    assert len(data) < 16_000
    assert bits(PartialEvaluation.from_bytes(data)) == bits(state)
    assert pickle.loads(pickle.dumps(state)).to_bytes() == data
    assert b"pickle" not in data
    assert merge([memoryview(data)]).to_bytes() == merge([bytearray(data)]).to_bytes() == data


def test_a_state_of_another_format_or_version_is_refused_with_both_numbers(monkeypatch):
    data = of_all().to_bytes()
    at = len(MAGIC)
    other = data[:at] + (FORMAT + 1).to_bytes(4, "little") + data[at + 4 :]
    with pytest.raises(ValueError, match=f"format {FORMAT}, got format {FORMAT + 1}; read it with the torchrank"):
        PartialEvaluation.from_bytes(other)
    monkeypatch.setattr(evaluation_of_parts, "__version__", "99.0")
    newer = partial(rows_of(FRAME, ()), WEIGHTED, **OPTIONS)
    with pytest.raises(ValueError, match=rf"same version, got '{tr.__version__}' and '99.0'"):
        merge([of_all(), newer.to_bytes()])


@settings(max_examples=60)
@given(st.data())
def test_hostile_bytes_are_an_error_or_a_state(data):
    good = of_all().to_bytes()
    kind = data.draw(st.sampled_from(["cut", "changed", "longer", "random"]))
    if kind == "cut":
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "longer":
        bad = good + data.draw(st.binary(min_size=1, max_size=9))
    elif kind == "random":
        bad = MAGIC + FORMAT.to_bytes(4, "little") + data.draw(st.binary(max_size=200))
    else:
        at = data.draw(st.integers(0, len(good) - 1))
        bad = good[:at] + data.draw(st.binary(min_size=1, max_size=4)) + good[at + 1 :]
    try:
        found = PartialEvaluation.from_bytes(bad)
        assert kind == "changed"
        found.means  # noqa: B018
    except (ValueError, OverflowError):
        pass


def test_more_queries_than_are_sampled_have_the_bytes_of_one_state_and_are_found_twice():
    number = 3 * SAMPLE
    columns = np.arange(number), np.zeros(number, int), np.ones(number), np.arange(number) % 2
    frame = dict(zip(("user", "item", "score", "label"), columns))
    parts = [partial({name: x[n::5] for name, x in frame.items()}, "mrr") for n in range(5)]
    assert merge(parts).to_bytes() == merge(parts[::-1]).to_bytes() == partial(frame, "mrr").to_bytes()
    assert len(merge(parts).sample) == SAMPLE
    for part in parts:
        with pytest.raises(ValueError, match="Expected every query in one part"):
            merge([*parts, part])


def test_counts_of_damaged_bytes_may_be_fractions():
    broken = replace(of_all(), sums={part: numbers / Fraction(2) for part, numbers in of_all().sums.items()})
    found = PartialEvaluation.from_bytes(broken.to_bytes())
    assert found.means.keys() == of_all().means.keys()


def headed(change, rest=None):
    """The bytes of a state with another head."""
    good = of_all().to_bytes()
    at = len(MAGIC) + 4
    size = int.from_bytes(good[at : at + 4], "little")
    head = change(json.loads(good[at + 4 : at + 4 + size]))
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return good[:at] + len(text).to_bytes(4, "little") + text + (good[at + 4 + size :] if rest is None else rest)


@cases(
    "bad",
    [
        lambda: b"",
        lambda: pickle.dumps(1),
        lambda: headed(lambda head: b"[" * 100_000),
        lambda: headed(lambda head: b"1" * 10_000),
        lambda: headed(lambda head: []),
        lambda: headed(lambda head: head | {"sample": [10**12, 0]}),
        lambda: headed(lambda head: head | {"sample": [-1, 49]}),
        lambda: headed(lambda head: head | {"sample": 48}),
        lambda: headed(lambda head: head | {"facts": head["facts"] | {"clusters": True}}),
        lambda: headed(lambda head: head | {"facts": head["facts"] | {"more": True}}),
        lambda: headed(lambda head: head | {"slices": list(range(10**5))}),
        lambda: headed(lambda head: head | {"slices": ["de", "de", "it"]}),
        lambda: headed(lambda head: head | {"slices": [[], "fr", "it"]}),
        lambda: headed(lambda head: head | {"examples": []}),
        lambda: headed(lambda head: head | {"facts": head["facts"] | {"runs": [f"r{n}" for n in range(10**4)]}}),
        lambda: headed(lambda head: head | {"facts": head["facts"] | {"runs": []}}),
        lambda: headed(lambda head: head | {"facts": head["facts"] | {"measures": [["ndcg"]]}}),
        lambda: headed(lambda head: head, rest=b"\xff" * 20_000),
    ],
)
def test_broken_bytes_are_refused_at_once(bad):
    with pytest.raises(ValueError, match=r"Expected the bytes of a state of torchrank\.partial, got"):
        PartialEvaluation.from_bytes(bad())


@cases("name", ["ndcg@1-100000000", "ndcg@" + ",".join(map(str, range(1000))), "os.system('x')", "mrr mrr"])
def test_a_measure_in_bytes_is_one_known_measure(name):
    bad = headed(lambda h: h | {"facts": h["facts"] | {"measures": [["x", name]] + h["facts"]["measures"][1:]}})
    with pytest.raises(ValueError, match="Expected"):
        PartialEvaluation.from_bytes(bad).means  # noqa: B018


def test_measures_with_functions_of_the_user_are_passed_to_merge():
    def steep(grade):
        return grade**3

    metric = tr.NDCG(gain=steep)
    state = partial(FRAME, [metric], score="by_old")
    data = state.to_bytes()
    with pytest.raises(ValueError, match=r"pass measures= to torchrank\.merge"):
        merge([data]).means  # noqa: B018
    want = tr.evaluate(FRAME, [metric], score="by_old").means["run"]
    assert merge([data], measures=[metric]).means == state.means == want
    with pytest.raises(ValueError, match="Expected the measure"):
        merge([data], measures={metric.label: "mrr"}).means  # noqa: B018


def test_a_frame_in_which_all_is_relevant_warns_for_the_whole_alone():
    ratings = {"user": ["a", "a", "b", "b"], "item": [1, 2, 1, 2], "score": [1.0, 2.0, 2.0, 1.0], "label": [1, 2, 0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (partial(rows_of(ratings, {one}), "mrr") for one in "ab")
        assert merge([first, second]).means == {"mrr": 0.75}
    with pytest.warns(UserWarning, match="Every row of the frame is relevant to mrr"):
        merge([first.to_bytes()]).means  # noqa: B018


def test_results_that_need_the_values_of_all_queries_are_said():
    way_out = "use means, .* or torchrank\\.evaluate on one"
    with pytest.raises(AttributeError, match=f"'to_html'; {way_out}"):
        of_few().to_html("a.html")
    with pytest.raises(TypeError, match=f"'run'; {way_out}"):
        of_few()["run"]
    assert not hasattr(of_all(), "shape")
    for found, options, message in (
        (of_few(), {}, "two or more runs to compare, got run"),
        (of_all(), {"test": "wilcoxon"}, r"got 'wilcoxon'; torchrank\.evaluate keeps the values"),
        (of_all(), {"baseline": "odl"}, "baseline to be one of old, new, worst"),
        (of_all(), {"test": "tukey", "correction": "holm"}, "no correction with test='tukey'"),
        (of_clusters(), {"test": "tukey"}, "with clusters, got 'tukey'"),
    ):
        with pytest.raises(ValueError, match=message):
            found.compare(**options)


TEAMS = FRAME | {"team": [int(user[1:]) // 4 for user in FRAME["user"]]}
TEAM_OF = dict(zip(TEAMS["user"], TEAMS["team"]))
of_clusters = functools.cache(lambda: partial(TEAMS, WEIGHTED, clusters="team", **OPTIONS))


def teams(parts):
    """The frame in parts with whole teams."""
    return [rows_of(TEAMS, {user for user, team in TEAM_OF.items() if team % parts == part}) for part in range(parts)]


def test_standard_errors_of_clusters_are_those_of_the_whole():
    whole = tr.evaluate(FRAME, WEIGHTED, **OPTIONS)
    states = [partial(part, WEIGHTED, clusters="team", **OPTIONS) for part in teams(3)]
    merged = merge([states[0].to_bytes(), merge(states[:0:-1])])
    assert merged.to_bytes() == of_clusters().to_bytes()
    for run in merged.runs:
        want = whole[run].summary(0.9, clusters=TEAM_OF)
        rows = [row for row in merged.summary(0.9) if row["run"] == run]
        for ours, theirs in zip(rows, want.rows, strict=True):
            assert ours == near({"run": run} | {key: x for key, x in theirs.items() if key != "effective"})
        assert merged.summary(0.9).notes == want.notes
        inside = whole[run].where(whole[run].groups == "fr").summary(clusters=TEAM_OF)
        (row,) = (row for row in merged.by() if row["run"] == run and row["measure"] == "map/fr")
        assert row["standard error"] == pytest.approx(inside.rows[1]["standard error"], rel=1e-9)
    for options in ({}, {"baseline": "new"}, {"test": "anytime"}):
        same_comparison(merged.compare(**options), whole.compare(clusters=TEAM_OF, **options))


def test_a_query_or_cluster_in_two_closed_parts_is_an_error():
    first, second = (partial(rows_of(FRAME, users), "mrr", score="by_old") for users in ({"u1", "u8"}, {"u2", "u8"}))
    with pytest.raises(ValueError, match="got 1 or more judged queries in several; partition the data by query"):
        merge([first, second.to_bytes()])
    with pytest.raises(ValueError, match="Expected every cluster in one part"):
        merge(partial(part, WEIGHTED, clusters="team", **OPTIONS) for part in parts_of(TEAMS, 2))
    with pytest.raises(ValueError, match="same clusters, got True and False"):
        merge([of_clusters(), partial(rows_of(FRAME, ()), WEIGHTED, **OPTIONS)])


def test_clusters_of_judgments_and_runs_are_a_dictionary_and_one_has_no_interval():
    clusters = {query: int(query[1:]) // 7 for query in QRELS}
    found = partial(JUDGMENTS.to_dict(), RUN, FEW, closed=True, clusters=clusters)
    want = tr.evaluate(JUDGMENTS, RUN, FEW)["run"].summary(clusters=clusters)
    for ours, theirs in zip(found.summary(), want, strict=True):
        assert ours["standard error"] == pytest.approx(theirs["standard error"], rel=1e-9)
    one = partial(JUDGMENTS.to_dict(), RUN, FEW, closed=True, clusters=dict.fromkeys(QRELS, "all"))
    assert all(math.isnan(x.low) and math.isnan(x.high) for x in one.intervals().values())
    assert one.means == found.means
