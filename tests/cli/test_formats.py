"""Tables in lines as wide as the terminal."""

import gzip
import math

import pytest

from torchrank.cli import lists
from torchrank.cli.commands import write
from torchrank.cli.formats import fitted, formatted, wrapped
from torchrank.display import Table

#: what goes in a narrow terminal, the first first; the last columns of a table go last
GROUPS = [
    *(["unpaired"], ["effect"], ["n"], ["wins, ties, losses"], ["no relevant"], ["same id as query"]),
    *(["not in the judgments"], ["mean_a", "mean_b"], ["empty"], ["p"], ["standard error"], ["queries"]),
    *(["low", "high"], ["p_corrected"]),
]


def lines(table):
    """The rows of a table as text, without its notes."""
    return str(table).splitlines()[: 1 + len(table)]


def test_columns_go_in_their_order_until_the_lines_fit_and_a_note_names_them():
    names = ["measure", "run", "p_corrected", "p", "n", "effect", "mean_a", "low", "mean_b", "high", "value", "empty"]
    table = Table(
        {name: [0.25, 1.5] if name in ("p", "value") else ["some text", "x"] for name in names}, notes=["end"]
    )
    groups = [[name for name in group if name in names] for group in GROUPS]
    groups = [group for group in groups if group] + [["value"]]
    left, gone = names, []
    for width in range(150, 20, -1):
        while max(map(len, lines(table.of(left)))) > width and groups:
            left, gone = [name for name in left if name not in groups[0]], gone + groups[0]
            groups = groups[1:]
        found = fitted(table, width)
        assert list(found.columns) == left, width
        assert found.notes == ((f"columns hidden: {', '.join(gone)}; --wide shows them",) if gone else ()) + ("end",)
        if groups:
            assert found.rows == table.of(left).rows
            assert max(map(len, lines(found))) <= width
    assert left == ["measure", "run"]
    assert fitted(table, math.inf) == table
    assert "p" in fitted(Table({"a": ["x" * 9], "b": ["y"], "c": ["z" * 40], "p": [0.5]}), 20)  # no p_corrected for it


def test_texts_are_cut_in_their_middle_where_no_column_can_go():
    table = Table({"run": ["a" * 20 + "b" * 20, "short"], "query": ["c" * 12, "d" * 30]})
    for width in range(80, 10, -1):
        found = fitted(table, width)
        wide = max(map(len, lines(found)))
        assert wide <= max(width, 18)  # 8 characters each, and 2 between them
        assert (found == table) == (width >= 72)
        for cut, whole in zip((*found["run"], *found["query"]), (*table["run"], *table["query"])):
            start, dots, end = cut.partition("…")
            assert (cut == whole) != bool(dots)
            assert whole.startswith(start)
            assert whole.endswith(end)
            assert not dots or len(start) == len(end) >= 3
        if 18 < width < 72:
            assert wide >= width - 3  # no more is cut than needed
    assert fitted(Table({"a": [10**12], "b": [2.0]}), 3).rows == [{"a": 10**12, "b": 2.0}]  # numbers stay


def test_lines_are_wrapped_between_words_at_the_width():
    text = "one two-three four\n\nlonger-than-ten-characters five"
    assert wrapped(text, 10) == "one\ntwo-three\nfour\n\nlonger-than-ten-characters\nfive"
    assert wrapped(text, math.inf) == text
    assert wrapped("x" * 5 + " " + "y" * 4, 10) == "xxxxx yyyy"
    assert wrapped("x" * 5 + " " + "y" * 4, 9) == "xxxxx\nyyyy"
    table = Table({"measure": ["mrr"], "value": [0.5]}, notes=["a note of several words"])
    wanted = ["measure   value", "mrr      0.5000", "a note of", "several words"]
    assert formatted(table, "table", 15).splitlines() == wanted


def test_lists_have_a_column_of_names_up_to_24_characters_and_lines_cut_at_the_width():
    assert lists.listed([("a", "one"), ("b" * 24, "`two`")], 29.5) == f"a{' ' * 23}  one\n{'b' * 24}  two"
    assert lists.listed([("a", "one"), ("`b`" * 25, "two words")], 30).splitlines() == [
        f"a{' ' * 23}  one",
        f"{'b' * 25}  tw…",  # 30 characters with one that says so
    ]
    assert [lists.listed([("a", "one")], width) for width in (6, 5)] == ["a  one", "a  o…"]
    assert lists.listed([("a", "one")], math.inf, "info a") == "a  one\n\n`info a` describes one of them."


@pytest.mark.parametrize("name", ["text.txt", "text.gz", "a.gz.txt"])
def test_files_that_end_in_gz_are_compressed(tmp_path, name):
    write(str(tmp_path / name), "some text")
    content = (tmp_path / name).read_bytes()
    assert (gzip.decompress(content) if name.endswith(".gz") else content) == b"some text"
    assert [path.name for path in tmp_path.iterdir()] == [name]
