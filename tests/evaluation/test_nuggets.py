"""Scores of nuggets: as the paper defines them, nugget by nugget; from files, with people, and agreement."""

import gzip
import json
import random

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.wrappers.compared import Rectified

ASSIGNMENTS, IMPORTANCE = ("not_support", "partial_support", "support"), ("okay", "vital")
LABELS = ["all", "all_strict", "vital", "vital_strict", "weighted", "weighted_strict"]


def line(query, nuggets):
    """A line of an assignment file of nuggets (importance, assignment)."""
    named = [
        {"text": f"nugget {n}", "importance": importance, "assignment": assignment}
        for n, (importance, assignment) in enumerate(nuggets)
    ]
    return {"query": f"What is {query}?", "qid": query, "answer_text": [], "nuggets": named}


def drawn(draw, queries, flips=0.0, like=None):
    """Lines of an assignment file; with ``like`` the same nuggets, of which another judge assigns some otherwise."""
    lines = []
    for number in range(queries):
        if like is None:
            pairs = [(draw.choice(IMPORTANCE), draw.choice(ASSIGNMENTS)) for _ in range(draw.randrange(1, 9))]
        else:
            pairs = [(one["importance"], one["assignment"]) for one in like[number]["nuggets"]]
            pairs = [(which, draw.choice(ASSIGNMENTS) if draw.random() < flips else old) for which, old in pairs]
        lines.append(line(f"q{number}", pairs))
    return lines


def by_definition(nuggets):
    """The six scores of an answer: V, A and W of the paper, section 4, and their strict versions."""
    vital = [one["assignment"] for one in nuggets if one["importance"] == "vital"]
    okay = [one["assignment"] for one in nuggets if one["importance"] == "okay"]
    scores = {}
    for ending, credit in (("", {"support": 1, "partial_support": 0.5}), ("_strict", {"support": 1})):
        of_vital, of_okay = (sum(credit.get(one, 0) for one in each) for each in (vital, okay))
        scores[f"all{ending}"] = (of_vital + of_okay) / (len(vital) + len(okay))
        scores[f"vital{ending}"] = of_vital / len(vital) if vital else 0
        scores[f"weighted{ending}"] = (of_vital + 0.5 * of_okay) / (len(vital) + 0.5 * len(okay))
    return scores


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", None])
def test_scores_are_those_of_the_paper(ending, tmp_path):
    lines = drawn(random.Random(0), 40)
    source = lines
    if ending:
        source = tmp_path / f"run.{ending}"
        text = "\n\n".join(map(json.dumps, lines)).encode()
        source.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    table = tr.evaluate_nuggets({"run": source})["run"]
    assert table.labels == LABELS
    for row, one in enumerate(lines):
        assert {label: table[label][row] for label in LABELS} == pytest.approx(by_definition(one["nuggets"]))


def test_tensors_have_the_scores_of_files():
    lines = drawn(random.Random(1), 30)
    support, importance = torch.zeros(2, 30, 9, dtype=torch.int64)
    for row, one in enumerate(lines):
        for column, nugget in enumerate(one["nuggets"]):
            support[row, column] = ASSIGNMENTS.index(nugget["assignment"])
            importance[row, column] = 1 + IMPORTANCE.index(nugget["importance"])
    table = tr.evaluate_nuggets({"run": lines})["run"]
    for kind in (torch.Tensor.float, torch.Tensor.tolist, torch.Tensor.numpy):
        scores = tr.nugget_scores(kind(support), kind(importance))
        assert {label: score.tolist() for label, score in scores.items()} == {x: table[x].tolist() for x in LABELS}


def test_runs_are_compared_and_a_missing_answer_counts_0():
    draw = random.Random(2)
    full = drawn(draw, 30)
    poor = drawn(draw, 30, 1.0, full)[:20]
    results = tr.evaluate_nuggets({"full": full, "poor": poor})
    assert results["poor"]["all"][20:].tolist() == [0] * 10
    assert results.coverage["missing"] == [0, 10]
    assert results.missing("poor") == [f"q{n}" for n in range(20, 30)]
    pair = results.compare("full").table.rows[0]
    assert pair["difference"] == pytest.approx(results.means["poor"]["all"] - results.means["full"]["all"])
    assert results.by({f"q{n}": "ab"[n % 2] for n in range(30)})["queries"] == [15] * 24
    assert "weighted_strict" in results.to_html()


def test_people_correct_the_scores_of_a_model():
    draw = random.Random(3)
    truth = {name: drawn(draw, 400) for name in ("a", "b")}
    model = {name: drawn(draw, 400, 0.2, lines) for name, lines in truth.items()}
    people = {name: lines[::8] for name, lines in truth.items()}
    results = tr.evaluate_nuggets(model, human=people)
    judge, some = (tr.evaluate_nuggets(each) for each in (model, people))
    for label in LABELS:
        row = next(row for row in results.summary() if (row["run"], row["measure"]) == ("a", label))
        assert (row["queries"], row["human"]) == (400, 50)
        assert row["judge"] == pytest.approx(judge.means["a"][label])
        # weight * mean of the model over all queries, + mean of what people say more over those that they have judged
        both = row["weight"] * judge["a"][label]
        assert row["value"] == pytest.approx(both.mean() + (some["a"][label] - both[::8]).mean())
    assert isinstance(results.rectified, Rectified)
    assert results.compare("a").table["n"] == [50] * 6
    strata = {f"q{n}": "xy"[n % 16 == 0] for n in range(400)}
    assert tr.evaluate_nuggets(model, human=people, strata=strata).summary()["human"] == [50] * 12


def test_judges_of_nuggets_agree_as_far_as_their_grades_do():
    lines = drawn(random.Random(4), 50)
    other = drawn(random.Random(5), 50, 0.3, lines)
    found = tr.agree({"people": tr.read_nuggets(lines), "model": tr.read_nuggets(other)}).rows[0]
    pairs = [(a, b) for one, two in zip(lines, other) for a, b in zip(one["nuggets"], two["nuggets"])]
    assert found["documents"] == len(pairs)
    assert found["equal"] == sum(a["assignment"] == b["assignment"] for a, b in pairs) / len(pairs)


def test_nuggets_of_one_text_are_several():
    twice = {"qid": "q", "nuggets": [{"text": "x", "importance": "vital", "assignment": a} for a in ASSIGNMENTS[1:]]}
    assert tr.read_nuggets([twice]).to_dict() == {"q": {"x": 1, "x (1)": 2}}
    assert tr.evaluate_nuggets({"a": [twice]}).means["a"]["vital"] == 0.75


def test_a_nugget_that_the_model_could_not_assign_is_not_supported():
    failed = line("q", [("vital", "failed"), ("okay", "support")])
    assert tr.evaluate_nuggets({"a": [failed]}).means["a"]["all"] == 0.5


def test_an_answer_without_nuggets_has_the_score_0():
    results = tr.evaluate_nuggets({"a": [line("q1", []), line("q2", [("okay", "support")])]})
    assert results["a"].to_dict() == {
        "id": ["q1", "q2"], "all": [0, 1], "all_strict": [0, 1], "vital": [0, 0], "vital_strict": [0, 0],
        "weighted": [0, 1], "weighted_strict": [0, 1],
    }  # fmt: skip


@cases(
    ("lines", "message"),
    [
        ([line("q", [("vital", "yes")])], "<list>, line 1: Expected a line with qid and nuggets.*got 'yes'"),
        ([line("q", []), {"query": "q"}], "line 2: .* got 'qid'"),
        (["q"], "line 1: Expected a line with qid"),
        ([line("q", []), line("q", [])], "line 2: Expected every query once, got 'q' again"),
        ([], "Expected the nuggets of at least one query, got none"),
        ([line("q", []), line(1, [])], "Expected query ids of one type, got integers and texts"),
        (tr.read_qrels({"q": {"d": 1}}), "Expected assignments of nuggets, got judgments of documents"),
    ],
)
def test_lines_that_are_no_assignments_are_said(lines, message):
    with pytest.raises(tr.ReadingError, match=message):
        tr.evaluate_nuggets({"run": lines})


def test_bad_calls_are_said(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"qid": "q", "nuggets": []}\n{"qid": ')
    with pytest.raises(tr.ReadingError, match=r"a\.jsonl, line 2: Expected JSON"):
        tr.read_nuggets(path)
    with pytest.raises(TypeError, match=r"Expected assignments by run, got list; pass \{'run': assignments\}"):
        tr.evaluate_nuggets([line("q", [])])
    with pytest.raises(ValueError, match="Expected assignments by people for the runs a, got b"):
        tr.evaluate_nuggets({"a": [line("q", [])]}, human={"b": [line("q", [])]})
    with pytest.raises(ValueError, match=r"of one shape \[query, nugget\], got \[1, 2\] and \[1, 1\]"):
        tr.nugget_scores([[1, 2]], [[1]])
    with pytest.raises(ValueError, match=r"Expected support to be 0, 1 or 2, got 0\.5"):
        tr.nugget_scores([[0.5]], [[1]])
