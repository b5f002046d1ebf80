"""``torchrank eval``, ``compare`` and ``power``: from files of judgments and runs to numbers and verdicts."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import platform
import sys
import threading
import warnings
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrank.cli.files import STANDARD, Input, check_readable, in_shell, refused, source_of, write
from torchrank.cli.formats import SEVERAL, formatted, per_query, print_json, rows_of, show
from torchrank.cli.gates import Gate
from torchrank.cli.report import write_report
from torchrank.statistics.table import Table, printable
from torchrank.tables.chunks import of_large
from torchrank.tables.errors import NoCommonQueryError, ReadingError
from torchrank.tables.ids import decode
from torchrank.tables.sources import read_qrels, read_run, stem
from torchrank.tables.table import Qrels
from torchrank.version import __version__

if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation

#: options of the command that are arguments of :func:`torchrank.evaluate`
ARGUMENTS = (
    *("preset", "queries", "ignore_identical_ids", "precision", "ties"),
    *("depth", "relevance_level", "unjudged", "duplicates", "expansion"),
)

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
            show(per_query(found))
        elif options.per_query:
            write(options.per_query, per_query(found))
        by_id = None if slices is None else _by_id(found, slices)
        summary = found.summary(options.interval) if by_id is None else found.by(by_id, options.interval)
        if options.html:
            write_report(found, None, options, _about(options))
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        return _refused(error, UNREADABLE if isinstance(error, OSError) else DATA)
    coverage = found.coverage.without_notes(summary)
    if options.format == "table":
        show(f"{summary}\n\n{coverage}")
    elif options.format == "json":
        shown = {"summary": summary.to_dict(), "coverage": coverage.to_dict()}
        print_json({**shown, "notes": [*summary.notes, *coverage.notes], **_about(options)})
    elif options.format == "markdown":
        show(f"{summary.to_markdown()}\n\n{coverage.to_markdown()}")
    else:
        show(formatted(summary, options.format))
    return PASSED


def compared(options: argparse.Namespace) -> int:
    """``torchrank compare``: print the differences of runs, and judge gates."""
    if options.worst and options.format not in SEVERAL:
        several = ", ".join(SEVERAL)
        return _refused(
            ValueError(f"Expected one of --format {several} with --worst, got {options.format}; leave --worst out")
        )
    found = _compared(options)
    if isinstance(found, int):
        return found
    try:
        comparison = found.compare(
            options.baseline,
            test=options.test,
            correction=options.correction,
            family=options.family,
            alpha=options.alpha,
            seed=options.seed,
        )
        texts = [("fail-if", text) for text in options.fail_if] + [("require", text) for text in options.require]
        gates = [Gate.of(text, kind, comparison.measures) for kind, text in texts]
        verdicts = [one for gate in gates for one in gate.verdicts(comparison, found.runs[0], options.alpha)]
        if options.plot:
            comparison.forest()[0].savefig(options.plot)
        if options.html:
            write_report(found, comparison, options, _about(options), {str(one): one.passed for one in verdicts})
    except (ValueError, ImportError, OSError) as error:
        return _refused(error, DATA if str(error).startswith("Expected queries that all systems have") else UNREADABLE)
    from torchrank.evaluation.verdict import verdict  # after PyTorch, which is imported while files are read

    options.status = PASSED if all(one.passed for one in verdicts) else FAILED  # also if the output cannot be written
    sentence, judged = printable(verdict(found, comparison)), [printable(one.judged) for one in verdicts]
    worst = [_worst(found, options.worst)] if options.worst else []
    if options.format == "json":
        shown = {**comparison.to_dict(), "seed": options.seed, "gates": [vars(one) for one in verdicts]}
        if worst:
            shown["worst"] = worst[0].to_dict()
        print_json({**shown, "coverage": found.coverage.to_dict(), **_about(options)})
    elif options.format == "table":
        shown_tables = map(str, [comparison, found.coverage, *worst])
        show("\n\n".join([sentence, *shown_tables, *judged]))
    elif options.format == "markdown":
        parts = [comparison.to_markdown(), *(table.to_markdown() for table in (found.coverage, *worst))]
        show("\n\n".join([sentence, *parts, "\n".join(f"- {one}" for one in judged)]).rstrip())
    else:
        show(formatted(comparison.table, options.format))
    for one in verdicts:
        if not one.passed or options.format not in SEVERAL:
            print(f"torchrank compare: {printable(one.judged)}", file=sys.stderr)
    return int(options.status)


def powered(options: argparse.Namespace) -> int:
    """``torchrank power``: print the numbers of queries that show a difference, and the differences that are shown."""
    found = _compared(options)
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
        print_json({"rows": rows_of(table), "notes": table.notes, **settings, **_about(options)})
    else:
        show(formatted(table, options.format))
    return PASSED


# ---- input and output ------------------------------------------------------------------------------------------------


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
    qrels = read_qrels(options.qrels_source, duplicates=options.duplicates, expansion=options.expansion)
    sources: dict[str, Any] = {name: source_of(path) for name, path in runs.items()}
    name, first = next(iter(sources.items()))
    chunks = of_large(first, options.duplicates)
    if chunks is None:
        sources[name] = read_run(first, ties=options.ties, duplicates=options.duplicates, expansion=options.expansion)
    else:
        sources[name] = chunks.begun(importing.is_alive)
    importing.join()
    import_module("torchrank.evaluation.evaluate")
    return qrels, sources


def _import_torch() -> None:
    """Import torchmetrics, and PyTorch with it. A failure is left to the next import, which raises it."""
    with contextlib.suppress(Exception):
        import_module("torchmetrics")


def _evaluation(options: argparse.Namespace) -> Evaluation | int:
    """The evaluation of all runs, or the exit status if there is none."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default", UserWarning)
            qrels, sources = _read(options)
            from torchrank.evaluation.evaluate import evaluate  # not all of torchrank

            arguments = {name: getattr(options, name) for name in ARGUMENTS}
            watched = sys.stderr.isatty() and find_spec("tqdm") is not None
            found = evaluate(qrels, sources, options.measures, **arguments, progress=watched)
        for one in caught:
            print(f"torchrank: {printable(in_shell(one.message))}", file=sys.stderr)
        return found
    except (OSError, ImportError) as error:
        return _refused(error)
    except ReadingError as error:
        return _refused(error, UNREADABLE if Path(error.source).is_dir() else DATA)
    except NoCommonQueryError as error:
        return _refused(error, DATA)
    except ValueError as error:
        return _refused(error)


def _compared(options: argparse.Namespace) -> Evaluation | int:
    """The evaluation of two or more runs."""
    if len(options.runs) < 2:
        return _refused(
            ValueError(f"Expected two or more runs to compare, got {options.runs[0]}; name the files of both")
        )
    return _evaluation(options)


def _named(texts: list[str]) -> dict[str, str]:
    """The paths of runs by name.

    Raises:
        ValueError: a name occurs twice, or a name or a path is missing.
    """
    runs: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        named = bool(separator) and "/" not in name and not Path(text).exists()
        key = name if named else stem(text) or text
        if named and not (name and path):
            raise ValueError(f"Expected a run as file or name=file, got {text!r}")
        if key in runs:
            raise ValueError(f"Expected runs with different names, got {key!r} twice; write name=path")
        runs[key] = path if named else text
    return runs


def _refused(error: Exception, status: int = UNREADABLE) -> int:
    return refused("", error, status)


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Options with the defaults of the preset, versions, and a digest of the judgments."""
    from torchrank.evaluation.options import Options

    source = options.qrels_source
    data = source.getvalue() if isinstance(source, Input) else b""
    if isinstance(source, str) and Path(source).is_file():
        data = Path(source).read_bytes()
    digest = hashlib.blake2b(data, digest_size=16).hexdigest() if data else None
    names = ("runs", "measures", *ARGUMENTS, "interval", "by")
    chosen = {name: getattr(options, name) for name in names if hasattr(options, name)}
    effective = Options.of(chosen["preset"], **{field.name: chosen[field.name] for field in fields(Options)})
    return {
        "options": chosen | vars(effective),
        "torchrank": __version__,
        "versions": {
            "torchrank": __version__,
            "torch": import_module("torch").__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "qrels": {"path": options.qrels, "blake2b": digest},
    }


def _slices(path: str) -> dict[str, str]:
    """The slice of each query, from lines of a query and its slice."""
    found: dict[str, str] = {}
    check_readable(path)
    for number, line in enumerate(Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if not (fields := [decode(field) for field in line.strip().split(maxsplit=1)]):
            continue
        if len(fields) < 2 or fields[0] in found:
            raise ValueError(
                f"Expected a query and its slice, each query once, in line {number} of {path}, got {decode(line)!r}"
            )
        found[fields[0]] = fields[1]
    return found


def _by_id(found: Evaluation, slices: dict[str, str]) -> dict[Any, str]:
    """The slices by the ids of the judgments, which a parquet file has as integers."""
    ids = {one for table in found.tables.values() for one in table.ids.tolist()}
    return {one: slices[str(one)] for one in ids if str(one) in slices}


def _worst(found: Evaluation, most: int) -> Table:
    """The queries with the largest losses from the first run to each other one, in the first measure."""
    first, *others = found.runs
    label = found[first].labels[0]
    sign = 1 if found[first].higher_is_better[label] else -1
    rows = [
        {"run": name, **row}
        for name in others
        for row in found[first].deltas(found[name], label, most).rows
        if row["delta"] * sign < 0
    ]
    notes = [f"{label}: the largest losses from {first}"]
    for name in others:
        lost = set(found.missing(name))
        absent = [str(row["id"]) for row in rows if row["run"] == name and row["id"] in lost]
        notes += [f"not in {name}: {', '.join(absent)}"] if absent else []
    columns = ("run", "id", "before", "after", "delta")
    return Table({column: [row[column] for row in rows] for column in columns}, notes=notes)
