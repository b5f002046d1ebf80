"""A small table of results, printed as text or HTML and converted to other formats."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from torchrank.names.arguments import did_you_mean, imported

#: the superscripts that mark systems, and the plain characters that they stand for
SUPERSCRIPTS = dict(zip("ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ⁰¹²³⁴⁵⁶⁷⁸⁹", "abcdefghijklmnoprstuvwxyz0123456789"))
_RAISED = re.compile(f"[{''.join(SUPERSCRIPTS)}]+")
# Characters that command a terminal, end a line, change the direction of the text, or stand for no character.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
# Texts, but no numbers, that a spreadsheet takes for formulas.
_FORMULA = re.compile(r"(?![+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$)[=+\-@\t\r]", re.IGNORECASE)
_LATEX = {
    **{mark: f"\\{mark}" for mark in "_%&#${}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


class Score(float):
    """A number with marks behind it, as in tables of papers. Tables in HTML, Markdown and LaTeX print the best in bold.

    Args:
        value: the number.
        marks: superscripts of :data:`SUPERSCRIPTS`.
        best: whether no other number of its column is better.

    Example:
        >>> print(Table({"mrr": [Score(0.5, "ᵃ", best=True), Score(0.25)]}).to_markdown())
        | mrr |
        | ---: |
        | **0.5000**ᵃ |
        | 0.2500 |
    """

    marks: str
    best: bool

    def __new__(cls, value: float, marks: str = "", best: bool = False) -> Score:
        score = super().__new__(cls, value)
        score.marks, score.best = marks, best
        return score

    def __repr__(self) -> str:
        return f"{float(self)!r}{self.marks}"


class Table:
    """Columns of equal length, with their formats and notes; it is never changed.

    ``str`` aligns it as text, notebooks show it as HTML. A missing number (NaN or None) is printed as "-".

    Args:
        columns: values of each column, by its name; numbers, strings, bools or None.
        formats: format specification of a column's numbers, by its name; ``.4f`` for other floats.
        notes: lines that are printed below.

    Raises:
        ValueError: the columns have different lengths, or a format is for no column.

    Example:
        >>> table = Table({"measure": ["ndcg@10", "mrr"], "value": [0.41234, float("nan")]}, notes=["3 queries"])
        >>> table
        measure   value
        ndcg@10  0.4123
        mrr           -
        3 queries
        >>> table["measure"], len(table), table.rows[0]["value"]
        (['ndcg@10', 'mrr'], 2, 0.41234)
        >>> table.to_dict()["value"]
        [0.41234, None]
    """

    __slots__ = ("_columns", "_formats", "_notes")

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], formats: Mapping[str, str] | None = None, notes: Sequence[str] = ()
    ) -> None:
        self._columns = {str(name): [_plain(v) for v in values] for name, values in columns.items()}
        self._formats = dict(formats or {})
        self._notes = tuple(notes)
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"Expected columns of equal length, got {lengths}; fill gaps with None")
        if unknown := set(self._formats) - set(self._columns):
            raise ValueError(f"Expected formats of columns, got one for {sorted(unknown)}; drop it")

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[Mapping[str, Any]],
        formats: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> Table:
        """A table of rows, each a mapping from column to value.

        Args:
            rows: the rows, which have the same columns.
            formats: as in the constructor; a format for no column is left out.
            notes: as in the constructor.
            columns: names of the columns if there are no rows.

        Example:
            >>> Table.of_rows([{"measure": "mrr", "value": 0.5}, {"measure": "map", "value": 0.25}])["value"]
            [0.5, 0.25]
        """
        table = {name: [row[name] for row in rows] for name in (rows[0] if rows else columns)}
        return cls(table, {name: spec for name, spec in (formats or {}).items() if name in table}, notes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, each a dictionary from column to value."""
        return list(self)

    @property
    def formats(self) -> dict[str, str]:
        """Format specifications of columns, by their names."""
        return dict(self._formats)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that are printed below."""
        return self._notes

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self._columns, values)) for values in zip(*self._columns.values()))

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self._columns:
            hint = did_you_mean(str(column), self._columns)
            raise KeyError(f"Expected a column of {', '.join(self._columns)}, got {column!r}{hint}")
        return list(self._columns[column])

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        # repr of columns: a NaN equals a NaN, and the order of columns counts
        mine, theirs = ((repr(table._columns), table._formats, table._notes) for table in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sides = [str.rjust if self._is_number(name) else str.ljust for name in self._columns]
        cells = list(zip(sides, self.widths))
        rows = ([side(text, width) for text, (side, width) in zip(row, cells)] for row in self._lines())
        return "\n".join([*("  ".join(row).rstrip() for row in rows), *map(printable, self._notes)])

    @property
    def widths(self) -> list[int]:
        """The number of characters of each column in text."""
        return [max(map(len, cells)) for cells in zip(*self._lines())]

    def _repr_html_(self) -> str:
        return self.to_html()

    def with_notes(self, *notes: str) -> Table:
        """The table with other notes."""
        return Table(self._columns, self._formats, notes)

    def of(self, columns: Sequence[str]) -> Table:
        """Some columns of the table, with its notes."""
        formats = {name: spec for name, spec in self._formats.items() if name in columns}
        return Table({name: self[name] for name in columns}, formats, self._notes)

    def without_notes(self, other: Table) -> Table:
        """The table without the notes that another one has, which is printed above it."""
        return self.with_notes(*(note for note in self._notes if note not in other.notes))

    def to_html(self, caption: str = "", name: str = "", grouped: bool = False) -> str:
        """The table in HTML, with its notes below as paragraphs.

        Args:
            caption: its caption; "" = none.
            name: its id; "" = none.
            grouped: equal values in neighbouring rows of the first column are one cell.

        Example:
            >>> Table({"run": ["a & b"]}).to_html().partition("<tbody>")[2]
            '<tr><th scope="row">a &amp; b</th></tr></tbody></table>'
        """
        right = [' class="n" style="text-align: right"' * self._is_number(column) for column in self._columns]
        head, *body = self._lines(HTML)
        text = f"<table{f' id={chr(34)}{html.escape(name)}{chr(34)}' * bool(name)}>"
        text += f"<caption>{html.escape(printable(caption))}</caption>" * bool(caption) + "<thead><tr>"
        text += "".join(f'<th scope="col"{r}>{cell}</th>' for cell, r in zip(head, right)) + "</tr></thead>"
        groups = [[*rows] for _, rows in groupby(body, lambda cells: cells[0] if grouped else None)]
        for rows in groups or [[]]:
            first = f'<th scope="rowgroup" rowspan="{len(rows)}">{rows[0][0]}</th>' if grouped and rows else ""
            text += "<tbody>"
            for cells in rows:
                named, *others = [*zip(cells, right)][grouped:]
                text += f'<tr>{first}<th scope="row"{named[1]}>{named[0]}</th>'
                text += "".join(f"<td{r}>{cell}</td>" for cell, r in others) + "</tr>"
                first = ""
            text += "</tbody>"
        return text + "</table>" + "".join(f"<p>{html.escape(printable(note))}</p>" for note in self._with_bold)

    def to_markdown(self) -> str:
        """The table in GitHub's Markdown, with its notes below.

        Example:
            >>> print(Table({"measure": ["mrr"], "value": [0.5]}).to_markdown())
            | measure | value |
            | --- | ---: |
            | mrr | 0.5000 |
        """
        head, *body = ("| " + " | ".join(cells) + " |" for cells in self._lines(MARKDOWN))
        rule = "| " + " | ".join("---:" if self._is_number(name) else "---" for name in self._columns) + " |"
        return "\n".join([head, rule, *body, *(f"\n{printable(note)}" for note in self._with_bold)])

    def to_latex(self) -> str:
        r"""The table in LaTeX, for the package booktabs, with its notes as comments below.

        Example:
            >>> print(Table({"num_q": [3], "value": [0.5]}).to_latex())
            \begin{tabular}{rr}
            \toprule
            num\_q & value \\
            \midrule
            3 & 0.5000 \\
            \bottomrule
            \end{tabular}
        """
        head, *body = (" & ".join(cells) + r" \\" for cells in self._lines(LATEX))
        align = "".join("r" if self._is_number(name) else "l" for name in self._columns)
        lines = [f"\\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", *(f"% {printable(note)}" for note in self._with_bold)])

    def to_csv(self, path: str | Path | None = None) -> str:
        r"""The values in full precision as comma-separated text, without notes; a missing value is empty.

        A text that a spreadsheet would take for a formula begins with an apostrophe.

        Args:
            path: a file to write, in UTF-8; None = none.

        Returns:
            The text of the file.

        Example:
            >>> Table({"measure": ["mrr"], "value": [0.123456789]}).to_csv()
            'measure,value\nmrr,0.123456789\n'
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_no_formula, self._columns))
        writer.writerows(map(_no_formula, values) for values in zip(*self.to_dict().values()))
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8", newline="\n")
        return text.getvalue()

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists of values that JSON has: NaN and infinity are None."""
        return {name: [finite(value) for value in values] for name, values in self._columns.items()}

    def to_json(self) -> str:
        """The columns as JSON; NaN is null.

        Example:
            >>> Table({"value": [0.5, float("nan")]}).to_json()
            '{"value": [0.5, null]}'
        """
        return json.dumps(self.to_dict())

    def to_pandas(self) -> Any:
        """The columns as a ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return imported("pandas", instead="use to_dict()").DataFrame(self._columns)

    def to_polars(self) -> Any:
        """The columns as a ``polars.DataFrame``.

        Raises:
            ImportError: polars is not installed.
        """
        return imported("polars", instead="use to_dict()").DataFrame(self._columns)

    @property
    def _with_bold(self) -> list[str]:
        """The notes, if there are some, of formats that print the best number in bold."""
        best = any(getattr(value, "best", False) for values in self._columns.values() for value in values)
        return [*["Bold: best."] * (best and bool(self._notes)), *self._notes]

    def _lines(self, style: Style | None = None) -> list[list[str]]:
        """The cells of the head and of each row. In text the digits of numbers with marks are below each other."""
        columns = []
        for name, values in self._columns.items():
            marks = [getattr(value, "marks", "") for value in values]
            most = max(map(len, marks), default=0) if style is None else 0
            cells = [(style or TEXT).cell(value, self._formats.get(name, "")) for value in values]
            columns.append([f"{cell}{' ' * (most - len(mark))}" for cell, mark in zip(cells, marks)])
        head = [(style or TEXT).escape(printable(name)) for name in self._columns]
        return [head, *map(list, zip(*columns))]

    def _is_number(self, name: str) -> bool:
        values = self._columns[name]
        return all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values)


def cell(value: Any, spec: str = "") -> str:
    """A value as text; "-" if it is missing.

    Example:
        >>> cell(0.25), cell(3), cell(float("nan")), cell(None), cell(True)
        ('0.2500', '3', '-', '-', 'yes')
    """
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(value)
    return format(value, spec or ("" if isinstance(value, int) else ".4f")) + getattr(value, "marks", "")


def _plain(value: Any) -> Any:
    """A value of Python, from a number of Python, numpy or torch."""
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def printable(text: str, but: str = "") -> str:
    r"""A text of which nothing but characters reaches a terminal: others, ``but`` some, are written as escapes.

    Example:
        >>> printable("a\x1b[2Jb\n")
        'a\\x1b[2Jb\\n'
    """
    return _CONTROLS.sub(lambda mark: mark[0] if mark[0] in but else mark[0].encode("unicode_escape").decode(), text)


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def finite(value: Any) -> Any:
    """A value that JSON has: None for NaN and infinity, and the number of a score."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return _RAISED.sub(lambda match: f"$^{{{''.join(SUPERSCRIPTS[mark] for mark in match[0])}}}$", escaped)


class Style(NamedTuple):
    """How a format writes the text of a cell, and the best number of a column."""

    escape: Callable[[str], str] = str
    strong: str = "{}"

    def cell(self, value: Any, spec: str) -> str:
        """A value as text of the format."""
        text, marks = cell(value, spec), getattr(value, "marks", "")
        if not getattr(value, "best", False):
            return self.escape(text)
        return self.strong.format(self.escape(text.removesuffix(marks))) + self.escape(marks)


TEXT = Style()
HTML = Style(html.escape, "<b>{}</b>")
MARKDOWN = Style(lambda text: text.replace("|", "\\|"), "**{}**")
LATEX = Style(_latex, "\\textbf{{{}}}")
