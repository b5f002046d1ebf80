"""Judgments of a model and of people: corrected evaluations, agreement, and both in the command."""

import json
import math
import random

import pytest

import torchrank as tr
from tests.support import trec_files
from tests.support.optional import stats
from torchrank.cli import main


@pytest.fixture(scope="module")
def data():
    """Judgments of people for all queries, of a model that is too kind, and two runs."""
    draw = random.Random(0)
    people = {f"q{q}": {f"d{d}": draw.choice([0, 0, 0, 1, 2]) for d in range(8)} for q in range(120)}

    def changed(of):
        return {q: {d: of(grade) for d, grade in grades.items()} for q, grades in people.items()}

    model = changed(lambda grade: min(2, grade + (draw.random() < 0.15)))
    runs = {"bm25": changed(lambda x: x + 5 * draw.random()), "dense": changed(lambda x: x + 3 * draw.random())}
    few = {q: people[q] for q in draw.sample(list(people), 30)}
    return people, model, few, runs


def rectified(model, few, runs, measures, strata=None):
    """The same by rankings in place of tables."""
    names = None if strata is None else sorted({str(name) for name in strata.values()})
    metric = tr.Rectified(measures, list(runs), names)
    options = {} if strata is None else {"strata": [names.index(str(strata[q])) for q in model]}
    judge, human = (
        {name: tr.Ranking.from_run(tr.read_qrels(grades), tr.read_run(run)) for name, run in runs.items()}
        for grades in (model, {q: few.get(q, model[q]) for q in model})
    )
    metric.update(judge, human=human, judged=[q in few for q in model], **options)
    return metric


@pytest.mark.parametrize("strata", [None, "parity"])
def test_evaluate_with_people_is_rectified(data, strata):
    _, model, few, runs = data
    by = None if strata is None else {q: int(q[1:]) % 2 for q in model}
    found = tr.evaluate(model, runs, "ndcg@5 mrr", human=few, strata=by)
    wanted = rectified(model, few, runs, "ndcg@5 mrr", by)
    for row in wanted.summary():
        label, run = row["measure"].split("/")
        (same,) = (one for one in found.summary() if (one["run"], one["measure"]) == (run, label))
        assert [same[name] for name in row if name != "measure"] == pytest.approx([*row.values()][1:], rel=1e-9)
        assert found.means[run][label] == same["value"]
        assert found.intervals()[run][label] == (same["low"], same["high"])
    for one, other in zip(found.compare("dense").table, wanted.comparison("dense").table):
        assert one["p"] == pytest.approx(other["p"], rel=1e-6)
    assert found.rectified.queries_needed(0.2).rows == wanted.queries_needed(0.2).rows
    assert "human" in str(found)


def test_the_corrected_mean_is_nearer_to_people_than_the_judge(data):
    people, model, few, runs = data
    truth = tr.evaluate(people, runs, "ndcg@5").means
    judge = tr.evaluate(model, runs, "ndcg@5").means
    found = tr.evaluate(model, runs, "ndcg@5", human=few).summary()
    for row in found:
        assert row["judge"] == pytest.approx(judge[row["run"]]["ndcg@5"])
        assert row["low"] < truth[row["run"]]["ndcg@5"] < row["high"]
        assert row["effective"] > 40  # of 30 queries


def test_queries_that_only_people_have_judged_are_left_out_with_a_warning(data):
    _, model, few, runs = data
    more = {**few, "other": {"d1": 1}}
    with pytest.warns(UserWarning, match="Left out 1 of 31 queries that people have judged, e.g. 'other'"):
        found = tr.evaluate(model, runs, "mrr", human=more)
    assert found.means == tr.evaluate(model, runs, "mrr", human=few).means
    for number, way_out in ((30, "; exchange the judgments if these are the model's"), (31, "")):
        some = dict(sorted(model.items(), key=lambda entry: entry[0] not in few)[:number])
        with pytest.warns(UserWarning, match=f"have no value by the judge{way_out}$"):
            tr.evaluate(some, runs, "mrr", human=more)


@pytest.mark.parametrize("call", [
    lambda found: found.by({}), lambda found: found.to_html(), lambda found: found.plot_intervals("mrr"),
    lambda found: found.compare(by={}), lambda found: found.plot_differences("bm25", "dense", "mrr"),
])  # fmt: skip
def test_numbers_of_the_judge_alone_are_refused(data, call):
    _, model, few, runs = data
    with pytest.raises(ValueError, match="Expected an evaluation by one file of judgments for"):
        call(tr.evaluate(model, runs, "mrr", human=few))


def test_people_without_a_query_of_the_judge_and_strata_without_a_query_raise(data):
    _, model, few, runs = data
    with pytest.raises(ValueError, match="Expected queries of the judge, got none among 1 of 1"):
        tr.evaluate(model, {q: {} for q in [*model, "x"]}, "mrr", human={"x": {"d1": 1}})
    with pytest.raises(ValueError, match=r"queries that are judged by people in run 'bm25', got none: .* query is 'x'"):
        tr.evaluate(model, runs, "mrr", human={"x": {"d1": 1}})
    with pytest.raises(ValueError, match="Run 'bm25', by people: No document of the run is judged"):
        tr.evaluate(model, runs, "mrr", human={"q0": {"other": 1}})
    with pytest.raises(ValueError, match="Expected a stratum for every query, got none for 'q0'; add it to strata"):
        tr.evaluate(model, runs, "mrr", human=few, strata={"q1": 1})


# ---- agreement -------------------------------------------------------------------------------------------------------


def test_agree_has_the_grades_of_common_documents_and_the_order_of_runs(data):
    people, model, few, runs = data
    runs = {**runs, "half": {q: {d: score**2 % 1 for d, score in docs.items()} for q, docs in runs["bm25"].items()}}
    table = tr.agree({"model": model, "few": few, "people": people}, runs, "ndcg@5 mrr")
    assert [(row["a"], row["b"]) for row in table] == [
        ("model", "few"), ("model", "people"), ("few", "people"), ("all", None),
    ]  # fmt: skip
    assert table["documents"] == [240, 960, 240, 960]
    same = [model[q][d] == grade for q in people for d, grade in people[q].items()]
    assert table["equal"][1] == pytest.approx(sum(same) / 960)
    assert table["nominal"][2] == table["interval"][2] == table["tau mrr"][2] == 1
    assert math.isnan(table["tau mrr"][3])
    assert tr.agree({"a": model, "b": {"q0": {**people["q0"], "d1": -1}}})["documents"] == [7]  # -1 = not judged


def test_tau_is_that_of_scipy_over_the_common_queries(data):
    _, model, few, _ = data
    draw = random.Random(1)
    runs = {f"r{n}": {q: {d: draw.random() for d in docs} for q, docs in model.items()} for n in range(7)}
    runs["same"] = runs["r0"]
    table = tr.agree({"model": model, "few": few}, runs, "ndcg@5")
    some = {q: model[q] for q in few}
    means = [[tr.evaluate(x, run, "ndcg@5").means["run"]["ndcg@5"] for run in runs.values()] for x in (some, few)]
    assert table["tau ndcg@5"][0] == pytest.approx(stats.kendalltau(*means).statistic)


def test_runs_of_which_one_has_no_value_have_no_order(data):
    people, model, _, runs = data
    table = tr.agree({"a": people, "b": model}, {**runs, "none": {"q0": {}}}, "rbpresidual mrr")
    assert math.isnan(table["tau rbpresidual"][0])
    assert table["tau mrr"] == [1]


def test_wrong_calls_of_agree_raise(data):
    _, model, _, runs = data
    with pytest.raises(ValueError, match="Expected two or more judges"):
        tr.agree({"model": model})
    with pytest.raises(ValueError, match="Expected documents that model and other have graded, got none"):
        tr.agree({"model": model, "other": {"q0": {"x": 1}}})
    with pytest.raises(ValueError, match="Expected two or more runs to order"):
        tr.agree({"a": model, "b": model}, {"bm25": runs["bm25"]})


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(data, tmp_path, monkeypatch):
    _, model, few, runs = data
    for name, qrels in (("model", model), ("few", few)):
        trec_files.files_of(tmp_path, qrels, runs)
        (tmp_path / "qrels").rename(tmp_path / f"{name}.qrels")
    (tmp_path / "strata").write_text("".join(f"{q} {'odd' if int(q[1:]) % 2 else 'even'}\n" for q in model))
    monkeypatch.chdir(tmp_path)


def test_the_command_corrects_a_judge_by_people(data, files, capsys):
    _, model, few, runs = data
    arguments = ["model.qrels", "bm25.run", "dense.run", "--human", "few.qrels", "-m", "ndcg@5"]
    strata = ["--strata", "strata", "--width", "0.2"]
    assert main(["eval", *arguments, *strata, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by = {q: "odd" if int(q[1:]) % 2 else "even" for q in model}
    wanted = tr.evaluate(model, runs, "ndcg@5", human=few, strata=by)
    assert found["means"]["bm25"]["ndcg@5"] == pytest.approx(wanted.means["bm25"]["ndcg@5"])
    assert found["needed"] == wanted.rectified.queries_needed(0.2).rows
    assert main(["compare", *arguments, "--require", "ndcg@5 > 0", "--fail-if", "ndcg@5 > 0"]) == 1
    out = capsys.readouterr().out
    assert "passed: require" in out
    assert "FAILED: fail-if" in out


@pytest.mark.parametrize(("extra", "message"), [
    (["--strata", "strata"], "Expected judgments of people with --strata, got none; give --human FILE"),
    (["--width", "0.1"], "Expected judgments of people with --width, got none; give --human FILE"),
    (["--human", "none.qrels"], "Expected a file that exists, got none.qrels"),
    (["--human", "few.qrels", "--by", "strata"], "Expected an evaluation by one file of judgments for slices"),
])  # fmt: skip
def test_wrong_calls_of_the_command_exit_with_2(files, capsys, extra, message):
    assert main(["eval", "model.qrels", "bm25.run", "-m", "mrr", *extra]) == 2
    assert message in capsys.readouterr().err


def test_the_command_prints_the_agreement_of_judges(data, files, capsys):
    _, model, few, runs = data
    call = ["agree", "model.qrels", "people=few.qrels", "--runs", "bm25.run", "dense.run"]
    assert main([*call, "-m", "mrr", "--wide"]) == 0
    assert capsys.readouterr().out == f"{tr.agree({'model': model, 'people': few}, runs, 'mrr')}\n"
    assert main(["agree", "model.qrels"]) == 2
    assert "Expected two or more judges" in capsys.readouterr().err
