"""``torchrank eval``, ``compare`` and ``power``: from files of judgments and runs to numbers and verdicts."""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import hashlib
import io
import json
import math
import platform
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrank import __version__
from torchrank.cli.files import STANDARD, Input, check_readable, source_of, write
from torchrank.names.parse import parse
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.distributions import t_cdf
from torchrank.statistics.pair_statistics import PairStatistics
from torchrank.statistics.table import Table
from torchrank.tables.chunks import of_large
from torchrank.tables.errors import ReadingError
from torchrank.tables.sources import read_qrels, read_run
from torchrank.tables.table import Qrels

if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation

#: formats that hold several tables; the others hold one
SEVERAL = ("table", "json", "markdown")

#: options of the command that are arguments of :func:`torchrank.evaluate`
OPTIONS = (
    *("preset", "queries", "ignore_identical_ids", "precision", "ties"),
    *("depth", "relevance_level", "unjudged"),
)

#: those of them whose defaults are of a preset
OF_RUNS = ("preset", "queries", "ignore_identical_ids", "precision", "depth")

#: exit statuses
PASSED, FAILED, UNREADABLE, DATA = 0, 1, 2, 3


def evaluated(options: argparse.Namespace) -> int:
    """``torchrank eval``: print the values of one or several runs."""
    if options.per_query == STANDARD and options.format != "table":
        return _refused(
            ValueError(f"Expected a file for -q with --format {options.format}, got -, standard output; name a file")
        )
    try:
        slices = _slices(options.by) if options.by else None
    except (OSError, ValueError) as error:
        return _refused(error, UNREADABLE if isinstance(error, OSError) else DATA)
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    try:
        if options.per_query == STANDARD:
            print(_per_query(found))
        elif options.per_query:
            write(options.per_query, _per_query(found))
        summary = (
            found.summary(options.interval) if slices is None else found.by(_by_id(found, slices), options.interval)
        )
        if options.html:
            _report(found, None, options)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        return _refused(error, UNREADABLE if isinstance(error, OSError) else DATA)
    coverage = found.coverage.without_notes(summary)
    if options.format == "table":
        print(f"{summary}\n\n{coverage}")
    elif options.format == "json":
        shown = {"summary": summary.to_dict(), "coverage": coverage.to_dict()}
        _print_json({**shown, "notes": [*summary.notes, *coverage.notes], **_about(options)})
    elif options.format == "markdown":
        print(f"{summary.to_markdown()}\n\n{coverage.to_markdown()}")
    else:
        print(_formatted(summary, options.format))
    return PASSED


def compared(options: argparse.Namespace) -> int:
    """``torchrank compare``: print the differences of runs, and judge gates."""
    if options.worst and options.format not in SEVERAL:
        several = ", ".join(SEVERAL)
        return _refused(
            ValueError(f"Expected one of --format {several} with --worst, got {options.format}; leave --worst out")
        )
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    try:
        comparison = found.compare(
            options.baseline, test=options.test, correction=options.correction, alpha=options.alpha, seed=options.seed
        )
        texts = [("fail-if", text) for text in options.fail_if] + [("require", text) for text in options.require]
        gates = [Gate.of(text, kind, comparison.measures) for kind, text in texts]
        verdicts = [verdict for gate in gates for verdict in gate.verdicts(comparison, found.runs[0], options.alpha)]
        if options.plot:
            comparison.forest()[0].savefig(options.plot)
        if options.html:
            _report(found, comparison, options, {str(one): one.passed for one in verdicts})
    except (ValueError, ImportError, OSError) as error:
        return _refused(error, DATA if str(error).startswith("Expected queries that all systems have") else UNREADABLE)
    worst = [_worst(found, options.worst)] if options.worst else []
    if options.format == "json":
        shown = {**comparison.to_dict(), "seed": options.seed, "gates": [vars(one) for one in verdicts]}
        if worst:
            shown["worst"] = worst[0].to_dict()
        _print_json({**shown, "coverage": found.coverage.to_dict(), **_about(options)})
    elif options.format == "table":
        print("\n\n".join(map(str, [comparison, found.coverage, *worst, *verdicts])))
    elif options.format == "markdown":
        parts = [comparison.to_markdown(), *(table.to_markdown() for table in (found.coverage, *worst))]
        print("\n\n".join([*parts, "\n".join(f"- {verdict}" for verdict in verdicts)]).rstrip())
    else:
        print(_formatted(comparison.table, options.format))
    for verdict in verdicts:
        if not verdict.passed or options.format not in SEVERAL:
            print(f"torchrank compare: {verdict}", file=sys.stderr)
    return PASSED if all(verdict.passed for verdict in verdicts) else FAILED


def powered(options: argparse.Namespace) -> int:
    """``torchrank power``: print the numbers of queries that show a difference, and the differences that are shown."""
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    try:
        comparison = found.compare()
        needed = comparison.queries_needed(options.delta, options.power, options.alpha)
        detectable = comparison.detectable(options.power, options.alpha)
    except ValueError as error:
        return _refused(error)
    rows = [
        {**{name: one[name] for name in ("measure", "a", "b", "sd")}, "n": other["n"], "needed": one["queries"],
         "detectable": other["detectable"]}
        for one, other in zip(needed, detectable)
    ]  # fmt: skip
    notes = [
        f"needed: queries that show a difference of {options.delta:g}; detectable: the difference that n queries show",
        f"both with probability {options.power:g}, by a t test at {options.alpha:g} without correction",
    ]
    table = Table.of_rows(rows, notes=notes)
    if options.format == "json":
        settings = {"delta": options.delta, "power": options.power, "alpha": options.alpha}
        _print_json({"rows": _rows(table), "notes": table.notes, **settings, **_about(options)})
    else:
        print(table if options.format == "table" else _formatted(table, options.format))
    return PASSED


# ---- gates -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The result of a gate for one pair of runs."""

    gate: str
    a: str
    b: str
    difference: float | None
    p: float | None
    state: str
    passed: bool

    def __str__(self) -> str:
        p = "-" if self.p is None else f"{self.p:.2g}"
        difference = "-" if self.difference is None else f"{self.difference:+.4f}"
        return f"{self.gate} [{self.b} - {self.a}]: {self.state}, difference {difference}, p {p}"


@dataclass(frozen=True)
class Gate:
    """A condition on the difference of a measure, e.g. ``ndcg@10 < -0.005``.

    "fail-if" fails if the difference meets it significantly. "require" passes only then. So a gate of the first kind
    is silent if there are few queries, and one of the second kind fails. The test is Student's t test. If the
    difference is the same on all queries, and not 0, it is the sign test: p = 0.5 to the number of queries.
    """

    kind: str
    measure: str
    above: bool
    bound: float

    @classmethod
    def of(cls, text: str, kind: str, keys: Sequence[str] = ()) -> Gate:
        """Read a gate. Measures have their labels as names, or one of ``keys``, such as the names of a preset.

        Raises:
            ValueError: the text is no condition.
        """
        found = re.fullmatch(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
        if not found:
            raise ValueError(f"Expected a condition such as 'ndcg@10 < -0.005' for --{kind}, got {text!r}")
        measure = found[1] if found[1] in keys else parse(found[1]).label
        return cls(kind, measure, found[2] == ">", float(found[3]))

    def verdicts(self, comparison: Comparison, baseline: str, alpha: float) -> list[Verdict]:
        """The verdict for each run beside the baseline.

        Raises:
            ValueError: the measure is not among the measures of the comparison.
        """
        if self.measure not in comparison.measures:
            raise ValueError(
                f"Expected the measure of --{self.kind} to be one of {', '.join(comparison.measures)}, got"
                f" {self.measure!r}; add it to -m"
            )
        pairs = [row.pair for row in comparison.rows if row.pair.measure == self.measure]
        return [self._of_pair(pair, alpha) for pair in pairs if pair.a == (comparison.baseline or baseline)]

    def _of_pair(self, pair: PairStatistics, alpha: float) -> Verdict:
        text = f"--{self.kind} {self.measure} {'>' if self.above else '<'} {self.bound:g}"
        distance = pair.difference - self.bound
        spread = pair.standard_error > 0
        if pair.n < 2 or not (spread or abs(pair.difference) > 0):
            passed, difference = self.kind == "fail-if", None if math.isnan(pair.difference) else pair.difference
            return Verdict(text, pair.a, pair.b, difference, None, "undecided", passed)
        beyond = distance if self.above else -distance
        # A collapse to 0 on all queries has no spread, but must not pass.
        p = t_cdf(-beyond / pair.standard_error, pair.df) if spread else 0.5**pair.n if beyond > 0 else 1.0
        met = p <= alpha
        state = "met" if met else "not shown"
        return Verdict(text, pair.a, pair.b, pair.difference, p, state, met == (self.kind == "require"))


# ---- input and output ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Do not look for garbage, which takes a sixth of the time of imports, and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_no_garbage()
def _read(options: argparse.Namespace) -> tuple[Qrels, dict[str, Any]]:
    """The judgments, and the sources of all runs, of which the first is read; PyTorch is imported meanwhile."""
    importing = threading.Thread(target=_import_torch)
    runs = _named(options.runs)
    if [options.qrels, *runs.values()].count(STANDARD) > 1:
        raise ValueError("Expected standard input, -, for one file, got it for several")
    check_readable(options.qrels)
    for path in runs.values():
        check_readable(path, folder=True)
    importing.start()  # takes seconds, most of them without a core's work
    options.qrels_source = source_of(options.qrels)
    qrels = read_qrels(options.qrels_source)
    sources: dict[str, Any] = {name: source_of(path) for name, path in runs.items()}
    name, first = next(iter(sources.items()))
    chunks = of_large(first)
    sources[name] = read_run(first, ties=options.ties) if chunks is None else chunks.begun(importing.is_alive)
    importing.join()
    import_module("torchrank.evaluation.evaluate")
    return qrels, sources


def _evaluation(options: argparse.Namespace) -> Evaluation | int:
    """The evaluation of all runs, or the exit status if there is none."""
    try:
        qrels, sources = _read(options)
        from torchrank.evaluation.evaluate import evaluate  # not all of torchrank
        from torchrank.evaluation.options import Options

        arguments = {name: getattr(options, name) for name in OPTIONS}
        watched = sys.stderr.isatty() and find_spec("tqdm") is not None
        found = evaluate(qrels, sources, options.measures, **arguments, progress=watched)
        options.effective = vars(Options.of(**{name: arguments[name] for name in OF_RUNS}))
        return found
    except (OSError, ImportError) as error:
        return _refused(error)
    except ReadingError as error:
        return _refused(error, UNREADABLE if Path(error.source).is_dir() else DATA)
    except ValueError as error:
        return _refused(error, DATA if str(error).startswith("Expected queries that are judged") else UNREADABLE)


def _report(
    found: Evaluation,
    comparison: Comparison | None,
    options: argparse.Namespace,
    gates: Mapping[str, bool] | None = None,
) -> None:
    from torchrank.cli.report import write_report

    write_report(found, comparison, options, _about(options), gates)


def _import_torch() -> None:
    """Import the packages that take the longest. A failure is left to the import in the main thread."""
    with contextlib.suppress(Exception):
        import_module("torchmetrics")


def _named(texts: list[str]) -> dict[str, str]:
    """The paths of runs by name.

    Raises:
        ValueError: a name occurs twice, or a name or a path is missing.
    """
    runs: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        named = bool(separator) and "/" not in name and not Path(text).exists()
        key = name if named else re.sub(r"(\.gz)?$", "", Path(text).name).rsplit(".", 1)[0] or text
        if named and not (name and path):
            raise ValueError(f"Expected a run as file or name=file, got {text!r}")
        if key in runs:
            raise ValueError(f"Expected runs with different names, got {key!r} twice; write name=path")
        runs[key] = path if named else text
    return runs


def _refused(error: Exception, status: int = UNREADABLE) -> int:
    print(f"torchrank: {error}", file=sys.stderr)
    return status


def _print_json(values: Mapping[str, Any]) -> None:
    print(json.dumps(values, allow_nan=False))


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Options, versions, and a digest of the judgments."""
    source = options.qrels_source
    data = source.getvalue() if isinstance(source, Input) else b""
    if isinstance(source, str) and Path(source).is_file():
        data = Path(source).read_bytes()
    digest = hashlib.blake2b(data, digest_size=16).hexdigest() if data else None
    chosen = ("runs", "measures", *OPTIONS, "interval", "by")
    return {
        "options": {name: getattr(options, name) for name in chosen if hasattr(options, name)} | options.effective,
        "torchrank": __version__,
        "versions": {
            "torchrank": __version__,
            "torch": import_module("torch").__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "qrels": {"path": options.qrels, "blake2b": digest},
    }


def _formatted(table: Table, kind: str) -> str:
    if kind == "markdown":
        return table.to_markdown()
    if kind == "latex":
        return table.to_latex()
    if kind == "csv":
        return table.to_csv().rstrip("\n")
    return "\n".join(map(json.dumps, _rows(table)))


def _rows(table: Table) -> list[dict[str, Any]]:
    """The rows in values that JSON has."""
    columns = table.to_dict()
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _per_query(found: Evaluation) -> str:
    """All values of all queries: run, query, measure, value, separated by tabs."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["run", "query", "measure", "value"])
    for name, table in found.tables.items():
        for label, values in table.columns.items():
            writer.writerows([name, query, label, value] for query, value in zip(table.ids.tolist(), values.tolist()))
    return text.getvalue()


def _slices(path: str) -> dict[str, str]:
    """The slice of each query, from lines of a query and its slice."""
    found: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8-sig").splitlines(), 1):
        if not (fields := line.split(maxsplit=1)):
            continue
        if len(fields) < 2 or fields[0] in found:
            raise ValueError(
                f"Expected a query and its slice, each query once, in line {number} of {path}, got {line!r}"
            )
        found[fields[0]] = fields[1].strip()
    return found


def _by_id(found: Evaluation, slices: Mapping[str, str]) -> dict[Any, str]:
    """The slices by the ids of the judgments, which a parquet file has as integers."""
    ids = {one for table in found.tables.values() for one in table.ids.tolist()}
    return {one: slices[str(one)] for one in ids if str(one) in slices}


def _worst(found: Evaluation, most: int) -> Table:
    """The queries with the largest losses from the first run to each other one, in the first measure."""
    first, *others = found.runs
    label = found[first].labels[0]
    rows = [{"run": name, **row} for name in others for row in found[first].deltas(found[name], label, most).rows]
    return Table.of_rows(rows, notes=[f"{label}: the largest losses from {first}"])
