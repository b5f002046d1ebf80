"""Measures for ir_measures and PyTerrier, beside evaluate and their own providers."""

import numpy as np
import pytest

import torchrank as tr

pd = pytest.importorskip("pandas")
ir_measures = pytest.importorskip("ir_measures")

from ir_measures import nDCG  # noqa: E402

from torchrank.integrations.ir_measures import Provider, measure  # noqa: E402


def frames(tied, seed=0):
    """Judgments of 20 queries with two subtopics, and a run without q0 and with a query that nobody has judged."""
    random, qrels, run = np.random.default_rng(seed), [], []
    for n in range(20):
        scores = random.integers(0, 6, 30) if tied else random.permutation(30)
        run += [(f"q{n + 1}", f"d{d}", float(score)) for d, score in enumerate(scores)]
        judged = random.permutation(40)[:15]
        qrels += [(f"q{n}", f"d{d}", int(grade), str(d % 2)) for d, grade in zip(judged, random.integers(0, 4, 15))]
    columns = ["query_id", "doc_id", "relevance", "iteration"]
    return pd.DataFrame(qrels, columns=columns), pd.DataFrame(run, columns=["query_id", "doc_id", "score"])


def dicts(qrels, run):
    judged = {query: dict(zip(rows.doc_id, rows.relevance)) for query, rows in qrels.groupby("query_id")}
    return judged, {query: dict(zip(rows.doc_id, rows.score)) for query, rows in run.groupby("query_id")}


@pytest.mark.parametrize("ties", [None, "expected"])
@pytest.mark.parametrize("name", ["err@5", "ndcg@10", "mr", "rbp(p=0.9)"])
def test_a_measure_has_the_values_of_evaluate(name, ties):
    qrels, run = frames(tied=True)
    expected = tr.evaluate(*dicts(qrels, run), name, ties=ties)
    ours = measure(name, ties=ties)
    values = {found.query_id: found.value for found in ir_measures.iter_calc([ours], qrels, run)}
    table = expected["run"]
    for query, value in zip(table.ids, table[name]):
        # ir_measures has 0 for a query without a value.
        assert values[query] == pytest.approx(0 if np.isnan(value) else value)
    assert str(ours) == tr.parse(name).label + (" expected" if ties else "")
    if name != "mr":
        aggregate = ir_measures.calc_aggregate([ours, nDCG @ 3], qrels, run)[ours]
        assert aggregate == pytest.approx(expected.means["run"][name])


def test_subtopics_are_the_iterations_of_the_judgments():
    qrels, run = frames(tied=False)
    rows = list(zip(qrels.query_id, qrels.iteration, qrels.doc_id, qrels.relevance))
    expected = tr.evaluate(rows, dicts(qrels, run)[1], "alphandcg@10").means["run"]["alphandcg@10"]
    ours = measure("alpha_nDCG@10")
    assert ir_measures.calc_aggregate([ours], qrels, run)[ours] == pytest.approx(expected)
    flat = qrels.assign(iteration="0")
    assert ir_measures.calc_aggregate([ours], flat, run)[ours] != pytest.approx(expected)


TREC_EVAL = "nDCG@10 AP AP(rel=2)@100 P@5 RR R@20 Rprec Bpref SetF Success@1 IPrec@0.4 infAP NumRel"


@pytest.mark.parametrize(("names", "tied"), [(TREC_EVAL, True), ("Judged@10 Compat(p=0.9)", False)])
def test_the_provider_has_the_numbers_of_other_providers(names, tied):
    qrels, run = frames(tied)
    for theirs in map(ir_measures.parse_measure, names.split()):
        expected, found = ir_measures.calc([theirs], qrels, run), Provider().calc([theirs], qrels, run)
        assert found.aggregated[theirs] == pytest.approx(expected.aggregated[theirs], abs=1e-6)
        values, wanted = ({one.query_id: one.value for one in each.per_query} for each in (found, expected))
        assert values == pytest.approx(wanted, abs=1e-5)


def test_the_provider_refuses_what_is_not_known():
    assert not Provider().supports(ir_measures.define(lambda qrels, run: [], "unknown measure"))
    assert not Provider().supports(ir_measures.Accuracy)  # the area under the curve, which is another measure here


def test_a_cutoff_after_the_name_is_refused():
    with pytest.raises(ValueError, match=r"got 'err' @ 5; pass measure\('err@5'\)"):
        measure("err") @ 5
    with pytest.raises(ValueError, match="got 'nothing@5'"):
        measure("nothing@5")


def test_an_experiment_of_pyterrier_has_the_values_of_evaluate():
    pt = pytest.importorskip("pyterrier")
    qrels, run = frames(tied=True)
    expected = tr.evaluate(*dicts(qrels, run), "err@5").means["run"]["err@5"]
    topics = pd.DataFrame({"qid": qrels.query_id.unique(), "query": "words"})
    renamed = {"query_id": "qid", "doc_id": "docno", "relevance": "label"}
    result = pt.Experiment(
        [run.rename(columns=renamed)], topics, qrels.rename(columns=renamed), [nDCG @ 10, measure("err@5")], names=["a"]
    )
    assert result["err@5"].item() == pytest.approx(expected)
