"""One table comes from every frame, and a ranking of a frame keeps the ids and groups of its queries."""

import builtins
import importlib
import io
import sys

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.awkward_ids import IDS
from tests.support.cases import cases
from tests.support.optional import pandas, pyarrow
from torchrank.tables import pair_tables

STRANGE = [*IDS, "a b", "None", "\x00"]


def table(kind):
    """Columns of (query, document, score), and the dictionary that they are."""
    draw = np.random.default_rng(7)
    names = STRANGE if kind == "text" else [7, -1, 0, 2**62, 100000, 12]
    pairs = [(query, item) for query in names for item in names]
    order = draw.permutation(len(pairs)).tolist()  # queries are interleaved
    query, item = ([pairs[row][side] for row in order] for side in (0, 1))
    score = draw.standard_normal(len(pairs))
    want: dict = {}
    for one, other, value in zip(query, item, score.tolist()):
        want.setdefault(one, {})[other] = value
    return {"qid": query, "docid": item, "score": score}, want


def polars(columns, **casts):
    pl = pytest.importorskip("polars")
    return pl.DataFrame(columns).with_columns(pl.col("qid", "docid").cast(casts["to"](pl)) if casts else pl.all())


def arrow(columns, change=lambda column, pa: column):
    pa = pytest.importorskip("pyarrow")
    made = {name: change(pa.chunked_array([x]), pa) if name != "score" else x for name, x in columns.items()}
    return pa.table(made)


def chunked(column, pa):
    return pa.chunked_array([column.chunk(0)[:5], column.chunk(0)[5:5], column.chunk(0)[5:]])


def dictionaries(column, pa):
    return pa.chunked_array([part.dictionary_encode() for part in chunked(column, pa).chunks])


def parquet(columns, library):
    module = pytest.importorskip(library)
    file = io.BytesIO()
    if library == "polars":
        module.DataFrame(columns).write_parquet(file)
    else:
        importlib.import_module("pyarrow.parquet").write_table(module.table(columns), file)
    return io.BytesIO(file.getvalue())


def duck(columns):
    duckdb = pytest.importorskip("duckdb")
    frame = pandas.DataFrame(columns).convert_dtypes()
    return duckdb.from_df(frame).select("*")


def hugging_face(columns, *format):
    made = pytest.importorskip("datasets").Dataset.from_dict(columns)
    return made.with_format(*format) if format else made


class Stream:
    """An object of a library that is known by its Arrow stream alone."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES = {
    "columns": lambda c: c,
    "arrays": lambda c: {name: np.array(column, object) if name != "score" else column for name, column in c.items()},
    "series": lambda c: {name: pandas.Series(column) for name, column in c.items()},
    "pandas": pandas.DataFrame,
    "pandas object": lambda c: pandas.DataFrame(c).astype({"qid": object, "docid": object}),
    "pandas category": lambda c: pandas.DataFrame(c).astype({"qid": "category", "docid": "category"}),
    "pandas with an index": lambda c: pandas.DataFrame(c, index=np.arange(len(c["qid"]))[::-1] // 2),
    "polars": polars,
    "polars lazy": lambda c: polars(c).lazy(),
    "pyarrow": arrow,
    "pyarrow batch": lambda c: arrow(c).combine_chunks().to_batches()[0],
    "pyarrow reader": lambda c: arrow(c).to_reader(),
    "pyarrow chunks": lambda c: arrow(c, chunked),
    "pyarrow slice": lambda c: arrow({name: [*column[:3], *column] for name, column in c.items()}).slice(3),
    "pyarrow dictionaries": lambda c: arrow(c, dictionaries),
    "Arrow stream": lambda c: Stream(arrow(c)),
    "duckdb": duck,
    "datasets": hugging_face,
    "datasets torch": lambda c: hugging_face(c, "torch"),
    "datasets pandas": lambda c: hugging_face(c, "pandas"),
    "datasets shuffled": lambda c: hugging_face(c).select(range(len(c["qid"]))).shuffle(seed=1),
    "parquet polars": lambda c: parquet(c, "polars"),
    "parquet pyarrow": lambda c: parquet(c, "pyarrow"),
}
OF_TEXT = {
    "polars Categorical": lambda c: polars(c, to=lambda pl: pl.Categorical),
    "polars Enum": lambda c: polars(c, to=lambda pl: pl.Enum(["never", *STRANGE])),
    "pandas Arrow": lambda c: arrow(c).to_pandas(types_mapper=pandas.ArrowDtype),
    "pyarrow large": lambda c: arrow(c, lambda column, pa: column.cast(pa.large_string())),
    "pyarrow view": lambda c: arrow(c, lambda column, pa: column.cast(pa.string_view())),
}
OF_INTEGERS = {
    "pandas nullable": lambda c: pandas.DataFrame(c).astype({"qid": "Int64", "docid": "Int64"}),
    "pandas Arrow": lambda c: arrow(c).to_pandas(types_mapper=pandas.ArrowDtype),
    "tensors": lambda c: {name: torch.tensor(column) for name, column in c.items()},
}


@cases(
    ("kind", "name", "make"),
    [("text", *one) for one in (FRAMES | OF_TEXT).items()] + [("int", *one) for one in (FRAMES | OF_INTEGERS).items()],
)
def test_every_frame_gives_one_table_and_integers_stay_integers(kind, name, make):
    columns, want = table(kind)
    found = tr.read_run(make(columns))
    assert found.to_dict() == want
    assert found.queries.kind == found.items.kind == ("text" if kind == "text" else "integers")
    if "shuffled" not in name:
        assert found.query_ids == list(want)
    assert tr.read_qrels(make(columns)).to_dict() == want


@cases("name", [name for name in FRAMES | OF_TEXT if name not in ("polars Enum", "datasets shuffled")])
def test_a_missing_or_empty_id_is_refused_with_its_row(name):
    columns, _ = table("text")
    for bad, message in ((None, "Expected document ids to be text, got None"), ("", "got an empty one")):
        columns["docid"][3] = bad
        with pytest.raises(tr.ReadingError, match=f"row 4: .*{message}"):
            tr.read_run((FRAMES | OF_TEXT)[name](columns))


@pytest.mark.parametrize("name", ["columns", "pandas nullable", "polars", "pyarrow", "duckdb", "datasets torch"])
def test_a_missing_score_or_integer_is_refused_with_its_row(name):
    make = (FRAMES | OF_INTEGERS)[name]
    for column, message in (("score", "score to be a number"), ("docid", "document ids to be text or integers")):
        columns = {"qid": [1, 1, 2], "docid": [1, 2, 3], "score": [0.5, 0.25, 1.0]}
        columns[column][1] = None
        with pytest.raises(tr.ReadingError, match=f"row 2: Expected {message}, got"):
            tr.read_run(make(columns))


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow", "duckdb"])
def test_a_frame_without_rows_is_an_empty_table(name):
    columns = {"qid": ["a"], "docid": ["b"], "score": [0.5]}
    made = FRAMES[name](columns)
    empty = made.limit(0) if name == "duckdb" else made[:0]
    assert tr.read_run(empty).to_dict() == {}


@pytest.mark.parametrize("blocked", ["pandas", "pyarrow", "polars"])
def test_a_library_that_is_not_installed_is_not_needed(blocked, monkeypatch):
    columns, want = table("text")
    duckdb = pytest.importorskip("duckdb")
    frames = {"polars": [polars(columns)], "pandas": [pandas.DataFrame(columns)]}
    frames["pyarrow"] = [arrow(columns), arrow(columns, dictionaries), Stream(arrow(columns))]
    connection = duckdb.connect()
    connection.execute("create table t (qid text, docid text, score double)")
    connection.executemany("insert into t values (?, ?, ?)", [("a\u00e9", "b", 0.5), ("c", "d", 0.25)])
    real = builtins.__import__

    def missing(name, *rest, **options):
        if name.split(".")[0] == blocked:
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setitem(sys.modules, blocked, None)
    for library, made in frames.items():
        for frame in made if library != blocked else [columns]:
            assert tr.read_run(frame).to_dict() == want
    found = tr.read_run(connection.sql("select * from t"))
    assert found.to_dict() == {"aé": {"b": 0.5}, "c": {"d": 0.25}}


def test_parquet_and_arrow_streams_need_one_of_two_libraries(tmp_path, monkeypatch):
    columns, want = table("text")
    path, stream = tmp_path / "run.parquet", Stream(arrow(columns))
    path.write_bytes(parquet(columns, "pyarrow").read())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert tr.read_run(path).to_dict() == want
    monkeypatch.setitem(sys.modules, "polars", None)
    for source in (path, stream):
        with pytest.raises(ImportError, match="run `pip install pyarrow`, or `pip install polars`"):
            tr.read_run(source)


def test_columns_of_one_name_or_of_different_lengths_are_refused():
    frame = pandas.DataFrame([["q", "d", 1.0, 2.0]], columns=["qid", "docid", "score", "score"])
    with pytest.raises(tr.ReadingError, match="columns with different names"):
        tr.read_run(frame)
    with pytest.raises(tr.ReadingError, match="columns of one length"):
        tr.read_run({"qid": ["a"], "docid": ["b", "c"], "score": [1.0]})


def test_only_the_columns_that_are_read_must_be_readable():
    frame = pandas.DataFrame({"qid": ["q"], "docid": ["d"], "score": [1.0], "text": [object()]})
    assert tr.read_run(frame).to_dict() == {"q": {"d": 1.0}}


@pytest.mark.parametrize("kind", ["text", "int"])
def test_queries_are_numbered_in_the_order_of_appearance_though_hashes_collide(kind, monkeypatch):
    columns, want = table(kind)
    assert tr.read_run(columns).query_ids == list(want)
    monkeypatch.setattr(pair_tables.TextIds, "hashes", lambda column: np.zeros(len(column), np.uint64))  # all collide
    assert pair_tables.factorise(pair_tables.TextIds.of(["b", "a", "b"]))[0].tolist() == [0, 1, 0]


# ---- ir_datasets -----------------------------------------------------------------------------------------------------


def test_a_data_set_of_ir_datasets_is_read_by_its_own_classes(tmp_path):
    irds = pytest.importorskip("ir_datasets")
    from ir_datasets.formats import TrecQrels, TrecScoredDocs
    from ir_datasets.util import LocalDownload

    (tmp_path / "qrels").write_text("007 0 NA 2\n007 0 1e5 -1\n é 0 #3 1\n")
    (tmp_path / "run").write_text("007 Q0 NA 1 0.5 t\n007 Q0 x 2 0.25 t\n")
    files = {name: LocalDownload(tmp_path / name) for name in ("qrels", "run")}
    made = irds.Dataset(TrecQrels(files["qrels"], {2: "good"}), TrecScoredDocs(files["run"]))
    irds.registry.register("torchrank-test", made)
    qrels, run = tr.read_qrels("irds:torchrank-test"), tr.read_run("irds:torchrank-test")
    assert qrels.to_dict() == tr.read_qrels(tmp_path / "qrels").to_dict()
    assert run.to_dict() == tr.read_run(tmp_path / "run").to_dict() == {"007": {"NA": 0.5, "x": 0.25}}
    irds.registry.register("torchrank-qrels", irds.Dataset(TrecQrels(files["qrels"], {2: "good"})))
    with pytest.raises(tr.ReadingError, match="dataset with scoreddocs, got one without"):
        tr.read_run("irds:torchrank-qrels")


# ---- ids and groups of a ranking -------------------------------------------------------------------------------------


JUDGED = {
    "qid": ["b", "b", "a", "é", "a", "c"],
    "docid": [1, 2, 1, 3, 2, 9],
    "score": [0.1, 0.2, 0.5, 1, 0.4, 0.5],
    "label": [1, 0, 1, 1, 0, 0],
    "lang": ["de", "de", "en", None, "en", "de"],
}


def judged_frame(**more):
    return pandas.DataFrame(JUDGED | more)


@pytest.mark.parametrize("group", [[1, 1, 2, 3, 2, 1], [True, True, False, False, False, True]])
def test_groups_are_text_integers_or_bools(group):
    ranking = tr.Ranking.from_table(judged_frame(lang=group), group="lang")
    assert ranking.groups == [group[0], group[2], group[3], group[5]]
    with pytest.raises(tr.ReadingError, match=r"row 1: Expected lang to be text, .*, got 0.5 of type float"):
        tr.Ranking.from_table(judged_frame(lang=[0.5] * 6), group="lang")


def test_a_query_with_two_groups_is_refused_with_its_row():
    with pytest.raises(tr.ReadingError, match="row 5: Expected one lang for each query, got 'en' and 'de' for qu"):
        tr.Ranking.from_table(judged_frame(lang=["de", "de", "en", None, "de", "de"]), group="lang")
    with pytest.raises(tr.ReadingError, match=r"row 5: .*got 'en' and None for query 'a'"):
        tr.Ranking.from_table(judged_frame(lang=["de", "de", "en", None, None, "de"]), group="lang")
    with pytest.raises(tr.ReadingError, match="got 'lagn'; did you mean 'lang'"):
        tr.Ranking.from_table(judged_frame(), group="lagn")


def test_rankings_of_runs_have_ids_and_rankings_of_tensors_have_none():
    ranking = tr.Ranking.from_run({"q": {"a": 1}, "p": {"b": 1}}, {"p": {"b": 1}})
    assert ranking.query_ids == ["q", "p"]
    assert ranking.groups is None
    tensors = tr.Ranking.from_scores(torch.rand(2, 3), torch.ones(2, 3))
    assert tensors.query_ids is tensors.groups is None


def test_a_derived_ranking_has_no_wrong_ids():
    ranking = tr.Ranking.from_table(judged_frame(), group="lang")
    assert ranking.take(torch.tensor([2, 0])).query_ids is None


def test_qrels_and_runs_of_ranx_are_their_dictionaries():
    ranx = pytest.importorskip("ranx")
    grades, scores = {"q": {"a": 1, "b": 2}, "p": {"a": 1}}, {"q": {"b": 0.5, "c": 0.25}, "p": {"a": 0.1}}
    assert tr.read_qrels(ranx.Qrels(grades)).to_dict() == grades
    assert tr.read_run(ranx.Run(scores)).to_dict() == scores


def test_texts_of_arrow_are_no_scores():
    frame = pyarrow.table({"user": ["a"], "item": ["x"], "score": ["high"], "label": [1]})
    with pytest.raises(tr.ReadingError, match="Expected score to be a number, got 'high', a text"):
        tr.evaluate(frame, "mrr")
