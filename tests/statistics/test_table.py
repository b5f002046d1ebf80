import json
import math
import sys

import numpy as np
import pytest
import torch

from torchrank.display import Score, Table


def example():
    return Table(
        {"measure": ["ndcg@10", "mr<1>|x"], "value": [0.25, float("nan")], "queries": [3, 12000]},
        formats={"value": ".2%"},
        notes=["2 rows & more"],
    )


def test_text_aligns_numbers_to_the_right_and_marks_missing_ones():
    assert str(example()).split("\n") == [
        "measure   value  queries",
        "ndcg@10  25.00%        3",
        "mr<1>|x       -    12000",
        "2 rows & more",
    ]


def test_rows_are_dictionaries_and_columns_are_lists():
    table = example()
    assert len(table) == 2
    assert table.rows[0] == {"measure": "ndcg@10", "value": 0.25, "queries": 3}
    assert [row["queries"] for row in table] == table["queries"] == [3, 12000]
    assert "value" in table
    assert table.columns == ("measure", "value", "queries")


def test_a_returned_list_does_not_change_the_table():
    table, given = example(), [1, 2]
    table["queries"].append(5)
    table.rows[0]["queries"] = 7
    assert table == example()
    other = Table({"a": given})
    given.append(3)
    assert other["a"] == [1, 2]


def test_numbers_of_numpy_and_torch_become_numbers_of_python():
    table = Table({"a": [np.float64(0.5), torch.tensor(2.0)], "b": np.arange(2)})
    assert table.to_dict() == {"a": [0.5, 2.0], "b": [0, 1]}
    assert [type(v) for v in table["a"] + table["b"]] == [float, float, int, int]


def test_numbers_beside_missing_ones_stand_at_the_right():
    assert str(Table({"some": [None, 0.5]})).split("\n") == ["  some", "     -", "0.5000"]
    assert str(Table({"some": ["-", "0.5000"]})).split("\n") == ["some", "-", "0.5000"]


def test_truth_is_shown_in_words():
    assert str(Table({"a": [True, False, None]})).split() == ["a", "yes", "no", "-"]


def test_tables_are_equal_if_their_values_formats_and_notes_are():
    assert example() == example()
    assert example() != Table(example().to_dict())
    assert Table({"a": [1], "b": [2]}) != Table({"b": [2], "a": [1]})
    assert Table({"a": [1]}) != Table({"a": [2]})


def test_json_has_null_for_a_missing_number():
    table = Table({"value": [0.5, float("nan"), math.inf]})
    assert json.loads(table.to_json()) == {"value": [0.5, None, None]}
    assert "inf" in str(table)


def test_html_is_escaped():
    page = example()._repr_html_()
    assert "mr&lt;1&gt;|x" in page
    assert "2 rows &amp; more" in page
    assert page.count("<tr>") == 3


def test_a_bar_in_a_name_does_not_split_a_markdown_cell():
    lines = example().to_markdown().split("\n")
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[3] == r"| mr<1>\|x | - | 12000 |"


def test_latex_escapes_its_special_characters_and_raises_the_marks_of_systems():
    text = Table({"a_b": ["50% & #1", "0.412ᵃᵇ", "x^2~{\\}<"]}).to_latex()
    assert r"a\_b \\" in text
    assert r"50\% \& \#1 \\" in text
    assert r"0.412$^{ab}$ \\" in text
    assert r"x\textasciicircum{}2\textasciitilde{}\{\textbackslash{}\}\textless{} \\" in text


def test_csv_keeps_all_digits_and_quotes_commas(tmp_path):
    table, file = Table({"a": ["x,y", 'q"'], "b": [1 / 3, float("nan")]}), tmp_path / "table.csv"
    assert table.to_csv() == table.to_csv(file) == (f'a,b\n"x,y",{1 / 3!r}\n"q""",\n')
    assert file.read_bytes().decode() == table.to_csv()


def test_digits_of_numbers_with_marks_are_below_each_other_in_text():
    table = Table({"mrr": [Score(0.5, "ᵃᵇ", best=True), Score(0.25, "ᵃ"), 3]})
    assert str(table) == "     mrr\n0.5000ᵃᵇ\n0.2500ᵃ\n     3"
    assert " <" not in table.to_html()


def test_pandas_gets_the_same_columns():
    pandas = pytest.importorskip("pandas")
    frame = example().to_pandas()
    assert list(frame.columns) == ["measure", "value", "queries"]
    assert frame["queries"].tolist() == [3, 12000]
    assert frame["value"].isna().tolist() == [False, True]
    assert isinstance(frame, pandas.DataFrame)


def test_polars_gets_the_same_columns():
    pytest.importorskip("polars")
    assert example().to_polars()["queries"].to_list() == [3, 12000]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_the_way_out(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"pip install {library}"):
        getattr(example(), f"to_{library}")()


def test_wrong_columns_and_formats_are_errors():
    with pytest.raises(ValueError, match=r"equal length, got \{'a': 1, 'b': 2\}"):
        Table({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="got one for \\['c'\\]"):
        Table({"a": [1]}, formats={"c": ".2f"})
    with pytest.raises(KeyError, match="did you mean 'measure'"):
        example()["mesure"]


def test_a_table_without_rows_has_its_head():
    assert str(Table({"a": [], "b": []})) == "a  b"
    assert Table({"a": []}).to_markdown() == "| a |\n| ---: |"
    assert len(Table({})) == 0
    assert str(Table({})) == ""
