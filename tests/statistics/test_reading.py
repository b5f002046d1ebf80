"""Which pairs the notes and warnings of a comparison name."""

import math
import re

import pytest

from tests.support.cases import cases
from tests.support.optional import by_scipy
from tests.support.system_values import Columns, named
from torchrank.statistics.comparison import compare, comparison_of
from torchrank.statistics.paired import PairStatistics

NAN = math.nan


def pair(measure, n=100, difference=0.1, error=0.01, df=99.0, sd=0.1, wins=60, losses=40, **options):
    return PairStatistics(
        measure, "a", "b", n, 0.3, 0.3 + difference, error, df, sd, wins=wins, losses=losses, **options
    )


#: pairs of all kinds, named by what is said of them
PAIRS = [
    pair("usual"),
    pair("identical", difference=0.0, error=0.0, sd=0.0, wins=0, losses=0),
    pair("identical, 2", 2, 0.0, 0.0, 1.0, NAN, 0, 0),
    pair("same, 2", 2, 0.1, 0.0, 1.0, NAN, 2, 0),
    pair("fewer, with a spread", 1, 0.1, NAN, 0.0, 0.1, 1, 0),
    pair("fewer, identical", 1, 0.0, NAN, 0.0, NAN, 0, 0),
    pair("fewer, no query", 0, NAN, NAN, 0.0, NAN, 0, 0),
    pair("fewer, different", 1, 0.1, NAN, 0.0, NAN, 1, 0),
    pair("fewer, one cluster", 30, 0.1, NAN, 0.0, 0.1, 20, 10),
    pair("same", 30, 0.1, 0.0, 29.0, 0.0, 30, 0),
    pair("few", 2, df=1.0, wins=2, losses=0),
    pair("few, 19", 19, skewness=9.0),
    pair("20", 20),
    pair("runs", 19, sd=NAN),
    pair("rare", skewness=-2.51),
    pair("rare, 20", 20, skewness=1.2),
    pair("not so rare", skewness=2.5),
    pair("weight", effective=49.9),
    pair("half the weight", effective=50.0),
    pair("opposite", wins=49, losses=51),
    pair("opposite, lower", wins=51, losses=49, higher_is_better=False),
    pair("as many wins", wins=50, losses=50),
]

#: how a line begins, and which pairs it names
NOTES = {"identical on every": "identical", "fewer than two": "fewer", "the same difference": "same"}
WARNINGS = {
    "a few queries make up": "rare",
    "few queries": "few",
    "a few queries have most": "weight",
    "means and wins": "opposite",
}


@pytest.mark.parametrize("test", ["t", "sign", "wilcoxon", "randomization"])
def test_each_note_and_warning_names_the_pairs_that_it_concerns(test):
    for one in PAIRS:
        found = comparison_of([one], test=test)
        kind = one.measure.split(",")[0]
        for lines, texts, unsaid in (
            (found.notes[1:], NOTES, {}),
            (found.warnings, WARNINGS, "rare" if test in ("sign", "wilcoxon") else "opposite"),
        ):
            said = [line for line in lines if line.endswith(f"({one.measure}: a, b)")]
            wanted = [text for text, of in texts.items() if of == kind and of != unsaid]
            assert len(said) == len(wanted), one
            assert all(line.startswith(text) for line, text in zip(said, wanted))


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_a_note_names_up_to_three_pairs(count):
    *_, note = comparison_of([pair(f"m{i}", difference=0.0, error=0.0, wins=0, losses=0) for i in range(count)]).notes
    named = "; ".join(f"m{i}: a, b" for i in range(min(count, 3)))
    assert note == f"identical on every query, p = 1 ({named}{f'; {count - 3} more' if count > 3 else ''})"


@cases(
    ("systems", "measures", "options", "said"),
    [
        (2, 1, {}, "holm over 1 pair"),
        (3, 1, {}, "holm over 3 pairs"),
        (3, 2, {}, "holm over 3 pairs, for each measure"),
        (3, 2, {"family": "all"}, "holm over 3 pairs x 2 measures"),
        (2, 2, {"family": "all"}, "holm over 1 pair x 2 measures"),
        (2, 1, {"family": "all"}, "holm over 1 pair"),
        (
            2,
            2,
            {},
            "p-values are not corrected, since each measure has one pair; family='all' (--family all) corrects over the"
            " measures",
        ),
        (2, 2, {"correction": "none"}, "p-values are not corrected"),
        (3, 1, {"test": "randomized-tukey"}, "p-values are valid over all pairs together"),
        (3, 2, {"test": "randomized-tukey"}, "p-values are valid over all pairs together, for each measure"),
    ],
)
def test_the_first_note_says_what_p_values_are_corrected_over(systems, measures, options, said):
    columns = {name: {f"m{i}": column for i in range(measures)} for name, column in named(30, systems).items()}
    found = compare(columns, replicates=99, **options)
    assert found.notes[0] == f"{options.get('test', 't')} test of b - a, 95 % t intervals; {said}"


def test_the_first_note_counts_the_pairs_without_a_test():
    found = comparison_of([pair("m"), PairStatistics("m", "a", "c", 9, 0.3, 0.4, 0.0, 8.0, wins=9)])
    assert found.notes[0].endswith("; holm over 2 pairs (1 without a test not counted)")


@pytest.mark.parametrize("test", by_scipy(["t", "anytime", "sign", "wilcoxon"]))
def test_other_tests_are_explained(test):
    notes = " ".join(compare(named(30, 2), test=test).notes)
    assert ("confidence sequences" in notes) == ("valid at all looks" in notes) == (test == "anytime")
    assert ("t intervals" in notes) == (test != "anytime")
    assert (f"{test} tests " in notes) == (test in ("sign", "wilcoxon"))
    warnings = " ".join(compare(named(8, 2), test=test).warnings)
    assert ("confidence_sequences holds for any number" in warnings) == (test == "anytime")


@pytest.mark.parametrize("margin", [0.1, {"x": 0.25, "y": 0.5}])
def test_margins_are_named_with_their_measures(margin):
    systems = {name: {"x": column, "y": column} for name, column in named(30, 2).items()}
    (note,) = (note for note in compare(systems, margin=margin).notes if note.startswith("margin"))
    assert note.startswith("margin 0.1:" if margin == 0.1 else "margin 0.25 x, 0.5 y:")
    assert not any(note.startswith("margin") for note in compare(systems).notes)


def test_the_largest_number_of_unpaired_queries_and_directions_are_named():
    systems = named(30, 3)
    systems["b"][:2], systems["c"][:5] = NAN, NAN
    notes = compare(systems, higher_is_better=False).notes
    assert any(re.match("up to 5 queries were scored by one system only", note) for note in notes)
    assert "lower is better: value" in notes
    notes = " ".join(compare({name: Columns(range(30), {"x": column}) for name, column in named(30, 2).items()}).notes)
    assert "lower is better" not in notes
    assert "one system only" not in notes
