"""What people bring: names of columns, lists by query, rows without grades; and judgments that do not fit the run."""

import io
import json
import math
import warnings

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas

# ---- names of columns ------------------------------------------------------------------------------------------------

# As PyTerrier has them: the text of the query, and the internal number of the document, beside their ids.
PYTERRIER = {
    "qid": ["1", "1", "2", "2"],
    "query": ["blue sky", "blue sky", "red", "red"],
    "docno": ["a", "b", "c", "d"],
    "docid": [7, 8, 7, 8],
    "score": [0.5, 0.9, 0.8, 0.1],
    "label": [1, 0, 1, 0],
}


@pytest.fixture(autouse=True)
def no_other_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_ids_are_read_before_texts_and_internal_numbers():
    frame = pandas.DataFrame(PYTERRIER)
    for columns in (list(frame), list(frame)[::-1]):
        found = frame[columns]
        assert tr.read_run(found).to_dict() == {"1": {"a": 0.5, "b": 0.9}, "2": {"c": 0.8, "d": 0.1}}
        assert tr.read_qrels(found).to_dict() == {"1": {"a": 1, "b": 0}, "2": {"c": 1, "d": 0}}
        assert tr.evaluate(found, found, "mrr").means["run"]["mrr"] == 0.75
        assert tr.MRR().score(tr.Ranking.from_table(found, ties="document")).tolist() == [0.5, 1]


@pytest.mark.parametrize(
    "names",
    [
        ("userId", "movieId", "rating", "timestamp"),
        ("userID", "itemID", "rating", "timestamp"),
        ("User-ID", "item id", "Rating", "Date"),
        ("user_idx", "item_idx", "rating", "time"),
        ("uid", "iid", "r_ui", "timestamp"),
        ("user_id:token", "item_id:token", "rating:float", "timestamp:float"),
        ("session_id", "PRODUCT_ID", "label", "time"),
    ],
)
def test_headers_of_recommenders_are_known(names):
    frame = pandas.DataFrame([[1, 2, 4.0, 9], [1, 3, 5.0, 9]], columns=names)
    wanted = {1: {2: 4.0, 3: 5.0}}
    assert tr.read_qrels(frame).to_dict() == tr.read_qrels(frame.to_dict("list")).to_dict() == wanted
    assert tr.read_qrels(frame.to_dict("records")).to_dict() == wanted
    text = "\t".join(names) + "\n1\t2\t4.0\t9\n1\t3\t5.0\t9\n"
    assert tr.read_qrels(io.StringIO(text)).to_dict() == {"1": {"2": 4.0, "3": 5.0}}


def test_two_columns_that_may_be_meant_are_said():
    frame = pandas.DataFrame([[1, 7, 2, 0.5], [2, 7, 2, 0.5]], columns=["qid", "user_id", "docno", "score"])
    with pytest.warns(UserWarning, match="qid is read as the query, not user_id; if wrong, read it by") as caught:
        assert tr.read_run(frame).to_dict() == {1: {2: 0.5}, 2: {2: 0.5}}
    assert caught[0].filename == __file__
    assert tr.read_run(frame, columns={"query": "qid"}).query_ids == [1, 2]
    with pytest.warns(UserWarning, match="if wrong, pass query= with the name of its column"):
        tr.Ranking.from_table(frame.assign(label=1))
    assert tr.Ranking.from_table(frame.assign(label=1, docno=[3, 4]), query="user_id").query_ids == [7]


SECOND = {"mrr": 0.5, "ndcg@10": pytest.approx(1 / math.log2(3))}


@pytest.fixture
def rated():
    """The relevant item has position 2."""
    columns = {"user": ["u", "u", "v", "v"], "item": [1, 2, 1, 2], "position": [1, 2, 1, 2], "rating": [0, 3, 0, 1]}
    return pandas.DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "polars", "columns", "records"])
def test_a_column_that_is_named_for_one_role_is_read_for_no_other(library, rated):
    def made_of(frame):
        return LIBRARIES[library](frame.to_dict("list"))

    def of_frame(frame, **columns):
        made = made_of(frame)
        ranking = tr.Ranking.from_table(made, **{"group" if k == "by" else k: name for k, name in columns.items()})
        means = tr.evaluate(made, "mrr ndcg@10", **columns).means["run"]
        assert means == tr.QueryTable.of(ranking, "mrr ndcg@10").values()
        return means

    if library != "records":
        assert of_frame(rated, grade="rating") == of_frame(rated) == SECOND
        beir = rated.set_axis(["query-id", "corpus-id", "rank", "score"], axis=1)
        assert of_frame(beir, grade="score") == SECOND
        grouped = rated.assign(label=rated["rating"], rating=[5, 5, 4, 4])
        assert of_frame(grouped, by="rating") == SECOND
        for frame, named in ((rated, {"grade": "rating"}), (grouped, {"by": "rating"})):
            with pytest.raises(tr.ReadingError, match=r"a column of scores named like .* pass score= with the name"):
                of_frame(frame.drop(columns="position"), **named)
    both = LIBRARIES[library]({"user_id": [7, 8], "topic": [1, 1], "rel": [0, 1], "label": [2, 3]})
    assert tr.read_qrels(both, columns={"item": "user_id", "grade": "label"}).to_dict() == {1: {7: 2, 8: 3}}
    with pytest.raises(tr.ReadingError, match="a column of grades"):
        tr.read_qrels(made_of(rated), columns={"query": "rating", "item": "position"})


def test_a_rank_goes_before_a_rating_which_is_said_and_ranks_are_no_scores(rated):
    with pytest.warns(UserWarning, match=r"Column position is read as the rank, not rating; .*columns=\{'score': ..."):
        assert tr.evaluate(rated, rated, "mrr ndcg@10").means["run"] == SECOND
    with pytest.warns(UserWarning, match="Column rank is read as the rank, not position; .*'rank'"):
        tr.read_run(rated.assign(rank=rated["position"]).drop(columns="rating"))
    reversed_order = {"mrr": 1, "ndcg@10": 1}
    for name in ("position", "Rank"):
        frame = rated.rename(columns={"position": name})
        with pytest.warns(UserWarning, match=f"Column {name} is read as scores, .* largest is the best; .*pass rank="):
            assert tr.evaluate(frame, "mrr ndcg@10", score=name, grade="rating").means["run"] == reversed_order
        assert tr.evaluate(frame, "mrr ndcg@10", rank=name).means["run"] == SECOND
        assert tr.MRR()(tr.Ranking.from_table(frame, rank=name)) == 0.5
        with pytest.warns(UserWarning, match=rf"{name} is read as scores, .*tr.read_run\(source, columns={{'rank"):
            tr.read_run(frame, columns={"score": name})
    with pytest.raises(ValueError, match="a column of scores or of ranks, got both; leave out one of them"):
        tr.evaluate(rated, "mrr", score="rating", rank="position")
    with pytest.raises(ValueError, match="got both"):
        tr.read_run(rated, columns={"score": "rating", "rank": "position"})


# ---- lists in columns, columns of tensors ----------------------------------------------------------------------------

LISTED = {
    "qid": ["x", "y", "z", "w"],
    "docnos": [["a", "b"], ["c"], [], ["b", "d", "a"]],
    "scores": [[0.5, 0.75], [0.1], [], [0.5, 0.5, 0.25]],
    "labels": [[1, 0], [1], [], [0, 1, 2]],
}
LIBRARIES = {
    "columns": lambda columns: columns,
    "arrays": lambda columns: {k: [np.array(x) if isinstance(x, list) else x for x in v] for k, v in columns.items()},
    "records": lambda columns: pandas.DataFrame(columns).to_dict("records"),
    "pandas": lambda columns: pandas.DataFrame(columns),
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "pyarrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
}
every_library = pytest.mark.parametrize("made", LIBRARIES.values(), ids=LIBRARIES)


def long_rows(columns):
    """A row for each item, and the rows of the queries that have items."""
    lists = [name for name in columns if isinstance(columns[name][1], list)]
    rows = {name: [x for entry in columns[name] for x in entry] for name in lists}
    query = [q for q, entry in zip(columns["qid"], columns[lists[0]]) for _ in entry]
    return {"qid": query, **rows}


@every_library
def test_a_row_can_be_a_query_with_lists_of_items_scores_and_grades(made):
    frame, names = made(LISTED), {"docnos": "docno", "scores": "score", "labels": "label"}
    rows = {names.get(name, name): column for name, column in long_rows(LISTED).items()}
    wanted = tr.evaluate(rows, "mrr ndcg map")["run"].to_dict()
    wanted = {name: [*column[:2], "z" if name == "id" else 0, column[2]] for name, column in wanted.items()}
    for found in (tr.evaluate(frame, "mrr ndcg map"), tr.evaluate(frame, frame, "mrr ndcg map", ties="expected")):
        assert found["run"].to_dict() == wanted  # the query without items has a row
    ranking = tr.Ranking.from_table(frame)
    assert tr.QueryTable.of(ranking, "mrr ndcg map").to_dict() == wanted
    assert tr.read_run(frame).to_dict() == {**tr.read_run(rows).to_dict(), "z": {}}
    assert tr.read_qrels(frame).to_dict() == {**tr.read_qrels(rows).to_dict(), "z": {}}


def test_lists_of_json_lines_are_those_of_a_frame():
    lines = "\n".join(json.dumps(dict(zip(LISTED, row))) for row in zip(*LISTED.values()))
    assert tr.read_run(io.StringIO(lines)).to_dict() == tr.read_run(LISTED).to_dict()
    assert tr.read_qrels(io.StringIO(lines)).to_dict() == tr.read_qrels(LISTED).to_dict()


@every_library
def test_lists_without_scores_are_ranked_as_they_are(made):
    run = tr.read_run(made({"qid": LISTED["qid"], "docnos": LISTED["docnos"]}))
    assert run.to_dict() == tr.read_run(dict(zip(LISTED["qid"], LISTED["docnos"]))).to_dict()
    ranked = made({name: LISTED[name] for name in ("qid", "docnos", "labels")})
    assert tr.evaluate(ranked, "mrr")["run"].to_dict() == {"id": ["x", "y", "z", "w"], "mrr": [1, 1, 0, 0.5]}
    # As a retriever's log: other columns may be there if the items are named.
    log = made({"user": ["u", "v"], "query": ["red", "blue"], "top": [["a", "b"], ["c"]], "gold": [["b"], ["d"]]})
    with pytest.warns(UserWarning, match=r"column top are ranked as they are, .*read_run\(source, columns={'sc"):
        run = tr.read_run(log, columns={"query": "query", "item": "top"})
    with pytest.warns(UserWarning, match="no grades"):
        qrels = tr.read_qrels(log, columns={"query": "query", "item": "gold"})
    assert tr.evaluate(qrels, run, "mrr")["run"].to_dict() == {"id": ["red", "blue"], "mrr": [0.5, 0]}
    unknown = made({"qid": ["x"], "docnos": [["a", "b"]], "logit": [[0.1, 0.2]]})
    with pytest.raises(tr.ReadingError, match=r"a column of scores .* columns=\{'score': ...\}"):
        tr.read_run(unknown)
    assert tr.read_run(unknown, columns={"score": "logit"}).to_dict() == {"x": {"a": 0.1, "b": 0.2}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [[0.5, 0.75], [0.1], [0.2], [0.5] * 3]}, "row 3: .* one length, got 0 of item and 1 of score"),
        ({"scores": [0.5, 0.75, 0.1, 0.2]}, "row 1: Expected lists of one length, got 2 of item and 1 of score"),
        ({"labels": [[1, 0], 3, [], [0, 1, 2]]}, "row 2: Expected grade to be a list, got 3"),
        ({"scores": [[0.5, "x"], [0.1], [], [0.5] * 3]}, "row 1: Expected score to be a number, got 'x'"),
        ({"docnos": [["a", "b"], ["c"], [], ["b", None, "a"]]}, "row 4: Expected item ids to be text, got None"),
    ],
)
def test_an_error_in_a_list_names_the_row_of_the_frame(change, message):
    with pytest.raises(tr.ReadingError, match=message):
        tr.evaluate(LISTED | change, "mrr")


@cases("shape", [(4,), (4, 1), (2, 2)])
@cases("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "numpy"])
def test_columns_are_tensors_of_any_float_and_a_column_of_one_number_in_each_row_is_flat(dtype, shape):
    def columns(**lists):
        for name, numbers in lists.items():
            made = torch.tensor(numbers)
            made = made.to(getattr(torch, dtype, made.dtype)) if made.is_floating_point() else made
            yield name, made.reshape(shape) if dtype != "numpy" else made.reshape(shape).numpy()

    run = dict(columns(docno=[1, 2, 1, 2], score=[0.5, 0.25, 0.125, 1.5]))
    run["qid"] = [7, 7, 8, 8] if len(shape) == 1 or shape[1] == 1 else [7, 8]
    wanted = {7: {1: 0.5, 2: 0.25}, 8: {1: 0.125, 2: 1.5}}
    assert tr.read_run(run).to_dict() == wanted
    qrels = {7: {1: 1}, 8: {1: 1}}
    assert all(tr.evaluate(qrels, x, "mrr").means == {"run": {"mrr": 0.75}} for x in (run, {"run": run}))
    assert tr.evaluate(run | dict(columns(label=[1, 0, 1, 0])), "mrr").means == {"run": {"mrr": 0.75}}
    if shape == (4, 1):
        assert tr.read_run(run | {"qid": torch.tensor(run["qid"])[:, None]}).to_dict() == wanted
        assert tr.evaluate(qrels, run | {"qid": torch.tensor(run["qid"])[:, None]}, "mrr").means["run"]["mrr"] == 0.75


# ---- lists by query --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "docs", [["b", "a"], ("b", "a"), [("a", 0.5), ("b", 0.75)], [["a", 1], ["b", 2]], {"a": 1.0, "b": 2.0}]
)
def test_a_list_by_query_is_a_run_best_first(docs):
    qrels = {"q": {"a": 1}, "p": {"b": 1}}
    runs = {"q": docs, "p": docs}
    wanted = {"mrr": 0.75}
    assert tr.evaluate(qrels, runs, "mrr").means == {"run": wanted}
    assert tr.evaluate(qrels, {"x": runs, "y": runs}, "mrr").means == {"x": wanted, "y": wanted}
    assert tr.MRR()(tr.Ranking.from_run(qrels, runs)).item() == 0.75
    assert tr.read_run({"q": docs, "p": []}).query_ids == ["q", "p"]


@pytest.mark.parametrize("ids", [[3, 4], {3, 4}, np.array([3, 4]), torch.tensor([3, 4]), [(3, 1), (4, 1)]])
def test_a_list_by_query_is_relevant_documents(ids):
    assert tr.read_qrels({1: ids}).to_dict() == {1: {3: 1, 4: 1}}
    run = {1: ids if isinstance(ids, np.ndarray | torch.Tensor) else [4, 3]}
    assert tr.evaluate({1: ids}, run, "map").means["run"]["map"] == 1


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ({"a", "b"}, "a list of documents, the best first, got a set for query 'q'"),
        ("abc", r"\{query: \[documents\]\}, got str for query 'q'"),
        (3, r"\{query: \[documents\]\}, got int for query 'q'"),
        (["a", ("b", 1)], r"documents or pairs \(document, score\), got both for query 'q'"),
        ([("a", 1, 2)], r"documents or pairs \(document, score\), got \('a', 1, 2\) for query 'q'"),
        ([("a", "b")], "score to be a number, got 'b'.*'q': \\('a', 'b'\\)"),
        (["a", "a"], "every document once for its query, got document 'a' of query 'q' twice"),
        (["a", None], "document ids to be text, got None"),
    ],
)
def test_other_values_by_query_are_refused(docs, message):
    with pytest.raises(tr.ReadingError, match=message):
        tr.read_run({"q": docs, "p": ["a"]})


# ---- rows ------------------------------------------------------------------------------------------------------------


PAIRS = [(1, 2), (1, 3), (2, 2)]


@pytest.mark.parametrize(
    "rows",
    [
        PAIRS,
        [list(row) for row in PAIRS],
        np.array(PAIRS),
        torch.tensor(PAIRS),
        pandas.DataFrame(PAIRS, columns=["user_id", "item_id"]),
        pandas.DataFrame(PAIRS, columns=["user_id", "item_id"]).assign(timestamp=[5, 6, 7]),
        [{"user": user, "item": item} for user, item in PAIRS],
        {"user": [1, 1, 2], "item": [2, 3, 2]},
    ],
)
def test_interactions_have_the_grade_1_which_is_said(rows):
    with pytest.warns(UserWarning, match="have no grades: each pair is relevant, with the grade 1") as caught:
        assert tr.read_qrels(rows).to_dict() == {1: {2: 1, 3: 1}, 2: {2: 1}}
    assert (len(caught), caught[0].filename) == (1, __file__)


def test_interactions_of_a_file_have_the_grade_1():
    with pytest.warns(UserWarning, match="no grades"):
        assert tr.read_qrels(io.StringIO("user\titem\n1\t2\n")).to_dict() == {"1": {"2": 1}}
    with pytest.warns(UserWarning, match="no grades"):
        assert tr.read_qrels(io.StringIO("1 2\n"), columns={"query": 0, "item": 1}).to_dict() == {"1": {"2": 1}}


def test_a_column_of_an_unknown_name_is_not_taken_for_interactions():
    frame = pandas.DataFrame([[1, 2, 0]], columns=["user_id", "item_id", "usefulness"])
    with pytest.raises(tr.ReadingError, match=r"columns user_id, item_id, usefulness; read it by tr.read_qrels\("):
        tr.read_qrels(frame)
    assert tr.read_qrels(frame, columns={"grade": "usefulness"}).to_dict() == {1: {2: 0}}


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 2, 0.5), (1, 3, 2.0)],
        [[1, 2, 0.5], [1, 3, 2.0]],
        np.array([[1, 2, 0.5], [1, 3, 2.0]]),
        *(torch.tensor([[1, 2, 0.5], [1, 3, 2.0]]).to(x) for x in (torch.float32, torch.float8_e4m3fn)),
        list(np.array([[1, 2, 0.5], [1, 3, 2.0]])),
        np.array([(1, 2, 0.5), (1, 3, 2.0)], dtype=[("user", "i8"), ("item", "i8"), ("score", "f8")]),
    ],
)
def test_rows_of_arrays_are_rows(rows):
    assert tr.read_run(rows).to_dict() == {1: {2: 0.5, 3: 2.0}}


def test_ids_of_an_array_that_are_no_integers_are_refused():
    with pytest.raises(tr.ReadingError, match=r"row 1: Expected document ids to be text or integers, got 2.5"):
        tr.read_run(np.array([[1, 2.5, 0.5]]))


# ---- judgments that do not fit the run -------------------------------------------------------------------------------


def fitting(form, qrels, run):
    """Judgments and a run, as dictionaries or as rows."""
    if form == "dictionaries":
        return qrels, run
    return tuple([(q, d, value) for q, docs in table.items() for d, value in docs.items()] for table in (qrels, run))


@pytest.mark.parametrize("form", ["dictionaries", "rows"])
@pytest.mark.parametrize(("ours", "theirs"), [("D001", "X001"), (1, 7)])
def test_no_document_in_common_is_said_everywhere(form, ours, theirs):
    qrels, run = fitting(form, {"q": {ours: 1}, "p": {"z" if ours == "D001" else 9: 1}}, {"q": {theirs: 0.5}, "p": {}})
    message = f"No document of the run is judged: a document of the run is {theirs!r}, a judged document is {ours!r}"
    with pytest.warns(UserWarning, match=message) as caught:
        tr.Ranking.from_run(qrels, run)
    assert (len(caught), caught[0].filename) == (1, __file__)
    with pytest.raises(ValueError, match=message):
        tr.evaluate(qrels, run, "mrr")
    with pytest.raises(ValueError, match=message):
        tr.merge([tr.partial(qrels, run, "mrr"), tr.partial(qrels, {}, "mrr")]).means  # noqa: B018


@pytest.mark.parametrize(
    ("scores", "grades"), [([0.5, None], [None, 1]), ([0.5, 0.4], [None, None]), ([None, None], [0, 1])]
)
def test_no_document_in_common_is_said_of_a_frame(scores, grades):
    frame = pandas.DataFrame({"qid": [1, 1], "docno": ["a", "b"], "score": scores, "label": grades})
    with pytest.warns(UserWarning, match="No row has both a score and a grade") as caught:
        tr.Ranking.from_table(frame)
    assert caught[0].filename == __file__


def test_a_run_has_no_subtopics():
    rows = [("q", "x", "a", 0.5), ("q", "y", "a", 0.4)]
    columns = dict(zip(("query", "subtopic", "doc", "score"), zip(*rows)))
    with pytest.raises(tr.ReadingError, match="Expected every document once for its query"):
        tr.read_run(columns)
    assert tr.read_run({**columns, "doc": ["a", "b"]}).to_dict() == {"q": {"a": 0.5, "b": 0.4}}


def test_a_part_of_a_table_of_arrow_has_its_rows():
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"query": ["q", "q", "p", "p"], "doc": ["a", "bb", "ccc", "dd"]}
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
        texts = {name: pyarrow.array(values, kind) for name, values in columns.items()}
        table = pyarrow.table({**texts, "score": [0.5, 0.4, 0.3, 0.2]})
        assert tr.read_run(table.slice(1, 2)).to_dict() == {"q": {"bb": 0.4}, "p": {"ccc": 0.3}}


def test_one_document_in_common_is_enough():
    frame = pandas.DataFrame({"qid": [1, 1], "docno": ["a", "b"], "score": [0.5, 0.4], "label": [1, -1]})
    assert tr.MRR().score(tr.Ranking.from_table(frame)).tolist() == [1]
    qrels = {"q": {"a": 1}, "p": {"b": 1}}
    tr.evaluate(qrels, {"q": {"x": 0.5}, "p": {"b": 0.1}}, "mrr")
    tr.evaluate(qrels, tr.read_chunks([{"q": {"x": 0.5}}, {"p": {"b": 0.1}}]), "mrr")
    tr.evaluate(qrels, {}, "mrr")
    tr.evaluate(qrels, {"q": {}, "z": {"x": 1.0}}, "mrr")  # the query in common has no document
    tr.Ranking.from_run(qrels, {"q": {"a": float("-inf")}})
    states = [tr.partial(qrels, run, "mrr") for run in ({"q": {"x": 0.5}}, {"p": {"b": 0.1}})]
    assert tr.merge(states).means == {"mrr": 0.5}


@pytest.mark.parametrize("qrels", [{"q": {}}, [], {}])
def test_judgments_of_no_document_are_an_error_or_said(qrels):
    for call in (tr.evaluate, tr.partial):
        with pytest.raises(tr.ReadingError, match=r"at least one document, got none; pass rows \(query"):
            call(qrels, {"q": {"a": 1.0}}, "mrr")
        call([("q", "a", 1)], {"q": {"a": 1.0}}, "mrr")
    with pytest.warns(UserWarning, match="No query of the run has a judged document.*; pass"):
        tr.Ranking.from_run(qrels, {"q": {"a": 1.0}})


def test_a_query_whose_judgments_lack_documents_is_said_of():
    with pytest.raises(ValueError, match="No query of the run has a judged document; pass other judgments"):
        tr.evaluate({"q": {}, "p": {"a": 1}}, {"q": {"a": 1.0}}, "mrr")


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 9])
def test_the_first_documents_of_each_query_are_those_of_the_larger_id_among_equal_scores(depth):
    run = {
        "one": {"b": 0.5, "d": 0.5, "a": 0.5, "e": 0.9, "c": 0.1},
        "all alike": {"d10": 1.0, "d9": 1.0, "d1": 1.0, "d": 1.0},
        "short": {"x": 0.0},
        "two": {"b": 2.0, "a": 2.0, "d": 1.0, "c": 1.0},
    }
    wanted = {
        query: dict(sorted(table.items(), key=lambda one: (one[1], one[0].encode()), reverse=True)[:depth])
        for query, table in run.items()
    }
    assert tr.read_run(run).columns.first(depth).to_dict() == wanted
