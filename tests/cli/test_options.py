"""Options of the command: their defaults, and the values that they take."""

import inspect
import re

import pytest

import torchrank as tr
from torchrank import cli
from torchrank.statistics.comparison import COLUMNS
from torchrank.tables.files import WRITERS

#: the arguments of each command that are not optional, in a folder with these files
CALLS = {
    "eval": ["qrels", "a.run"],
    "compare": ["qrels", "a.run", "b.run"],
    "power": ["qrels", "a.run", "b.run", "--delta", "0.1"],
    "convert": ["a.run", "b.run"],
    "demo": [],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.pt").write_text("")
    (tmp_path / "sub").mkdir()


def options(command, *more):
    return cli._parser().parse_args([command, *CALLS[command], *more])


def defaults(function, **names):
    """The defaults of a function's arguments by the names of options."""
    parameters = inspect.signature(function).parameters
    return {option: parameters[name].default for option, name in names.items()}


def test_options_that_are_not_given_have_the_defaults_of_the_library():
    reading = defaults(tr.read_run, duplicates="duplicates", expansion="expansion")
    same = ("queries", "precision", "ties", "ignore_identical_ids", "depth", "relevance_level", "unjudged", "preset")
    files = {**reading, **dict.fromkeys(same), "measures": None, "format": "table", "wide": False}
    files |= defaults(tr.evaluate, **{x: x for x in same})
    results = {**files, "per_query": None, "by": None, "plot": None, "html": None}
    shown = {"table": "pairs", "worst": None, "fail_if": [], "require": []}
    tests = {name: name for name in ("baseline", "test", "correction", "family", "alpha", "seed")}
    wanted = {
        "eval": {**results, **defaults(tr.Evaluation.summary, interval="level")},
        "compare": {**results, **defaults(tr.compare, **tests), **shown},
        "power": {**files, **defaults(tr.Comparison.queries_needed, power="power", alpha="alpha")},
        "convert": reading,
        "demo": {"epochs": 15, "workers": 1, "seed": 0, "plot": None, "save": None},
    }
    for command, values in wanted.items():
        found = vars(options(command))
        assert {name: found[name] for name in values} == values, command
    for command in ("measures", "presets", "spellings"):
        found = cli._parser().parse_args([command])
        assert (found.wide, getattr(found, "names", [])) == (False, [])


@pytest.mark.parametrize("command", CALLS)
def test_the_help_says_the_default(command):
    (commands,) = cli._parser()._subparsers._group_actions
    said = 0
    for action in commands.choices[command]._actions:
        if default := re.search(r"default: ([^);]+)", (action.help or "") % vars(action)):
            said += 1
            # an argument of the library that is not given has the default of the library or of a preset
            assert action.default is None or str(action.default) == default[1], action.dest
    assert said >= 2


NUMBERS = {
    ("eval", "--interval"): ("0.01 0.5 0.99 1e-9", "0 1 -0.5 1.5 nan inf x"),
    ("compare", "--alpha"): ("0.01 0.99", "0 1 -1 nan x"),
    ("power", "--alpha"): ("0.01 0.99", "0 1 -1 nan x"),
    ("power", "--power"): ("0.01 0.99", "0 1 2 nan x"),
    ("power", "--delta"): ("0.01 -0.01 3", "0 0.0 -0 nan inf -inf x"),
    ("eval", "--depth"): ("1 2 1000 1e3", "0 -1 1.5 nan inf x"),
    ("convert", "--expansion"): ("1 100", "0 -1 0.5 x"),
    ("eval", "--relevance-level"): ("1 2 0.5", "x"),
    ("compare", "--worst"): ("1 5", "0 -1 1.5 x"),
    ("compare", "--seed"): ("0 1", "-1 0.5 x"),
    ("demo", "--epochs"): ("0 1", "-1 0.5 x"),
    ("demo", "--workers"): ("1 2", "0 -1 1.5 x"),
    ("demo", "--seed"): ("0 1", "-1 0.5 x"),
}


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_an_option_takes_the_numbers_within_its_bounds(command, option, capsys):
    good, wrong = (text.split() for text in NUMBERS[command, option])
    for text in good:
        value = getattr(options(command, f"{option}={text}"), option[2:].replace("-", "_"))
        assert value == float(text)
        assert isinstance(value, int) == ("." not in text and option not in ("--interval", "--delta"))
    for text in wrong:
        with pytest.raises(SystemExit, match="2"):
            options(command, f"{option}={text}")
        assert re.search(rf"argument {option}: .*'{text}'", capsys.readouterr().err)


FILES = {
    ("eval", "--per-query"): ("new.tsv sub/new old.pt -", "none/new.tsv sub ."),
    ("eval", "--plot"): ("new.png new.svg new.pdf", "new.jpg new none/new.png png sub"),
    ("compare", "--html"): ("new.html new.htm", "new.txt new none/new.html sub"),
    ("demo", "--plot"): ("new.png new.svg new.pdf", "new.jpg new none/new.png sub"),
    ("demo", "--save"): ("new.pt old.pt", "none/new.pt sub"),
}


@pytest.mark.parametrize(("command", "option"), FILES)
def test_an_option_takes_files_that_can_be_written_or_read(command, option, capsys):
    good, wrong = (text.split() for text in FILES[command, option])
    for path in good:
        assert getattr(options(command, option, path), option[2:].replace("-", "_")) == path
    for path in wrong:
        with pytest.raises(SystemExit, match="2"):
            options(command, option, path)
        assert re.search(rf"{option}: Expected a file\b.* {re.escape(path)}(;|$)", capsys.readouterr().err)


def test_choices_are_those_of_the_help_and_no_others(capsys):
    choices = {
        ("eval", "--duplicates"): "error first best",
        ("eval", "--queries"): "judged both",
        ("eval", "--precision"): "double single",
        ("eval", "--ties"): "document expected",
        ("eval", "--unjudged"): "irrelevant condensed lower upper",
        ("eval", "--format"): "table json jsonl csv markdown latex html",
        ("compare", "--table"): "pairs paper",
        ("compare", "--correction"): "holm bh none",
        ("compare", "--family"): "measure all",
        ("compare", "--test"): "t randomization wilcoxon sign bootstrap tukey randomized-tukey",
    }
    for (command, option), texts in choices.items():
        for text in texts.split():
            assert getattr(options(command, option, text), option[2:]) == text
        with pytest.raises(SystemExit, match="2"):
            options(command, option, "other")
    for text, value in (("--ignore-identical-ids", True), ("--no-ignore-identical-ids", False)):
        assert options("eval", text).ignore_identical_ids is value


def test_the_help_of_convert_has_all_endings(capsys):
    with pytest.raises(SystemExit):
        cli._parser().parse_args(["convert", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"write it as {', '.join(WRITERS)}, or these with .gz" in text


def test_the_help_of_compare_explains_the_columns_that_are_printed(capsys):
    with pytest.raises(SystemExit):
        cli._parser().parse_args(["compare", "--help"])
    _, _, text = capsys.readouterr().out.partition("columns of the table:\n")
    explained = [line[2:15].strip() for line in text.partition("\n\n")[0].splitlines() if line.startswith("  ")]
    assert explained == [column.name for column in COLUMNS if column.printed and not column.margin]
    runs = {name: {"q1": value, "q2": 1.0, "q3": 0.5} for name, value in (("a", 0.5), ("b", 0.75))}
    margins = set(tr.compare(runs, margin=0.1).printed.columns) - set(tr.compare(runs).printed.columns)
    assert margins
    assert not margins & set(explained)
