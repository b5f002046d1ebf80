"""Evaluations on Spark, with its JVM and its workers on this machine: the bits of one process, and what goes wrong."""

import os
import shutil
from decimal import Decimal

import numpy as np
import pytest

import torchrank as tr
from tests.support.impressions import (
    COLUMNS,
    OF_NULLS,
    WRONG,
    assert_like_one_process,
    impressions,
    other_version,
    run_guide,
    shuffled,
    with_nulls,
)
from tests.support.optional import pyarrow
from tests.support.pages import ROOT
from torchrank.integrations.arrow import Job
from torchrank.version import __version__

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")]

MEASURES = "ndcg@10 map"


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17")
    builder = SparkSession.builder.master("local[2,2]")  # two cores; a task is tried twice
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # compiles quickly, for a minute
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def evaluate(spark):
    return tr.integrations.spark.evaluate


@pytest.fixture(scope="module")
def table():
    return impressions()


@pytest.fixture(scope="module")
def frame(spark, table):
    return spark.createDataFrame(shuffled(table)).cache()


def test_the_guide_has_the_bits_of_one_process(spark, monkeypatch):
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    guide = run_guide("Spark")
    whole, found = guide["whole"], guide["on_spark"]
    assert found.means == whole.means
    assert found.num_queries == 400
    assert found.by().rows == whole.by().rows
    assert str(found.compare("old")) == str(whole.compare("old"))
    assert list(guide["joined"].means) == ["old", "new"]


def test_the_limit_of_bytes_of_a_batch_is_restored(evaluate, spark, frame):
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    spark.conf.set(name, "1000000b")
    try:
        evaluate(frame, "mrr", **COLUMNS)
        assert spark.conf.get(name) == "1000000b"
        with pytest.raises(Exception, match="Expected score to be a number"):
            evaluate(frame.selectExpr("*", "item as text"), "mrr", **{**COLUMNS, "score": "text"})
        assert spark.conf.get(name) == "1000000b"
    finally:
        spark.conf.unset(name)


def test_most_partitions_may_have_no_rows(evaluate, frame, table):
    found = evaluate(frame.where("user < 'u0002'"), MEASURES, **COLUMNS, partitions=8)
    assert found.num_queries == 2
    few = table.filter(pyarrow.array([user < "u0002" for user in table["user"].to_pylist()]))
    assert found.means == tr.evaluate(few, MEASURES, **COLUMNS).means


def test_a_baseline_is_the_first_system(evaluate, frame, table):
    found = evaluate(frame, "mrr", query="user", item="item", score="new", grade="clicked", baseline="old")
    assert list(found.means) == ["old", "new"]
    assert found.means == tr.evaluate(table, "mrr", **COLUMNS).means


def test_a_query_crosses_batches_and_bulks(evaluate, spark):
    # 30 queries of 20,000 rows in one partition: 17 MB. A batch has 10,000 rows, and 16 MB are ranked at once.
    frame = spark.range(600_000).selectExpr(
        "id % 30 as user",
        "id as item",
        "cast(id * 7919 % 100003 as double) as score",
        "cast(id % 997 = 0 as int) as label",
    )
    row = np.arange(600_000)
    columns = {"user": row % 30, "item": row, "score": row * 7919 % 100003, "label": (row % 997 == 0).astype(np.int64)}
    found = evaluate(frame, MEASURES, partitions=1)
    assert found.num_queries == 30
    assert found.means == tr.evaluate(columns, MEASURES).means["run"]


@pytest.mark.filterwarnings("ignore:.*rows (with a grade )?have no")
def test_null_and_nan_scores_and_grades_are_those_of_one_process(evaluate, spark):
    table = with_nulls()
    frame = spark.createDataFrame(table)
    assert frame.where("isnan(score)").count() == frame.where("score is null").count() == 2
    assert_like_one_process(evaluate(frame, OF_NULLS), table)


@pytest.fixture(scope="module")
def joined(spark):
    qrels = {f"q{n}": {f"d{m}": (n * m) % 3 for m in range(6)} for n in range(9)}  # q0 has nothing relevant
    runs = {
        "bm25": {f"q{n}": {f"d{m}": float((n * m * 5) % 7) for m in range(3, 12)} for n in range(2, 12)},
        "dense": {f"q{n}": {f"d{m}": m / (n + 1) for m in range(0, 9, 2)} for n in range(9)},
    }
    judged = [(d, float(grade), q) for q, grades in qrels.items() for d, grade in grades.items()]
    rows = {name: [(score, q, d) for q, docs in run.items() for d, score in docs.items()] for name, run in runs.items()}
    frames = {name: spark.createDataFrame(some, "sim double, topic string, doc string") for name, some in rows.items()}
    return spark.createDataFrame(judged, "doc string, rel double, topic string"), frames, qrels, runs


def test_judgments_and_runs_are_joined_by_name_wherever_columns_are(evaluate, joined):
    judgments, frames, qrels, runs = joined
    for options in ({"ties": "expected"}, {"queries": "both", "depth": 3}):
        found = evaluate(judgments, frames, MEASURES, **options, partitions=4)
        whole = tr.evaluate(qrels, runs, MEASURES, **options)
        assert found.means == whole.means
        assert found.num_queries == len(whole["dense"].ids)
    alone = evaluate(judgments, frames["dense"], MEASURES, **options)
    assert alone.means == whole.means["dense"]


def test_judgments_and_runs_that_do_not_go_together_are_refused(evaluate, spark, joined):
    judgments, frames, *_ = joined
    numbers = spark.createDataFrame([(1, "d0", 0.5)], "topic int, doc string, sim double")
    for run, options, message in (
        (numbers, {}, "Expected query ids of one type, got string in judgments and integer in run"),
        (frames, {"baseline": "bm52"}, "Expected baseline to be one of 'bm25', 'dense', got 'bm52'; did you mean 'bm2"),
        (frames, {"by": "country"}, r"Expected by=\{query: slice\} with judgments and runs, got the column 'country'"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(judgments, run, **options)
    with pytest.raises(TypeError, match=r"Expected a frame or \{name: frame\} as run, got a list; pass"):
        evaluate(judgments, [*frames.values()])


def test_decimals_and_names_with_blanks(evaluate, spark):
    rows = [("a", "x", Decimal("0.5"), 1), ("a", "y", Decimal("0.7"), 0)]
    frame = spark.createDataFrame(rows, "`the user` string, item string, `a score` decimal(10, 2), label int")
    assert evaluate(frame, "mrr", query="the user", score="a score").means == {"mrr": 0.5}


def test_wrong_arguments_raise_before_spark_starts(evaluate, frame):
    for wanted, call in WRONG.items():
        with pytest.raises(ValueError, match=wanted):
            evaluate(frame, MEASURES, **{**COLUMNS, **call})
    with pytest.raises(ValueError, match="ndgc"):
        evaluate(frame, "ndgc@10", **COLUMNS)


def test_errors_of_rows_say_what_is_wrong(evaluate, spark):
    from pyspark.errors import PythonException

    frame = spark.createDataFrame(
        [("a", "x", 0.5, 1), (None, "y", 0.2, 0)], "user string, item string, score double, label int"
    )
    with pytest.raises(PythonException, match="Expected query ids"):
        evaluate(frame, MEASURES)


def test_no_rows_are_a_state(evaluate, frame):
    assert evaluate(frame.limit(0), MEASURES, **COLUMNS).num_queries == 0


def test_a_worker_that_dies_is_run_again_and_changes_nothing(evaluate, frame, table, tmp_path):
    dead = str(tmp_path / "dead")

    def itself(item):
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and context.attemptNumber() == 0:
            open(dead, "w").close()
            os._exit(1)
        return item

    found = evaluate(frame, MEASURES, **COLUMNS, parent=itself, partitions=3)
    assert os.path.exists(dead)
    assert found.num_queries == 60
    assert found.means == tr.evaluate(table, MEASURES, **COLUMNS).means


def test_a_query_in_two_partitions_is_found(spark, frame):
    job = Job("mrr", "user", {**COLUMNS, "score": "new"})

    def states(batches):
        for state in job.states(batches):
            yield pyarrow.RecordBatch.from_pydict({"state": [state]})

    rows = frame.repartition(2).sortWithinPartitions("user").mapInArrow(states, "state binary").collect()  # not by user
    assert len(rows) == 2
    with pytest.raises(ValueError, match="Expected every query in one part"):
        tr.merge(row.state for row in rows)


def test_another_version_on_a_worker_is_an_error_with_both(evaluate, spark, frame, tmp_path):
    from pyspark.errors import PythonException

    other = other_version(tmp_path)
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "PYTHONSAFEPATH": "1"}
    try:
        with pytest.raises(PythonException, match=f"Expected torchrank {__version__}, .* got {other} on a worker;"):
            evaluate(frame, MEASURES, **COLUMNS)
    finally:
        environment.clear()
        environment.update(before)
