"""``torchrank eval``, ``compare`` and ``power``: from files of judgments and runs to numbers and verdicts."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torchrank as tr
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.distributions import t_cdf
from torchrank.statistics.pair_statistics import PairStatistics
from torchrank.statistics.table import Table

#: exit statuses
PASSED, FAILED, UNREADABLE, DATA = 0, 1, 2, 3


def evaluated(options: argparse.Namespace) -> int:
    """``torchrank eval``: print the values of one or several runs."""
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    if options.per_query:
        try:
            _write(options.per_query, _per_query(found))
        except BrokenPipeError:
            raise
        except OSError as error:
            return _refused(error, UNREADABLE)
    summary = found.summary(options.interval)
    if options.by:
        try:
            summary = found.by(_slices(options.by), options.interval)
        except (OSError, ValueError) as error:
            return _refused(error, UNREADABLE if isinstance(error, OSError) else DATA)
    if options.format == "table":
        print(f"{summary}\n\n{found.coverage}")
    elif options.format == "json":
        print(json.dumps({"summary": summary.to_dict(), "coverage": found.coverage.to_dict(), **_about(options)}))
    else:
        print(_formatted(summary, options.format))
    return PASSED


def compared(options: argparse.Namespace) -> int:
    """``torchrank compare``: print the differences of runs, and judge gates."""
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    try:
        comparison = found.compare(
            options.baseline, test=options.test, correction=options.correction, alpha=options.alpha, seed=options.seed
        )
        gates = [Gate.of(text, "fail-if") for text in options.fail_if] + [
            Gate.of(text, "require") for text in options.require
        ]
        verdicts = [verdict for gate in gates for verdict in gate.verdicts(comparison, found.runs[0], options.alpha)]
    except (ValueError, ImportError) as error:
        return _refused(error, UNREADABLE)
    worst = _worst(found, options.worst) if options.worst else None
    if options.plot:
        comparison.forest()[0].savefig(options.plot)
    if options.format == "json":
        shown = {**comparison.to_dict(), "gates": [vars(one) for one in verdicts], **_about(options)}
        print(json.dumps({**shown, "coverage": found.coverage.to_dict()}, allow_nan=False))
    elif options.format == "table":
        shown_tables = [comparison, found.coverage, *([worst] if worst else []), *verdicts]
        print("\n\n".join(map(str, shown_tables)))
    elif options.format == "markdown":
        print(comparison.to_markdown())
    else:
        print(_formatted(comparison.table, options.format))
    for verdict in verdicts:
        if not verdict.passed:
            print(f"torchrank compare: {verdict}", file=sys.stderr)
    return PASSED if all(verdict.passed for verdict in verdicts) else FAILED


def powered(options: argparse.Namespace) -> int:
    """``torchrank power``: print the numbers of queries that show a difference."""
    found = _evaluation(options)
    if isinstance(found, int):
        return found
    try:
        comparison = found.compare()
        needed = comparison.queries_needed(options.delta, options.power, options.alpha)
        detectable = comparison.detectable(options.power, options.alpha)
    except ValueError as error:
        return _refused(error, UNREADABLE)
    print(f"{needed}\n\n{detectable}")
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
    def of(cls, text: str, kind: str) -> Gate:
        """Read a gate.

        Raises:
            ValueError: the text is no condition.
        """
        found = re.fullmatch(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
        if not found:
            raise ValueError(f"Expected a condition such as 'ndcg@10 < -0.005' for --{kind}, got {text!r}")
        return cls(kind, tr.parse(found[1]).label, found[2] == ">", float(found[3]))

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


def _evaluation(options: argparse.Namespace) -> tr.Evaluation | int:
    runs = {}
    for text in options.runs:
        name, separator, path = text.partition("=")
        named = bool(separator) and not Path(text).exists()
        key = name if named else re.sub(r"(\.gz)?$", "", Path(text).name).rsplit(".", 1)[0] or text
        if named and not (name and path):
            return _refused(ValueError(f"Expected a run as file or name=file, got {text!r}"), UNREADABLE)
        if key in runs:
            return _refused(
                ValueError(f"Expected runs with different names, got {key!r} twice; write name=path"), UNREADABLE
            )
        runs[key] = path if named else text
    if [options.qrels, *runs.values()].count("-") > 1:
        return _refused(ValueError("Expected standard input, -, for one file, got it for several"), UNREADABLE)
    try:
        return tr.evaluate(
            options.qrels,
            runs,
            options.measures,
            queries=options.queries,
            ignore_identical_ids=options.ignore_identical_ids,
            precision=options.precision,
            ties=options.ties,
            progress=sys.stderr.isatty() and find_spec("tqdm") is not None,
        )
    except (OSError, ImportError) as error:
        return _refused(error, UNREADABLE)
    except tr.ReadingError as error:
        return _refused(error, DATA)
    except ValueError as error:
        return _refused(error, DATA if str(error).startswith("Expected queries that are judged") else UNREADABLE)


def _refused(error: Exception, status: int) -> int:
    print(f"torchrank: {error}", file=sys.stderr)
    return status


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Versions, and a digest of the judgments."""
    path = Path(options.qrels)
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else None
    return {"torchrank": tr.__version__, "qrels": {"path": options.qrels, "blake2b": digest}}


def _formatted(table: Table, kind: str) -> str:
    if kind == "markdown":
        return table.to_markdown()
    if kind == "latex":
        return table.to_latex()
    if kind == "csv":
        return table.to_csv().rstrip("\n")
    columns = table.to_dict()
    return "\n".join(json.dumps(dict(zip(columns, values))) for values in zip(*columns.values()))


def _per_query(found: tr.Evaluation) -> str:
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


def _worst(found: tr.Evaluation, most: int) -> Table:
    """The queries with the largest losses from the first run to each other one, in the first measure."""
    first, *others = found.runs
    label = found[first].labels[0]
    rows = [{"run": name, **row} for name in others for row in found[first].deltas(found[name], label, most).rows]
    return Table.of_rows(rows, notes=[f"{label}: the largest losses from {first}"])


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")
