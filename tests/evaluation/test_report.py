"""The report of an evaluation: one HTML file with the numbers of the evaluation, which needs nothing else."""

import base64
import hashlib
import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr
from tests.support.cases import cases
from tests.support.system_values import evaluation_of
from tests.support.trec_files import files_of, two_runs
from torchrank.cli import main
from torchrank.display import printable as clean
from torchrank.evaluation.report import listed, verdict

MEASURES = "ndcg@10 map mr"
VOID = {"meta", "input", "br", "img", "link", "hr"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a & b 'q' \"z\" &amp; &#60;",
    "<!-- $title ${data} ]]>",
    "日本語 \u202e rtl \u2028 \x00",
    "x" * 300,
]


class Page(HTMLParser):
    """The elements of a page: tables by caption, texts, and elements that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.starts, self.texts = [], [], [], []
        self.tables, self.scripts = {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.starts.append((name, tuple(key for key, _ in attributes)))
        if name not in VOID:
            self.open.append(name)
        if name == "table":
            self.rows = []
        if name == "tr":
            self.rows.append([])
        if name in ("td", "th"):
            self.rows[-1].append("")
        if name == "caption":
            self.caption = ""

    def handle_endtag(self, name):
        if name in VOID or not self.open or self.open.pop() != name:
            self.wrong.append(name)
        if name == "table":
            self.tables[self.caption] = self.rows

    def handle_data(self, text):
        if not self.open:
            return
        self.texts.append(text)
        if self.open[-1] == "script":
            self.scripts.append(text)
        elif self.open[-1] == "caption":
            self.caption += text
        elif self.open[-1] in ("td", "th", "b"):
            self.rows[-1][-1] += text


@pytest.fixture(scope="module")
def found():
    return tr.evaluate(*two_runs(), MEASURES)


OPTIONS = {"about": {"Judgments": "qrels"}, "gates": {"map > 0": True, "mr < 1": False}, "worst": 5}


@pytest.fixture(scope="module")
def text(found):
    return found.to_html(**OPTIONS)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


# ---- one file --------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing(text, page):
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bsrcset=|<link|<img|<iframe|\bfetch\(|\bimport\(", text)
    data, script = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert json.loads(data)["runs"] == ["bm25", "dense"]


def test_the_elements_are_balanced(page):
    assert (page.open, page.wrong) == ([], [])
    assert len([name for name, _ in page.starts if name == "svg"]) > 3 + 3 + 1


def test_equal_evaluations_give_equal_bytes(found, text, tmp_path):
    path = tmp_path / "report.html"
    assert tr.evaluate(*two_runs(), MEASURES).to_html(path, **OPTIONS) == text
    assert path.read_bytes() == text.encode()
    assert tr.__version__ in text


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_the_summary_has_the_numbers_of_the_evaluation(found, page):
    rows = found.summary().rows
    wanted = [row for label in MEASURES.split() for row in rows if row["measure"] == label]
    low_high = [f"[{row['low']:.4f}, {row['high']:.4f}]" for row in wanted]
    shown = [row[-6:] for row in page.tables["Summary"][1:]]
    assert [row[:3] for row in shown] == [[r["run"], f"{r['value']:.4f}", i] for r, i in zip(wanted, low_high)]
    assert [row[4:] for row in shown] == [[f"{r['queries']}", f"{r['empty']}"] for r in wanted]


def test_the_comparison_has_the_numbers_of_compare(found, page):
    rows = [row[-12:] for row in page.tables["Comparison"][1:]]
    for row, wanted in zip(rows, found.compare().table.rows, strict=True):
        low, high = (format(wanted[name], "+.4f") for name in ("low", "high"))
        assert row == [
            wanted["a"], wanted["b"], f"{wanted['mean_a']:.4f}", f"{wanted['mean_b']:.4f}",
            f"{wanted['difference']:+.4f}", f"[{low}, {high}]", f"{wanted['p']:.2g}", f"{wanted['p_corrected']:.2g}",
            wanted["winner"] or "-", f"{wanted['effect']:+.3f}",
            f"{wanted['wins']}, {wanted['ties']}, {wanted['losses']}", str(wanted["n"]),
        ]  # fmt: skip


def test_the_coverage_and_its_warnings_are_shown(found, page):
    assert [row[:5] for row in page.tables["Coverage"][1:]] == [[run, "30", "30", "3", "2"] for run in found.runs]
    assert set(found.coverage.notes) <= set(page.texts)


def test_the_values_of_all_queries_are_in_the_page(found, page):
    data = json.loads(page.scripts[0])
    assert data["pairs"] == [[0, 1]]
    assert [one["higher"] for one in data["measures"]] == [True, True, False]
    for measure in data["measures"]:
        for run, values in zip(data["runs"], measure["values"], strict=True):
            wanted = dict(zip(found[run].ids.tolist(), found[run].columns[measure["label"]].tolist()))
            values = [math.nan if value is None else value for value in values]
            assert dict(zip(data["ids"], values, strict=True)) == pytest.approx(wanted, rel=1e-6, nan_ok=True)


def test_the_largest_losses_are_listed(found, page):
    before, after = (dict(zip(found[run].ids, found[run].columns["ndcg@10"])) for run in ("bm25", "dense"))
    losses = sorted((after[one] - before[one], one) for one in before)[:5]
    rows = page.tables["dense - bm25, ndcg@10"]
    assert rows[0] == ["Query", "bm25", "dense", "b - a"]
    assert rows[1:] == [[q, f"{before[q]:.4f}", f"{after[q]:.4f}", f"{loss:+.4f}"] for loss, q in losses]
    assert page.tables["Queries"][: len(rows)] == rows
    assert len(page.tables["Queries"]) == 31


def test_charts_say_the_difference_of_each_query_and_the_values_at_each_cutoff(found, text):
    for label in ("ndcg@10", "mr"):
        for row in found.differences("bm25", "dense", label).rows:
            assert (f"<title>{row['id']}: {row['delta']:+.4f}</title>" in text) == bool(row["delta"])
    for curve in found.over_cutoffs("ndcg"):
        for k, value in zip(curve.x, curve.y):
            assert f"<title>{curve.run}: {value:.4f} at k {k}</title>" in text


def test_the_page_says_how_runs_were_evaluated_and_compared(found):
    def said(page):
        return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page.partition("Input and settings")[2]))

    always = {"Runs": "bm25, dense", "Measures": "ndcg@10, map, mr", "Version": f"torchrank {tr.__version__}"}
    for options, *wanted, legend in (
        ({}, "t", "holm", "0.05", "none, all pairs of runs", "if the corrected p is at most 0.05"),
        ({"baseline": "dense", "test": "wilcoxon", "correction": "none", "alpha": 0.1},
         "wilcoxon", "none", "0.1", "dense", "if p is at most 0.1"),
        ({"test": "tukey"}, "tukey", "by the test itself", "0.05", "none, all pairs of runs", ""),
    ):  # fmt: skip
        page = found.to_html(comparison=found.compare(**options), about={"n": "x & y"})
        test = dict(zip(("Test", "Correction", "Alpha", "Baseline"), wanted))
        assert said(page) == {**always, "n": "x &amp; y", "Queries": "30, all judged queries", **test}
        assert f"the better run, {legend}" in page
    qrels, runs = two_runs()
    del runs["bm25"]["q7"]
    both, alone = tr.evaluate(qrels, runs, "mrr", queries="both"), tr.evaluate(qrels, runs["bm25"], MEASURES)
    assert said(both.to_html())["Queries"] == "26 to 27, the judged queries of each run"
    assert said(alone.to_html()) == {**always, "Runs": "run", "Queries": "30, all judged queries"}


# ---- names -----------------------------------------------------------------------------------------------------------


def renamed(names):
    qrels, runs = two_runs()
    query = dict(zip(qrels, names))
    runs = {names[at]: {query.get(q, q): x for q, x in run.items()} for at, run in enumerate(runs.values())}
    return tr.evaluate({query.get(q, q): x for q, x in qrels.items()}, runs, "ndcg@10")


def test_hostile_names_are_texts():
    found = renamed(HOSTILE)
    text = found.to_html(title=HOSTILE[0], about={HOSTILE[1]: HOSTILE[0]}, gates={HOSTILE[2]: True})
    other = renamed([f"z{n}" for n in range(6)]).to_html(title="t", about={"n": "x"}, gates={"g": True})
    page, plain = Page(text), Page(other)
    assert (page.open, page.wrong) == ([], [])
    names = {name for name, _ in page.starts}
    assert names == {name for name, _ in plain.starts}
    assert {key for _, keys in page.starts for key in keys} == {key for _, keys in plain.starts for key in keys}
    assert len(page.scripts) == 2
    data = json.loads(page.scripts[0])
    assert data["runs"] == HOSTILE[:2]
    queries = {row[0] for row in page.tables["Queries"]}
    for name in HOSTILE:
        assert clean(name) in data["ids"]
        assert clean(name) in queries


@settings(max_examples=10, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_any_text_is_read_as_it_was(text):
    page = tr.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "mrr").to_html(about={"any": text}, title="title")
    (shown,) = re.findall("<dt>any</dt><dd>(.*?)</dd>", page.encode().decode(), re.DOTALL)
    assert (html.unescape(shown), shown.count("<")) == (clean(text), 0)


# ---- small and odd evaluations ---------------------------------------------------------------------------------------


def test_one_run_has_its_values_and_no_comparison():
    qrels, runs = two_runs()
    found = tr.evaluate(qrels, {"bm25": runs["bm25"]}, MEASURES)
    page = Page(found.to_html(worst=3))
    assert (page.open, page.wrong) == ([], [])
    assert "Comparison" not in page.tables
    values = sorted(zip(found["bm25"].columns["ndcg@10"], found["bm25"].ids))
    assert page.tables["bm25, ndcg@10"][1:] == [[query, f"{value:.4f}"] for value, query in values[:3]]
    assert json.loads(page.scripts[0])["pairs"] == []


def test_measures_whose_low_values_are_good_say_so_and_have_charts_of_the_queries_with_a_value():
    qrels, runs = two_runs()
    found = tr.evaluate(qrels, runs, "mrr mr")
    text = found.to_html()
    names = [row[0] for row in Page(text).tables["Summary"] if row[1] == "bm25"]
    assert names == ["mrr", "mr (lower is better)"]
    captions = re.findall(r"<figcaption>(mrr?)(?:<small>(lower is better)</small>)?</figcaption>", text)
    assert captions == [("mrr", ""), ("mr", "lower is better")]
    alone = tr.evaluate(qrels, {"bm25": runs["bm25"]}, "mrr mr")
    missing = np.isnan(alone["bm25"].columns["mr"])
    assert 0 < missing.sum() < len(missing)
    charts = alone.to_html().split("Values of queries, sorted")[1]
    mean = np.nanmean(alone["bm25"].columns["mr"])
    assert f"<figcaption>mr<small>mean of values {mean:.4f}</small></figcaption>" in charts
    one = tr.evaluate({"q": {"a": 1}, "p": {"a": 1}}, {"q": {"a": 1.0}}, "mr").to_html()
    assert "<figcaption>mr<small>mean of values 1.0000</small></figcaption>" in one


def test_one_query_and_missing_values_are_shown_as_dashes():
    found = tr.evaluate({"q": {"a": 1}}, {"x": {"q": {"a": 1.0}}, "y": {"q": {}}}, "mrr auroc")
    page = Page(found.to_html())
    assert (page.open, page.wrong) == ([], [])
    for run in ({"q": {}}, {"q": {"b": 1.0}}):  # runs that find nothing
        empty = Page(tr.evaluate({"q": {"a": 1, "b": 0}}, {"x": run, "y": run}, "mrr map").to_html())
        assert (empty.open, empty.wrong) == ([], [])
    first, _, third, _ = (row[-6:] for row in page.tables["Summary"][1:])
    assert first == ["x", "1.0000", "-", "-", "1", "0"]
    assert third == ["x", "-", "-", "-", "1", "1"]
    assert page.tables["Comparison"][1][6:10] == ["-", "-", "-", "-"]
    assert not re.search(r"\bnan\b", " ".join(page.texts[1:-1]), re.IGNORECASE)
    assert json.loads(page.scripts[0])["measures"][1]["values"] == [[None], [0.0]]


# ---- verdicts --------------------------------------------------------------------------------------------------------


def of(columns, label="mrr"):
    """An evaluation with given values of one measure."""
    metrics = {label: tr.parse(label)}
    return evaluation_of({name: tr.QueryTable(range(40), {label: x}, None, metrics) for name, x in columns.items()})


def noise(seed):
    return np.random.default_rng(seed).uniform(-0.1, 0.1, 40)


BASE = 0.5 + noise(0)
SYSTEMS = {"a": BASE, "b": BASE + 0.2 + noise(1), "c": BASE + 0.205 + noise(2)}


@cases(
    ("label", "baseline", "wanted"),
    [
        ("mrr", None, "c is best in mrr, {c}: significantly better than a; not significantly better than b ("),
        ("mr", None, "a is best in mr, {a}: significantly better than b and c ("),
        ("mrr", "a", "c is best in mrr, {c}: significantly better than a; not compared with b ("),
        ("mrr", "b", "c is best in mrr, {c}: not significantly better than b; not compared with a ("),
    ],
)
def test_the_verdict_names_the_best_run(label, baseline, wanted):
    found = of(SYSTEMS, label)
    means = {name: f"{value[label]:.4f}" for name, value in found.means.items()}
    text = verdict(found, found.compare(baseline))
    assert text.startswith(wanted.format(**means))
    assert text.endswith("(t test, holm, alpha 0.05).")


def test_the_verdict_of_equal_unknown_and_single_runs():
    equal = of({"a": BASE, "b": BASE})
    assert verdict(equal, equal.compare()) == f"The runs are equal in mrr ({BASE.mean():.4f}): no query differs."
    shared = of({"a": [0.25, 0.75] * 20, "b": [0.75, 0.25] * 20})
    assert verdict(shared, shared.compare()) == "a and b share the best mean in mrr, 0.5000."
    two_equal = of({"a": BASE, "b": BASE, "c": [1.0] * 40})
    assert verdict(two_equal, two_equal.compare()).startswith("c is best in mrr, 1.0000")
    unknown = of({"a": [math.nan] * 40, "b": [math.nan] * 40})
    assert verdict(unknown, unknown.compare()) == "No run has a value of mrr."
    alone = of({"a": BASE})
    low, high = alone.intervals()["a"]["mrr"]
    wanted = f"a: mrr {BASE.mean():.4f}, 95 % interval [{low:.4f}, {high:.4f}], 40 queries."
    assert verdict(alone, None) == wanted
    assert wanted in Page(alone.to_html()).texts


def test_a_comparison_of_other_runs_or_measures_is_refused():
    found = of({"a": BASE, "b": BASE})
    with pytest.raises(ValueError, match="Expected a comparison of a, b, got one with 'c'"):
        found.to_html(comparison=of({"a": BASE, "c": BASE}).compare())
    with pytest.raises(ValueError, match="Expected a comparison in mrr, got one in 'map'"):
        found.to_html(comparison=of({"a": BASE, "b": BASE}, "map").compare())
    for worst in (0, None):
        with pytest.raises(ValueError, match=f"worst to be an integer >= 1, got {worst}"):
            found.to_html(worst=worst)


# ---- charts ----------------------------------------------------------------------------------------------------------


def test_the_first_twelve_pairs_of_each_measure_have_a_chart_and_those_of_the_first_measure_are_open():
    qrels = {f"q{q}": {"a": 1} for q in range(3)}
    runs = {f"r{r}": {f"q{q}": {"a": 1.0, "b": (q * r) % 3} for q in range(3)} for r in range(6)}
    page = tr.evaluate(qrels, runs, "mrr ndcg").to_html()
    parts = re.findall(r"<details( open[^>]*)?><summary>(.*?)</summary>(.*?)</details>", page, re.DOTALL)
    titles = [f"{name}, the first 12 of 15 pairs" for name in ("mrr", "ndcg")]
    shown = [(bool(opened), text, inner.count("<figure>")) for opened, text, inner in parts]
    assert shown == [(True, titles[0], 12), (False, titles[1], 12)]


def test_long_lists_of_names_end_with_their_number():
    for n, text in ((1, "a"), (2, "a and b"), (5, "a, b, c, d and e"), (6, "a, b, c, d and 2 more")):
        assert listed("abcdef"[:n]) == text
    assert listed("abcdef", most=2) == "a, b and 4 more"


def test_dots_of_significant_differences_are_full(found):
    compared = found.compare(alpha=0.1)
    filled = [compared.winner(row) is not None for row in compared.rows]
    assert set(filled) == {False, True}
    dots = re.findall(r'class="(dot[^"]*)"', found.to_html(comparison=compared))
    assert dots == ["dot" if full else "dot hollow" for full in filled]


class Chart:
    """What a chart shows: its texts, and the marks whose titles say their numbers."""

    def __init__(self, picture):
        self.picture = ElementTree.fromstring(picture)
        self.width, self.height = map(float, self.picture.get("viewBox").split()[2:])
        ends = [one for one in self.picture.iter("text") if one.get("text-anchor") == "end"]
        self.has_rows = self.picture.find("g/title") is not None
        ticks = [one for one in self.picture.iter("text") if one.get("class") == "tick"]
        self.ticks = {"x": ticks, "y": [] if self.has_rows else ends}
        self.marks = [(one, one.find("title").text) for one in self.picture.iter() if one.find("title") is not None]

    def scale(self, axis, log=False):
        """The function from numbers to places: all ticks are on it."""
        change = np.log if log else np.asarray
        places = np.array([float(one.get(axis)) for one in self.ticks[axis]])
        values = change([float(one.text) for one in self.ticks[axis]])
        slope = (places[-1] - places[0]) / (values[-1] - values[0])
        assert places == pytest.approx(places[0] + slope * (values - values[0]), abs=0.2)
        return lambda value: places[0] + slope * (change(value) - values[0])

    def paths(self, kind):
        return [one.get("d") for one in self.picture.iter("path") if one.get("class") == kind]


def charts_of(page):
    """The caption and the chart of each figure."""
    figures = re.findall(r"<figcaption>(.*?)(?:<small>.*?)?</figcaption>\s*(<svg.*?</svg>)", page, re.DOTALL)
    return [(caption, Chart(picture)) for caption, picture in figures]


def numbers(text):
    return [float(one) for one in re.findall(r"-?\d+\.?\d*", text)]


def near(value):
    return pytest.approx(value, abs=0.3)


@cases("several", [True, False])
def test_all_marks_stand_where_the_ticks_say_that_the_numbers_of_their_titles_are(several):
    qrels, runs = two_runs()
    found = tr.evaluate(qrels, runs if several else runs["bm25"], MEASURES)
    for caption, chart in charts_of(found.to_html()):
        x = chart.scale("x", log=caption.endswith("@k"))
        y = None if chart.has_rows else chart.scale("y")
        assert len(chart.marks) > 0
        for mark, title in chart.marks:
            said = numbers(title.split(": ")[-1].removeprefix("mean"))
            if chart.has_rows:
                value, low, high = said
                dot, line = mark.find("circle"), numbers(mark.find("path").get("d"))
                assert [float(dot.get("cx")), *line[::2]] == near([x(value), x(low), x(high)])
                assert {line[1], float(mark.find("text").get("y"))} == {float(dot.get("cy"))}
            elif " at " in title:
                value, place = said
                assert numbers(mark.get("transform")) == near([x(place), y(value)])
            elif mark.get("class") == "mean":
                assert numbers(mark.get("d"))[1] == near(y(said[0]))
            else:
                assert numbers(mark.get("d"))[1:] == near([y(0), y(said[0])])


def test_many_queries_stay_below_five_megabytes():
    draw = np.random.default_rng(0)
    values = {f"m{at}": draw.random((3, 10_000)) for at in range(4)}
    ids = [f"query-{at:06d}" for at in range(10_000)]
    tables = {name: tr.QueryTable(ids, {label: x[at] for label, x in values.items()}) for at, name in enumerate("abc")}
    text = evaluation_of(tables).to_html()
    assert 1e6 < len(text) < 5e6
    assert len(Page(text).tables["Queries"]) == 501


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_report(tmp_path, capsys):
    files = files_of(tmp_path, *two_runs())
    out = tmp_path / "report.html"
    gates = ["--require", "map > 0.9", "--fail-if", "map < -0.9"]
    arguments = ["-m", "map mrr", "--html", str(out)]
    assert main(["compare", *files, *arguments, *gates, "--baseline", "dense", "--worst", "2"]) == 1
    page = Page(out.read_text())
    digest = hashlib.blake2b((tmp_path / "qrels").read_bytes(), digest_size=16).hexdigest()
    assert {f"blake2b {digest}", files[0], ", ".join(files[1:]), "Judgments"} <= set(page.texts)
    assert [one for one in page.texts if one in ("passed", "failed")] == ["passed", "failed"]
    assert len(page.tables["bm25 - dense, map"]) == 3
    assert main(["eval", *files[:2], *arguments, "--interval", "0.9"]) == 0
    assert "90 % interval" in Page(out.read_text()).tables["Summary"][0]
    assert main(["eval", *files, *arguments]) == 0
    assert "Comparison" in Page(out.read_text()).tables
    with pytest.raises(SystemExit) as refused:
        main(["eval", *files, "--html", str(tmp_path / "report.txt")])
    assert refused.value.code == 2
    capsys.readouterr()


# ---- a browser -------------------------------------------------------------------------------------------------------

CLICKS = """
addEventListener("load", () => {
  const table = document.getElementById("queries"), found = [];
  const note = () => found.push({
    rows: Number(table.dataset.rows),
    queries: [...table.tBodies[0].rows].map((row) => row.cells[0].textContent),
    heads: [...table.tHead.rows[0].cells].map((cell) => [cell.textContent, cell.getAttribute("aria-sort")]),
    last: [...table.tBodies[0].rows].map((row) => row.cells[row.cells.length - 1].textContent),
    address: location.hash,
  });
  const press = (at) => { table.tHead.rows[0].cells[at].querySelector("button").click(); note(); };
  note();
  press(3); press(3); press(0);
  document.getElementById("after").click(); note();
  const box = document.getElementById("measure");
  box.value = "1"; box.dispatchEvent(new Event("change")); note();
  const find = document.getElementById("find");
  find.value = "SCRIPT"; find.dispatchEvent(new Event("input")); note();
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
});
"""


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(browser() is None, reason="no chromium, chromium-browser or google-chrome is installed")
def test_a_click_on_a_head_sorts_the_queries_in_a_browser(tmp_path):
    qrels, runs = two_runs(queries=40, missing=0)
    name = {query: HOSTILE[at] if at < 4 else query for at, query in enumerate(qrels)}
    named = {run: {name.get(q, q): x for q, x in one.items()} for run, one in runs.items()}
    found = tr.evaluate({name[q]: x for q, x in qrels.items()}, named, "ndcg@10 mr")
    digest = base64.b64encode(hashlib.sha256(CLICKS.encode()).digest()).decode()
    page = found.to_html().replace("script-src ", f"script-src 'sha256-{digest}' ")
    (tmp_path / "page.html").write_text(page.replace("</body>", f"<script>{CLICKS}</script></body>"))
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        " --disable-component-update --disable-sync --dump-dom --enable-logging=stderr --virtual-time-budget=2000"
    )
    address = f"file://{tmp_path}/page.html#measure=mr&pair=0&sort=1&order=descending&page=2"
    command = [browser(), *options.split(), f"--user-data-dir={tmp_path}/profile", address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "CONSOLE" not in ran.stderr
    dom = Page(ran.stdout)
    (result,) = [one for one in dom.texts if one.startswith('[{"rows"')]
    start, up, down, by_name, second, best, few = json.loads(result)
    bm25 = dict(zip(found["bm25"].ids.tolist(), found["bm25"].columns["mr"].tolist()))
    values = sorted(bm25.values(), reverse=True)
    assert [bm25[q] for q in start["queries"]] == values[25:]
    assert [sort for _, sort in start["heads"]] == ["none", "descending", "none", "none"]
    assert (start["rows"], len(up["queries"])) == (40, 25)
    differences = sorted(row["delta"] for row in found.differences("bm25", "dense", "mr").rows)
    assert up["last"] == [f"{one:+.4f}" for one in differences[:25]]
    assert down["last"] == [f"{one:+.4f}" for one in differences[::-1][:25]]
    assert [one["heads"][3][1] for one in (up, down, by_name)] == ["ascending", "descending", "none"]
    assert by_name["queries"] + second["queries"] == sorted(name.values())
    assert "sort=0&order=ascending" in by_name["address"]
    assert [text for text, _ in best["heads"]] == ["Query", "bm25", "dense", "b - a"]
    assert few["queries"] == [one for one in sorted(HOSTILE[:4]) if "script" in one]
    assert few["rows"] == 1


@cases("several", [False, True])
def test_a_report_begins_with_the_verdict_and_the_summary_and_ends_with_the_settings(several):
    qrels, runs = two_runs()
    found = tr.evaluate(qrels, runs if several else runs["bm25"], MEASURES)
    page = found.to_html(comparison=found.compare() if several else None)
    comparison = ["Comparison"] if several else []
    last = ["Largest losses" if several else "Lowest values", "How to read this", "Input and settings"]
    assert re.findall("<h2>(.*?)</h2>", page) == ["Summary", *comparison, "Coverage", "Charts", "Queries", *last]
    assert page.index('class="verdict"') < page.index("<h2>Summary</h2>")


JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 2}}


def test_the_best_value_is_bold_where_values_differ():
    runs = {name: {"q1": {"a": 1.0, "x": score}} for name, score in (("one", 0.5), ("two", 2), ("three", 0.6))}

    def bold(runs):
        text = tr.evaluate(JUDGED, runs, "mrr").to_html().partition("<caption>Summary")[2].partition("</table>")[0]
        return text.count("<b>")

    assert bold(runs) == 2  # two runs have the largest value
    assert bold(runs["one"]) == bold({key: runs[key] for key in ("one", "three")}) == 0
