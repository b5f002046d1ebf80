"""The lists of measures, presets and spellings, as the command prints them."""

import inspect
import re

import pytest

import torchrank as tr
from tests.support.descriptions import describe, formula_text
from torchrank import preset
from torchrank.cli import main
from torchrank.cli.lists import BY_LABEL
from torchrank.names.parse import ALWAYS, LIBRARIES


def test_every_measure_is_shown_in_a_hundred_columns(capsys):
    assert main(["measures", *(one.class_name for one in BY_LABEL)]) == 0
    every = capsys.readouterr().out
    for one in BY_LABEL:
        assert main(["measures", one.name]) == 0
        shown = capsys.readouterr().out
        assert shown in every
        lines = shown.splitlines()
        assert max(map(len, lines)) <= 100
        text = " ".join(" ".join(lines).split())
        for part in (one.label, one.class_name, one.summary, one.range, one.source, one.also_in):
            assert " ".join(part.replace("`", "").split()) in text
        assert not set("\\{}") & set(text) or "|{" in text  # no LaTeX; a set has braces
        beginning = inspect.getdoc(getattr(tr, one.class_name)).split("\n\n")[0]
        assert not re.search(r":math:`[^`]*`\s+\w", beginning), "a first sentence ends with its formula"


def test_a_docstring_without_a_formula_or_a_source_is_an_error():
    class NoFormula:
        """Nothing."""

    class NoSource(tr.MRR):
        """Something: :math:`x`."""

    for measure, part in ((NoFormula, "a formula"), (NoSource, "a section 'Source'")):
        with pytest.raises(ValueError, match=f"docstring of {measure.__name__} to have {part}"):
            describe(measure)


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\frac{1}{R} \sum_{i \in rel} \frac{1}{i} \left(1 + d_i \frac{r_i + e}{j_i + 2 e}\right)",
         "1/R Σ_(i ∈ rel) 1/i (1 + d_i (r_i + e) / (j_i + 2 e))"),
        (r"\sqrt{\frac{a}{b_{10}}} \, \max(p_i, 0)", "√(a/b_10) max(p_i, 0)"),
        (r"\sqrt{\{a\}}", "√({a})"),
        (r"|\{(i, j): g_i \ge g_j\}|", "|{(i, j): g_i ≥ g_j}|"),
    ],
)  # fmt: skip
def test_a_formula_is_shown_as_text(latex, text):
    assert formula_text(latex) == text


def test_a_formula_without_its_closing_brace_is_an_error():
    with pytest.raises(ValueError, match=r"a closing brace for .\{x"):
        formula_text(r"\sqrt{x")


def test_spellings_of_one_measure_are_its_lines_of_the_list(capsys):
    assert main(["spellings", "--wide"]) == 0
    listed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert main(["spellings", "nDCG@10", "recip_rank"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    pairs = re.sub(r"\n {20,}", " ", shown)
    lines = {re.sub(" +", " ", line.strip()) for line in pairs.splitlines()}
    assert lines < {re.sub(" +", " ", line) for line in listed}
    assert {re.split(r"\W", line)[0] for line in lines if line.startswith(("ndcg", "mrr", "map"))} == {"ndcg", "mrr"}
    assert "LightGBM: ndcg(gain=exponential)" in shown


def test_the_list_of_presets_has_the_settings_of_each_library(capsys):
    assert main(["presets", "--wide"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    for library, title in LIBRARIES.items():
        settings = ", ".join(f"{key}={value}" for key, value in ALWAYS.get(library, {}).items())
        title = title.replace("`", "")
        assert lines[library].endswith(f"  {title} ({settings})" if settings else f"  {title}")


@pytest.mark.parametrize(("name", "shown"), [("utility", "-∞ … ∞, higher"), ("mr", "1 … ∞, lower"), ("mrr", "0 … 1")])
def test_a_range_has_signs_for_infinite_ends(name, shown, capsys):
    assert main(["measures", name]) == 0
    assert f"range       {shown}" in capsys.readouterr().out


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_preset_is_shown_in_a_hundred_columns(library, capsys):
    assert main(["presets", library]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    rows = dict(cells for line in lines if len(cells := re.split(" {2,}", line.strip())) == 2)
    for theirs, ours in preset(library, 7).items():
        label = rows[theirs.replace("7", "k")].replace("@k", "@7")
        always = {key: value for key, value in ALWAYS.get(library, {}).items() if f"{key}=" not in label}
        assert tr.parse(label, **always).label == tr.parse(ours).label
        assert all(f"{key}={value}" in rows["all with"] for key, value in always.items())


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["measures", "mrr", "ngcd"], "ndcg"),
        (["measures", "recal@5"], "recall"),
        (["presets", "sklaern"], "sklearn"),
        (["presets", "lgbm"], "lightgbm"),
        (["spellings", "ngcd"], "ndcg"),
    ],
)
def test_an_unknown_name_gets_the_nearest_few(arguments, near, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"torchrank {arguments[0]}: Expected")
    assert repr(arguments[-1]) in err
    assert repr(near) in err.split("did you mean")[1]
    assert len(err) < 260


def test_a_list_of_measures_in_one_string_describes_each(capsys):
    assert main(["measures", "ndcg@10, mrr"]) == 0
    shown = capsys.readouterr().out
    assert "(torchrank.NDCG)" in shown
    assert "(torchrank.MRR)" in shown
