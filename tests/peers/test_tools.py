"""Presets of evaluate, against the tools on one tied collection; a tool that is not installed is skipped."""

import json
import random
import re
import statistics

import numpy as np
import pytest

import torchrank as tr
from tests.support.optional import pytrec_eval
from tests.support.pages import ROOT
from tests.support.trec_files import collection_with_ties, write
from torchrank.cli import main
from torchrank.evaluation.evaluate import Options
from torchrank.names.parse import CUTOFFS, OPTIONS

#: pytrec_eval's values that are sums or geometric means of queries
GEOMETRIC = ("gm_map", "gm_bpref")
#: names that are no measures, or have no counterpart
LACKING = ("runid", "relstring")


def by_pytrec_eval(qrels, run, **options):
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, pytrec_eval.supported_measures, **options)
    found = evaluator.evaluate(run)
    return {query: {name: value for name, value in row.items() if name not in LACKING} for query, row in found.items()}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"relevance_level": 2}, {"relevance_level": 2}),
        ({"judged_docs_only_flag": True, "relevance_level": 3}, {"unjudged": "condensed", "relevance_level": 3}),
    ],
)
def test_all_measures_of_pytrec_eval_agree_on_ties_and_near_ties(theirs, ours):
    qrels, run = collection_with_ties(unjudged_queries=2)
    wanted = by_pytrec_eval(qrels, run, **theirs)
    names = list(next(iter(wanted.values())))
    rounding = {name: {"rounding": "up"} if name.startswith(("iprec", "11pt")) else {} for name in names}
    measures = {name: tr.parse(name, **rounding[name]).label for name in names}
    assert len(measures) > 80
    found = tr.evaluate(qrels, run, measures, preset="trec_eval9", **ours)
    table, means = found["run"], found.means["run"]
    assert sorted(table.ids) == sorted(wanted)
    for name in names:
        # 0 / 0 there, if no document is left in a list
        values = np.nan_to_num([wanted[query][name] for query in table.ids]).tolist()
        if name == "Rndcg" and "relevance_level" in ours:
            continue  # there 0 for a query without a document of the level, although all grades gain
        mean = pytrec_eval.compute_aggregated_measure(name, values)
        found = table.columns[name]
        found = np.log(np.maximum(found, 1e-5)) if name in GEOMETRIC else found
        np.testing.assert_allclose(found, values, atol=1e-9, err_msg=name)
        assert means[name] == pytest.approx(mean, abs=1e-9), name


def test_a_run_that_is_cut_has_the_numbers_of_its_first_documents():
    qrels, run = collection_with_ties()
    for depth in (1, 3, 10, 1000):
        orders = {query: sorted(table, key=lambda d, x=table: (x[d], d.encode())) for query, table in run.items()}
        first = {query: {d: run[query][d] for d in order[::-1][:depth]} for query, order in orders.items()}
        names = "map ndcg numret rprecision recall"
        wanted = tr.evaluate(qrels, first, names)["run"].columns
        rows = [(query, document, score) for query, table in run.items() for document, score in table.items()]
        for source in (run, rows, rows[::-1]):
            found = tr.evaluate(qrels, source, names, depth=depth)["run"].columns
            for name, values in wanted.items():
                assert found[name].tolist() == pytest.approx(values.tolist(), abs=1e-12)


# ---- BEIR, MTEB, MS MARCO --------------------------------------------------------------------------------------------

FAMILIES = {"ndcg_cut": ("NDCG@", "ndcg_at_"), "map_cut": ("MAP@", "map_at_"), "recall": ("Recall@", "recall_at_")}
FAMILIES |= {"P": ("P@", "precision_at_"), "success": ("Accuracy@", "hit_rate_at_")}


def by_call(qrels, run, cuts, number, families):
    """The means of the call of pytrec_eval that BEIR (number 0) and MTEB (1) make, under their names."""
    calls = {f"{name}.{','.join(map(str, cuts))}" for name in families}
    rows = pytrec_eval.RelevanceEvaluator(qrels, calls).evaluate(run)
    names = [(name, k) for name in families for k in cuts]
    return {f"{FAMILIES[x][number]}{k}": statistics.fmean(row[f"{x}_{k}"] for row in rows.values()) for x, k in names}


def reciprocal_rank(ranked, grades, k):
    return next((1 / rank for rank, one in enumerate(ranked[:k], 1) if grades.get(one, 0) > 0), 0.0)


def test_the_preset_of_beir_makes_its_call_of_pytrec_eval():
    qrels, run = collection_with_ties(unjudged_queries=2)
    run["q5"] = {"q5": 1.0}  # nothing is left of this query
    others = {query: {one: score for one, score in table.items() if one != query} for query, table in run.items()}
    wanted = by_call(qrels, others, CUTOFFS["beir"], 0, ("ndcg_cut", "map_cut", "recall", "P"))
    found = tr.evaluate(qrels, run, preset="beir")
    assert found.means["run"] == pytest.approx(wanted, abs=1e-12)
    assert any(query in table for query, table in run.items() if query != "q5")
    assert tr.evaluate(qrels, run, preset="beir", ignore_identical_ids=False).means["run"] != pytest.approx(wanted)
    assert tr.evaluate(qrels, run, preset="beir", precision="double").means["run"] != pytest.approx(wanted)


def test_the_preset_of_mteb_makes_its_call_of_pytrec_eval():
    qrels, run = collection_with_ties()
    wanted = by_call(qrels, run, CUTOFFS["mteb"], 1, FAMILIES)
    single = {query: {one: np.float32(score) for one, score in table.items()} for query, table in run.items()}
    for k in CUTOFFS["mteb"]:
        values = []
        for query, table in single.items():
            ranked = sorted(table, key=lambda one, table=table: (table[one], one), reverse=True)
            values.append(reciprocal_rank(ranked, qrels[query], k))
        wanted[f"mrr_at_{k}"] = statistics.fmean(values)
    assert tr.evaluate(qrels, run, preset="mteb").means["run"] == pytest.approx(wanted, abs=1e-12)


def test_the_preset_of_ms_marco_reads_ranks_and_divides_by_all_judged_queries(tmp_path):
    qrels, run = collection_with_ties(queries=40, missing=10)
    positive = {query: {one: 1 for one, grade in table.items() if grade > 0} for query, table in qrels.items()}
    positive = {query: table for query, table in positive.items() if table}
    ranked = {query: list(table) for query, table in run.items()}
    qrels_file, run_file = tmp_path / "qrels.tsv", tmp_path / "run.tsv"
    qrels_file.write_text("".join(f"{q}\t0\t{one}\t{g}\n" for q, table in positive.items() for one, g in table.items()))
    run_file.write_text("".join(f"{q}\t{one}\t{n}\n" for q, table in ranked.items() for n, one in enumerate(table, 1)))
    total = sum(reciprocal_rank(ranked.get(query, []), grades, 10) for query, grades in positive.items())
    found = tr.evaluate(qrels_file, run_file, preset="msmarco").means["run"]
    assert found == {"MRR@10": pytest.approx(total / len(positive), abs=1e-12)}
    assert 0 < total < len(positive)


# ---- ir_measures -----------------------------------------------------------------------------------------------------

IR_MEASURES = (
    "nDCG@10 nDCG nDCG(judged_only=True)@10 AP AP@5 AP(rel=2) AP(rel=2)@10 RR RR(rel=2) P@5 P(rel=2)@10 R@10"
    " R(rel=2)@10 Rprec Rprec(rel=2) Success@1 Success(rel=2)@5 Bpref Bpref(rel=2) infAP SetP SetR SetF SetAP"
    " SetP(relative=True) IPrec@0.0 IPrec@1.0 NumRet NumRet(rel=1) NumRel P(judged_only=True)@5 AP(judged_only=True)"
)


def test_ir_measures_in_python_and_by_its_command(tmp_path, capsys, monkeypatch):
    theirs = pytest.importorskip("ir_measures")
    from ir_measures.__main__ import main_cli

    qrels, run = write(tmp_path, *collection_with_ties(unjudged_queries=2))
    measures = {str(one): one for one in map(theirs.parse_measure, IR_MEASURES.split())}
    # A query that the run lacks is 0 there, even its number of relevant documents.
    labels = {name: tr.parse(name).label for name in measures}
    found = tr.evaluate(qrels, run, labels, precision="single")
    table, judged = found["run"], list(theirs.read_trec_qrels(str(qrels)))
    # One by one, because NumRet beside judged_only is that of judged documents under some seeds of hash.
    rows = [row for one in measures.values() for row in theirs.iter_calc([one], judged, theirs.read_trec_run(str(run)))]
    place = {query: number for number, query in enumerate(table.ids)}
    missing = place.keys() - {query for query, *_ in map(str.split, run.read_text().splitlines())}
    assert len(missing) == 3
    assert len(rows) == len(place) * len(measures)
    values = {(row.query_id, str(row.measure)): row.value for row in rows}
    for (query, name), value in values.items():
        if name != "NumRel" or query not in missing:
            assert table.columns[name][place[query]] == pytest.approx(value, abs=1e-9), (query, name)
    monkeypatch.setattr("sys.argv", ["ir_measures", str(qrels), str(run), "-p", "-1", *(measures.keys() - {"NumRet"})])
    main_cli()
    printed = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    means = found.means["run"]
    for name, measure in measures.items():
        adds_up = name.startswith("Num") and tr.parse(name).aggregation == "mean"  # a sum there
        mean = means[name] * (len(table) if adds_up else 1)
        if name not in ("NumRel", "NumRet"):
            assert float(printed[str(measure)]) == pytest.approx(mean, abs=1e-9), name


@pytest.mark.parametrize("normalize", [True, False])
def test_compatibility_of_runs_without_equal_scores_equals_ir_measures(normalize):
    peer = pytest.importorskip("ir_measures.providers.compat_provider")
    rng = random.Random(7)
    qrels, run = {}, {}
    for number in range(80):
        retrieved = [f"d{n}" for n in range(rng.choice((1, 2, 10, 60)))]
        pool = [*retrieved, *(f"missing{n}" for n in range(6))]
        judged = rng.sample(pool, min(len(pool), rng.choice((1, 5, 30))))
        qrels[str(number)] = {document: rng.choice((-1, 0, 0, 1, 1, 2, 3)) for document in judged}
        run[str(number)] = dict(zip(retrieved, map(float, rng.sample(range(1, 1000), len(retrieved)))))
    ranking = tr.Ranking.from_run(qrels, run)
    for p in (0.5, 0.95, 0.999):
        want = [peer.compatibility(qrels[one], run[one], p, normalize) for one in qrels]
        assert max(want) > 0.5 > min(want)
        metric = tr.parse(f"Compat(p={p},normalize={normalize})")
        assert metric.score(ranking).tolist() == pytest.approx(want, rel=1e-12)


# ---- options and the guide -------------------------------------------------------------------------------------------

GUIDE = (ROOT / "torchrank/evaluation/README.md").read_text()


@pytest.mark.parametrize("name", OPTIONS)
def test_the_guide_has_the_options_of_a_preset(name):
    (line,) = re.findall(rf"^\| `{name}` \|(.*)\|$", GUIDE, re.MULTILINE)
    measures, queries, scores, cuts = (cell.strip() for cell in line.split("|"))
    options = {"queries": queries.split()[-1] if "both" in queries else "judged", "precision": scores}
    options["ignore_identical_ids"] = "their own query" in measures
    assert Options.of(name) == Options(**options)
    assert tuple(map(int, cuts.split(", "))) == CUTOFFS[name]


def test_arguments_replace_options_of_a_preset_and_parameters_in_a_name_replace_arguments():
    qrels, run = {"q": {"a": 1, "b": 2}, "other": {"a": 1}}, {"q": {"a": 3.0, "b": 2.0, "x": 2.5}}
    assert tr.evaluate(qrels, run, preset="msmarco").means["run"] == {"MRR@10": 0.5}
    assert tr.evaluate(qrels, run, preset="msmarco", queries="both").means["run"] == {"MRR@10": 1.0}
    assert tr.evaluate(qrels, run, "mrr@1", preset="mteb").means["run"] == {"mrr@1": 1.0}
    level = tr.evaluate(qrels, run, "mrr mrr(relevance_level=1)@5 ndcg@1", queries="both", relevance_level=2)
    assert level.means["run"] == {"mrr(relevance_level=2)": pytest.approx(1 / 3), "mrr@5": 1.0, "ndcg@1": 0.5}
    named = tr.evaluate(qrels, run, {"mine": "mrr"}, queries="both", relevance_level=2, unjudged="condensed")
    assert named.means["run"] == {"mine": 0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "bier"}, r"preset to be one of .*did you mean 'beir'"),
        ({"preset": "sklearn"}, "preset to be one of trec_eval"),
        ({"depth": 0}, "depth to be an integer >= 1"),
        ({"depth": 5, "ties": "expected"}, "ties='document' or 'rows' with depth"),
        ({"unjudged": "never"}, "unjudged to be one of"),
        ({"relevance_level": 0}, "relevance_level to be a number > 0"),
        ({"measures": tr.MAP(), "relevance_level": 2}, "names of measures with relevance_level"),
        ({"measures": {"a": tr.MAP()}, "unjudged": "condensed"}, "names of measures with unjudged"),
        ({"measures": "judged@5", "unjudged": "condensed"}, "unjudged to be one of 'irrelevant'"),
    ],
)
def test_wrong_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        tr.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, **options)


def test_the_command_has_presets_whose_names_gates_understand(tmp_path, capsys):
    qrels, run = write(tmp_path, *collection_with_ties())
    worse = tmp_path / "worse"
    worse.write_text(re.sub(r"q(\d+) Q0 (\S+) 7 (\S+)", r"q\1 Q0 \2 7 -\3", run.read_text()).replace("--", ""))
    assert main(["eval", str(qrels), str(run), "--preset", "beir", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["means"]
    assert found == tr.evaluate(qrels, run, preset="beir").means
    compared = ["compare", str(qrels), f"a={run}", f"b={worse}", "--preset", "msmarco"]
    assert main([*compared, "--require", "MRR@10 > -1"]) == 0
    assert main([*compared, "--fail-if", "MRR@10 > -1"]) == 1
    kept = ["--preset", "beir", "-m", "map", "--no-ignore-identical-ids"]
    kept += ["--queries", "judged", "--precision", "double"]
    assert main(["eval", str(qrels), str(run), *kept, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["means"] == tr.evaluate(qrels, run, "map").means
