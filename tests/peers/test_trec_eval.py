"""trec_eval's own files and program: set ``TREC_EVAL`` to a checkout of github.com/usnistgov/trec_eval, built or not.

Its Makefile names the command line of each reference output. Values have 4 digits there.
"""

import csv
import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import torchrank as tr
from tests.support.pages import ROOT
from tests.support.trec_files import collection_with_ties, write
from torchrank.cli import main

CHECKOUT = Path(os.environ.get("TREC_EVAL", "/nowhere"))
FILES, PROGRAM = CHECKOUT / "test", CHECKOUT / "trec_eval"
needs_files = pytest.mark.skipif(not FILES.is_dir(), reason="TREC_EVAL names no checkout of trec_eval")
needs_program = pytest.mark.skipif(not PROGRAM.is_file(), reason="TREC_EVAL names no checkout with a built trec_eval")

#: values that are texts
TEXTS = ("runid", "relstring")
#: names of values that are no measures, or that have no counterpart, and the reason
LACKING = {
    "rbp": "its largest gain is read from memory that is not initialised",
    "rbp_resid": "omits the first term if all is judged",
    "ndcg_1=3,2=9,4=4.5": "compared below",
}

#: reference output, judgments, run, our options
REFERENCES = [
    "out.test qrels.test results.test",
    "out.test qrels.test.with-comments results.test",
    "out.comment.test qrels.comment.test results.comment.test",
    "out.test.a qrels.test results.test",
    "out.test.aq qrels.test results.test",
    "out.test.aqc qrels.test results.trunc --queries judged",
    "out.test.aqcM qrels.test results.trunc --queries judged --depth 100",
    "out.test.aql qrels.rel_level results.test --relevance-level 2",
    "out.test.meas_params qrels.test results.test",
]


def is_lacking(name):
    return any(name == one or name.startswith(f"{one}_") for one in LACKING)


def theirs(text, lacking=False):
    """The values of an output of trec_eval, {(name, query): value}; without names that have no counterpart."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if is_lacking(row[0]) == lacking and not row[0].startswith(TEXTS)]
    return {(name, query): float(value) for name, query, value in rows}


def ours(names, tmp_path, capsys, *arguments):
    """The values of our command, {(name, query): value}, under trec_eval's names."""
    labels = {name: tr.parse(name).label for name in names}
    file = tmp_path / "values.tsv"
    command = ["eval", *arguments, "-m", " ".join(dict.fromkeys(labels.values())), "-q", str(file), "--format", "json"]
    assert main([str(one) for one in command]) == 0
    (means,) = json.loads(capsys.readouterr().out)["means"].values()
    # their labels have the parameters that options have set
    by_label = dict(zip(dict.fromkeys(labels.values()), means, strict=True))
    found = {("all", label): value for label, value in means.items()}
    for row in csv.DictReader(io.StringIO(file.read_text()), delimiter="\t"):
        found[row["query"], row["measure"]] = float(row["value"])
    return {(name, q): x for name, label in labels.items() for (q, key), x in found.items() if key == by_label[label]}


def compared(wanted, options):
    """Without the mean of a measure of which lower values are better, if it counts 0 for queries that the run lacks."""
    lacking = "--queries" in options
    return {(name, q): x for (name, q), x in wanted.items() if not (lacking and q == "all" and name.startswith("unj_"))}


def assert_agree(found, wanted):
    wrong = {key: (found.get(key), value) for key, value in wanted.items() if abs(found[key] - value) > 5.01e-5}
    assert not wrong


@needs_files
@pytest.mark.parametrize("line", REFERENCES)
def test_reference_outputs_of_trec_eval(line, tmp_path, capsys):
    reference, qrels, run, *options = line.split()
    wanted = theirs((FILES / reference).read_text())
    names = dict.fromkeys(name for name, _ in wanted)
    options = ["--preset", "trec_eval", *options]
    # trec_eval takes all that follows the score for the tag of a run; we refuse a line with another number of fields.
    lines = (FILES / run).read_text().splitlines()
    (tmp_path / "run").write_text("".join(" ".join(line.split()[:6]) + "\n" for line in lines))
    assert_agree(ours(names, tmp_path, capsys, FILES / qrels, tmp_path / "run", *options), compared(wanted, options))


@needs_files
def test_measures_of_trec_eval_with_parameters():
    wanted = theirs((FILES / "out.test.meas_params").read_text(), lacking=True)
    gains = tr.NDCG(gain={1: 3, 2: 9, 3: 3, 4: 4.5})
    means = tr.evaluate(FILES / "qrels.test", FILES / "results.test", [gains]).means["results"]
    assert means[gains.label] == pytest.approx(wanted["ndcg_1=3,2=9,4=4.5", "all"], abs=5e-5)


@needs_files
def test_measures_of_trec_eval_that_others_of_ours_express():
    wanted = theirs((FILES / "out.test.aq").read_text(), lacking=True)
    names = "rbp(p=0.9) rbpresidual(p=0.9)"
    table = tr.evaluate(FILES / "qrels.test", FILES / "results.test", names)["results"]
    for query, (rbp, residual) in zip(table.ids, zip(*table.columns.values())):
        found = {"rbp": rbp, "rbp_resid": residual}
        found = {(name, query): value for name, value in found.items()}
        assert_agree(found, {key: wanted[key] for key in found})


#: trec_eval's flags, our options, and whether the run may lack queries, which version 10 refuses without -c
FLAGS = [
    (["-c"], ["--queries", "judged"], True),
    ([], [], False),
    (["-c", "-l", "2"], ["--queries", "judged", "--relevance-level", "2"], True),
    (["-c", "-M", "7"], ["--queries", "judged", "--depth", "7"], True),
    (["-J"], ["--unjudged", "condensed"], False),
    (["-J", "-M", "9", "-l", "2"], ["--unjudged", "condensed", "--depth", "9", "--relevance-level", "2"], False),
]


@needs_program
@pytest.mark.parametrize(("flags", "options", "missing"), FLAGS)
def test_the_program_agrees_on_ties_for_all_measures(flags, options, missing, tmp_path, capsys):
    for seed in range(2):
        qrels, run = write(tmp_path, *collection_with_ties(seed, unjudged_queries=2, missing=3 if missing else 0))
        command = [PROGRAM, "-q", "-m", "all_trec", *flags, qrels, run]
        wanted = theirs(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        names = dict.fromkeys(name for name, _ in wanted)
        assert len(wanted) > 2000
        if "-l" in flags:  # with -c it adds up the documents of grade 1, and Rndcg is 0 if none reaches the level
            wanted = {(name, one): value for (name, one), value in wanted.items() if name not in ("num_rel", "Rndcg")}
        found = ours(names, tmp_path, capsys, qrels, run, "--preset", "trec_eval", *options)
        assert_agree(found, compared(wanted, options))


@needs_program
def test_the_size_of_the_collection_enters_the_utility(tmp_path, capsys):
    qrels, run = write(tmp_path, *collection_with_ties(missing=0))
    command = [PROGRAM, "-q", "-N", "100", "-m", "utility.1,-1,-2,0.5", qrels, run]
    wanted = theirs(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    name = "utility(false_alarm=-1,miss=-2,rejection=0.5,collection_size=100)"
    found = ours([name], tmp_path, capsys, qrels, run, "--preset", "trec_eval")
    assert_agree({("utility_1,-1,-2,0.5", query): value for (_, query), value in found.items()}, wanted)


@needs_program
def test_preferences_of_grades_between_retrieved_documents(tmp_path):
    qrels, run = collection_with_ties(unjudged_queries=0, missing=0)
    # Grades of -1 are preferences there as well, and equal scores rank in ascending order of the ids.
    qrels = {query: {one: grade for one, grade in grades.items() if grade >= 0} for query, grades in qrels.items()}
    run = {query: {one: place for place, one in enumerate(sorted(found))} for query, found in run.items()}
    qrels, run = write(tmp_path, qrels, run)
    command = [PROGRAM, "-q", "-R", "qrels_prefs", "-m", "prefs_simp_ret", "-m", "prefs_pair_ret", qrels, run]
    wanted = theirs(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    label = "opa(pairs=retrieved,unjudged=condensed)"
    table = tr.evaluate(qrels, run, label)["run"]
    found = {(name, query): value for query, value in zip(table.ids, table.columns[label]) for name, _ in wanted}
    assert_agree(found, {key: value for key, value in wanted.items() if key[1] != "all"})


@needs_files
def test_the_guide_has_every_flag():
    (flags,) = re.findall(r'getopt_long\(argc, argv, "([a-zA-Z:]+)"', (CHECKOUT / "trec_eval.c").read_text())
    guide = (ROOT / "torchrank/evaluation/README.md").read_text()
    rows = " ".join(line.split("|")[1] for line in guide.splitlines() if line.startswith("| `-"))
    assert set(re.findall(r"`-(\w)", rows)) == set(flags.replace(":", ""))
