"""How results are shown: tables, and the axes and styles of plots, which need matplotlib."""

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


#: colours that colour-blind readers distinguish (Okabe and Ito), with lines and marks for readers of grey prints; the
#: three cycles have lengths without a common divisor, so that the first 140 lines differ
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v")
HATCHES = ("", "///", "...", "xxx")

#: more names than this are in a legend beside the axes, and the number in one column of it
INSIDE, COLUMN = 6, 20


def axes_of(ax: Any, width: float = 6.4, height: float = 4.2, managed: bool = False) -> Any:
    """The given axes, or those of a new figure.

    Args:
        ax: axes of matplotlib, or None for a new figure.
        width: width of a new figure in inches.
        height: height of a new figure in inches.
        managed: make the figure by pyplot, which shows it in notebooks and by ``pyplot.show()``, and keeps it until it
            is closed. Other figures need no display, and are freed with their axes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    if managed:
        return imported("matplotlib.pyplot", "plot").subplots(figsize=(width, height), layout="constrained")[1]
    return imported("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained").add_subplot()


def style(number: int) -> dict[str, Any]:
    """The colour, line and mark of a line, by its number from 0."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKS[number % len(MARKS)],
    }


def shortened(name: str, most: int = 40) -> str:
    """A name of at most ``most`` characters, whose middle is left out if it is longer.

    Example:
        >>> shortened("bm25"), shortened("dense-retriever-with-a-long-name-large", most=21)
        ('bm25', 'dense-retr…name-large')
    """
    name = " ".join(name.split())  # a line break would hide other names
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def plainly(texts: Sequence[Any], names: Sequence[str]) -> None:
    """Set texts without interpretation: matplotlib would read "$" as mathematics."""
    for text, name in zip(texts, names):
        text.set_parse_math(False)
        text.set_text(name)


def describe(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    """Set title and labels without interpretation, and remove the frame where there is no axis."""
    axes.set_title(title, loc="left", fontsize="medium", parse_math=False)
    axes.set_xlabel(xlabel, parse_math=False)
    axes.set_ylabel(ylabel, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)


def draw_lines(axes: Any, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], aside: bool = False) -> None:
    """Draw a line through points (x, y) for each name, with a legend."""
    drawn = []
    for number, (x, y) in enumerate(lines.values()):
        drawn += axes.plot(x, y, **style(number), markersize=4, linewidth=1.4, markevery=max(1, len(x) // 30))
    axes.grid(alpha=0.3)
    add_legend(axes, drawn, list(lines), aside)


def log_axis(axes: Any, cutoffs: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers at 1, 2, 5, 10, ..., or at the cutoffs if these are few."""
    ticker = imported("matplotlib.ticker", "plot")
    axes.set_xscale("log")
    few = 0 < len(cutoffs) <= 8
    axes.xaxis.set_major_locator(ticker.FixedLocator(cutoffs) if few else ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda k, _: f"{k:,g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    if len(cutoffs) == 1:
        axes.set_xlim(cutoffs[0] / 2, cutoffs[0] * 2)


def add_legend(axes: Any, drawn: Sequence[Any], names: Sequence[str], aside: bool = False) -> None:
    """Add a legend, unless there is a single run without a name.

    It is within the axes, or beside them if there are many names or long ones, or if ``aside``.
    """
    if not drawn or list(names) == ["run"]:
        return
    placeholders = [f"line {number}" for number in range(len(drawn))]  # a legend hides names that begin with "_"
    shown = [shortened(name) for name in names]
    if aside or beside(shown):
        options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0}
        options |= {"ncols": -(-len(drawn) // COLUMN), "fontsize": "small"}
    else:
        options = {"loc": "best"}
    legend = axes.legend(drawn, placeholders, frameon=False, handlelength=2.6, **options)
    plainly(legend.get_texts(), shown)


def beside(names: Sequence[str]) -> bool:
    """Whether the legend of some names is beside the axes."""
    return len(names) > INSIDE or any(len(name) > 24 for name in names)


def room_for(names: Sequence[str], aside: bool = False) -> float:
    """Width in inches of the legend beside the axes; 0 for one within them."""
    shown = [shortened(name) for name in names]
    if not shown or not (aside or beside(shown)):
        return 0.0
    return -(-len(shown) // COLUMN) * (0.55 + 0.07 * max(map(len, shown)))


def draw_intervals(
    axes: Any,
    names: Sequence[str],
    centre: Any,
    low: Any,
    high: Any,
    filled: Sequence[bool] | None = None,
    kinds: Sequence[int] | None = None,
) -> None:
    """Draw a row for each name, the first on top: a mark, and a line from ``low`` to ``high`` unless these are NaN.

    Marks where ``filled`` is False are white inside; None = all marks are filled. Rows of one of the ``kinds`` have one
    colour; None = all rows.
    """
    places, kinds = range(len(names)), kinds or [0] * len(names)
    axes.hlines(places, low, high, color=[style(kind)["color"] for kind in kinds])
    for kind in sorted(set(kinds)):
        rows = [place for place in places if kinds[place] == kind]
        axes.plot([centre[row] for row in rows], rows, "o", color=style(kind)["color"])
    hollow = [place for place in places if filled is not None and not filled[place]]
    axes.plot([centre[place] for place in hollow], hollow, "o", color=COLOURS[0], markerfacecolor="white")
    axes.set_yticks(places, names)
    plainly(axes.get_yticklabels(), names)
    axes.set_ylim(len(names) - 0.4, -0.6)  # descending, so that the first row is on top


def plot_ends(
    ax: Any,
    results: Mapping[str, Any],
    keys: Sequence[str],
    ends: tuple[str, str, str],
    what: str,
    kinds: Sequence[int] | None = None,
) -> tuple[Any, Any]:
    """A figure and its axes with a row for each key: its value and the two ends of a line, at ``key + end``.

    A line without ends is left out. ``kinds`` are those of :func:`draw_intervals`.
    """
    axes = axes_of(ax, height=1.2 + 0.3 * len(keys), managed=True)
    centre, low, high = ([float(results.get(f"{key}{end}", math.nan)) for key in keys] for end in ends)
    draw_intervals(axes, keys, centre, low, high, kinds=kinds)
    describe(axes, "", what, "")
    axes.grid(axis="x", alpha=0.3)
    return axes.figure, axes
