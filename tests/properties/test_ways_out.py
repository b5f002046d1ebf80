"""Each way out that a message names is taken, in the function that gave the message, and works."""

import io
import json
import math
import re

import numpy as np
import pytest

import torchrank as tr
from tests.support.optional import pandas

QRELS = {"q": {"a": 1}, "p": {"b": 1}}
RUN = {"q": {"a": 0.5}, "p": {"a": 0.5, "b": 0.1}}
#: functions of judgments and a run
JOINS = {
    "evaluate": lambda qrels, run, **more: tr.evaluate(qrels, run, "mrr", **more).means["run"]["mrr"],
    "partial": lambda qrels, run, **more: tr.partial(qrels, run, "mrr", **more).means["mrr"],
    "from_run": lambda qrels, run, **more: tr.MRR()(tr.Ranking.from_run(qrels, run, **more)).item(),
}
every_join = pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)


def rows(table):
    return [(query, item, value) for query, docs in table.items() for item, value in docs.items()]


# ---- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["frame", "columns", "records"])
@every_join
def test_columns_are_chosen_as_the_message_says(join, source):
    form = {"frame": lambda f: f, "columns": lambda f: f.to_dict("list"), "records": lambda f: f.to_dict("records")}
    made = {
        what: form[source](pandas.DataFrame(rows(table), columns=["qid", "docno", name]))
        for what, table, name in (("qrels", QRELS, "useful"), ("run", RUN, "logit"))
    }
    message = r"a column of grades named like .* columns qid, docno, useful; read it by tr.read_qrels\(source, "
    with pytest.raises(tr.ReadingError, match=message + r"columns=\{'grade': ...\}\)"):
        join(made["qrels"], RUN)
    with pytest.raises(tr.ReadingError, match=r"read it by tr.read_run\(source, columns=\{'score': ...\}\)"):
        join(QRELS, made["run"])
    qrels = tr.read_qrels(made["qrels"], columns={"grade": "useful"})
    run = tr.read_run(made["run"], columns={"score": "logit"})
    assert join(qrels, RUN) == join(QRELS, run) == 0.75


@every_join
def test_columns_of_files_are_numbered_as_the_message_says(join, tmp_path):
    for name, text in {"qrels": "q 0 a 1 x\np 0 b 1 x\n", "run": "q a 0.5\np a 0.5\np b 0.1\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(tr.ReadingError, match=r"tr.read_qrels\(source, columns=\{'query': 0, 'item': 1, 'grade'"):
        join(tmp_path / "qrels", RUN)
    with pytest.raises(tr.ReadingError, match=r"tr.read_run\(source, columns=\{'query': 0, 'item': 1, 'score'"):
        join(QRELS, tmp_path / "run")
    qrels = tr.read_qrels(tmp_path / "qrels", columns={"query": 0, "item": 2, "grade": 3})
    assert join(qrels, tr.read_run(tmp_path / "run", columns={"query": 0, "item": 1, "score": 2})) == 0.75


def test_columns_of_from_table_are_its_arguments():
    frame = pandas.DataFrame({"user": [1, 1], "item": [2, 3], "rating": [0.5, 0.75], "clicked": [1, 0]})
    with pytest.raises(tr.ReadingError, match="columns user, item, rating, clicked; pass grade= with the name"):
        tr.Ranking.from_table(frame)
    assert tr.MRR()(tr.Ranking.from_table(frame, grade="clicked")).item() == 0.5
    for column, old in (("query", "user"), ("score", "rating"), ("item", "item")):
        other = frame.rename(columns={old: "x"})
        with pytest.raises(tr.ReadingError, match=f"x.*; pass {column}= with the name of its column$"):
            tr.Ranking.from_table(other, grade="clicked", ties="document")
        assert tr.MRR()(tr.Ranking.from_table(other, grade="clicked", ties="document", **{column: "x"})).item() == 0.5


def test_other_tuples_are_numbered_or_get_a_score():
    with pytest.raises(tr.ReadingError, match=r"got 2 fields; add the score"):
        tr.read_run([("q", "a")])
    five = [("q", "Q0", "a", 1, 0.5)]
    with pytest.raises(tr.ReadingError, match=r"5 fields; pass one frame .*, or tensors \[query, candidate\] to"):
        tr.evaluate(np.zeros((2, 5)), np.zeros((2, 5)))
    with pytest.raises(tr.ReadingError, match=r"5 fields; read it by tr.read_run\(source, columns=\{'query': 0, "):
        tr.read_run(five)
    assert tr.read_run(five, columns={"query": 0, "item": 2, "score": 4}).to_dict() == {"q": {"a": 0.5}}


# ---- duplicates ------------------------------------------------------------------------------------------------------


@every_join
def test_duplicates_are_an_argument_of_the_function_that_refuses_them(join):
    qrels, run = [*rows(QRELS), ("q", "a", 0)], [*rows(RUN), ("p", "b", 0.9)]
    for call in (lambda **more: join(qrels, RUN, **more), lambda **more: join(QRELS, run, **more)):
        with pytest.raises(tr.ReadingError, match=r"twice, first in row [13]; pass duplicates='first' or 'best'"):
            call()
    assert [join(qrels, RUN, duplicates=one) for one in ("first", "best")] == [0.75, 0.75]
    assert [join(QRELS, run, duplicates=one) for one in ("first", "best")] == [0.75, 1.0]
    with pytest.raises(ValueError, match="duplicates to be one of"):
        join(qrels, run, duplicates="last")


def test_duplicates_of_chunks_of_a_large_file_are_kept_as_asked(tmp_path, monkeypatch):
    from torchrank.tables import sources

    monkeypatch.setattr(sources, "LARGE", 1)
    monkeypatch.setattr(sources, "LARGE_COMPRESSED", 1)
    (tmp_path / "run").write_text("q Q0 a 1 0.5 t\nq Q0 x 1 0.7 t\nq Q0 a 1 0.9 t\n")
    with pytest.raises(tr.ReadingError, match="pass duplicates="):
        tr.evaluate(QRELS, tmp_path / "run", "mrr")
    for one, wanted in (("first", 0.25), ("best", 0.5)):
        assert tr.evaluate(QRELS, tmp_path / "run", "mrr", duplicates=one).means["run"]["mrr"] == wanted


def test_duplicates_of_a_frame_with_both_keep_the_row_of_the_score():
    columns = {"qid": [1] * 5, "docno": list("abaab"), "score": [0.2, 0.5, 0.9, None, None], "label": [1, 0, 0, 2, 0]}
    frame = pandas.DataFrame(columns)
    with pytest.raises(tr.ReadingError, match=r"row 3: .*first in row 1; pass duplicates='first' or 'best'"):
        tr.Ranking.from_table(frame)
    first, best = (tr.Ranking.from_table(frame, duplicates=one) for one in ("first", "best"))
    assert (first.grade.tolist(), best.grade.tolist()) == ([[0, 1]], [[0, 0]])
    assert (first.num_candidates.tolist(), best.first.tolist()) == ([2], [[1, 2]])
    with pytest.raises(ValueError, match="duplicates to be one of"):
        tr.Ranking.from_table(frame, duplicates="last")


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qid", "docno"])
def test_a_missing_integer_id_is_named_by_its_row_and_left_out(name):
    for missing in (np.nan, None):
        frame = pandas.DataFrame({"qid": [1, 2, 3], "docno": [4, 5, 6], "score": [0.5, 0.25, 1.0]})
        frame.loc[2, name] = missing
        message = "row 3: Expected .* ids to be text or integers, got None; leave out missing ids and convert"
        for one in (frame, frame.astype(object).where(frame.notna(), None)):
            with pytest.raises(tr.ReadingError, match=message):
                tr.read_run(one)
        mended = frame.dropna().astype({"qid": int, "docno": int})
        assert tr.read_run(mended).to_dict() == {1: {4: 0.5}, 2: {5: 0.25}}
    with pytest.raises(tr.ReadingError, match="row 3: Expected query ids to be text, got None; leave out missing"):
        tr.read_run([("a", 4, 0.5), (1.5, 4, 0.5), (None, 4, 0.5)])
    with pytest.raises(tr.ReadingError, match="row 2: Expected query ids to be text or integers, got nan; leave out"):
        tr.read_run([(1.0, 4, 0.5), (math.nan, 4, 0.5)])


def test_of_several_documents_with_one_rank_the_second_is_named():
    with pytest.raises(tr.ReadingError, match="line 3: Expected the third field to be a rank, each once for a query"):
        tr.read_run(io.StringIO("q\ta\t1\nq\tb\t2\nq\tc\t1\nq\td\t1\n"))


@pytest.mark.filterwarnings("ignore:The judgments <dict> have no grades")
@pytest.mark.parametrize(
    ("item", "score", "message"),
    [
        (2.0, 1, "document ids to be text, got 2.0 of type float; convert ids to integers or to text: \"'p', 2.0"),
        ((3,), 1, "document ids to be text, got (3,) of type tuple: \"'p', (3,)"),
        ("d", "x", "score to be a number, got 'x', a text; convert the column to float: \"'p', 'd', 'x'"),
        ("d", [1], "score to be a number, got [1]: \"'p', 'd', [1]"),
    ],
)
def test_the_way_out_of_a_wrong_value_depends_on_its_type(item, score, message):
    columns = {"query": ["q", "p"], "item": ["e", item], "score": [0.5, score]}
    values = np.empty(2, dtype=object)
    values[:] = columns["score"]
    for scores in (columns["score"], values):
        with pytest.raises(tr.ReadingError, match=re.escape(f"row 2: Expected {message}")):
            tr.read_run({**columns, "score": scores})
    if item != "d":  # rows without a score
        with pytest.raises(tr.ReadingError, match=re.escape(f"row 2: Expected {message}") + '"$'):
            tr.read_qrels({"query": columns["query"], "item": columns["item"]})


def test_one_run_is_compared_after_both_are_evaluated_in_one_call():
    with pytest.raises(ValueError, match=r"to compare, got run; .*: tr\.evaluate\(qrels, {'a': run, 'b': other}\)"):
        tr.evaluate(QRELS, RUN, "mrr").compare()
    assert len(tr.evaluate(QRELS, {"a": RUN, "b": QRELS}, "mrr").compare().rows) == 1


def test_a_third_field_that_is_a_score_is_read_as_the_message_says():
    text = "q\ta\t0.5\nq\tb\t0.25\n"
    with pytest.raises(tr.ReadingError, match=r"read it by tr.read_run\(source, columns=(.*)\)") as error:
        tr.read_run(io.StringIO(text))
    columns = eval(str(error.value).split("columns=")[1].split("}")[0] + "}")
    assert tr.read_run(io.StringIO(text), columns=columns).to_dict() == {"q": {"a": 0.5, "b": 0.25}}


@every_join
def test_tied_ids_of_several_types_are_tied_as_the_message_says(join):
    run = {"q": {"a": 0.5, 7: 0.5}, "p": {"b": 0.1}}
    with pytest.raises(TypeError, match=r"got int and str; read the run by tr.read_run\(source, ties='expected'\)"):
        join(QRELS, run)
    assert join(QRELS, tr.read_run(run, ties="expected")) == 0.875


@every_join
def test_a_subset_of_predictions_is_chosen_as_the_message_says(join, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"en": {"test": RUN}, "de": {"test": {}}}))
    with pytest.raises(tr.ReadingError, match=r"one of en, de, got None; read it by tr.read_run\(source, subset=...\)"):
        join(QRELS, tmp_path / "a.json")
    assert join(QRELS, tr.read_run(tmp_path / "a.json", subset="en")) == 0.75
    with pytest.raises(tr.ReadingError, match="grade to be a finite number, got"):
        join(tmp_path / "a.json", RUN)


def test_exchanged_tables_are_exchanged():
    qrels, run = tr.read_qrels(QRELS), tr.read_run(RUN)
    with pytest.raises(TypeError, match="exchange the judgments and the run"):
        tr.evaluate(run, qrels, "mrr")
    assert tr.evaluate(qrels, run, "mrr").means["run"]["mrr"] == 0.75
