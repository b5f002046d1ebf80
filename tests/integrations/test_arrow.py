"""Batches of whole queries, and the columns of a frame."""

import pytest

import torchrank as tr
from tests.support.optional import pyarrow
from torchrank.integrations import arrow


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("bulk", [1, 40, 100, 1000])
def test_queries_are_whole_wherever_batches_end(rows, bulk, monkeypatch):
    monkeypatch.setattr(arrow, "BULK", bulk)
    queries = [*"abbbcccccccdeeeeeeeeeef"]
    table = pyarrow.table({"user": queries, "item": range(len(queries))})
    tables = list(arrow.whole_queries(table.to_batches(max_chunksize=rows), "user"))
    assert pyarrow.concat_tables(tables) == table
    seen = [{*part["user"].to_pylist()} for part in tables]
    assert sum(map(len, seen)) == len({*queries})  # no query is in two tables
    # Each table but the last ends with the batch in which it reached the size.
    for part in tables[:-1]:
        assert part.nbytes < bulk + 2 * table[: rows + 10].nbytes


def test_an_empty_partition_has_no_tables():
    empty = pyarrow.table({"user": ["a"]}).to_batches()[0][:0]
    assert list(arrow.whole_queries([], "user")) == list(arrow.whole_queries([empty], "user")) == []


def test_an_item_twice_in_a_partition_is_named():
    table = pyarrow.table({"user": ["u", "v", "v"], "item": [1, 2, 2], "score": [0.1, 0.2, 0.3], "label": [1, 0, 1]})
    with pytest.raises(tr.ReadingError, match="got document 2 of query 'v' twice"):
        list(arrow.Job("mrr", "user", {}).states(table.to_batches()))


def test_columns_are_found_or_named():
    names = ["user_id", "items", "pred", "old", "label", "country"]
    found = {"query": "user_id", "item": "items", "score": "pred", "grade": "label"}
    nothing = dict.fromkeys(("query", "item", "rank", "grade"))

    def arguments(score=None, by=None, baseline=None, **named):
        return arrow.frame_arguments(names, {"items"}, score, by, baseline, **{**nothing, **named})

    assert arguments() == found
    assert arguments("old", query="country") == {**found, "query": "country", "score": "old"}
    assert arguments(by="country") == {**found, "by": "country"}
    assert arguments(baseline="old")["score"] == {"old": "old", "pred": "pred"}
    assert arguments("old", baseline="pred")["score"] == {"pred": "pred", "old": "old"}
    assert arguments(["pred", "old"], baseline="old")["score"] == {"old": "old", "pred": "pred"}
    systems = arguments({"query": "pred", "b": "old"}, baseline="b")
    assert systems["score"] == {"b": "old", "query": "pred"}
    assert list(systems["score"]) == ["b", "query"]
    assert sorted(arrow.columns_of(systems)) == ["items", "label", "old", "pred", "user_id"]
    with pytest.raises(tr.ReadingError, match=r"Expected one of the columns user_id, .*, got 'new'"):
        arguments("new")
    with pytest.raises(tr.ReadingError, match="pass grade= with the name of its column"):
        arrow.frame_arguments(["user", "score"], (), None, None, None, **nothing)
