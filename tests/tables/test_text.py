"""Lines and fields of text beside plain Python: all texts of a few pieces, cut as a whole and in small chunks."""

import itertools

import pytest

import torchrank as tr
from torchrank.tables.files import Layout, Text, fields
from torchrank.tables.pair_tables import shorten

PIECES = ["a", "#", "\t", " ", "\n", "\r\n"]


def rows_of(text, tabs, width):
    """The fields of each row of a text; None if a row is refused."""
    rows = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        parts = line.split("\t") if tabs else line.split()
        if line == "" or not parts or (not tabs and parts[0] == "#"):
            continue
        if len(parts) != width or "" in parts:
            return None
        rows.append(parts)
    return rows


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("tabs", [False, True])
def test_every_short_text_has_the_fields_of_plain_python(tabs, size, monkeypatch):
    monkeypatch.setattr("torchrank.tables.files.PIECE", size)  # so many bytes are cut at a time
    texts = ["".join(pieces) for size in range(1, 5) for pieces in itertools.product(PIECES, repeat=size)]
    for text, width in itertools.product(texts, (1, 2)):
        try:
            found = fields(Text.of(text.encode(), "file"), Layout(width, {"query": 0, "item": width - 1}, tabs))
            columns = [[key.decode() for key in column.to_keys()] for column in found.values()]
        except tr.ReadingError:
            assert rows_of(text, tabs, width) is None, text
        else:
            expected = rows_of(text, tabs, width)
            assert expected is not None, text
            assert columns == [[row[0] for row in expected], [row[-1] for row in expected]], text


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("rest", ["", "b c", "\n"])
def test_the_first_line_of_a_text(rest, end):
    text = Text.of(f"q a{end}{rest if end else ''}".encode(), "file", first_line=3)
    assert text.first_line_bytes() == b"q a"
    after = text.after_first_line()
    assert after.data.decode() == (rest if end else "")
    assert after.first_line == 3 + bool(end)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\0\0"])
@pytest.mark.parametrize("size", [5, 5000])
def test_an_error_shows_the_beginning_of_its_line(size, end):
    line = "b" * size
    error = Text.of(f"a\n\n# no row\n{line}{end}".encode(), "file", first_line=7).error_of_row("wrong", 1)
    assert (error.line, error.text) == (10, shorten(line))


def test_fields_between_tabs_may_have_blanks_also_without_a_header_and_in_pieces(tmp_path):
    path = tmp_path / "run.tsv"
    path.write_text("q 1\td 1\t1\nq 1\td 2\t2\nq 2\td 1\t1\n")
    expected = {"q 1": ["d 1", "d 2"], "q 2": ["d 1"]}
    whole = tr.read_run(path, format="tsv").to_dict()
    assert {query: list(scores) for query, scores in whole.items()} == expected
    pieces = [run.to_dict() for run in tr.read_chunks(path, format="tsv", lines=1)]
    assert {query: list(scores) for piece in pieces for query, scores in piece.items()} == expected


def test_ranks_may_begin_at_0(tmp_path):
    path = tmp_path / "run.tsv"
    path.write_text("q\td\t0\nq\te\t1\n")
    assert list(tr.read_run(path).to_dict()["q"]) == ["d", "e"]
