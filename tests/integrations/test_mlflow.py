"""Metrics and scorers for MLflow, in its evaluations, beside tr.evaluate and its own numbers."""

import math
import warnings

import numpy as np
import pytest

import torchrank as tr
from tests.support.optional import OptionalModule, examples_of, pandas

mlflow, ours = OptionalModule("mlflow"), OptionalModule("torchrank.integrations.mlflow")

pytestmark = [
    pytest.mark.needs("mlflow", "pandas"),
    pytest.mark.xdist_group("processes"),  # whose process imports MLflow for tests of loggers
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("FutureWarning", "DeprecationWarning")),
]

#: nothing relevant is found in the first row, one of two, one of five in a list of one, none exist, grades
RELEVANT = [["d7"], ["d3", "d7"], ["d1", "d2", "d3", "d4", "d5"], [], {"d1": 1, "d2": 3, "d8": 0}]
FOUND = [["d1", "d2"], ["d1", "d2", "d3"], ["d1"], ["d1", "d2"], ["d1", "d8", "d2"]]


@pytest.fixture(scope="module", autouse=True)
def experiment(mlflow_store, tmp_path_factory):
    mlflow.set_tracking_uri(mlflow_store)
    artifacts = str(tmp_path_factory.mktemp("artifacts"))
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("all", artifact_location=artifacts))


def evaluated(measures, relevant=RELEVANT, found=FOUND, **options):
    """The keys of a run with their values, and the table of its rows."""
    frame = pandas.DataFrame({"question": [*map(str, range(len(found)))], "found": found, "relevant": relevant})
    columns = {"predictions": "found", "targets": "relevant", "evaluators": "default"}
    with mlflow.start_run() as run:
        result = mlflow.models.evaluate(data=frame, **columns, extra_metrics=ours.metrics(measures), **options)
    assert mlflow.get_run(run.info.run_id).data.metrics == result.metrics  # all keys have arrived
    return result.metrics, result.tables["eval_results_table"]


def test_each_row_and_the_means_have_the_values_of_evaluate():
    measures = ["ndcg@5", "rbp(p=0.8)@10", "mr", "amri"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        means, table = evaluated(measures)
    assert not [one for one in caught if "judged" in str(one.message)]  # of the first row, which MLflow tries alone
    expected = tr.evaluate(dict(enumerate(RELEVANT)), dict(enumerate(FOUND)), measures)
    keys = ["ndcg_at_5", "rbp_p_0p8_at_10", "mr", "mr_adjusted_index"]
    for key, label in zip(keys, expected["run"].labels, strict=True):
        values = expected["run"][label]
        np.testing.assert_allclose(table[f"{key}/score"].astype(float), values, atol=1e-9)
        assert means[f"{key}/mean"] == pytest.approx(expected.means["run"][label])
        assert means[f"{key}/variance"] == pytest.approx(np.nanvar(values))
        assert means[f"{key}/p90"] == pytest.approx(np.nanpercentile(values, 90))
    assert table["ndcg_at_5/score"][2] == pytest.approx(1 / sum(1 / math.log2(rank + 1) for rank in range(1, 6)))
    assert math.isnan(table["mr/score"][3])


def test_they_take_the_place_of_metrics_of_mlflow_and_agree_where_these_are_right():
    relevant, found = [[*row] for row in RELEVANT], [*FOUND[:4], ["d1", "d1", "d2"]]  # two chunks of d1
    means, _ = evaluated(
        "recall@5 ndcg@3", relevant, found, model_type="retriever", evaluator_config={"retriever_k": 3}
    )
    assert means["recall_at_3/mean"] == pytest.approx(means["recall_at_5/mean"])  # lists have three documents or less
    expected = tr.evaluate(dict(enumerate(relevant)), dict(enumerate(found)), "ndcg@3", duplicates="first")
    assert means["ndcg_at_3/mean"] == pytest.approx(expected.means["run"]["ndcg@3"])


def test_ids_of_different_types_are_noticed():
    (metric,) = ours.metrics("ndcg@10")
    with pytest.warns(UserWarning, match="No document of the run is judged: a document of the run is 1"):
        value = metric.eval_fn([[1, 2], [3]], [["1"], ["3"]])
    assert value.scores == [0.0, 0.0]
    with pytest.raises(ValueError, match=r"Expected \{query: \{document: score\}\} or .*, got str for query 0"):
        metric.eval_fn(["d1"], [["d1"]])


def test_a_measure_without_a_value_in_any_row_has_a_mean_of_nan():
    (metric,) = ours.metrics("mr")
    value = metric.eval_fn([["d1"]], [[]])
    assert value.scores == [None]
    assert math.isnan(value.aggregate_results["mean"])
    assert not metric.greater_is_better


def retrieving():
    """A traced answer of two retrievers: one that has another inside finds d1, d8, d2, then one finds d8, d1, d8."""
    trace = mlflow.trace
    retriever = trace(span_type=mlflow.entities.SpanType.RETRIEVER)

    def documents(*ids):
        return [mlflow.entities.Document("text", {"doc_uri": name}) for name in ids]

    @retriever
    def keywords(question):
        return documents("d8", "d1", "d8")

    @trace
    def reranked(question):
        return keywords(question)

    @retriever
    def hybrid(question):
        return [*reranked(question)[1:], *documents("d2")]

    @trace
    def answer(question):
        hybrid(question)
        keywords(question)
        return "an answer"

    return answer


def test_scorers_read_the_outermost_retrievers_of_a_trace():
    rows = [
        {"inputs": {"question": "a"}, "expectations": {"expected_retrieved_context": [{"doc_uri": "d1"}]}},
        {"inputs": {"question": "b"}, "expectations": {"expected_retrieved_context": {"d8": 1, "d2": 3}}},
        {"inputs": {"question": "c"}, "expectations": {"expected_retrieved_context": []}},
    ]
    measures = ["ndcg@10", "mr", "recall@2"]
    result = mlflow.genai.evaluate(rows, ours.scorers(measures, aggregations=["mean", "max"]), predict_fn=retrieving())
    relevant = {0: ["d1"], 1: {"d8": 1, "d2": 3}, 2: []}
    expected = tr.evaluate(relevant, {row: ["d1", "d8", "d2"] for row in relevant}, measures)["run"]
    keys = ["ndcg_at_10", "mr", "recall_at_2"]
    assert {key.partition("/")[0] for key in result.metrics} == {*keys}
    for key, label in zip(keys, measures):
        assert result.metrics[f"{key}/mean"] == pytest.approx(np.nanmean(expected[label]))
        assert result.metrics[f"{key}/max"] == pytest.approx(np.nanmax(expected[label]))


def test_scorers_read_outputs_without_a_trace_and_leave_out_a_row_that_fails():
    rows = [
        {"inputs": {"question": "a"}, "outputs": ["d1", "d2"], "expectations": {"relevant": ["d2"]}},
        {"inputs": {"question": "b"}, "outputs": [{"id": "d1"}, {"id": "d2"}], "expectations": {"relevant": ["d1"]}},
        {"inputs": {"question": "c"}, "outputs": "text", "expectations": {"relevant": ["d1"]}},
    ]
    result = mlflow.genai.evaluate(rows, ours.scorers("mrr", expected="relevant", key="id"))
    assert result.metrics == {"mrr/mean": 0.75}


def test_wrong_documents_have_a_way_out():
    (scorer,) = ours.scorers("mrr")
    expectations = {"expected_retrieved_context": [{"doc_uri": "d1"}]}
    with pytest.raises(ValueError, match=r"Expected 'expected_retrieved_context' in .*, got \['a'\]; pass expected="):
        scorer(outputs=["d1"], expectations={"a": ["d1"]}, trace=None)
    with pytest.raises(ValueError, match=r"Expected documents with 'doc_uri', got \['id', 'metadata'\]; pass key="):
        scorer(outputs=[{"id": "d1", "metadata": None}], expectations=expectations, trace=None)
    with pytest.raises(ValueError, match=r"documents, got str; mark the retriever by mlflow.trace\("):
        scorer(outputs="an answer", expectations=expectations, trace=None)


test_examples_print_the_output_shown = examples_of("torchrank.integrations.mlflow")
