"""``torchrank eval``, ``compare``, ``power``, ``agree`` and ``convert``: from files to numbers and verdicts."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import html
import io
import json
import os
import platform
import re
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchrank.cli import formats
from torchrank.display import Table, printable
from torchrank.statistics.comparison import Comparison, Gate, Verdict, WrongDataError
from torchrank.tables.files import WRITERS
from torchrank.tables.pair_tables import NothingInCommonError, Qrels, ReadingError, decode, encode
from torchrank.tables.sources import chunks_of_large, named_runs, one_of_several, read_qrels, read_run
from torchrank.version import __version__

if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation

#: standard input, or standard output
STANDARD = "-"

#: options of the command that are arguments of :func:`torchrank.evaluate`
ARGUMENTS = (
    *("preset", "queries", "ignore_identical_ids", "precision", "ties"),
    *("depth", "relevance_level", "unjudged", "duplicates", "expansion", "parent", "exclude"),
)

#: those that are parameters of measures
PARAMETERS = ("relevance_level", "unjudged")

#: exit statuses
PASSED, FAILED, UNREADABLE, DATA, DISJOINT = 0, 1, 2, 3, 4

#: largest losses in a report, if ``--worst`` is not given
WORST = 10

#: a plot has axes for each cutoff of a measure, up to this number, and a line over k for more
MOST_CUTOFFS = 4
_CUT = re.compile(r"(?P<name>.+?)[@_](?P<k>\d+)(?P<slice>/.*)?")

#: seconds until a line says what is read
PATIENCE = 2.0

#: tests that draw random numbers
DRAWING = ("randomization", "bootstrap", "randomized-tukey")


class Input(io.BytesIO):
    """The content of a source that can be read once, with its name for messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def check_readable(path: str, folder: bool = False) -> None:
    """Check that a path can be read. Names of other sources, as ``irds:...``, are not checked.

    Args:
        path: the path, or - for standard input.
        folder: whether a folder with files in JSON is accepted: the predictions that MTEB writes.

    Raises:
        OSError: the file does not exist, is a folder, or is not readable.
    """
    place = Path(path)
    if path == STANDARD or path.startswith("irds:"):
        return
    if not place.exists():
        raise FileNotFoundError(f"Expected a file that exists, got {path}")
    if place.is_dir() and not (folder and next(place.rglob("*.json"), None)):
        raise IsADirectoryError(f"Expected a file, got the folder {path}; pass the path of a file")
    if not os.access(place, os.R_OK):
        raise PermissionError(f"Expected a file that can be read, got {path}; change its permissions")


def source_of(path: str) -> str | Input:
    """The path of a file, or the content of standard input and of pipes, which can be read once."""
    if path == STANDARD:
        return Input(sys.stdin.buffer.read(), "<stdin>")
    place = Path(path)
    return Input(place.read_bytes(), path) if place.exists() and not (place.is_file() or place.is_dir()) else path


def write(path: str, text: str) -> None:
    """Write a text, compressed if the path ends in .gz: a file under another name, which gets its name at the end.

    Raises:
        OSError: the file cannot be written.
    """
    data = encode(text)
    if path.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    place = Path(path).resolve()
    if place.exists() and not place.is_file():  # a pipe, or /dev/stdout
        place.write_bytes(data)
        return
    part = place.with_name(f".{secrets.token_hex(16)}.part")  # nobody can have put a link there
    try:
        with part.open("xb") as file:
            file.write(data)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def converted(options: argparse.Namespace) -> int:
    """Read a run and write it; the score alone decides the order and the ranks."""
    endings, ranked = [ending for ending in Path(options.out).suffixes if ending != ".gz"], {}
    try:
        if not endings or endings[-1] not in WRITERS:
            raise ValueError(f"Expected OUT to end in {', '.join(WRITERS)}, or this and .gz, got {options.out}")
        check_readable(options.source, folder=True)
        source, out = Path(options.source), Path(options.out)
        if source.exists() and out.exists() and source.samefile(out):
            raise ValueError(f"Expected OUT to be another file than IN, got {options.out} for both; write a new file")
        run = read_run(options.source, duplicates=options.duplicates, expansion=options.expansion).to_dict()
        # Equal scores by document id, the larger first, as trec_eval ranks them.
        for query, scores in run.items():
            ranked[query] = sorted(scores.items(), key=lambda pair: (pair[1], encode(str(pair[0]))), reverse=True)
        write(options.out, "".join(WRITERS[endings[-1]](ranked)))
    except (ReadingError, OSError, ImportError, ValueError) as error:
        return formats.refused("convert", error, 3 if isinstance(error, ReadingError) else 2)
    return 0


@dataclass(frozen=True)
class Result:
    """What a command prints.

    Attributes:
        tables: tables by name, of which "rows" is printed in every format.
        document: further entries of the document in JSON.
        first: a sentence before the tables.
        verdicts: those of gates.
    """

    tables: Mapping[str, Table]
    document: Mapping[str, Any]
    first: str = ""
    verdicts: Sequence[Verdict] = field(default=())


def run(command: str, options: argparse.Namespace) -> int:
    """Run a command on files, and print its result, or why there is none; the exit status."""
    if command == "convert":
        return converted(options)
    options.measures = options.measures and " ".join(options.measures)
    try:
        result = {"eval": evaluated, "compare": compared, "power": powered, "agree": agreed}[command](options)
    except BrokenPipeError:
        raise
    except (OSError, ImportError, ValueError) as error:
        wrong_data = isinstance(error, WrongDataError) or (
            isinstance(error, ReadingError) and not Path(error.source).is_dir()
        )
        disjoint = isinstance(error, NothingInCommonError)
        return formats.refused("", error, DISJOINT if disjoint else DATA if wrong_data else UNREADABLE)
    # The status is set now: it stays if nothing can be written.
    options.status = PASSED if all(outcome.passed for outcome in result.verdicts) else FAILED
    _print(result, options.format, formats.width_of(options.wide))
    for outcome in result.verdicts:
        if not outcome.passed or options.format not in formats.SEVERAL:
            print(f"torchrank {command}: {printable(outcome.judged)}", file=sys.stderr)
    return int(options.status)


def evaluated(options: argparse.Namespace) -> Result:
    """The values of one or several runs."""
    evaluation, slices = _evaluation(options)
    summary = evaluation.summary(options.interval)
    if slices is not None:
        summary = Table.of_rows([*summary, *evaluation.by(slices, options.interval)], notes=summary.notes)
    _write(evaluation, None, options, slices)
    tables = {"rows": summary, "coverage": evaluation.coverage.without_notes(summary)}
    if options.width is not None:
        if evaluation.rectified is None:
            raise ValueError("Expected judgments of people with --width, got none; give --human FILE")
        tables["needed"] = evaluation.rectified.queries_needed(options.width, options.interval)
    notes = [note for table in tables.values() for note in table.notes]
    return Result(tables, {"means": formats.means_of(evaluation), "notes": notes, **_about(options)})


def compared(options: argparse.Namespace) -> Result:
    """The differences of runs, and the verdicts of gates."""
    if options.worst and options.format not in formats.SEVERAL:
        several = ", ".join(formats.SEVERAL)
        raise ValueError(f"Expected one of --format {several} with --worst, got {options.format}; leave --worst out")
    options.gates = [Gate.of(text, "fail-if") for text in options.fail_if]
    options.gates += [Gate.of(text, "require") for text in options.require]
    evaluation, slices = _evaluation(options, least=2)
    comparison = evaluation.compare(
        options.baseline, by=slices, test=options.test, correction=options.correction, family=options.family,
        alpha=options.alpha, seed=options.seed,
    )  # fmt: skip
    gates = [gate.named(comparison.measures, _parameters(options)) for gate in options.gates]
    verdicts = comparison._judged(gates).verdicts
    _write(evaluation, comparison, options, slices, {str(outcome): outcome.passed for outcome in verdicts})
    from torchrank.evaluation.report import verdict  # after PyTorch, which is imported while files are read

    tables = {"rows": comparison.table if options.format in ("csv", "jsonl") else comparison.printed}
    if options.table == "paper":
        tables = {"table" if options.format == "json" else "rows": evaluation.table(comparison)}
    tables["coverage"] = evaluation.coverage.without_notes(comparison.table)
    if options.worst:
        first, *others = evaluation.runs
        label, columns = evaluation[first].labels[0], ("run", "id", "before", "after", "delta")
        losses = {name: evaluation.losses(first, name, label, options.worst) for name in others}
        rows = [{"run": name, **row} for name, table in losses.items() for row in table]
        tables["worst"] = Table.of_rows(rows, columns=columns, notes=[f"{label}: the largest losses against {first}"])
    document = {
        "means": formats.means_of(evaluation), **comparison.to_dict(), "seed": options.seed,
        "gates": [vars(outcome) for outcome in verdicts], **_about(options),
    }  # fmt: skip
    return Result(tables, document, verdict(evaluation, comparison), verdicts)


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name in PARAMETERS if (value := getattr(options, name)) is not None}


def powered(options: argparse.Namespace) -> Result:
    """The numbers of queries that show a difference, and the differences that are shown."""
    evaluation, _ = _evaluation(options, least=2)
    comparison = evaluation.compare()
    needed = comparison.queries_needed(options.delta, options.power, options.alpha)
    detectable = comparison.detectable(options.power, options.alpha)
    columns = {name: needed[name] for name in ("measure", "a", "b", "sd")}
    columns |= {"n": detectable["n"], "needed": needed["queries"], "detectable": detectable["detectable"]}
    notes = [
        f"needed: queries that show a difference of {options.delta:g}; detectable: the difference that n queries show",
        f"both with probability {options.power:g}, by a t test at {options.alpha:g} without correction",
    ]
    settings = {"delta": options.delta, "power": options.power, "alpha": options.alpha}
    document = {"means": formats.means_of(evaluation), "notes": notes, **settings, **_about(options)}
    return Result({"rows": Table(columns, notes=notes)}, document)


def agreed(options: argparse.Namespace) -> Result:
    """The agreement of judges on documents, and on the order of runs."""
    judges, runs = _named(options.judgments), _named(options.runs or [])
    for path in (*judges.values(), *runs.values()):
        check_readable(path, folder=path in runs.values())
    from torchrank.evaluation.agree import agree

    reading = {"duplicates": options.duplicates, "expansion": options.expansion}
    qrels = {name: read_qrels(source_of(path), **reading) for name, path in judges.items()}
    table = agree(qrels, {name: source_of(path) for name, path in runs.items()} or None, options.measures)
    return Result({"rows": table}, {"torchrank": __version__})


# ---- input and output ------------------------------------------------------------------------------------------------


def _print(result: Result, kind: str, width: float) -> None:
    """Print a result in one of the formats."""
    if kind == "json":
        document = {**{name: formats.rows_of(table) for name, table in result.tables.items()}, **result.document}
        print(json.dumps(document, allow_nan=False))
        return
    parts = [formats.formatted(table, kind, width) for table in result.tables.values()]
    if kind in formats.SEVERAL:
        judged = [printable(outcome.judged) for outcome in result.verdicts]
        bullet = "- " if kind == "markdown" else ""
        texts = [printable(result.first), "\n".join(bullet + line for line in judged)]
        if kind == "html":
            texts = [f"<p>{html.escape(text)}</p>" * bool(text) for text in texts]
        if kind == "table":
            texts = [formats.wrapped(text, width) for text in texts]
        parts = [text for text in (texts[0], *parts, texts[1]) if text]
    formats.show("\n\n".join(parts if kind in formats.SEVERAL else parts[:1]))


def _write(
    evaluation: Evaluation, comparison: Comparison | None, options: argparse.Namespace, slices: Any, gates: Any = None
) -> None:
    """Write the files of the options -q, --plot and --html."""
    if options.per_query == STANDARD:
        formats.show(formats.per_query(evaluation))
    elif options.per_query:
        write(options.per_query, formats.per_query(evaluation))
    if options.plot:
        _plot(evaluation, comparison, options)
    if options.html:
        about = _about(options)
        digest = about["qrels"]["blake2b"]
        facts = {
            "Files of runs": ", ".join(options.runs),
            "Judgments": about["qrels"]["path"],
            "Digest of the judgments": f"blake2b {digest}" if digest else "none, not a file",
        }
        if comparison and comparison.test in DRAWING:
            facts["Seed"] = f"{options.seed}"
        evaluation.to_html(
            options.html, comparison=comparison, about=facts, gates=gates,
            worst=getattr(options, "worst", None) or WORST, level=getattr(options, "interval", 0.95), by=slices,
        )  # fmt: skip


def _plot(evaluation: Evaluation, comparison: Comparison | None, options: argparse.Namespace) -> None:
    """Draw the means of all runs, or their differences, in axes for each measure, or over the cutoff if it has many."""
    from torchrank.evaluation.plots import draw_over_k, panels
    from torchrank.evaluation.report import first_table, listed

    if comparison is None:
        rows, measures, title = len(evaluation.runs), tuple(first_table(evaluation).labels), "Means"
    else:
        rows, measures, title = len(comparison.effects(comparison.measures[0])), comparison.measures, "Differences"

    over_k: dict[str, dict[str, int]] = {}
    for measure in measures:
        if cut := _CUT.fullmatch(measure):
            over_k.setdefault(f"{cut['name']}@k{cut['slice'] or ''}", {})[measure] = int(cut["k"])
    over_k = {label: cutoffs for label, cutoffs in over_k.items() if len(cutoffs) > MOST_CUTOFFS}
    of = {measure: label for label, cutoffs in over_k.items() for measure in cutoffs}
    names, what, level = ("run", "measure", "value", "low", "high"), "mean", getattr(options, "interval", 0.95)
    points: list[Any] = []
    if comparison is not None:
        points = [(e.name, e.measure, e.value, e.low, e.high) for e in comparison.effects()]
        what, level = "difference of", comparison.level
    elif over_k:
        points = [tuple(row[name] for name in names) for row in evaluation.summary(level)]

    def draw(measure: str, axes: Any) -> None:
        if measure in over_k:
            lines: dict[str, dict[int, tuple[float, ...]]] = {}
            for name, label, *numbers in points:
                if of.get(label) == measure:
                    lines.setdefault(name, {})[over_k[measure][label]] = tuple(numbers)
            lines = {name: dict(sorted(line.items())) for name, line in lines.items()}
            draw_over_k(lines, f"{what} {measure}, {100 * level:g} % interval", axes)
        elif comparison is None:
            evaluation.plot_intervals(measure, axes, level)
        else:
            comparison.forest(axes, measure)

    shown = [*dict.fromkeys(of.get(measure, measure) for measure in measures)]
    figure = panels(f"{title} of {listed(evaluation.runs)}", shown, max(rows, 7) if over_k else rows, draw)
    figure.savefig(options.plot, dpi=150)


@contextlib.contextmanager
def _patiently(what: str, watched: bool) -> Iterator[None]:
    """After two seconds a line on a terminal says what is read, and for how long."""
    done = threading.Event()

    def watch() -> None:
        start = time.monotonic()
        pause = PATIENCE
        while not done.wait(pause):
            seconds = f"{time.monotonic() - start:.0f} s"
            print(f"\r\x1b[Kreading {what}: {seconds}", end="", file=sys.stderr, flush=True)
            pause = 0.5

    thread = threading.Thread(target=watch, daemon=True)
    if watched:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if watched:
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _read(options: argparse.Namespace) -> tuple[Qrels, dict[str, Any]]:
    """The judgments, and the sources of all runs, of which the first is read; PyTorch is imported meanwhile."""
    importing = threading.Thread(target=_import_torch)
    runs = options.files_of_runs
    pairs = list(filter(None, (options.qrels, options.exclude, getattr(options, "human", None))))
    if [*pairs, *runs.values()].count(STANDARD) > 1:
        raise ValueError("Expected standard input, -, for one file, got it for several")
    for path in pairs:
        check_readable(path)
    for path in runs.values():
        check_readable(path, folder=True)
    importing.start()  # takes seconds, most of them without a core's work
    options.qrels_source = source_of(options.qrels)
    qrels = read_qrels(options.qrels_source, duplicates=options.duplicates, expansion=options.expansion)
    sources: dict[str, Any] = {name: source_of(path) for name, path in runs.items()}
    name, first = next(iter(sources.items()))
    chunks = chunks_of_large(first, options.duplicates)
    if chunks is None:
        reading = {"ties": options.ties, "duplicates": options.duplicates, "expansion": options.expansion}
        with one_of_several(name, runs):
            sources[name] = read_run(first, **reading)
    else:
        sources[name] = chunks.begun(importing.is_alive)
    importing.join()
    import_module("torchrank.evaluation.evaluate")
    return qrels, sources


def _import_torch() -> None:
    """Import torchmetrics, and PyTorch with it. A failure is left to the next import, which raises it."""
    with contextlib.suppress(Exception):
        import_module("torchmetrics")


def _evaluation(options: argparse.Namespace, least: int = 1) -> tuple[Evaluation, dict[Any, str] | None]:
    """The evaluation of all runs, and the slices of queries if there are any; warnings are printed.

    Raises:
        OSError, ImportError: a file cannot be read.
        ValueError: a file has wrong data, or a wrong call.
    """
    options.files_of_runs = _named(options.runs)
    if len(options.files_of_runs) < least:
        raise ValueError(f"Expected two or more runs to compare, got {options.runs[0]}; name the files of both")
    if getattr(options, "per_query", None) == STANDARD and options.format != "table":
        raise ValueError(f"Expected a file for -q with --format {options.format}, got -, standard output; name a file")
    slices, strata = (_slices(path) if (path := getattr(options, name, None)) else None for name in ("by", "strata"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        watched = sys.stderr.isatty()
        with _patiently(f"{printable(options.qrels)} and {printable(options.runs[0])}", watched):
            qrels, sources = _read(options)
        from torchrank.evaluation.evaluate import evaluate  # not all of torchrank

        arguments = {name: getattr(options, name) for name in ARGUMENTS}
        arguments["exclude"] = options.exclude and source_of(options.exclude)
        if getattr(options, "human", None):
            arguments |= {"human": source_of(options.human), "strata": strata}
        elif strata is not None:
            raise ValueError("Expected judgments of people with --strata, got none; give --human FILE")
        watched = watched and find_spec("tqdm") is not None
        measures = _with_gates(options, slices or {}) if getattr(options, "gates", []) else options.measures
        evaluation = evaluate(qrels, sources, measures, **arguments, progress=watched)
        if getattr(options, "group", None):
            evaluation = evaluation.grouped(options.reduce or "min", options.group)
        elif getattr(options, "reduce", None):
            raise ValueError(
                "Expected --group TEXT with --reduce, got none; give what separates a group from its query"
            )
    for warning in caught:
        print(f"torchrank: {printable(formats.in_shell(warning.message))}", file=sys.stderr)
    if slices is not None:  # by the ids of the judgments, which a parquet file has as integers
        ids = {query for table in evaluation.tables.values() for query in table.ids.tolist()}
        slices = {query: slices[str(query)] for query in ids if str(query) in slices}
    return evaluation, slices


def _with_gates(options: argparse.Namespace, slices: dict[str, str]) -> Any:
    """The measures, and those of gates, which may be of a slice."""
    from torchrank.evaluation.evaluate import MEASURES
    from torchrank.names.parse import CUTOFFS, parse_all, preset

    if options.preset and not options.measures:
        measures: Any = preset(options.preset, *CUTOFFS[options.preset])
        keys = list(measures)
    else:
        measures = options.measures or MEASURES
        keys = [metric.label for metric in parse_all(measures, _parameters(options))]
    ends = [f"/{name}" for name in set(slices.values())]
    if options.group:
        of_groups = f"/{options.reduce or 'min'}"
        ends = [*(of_groups + end for end in ends), of_groups]
    more: dict[str, str] = {}
    for gate in options.gates:
        name = next((gate.measure.removesuffix(end) for end in ends if gate.measure.endswith(end)), gate.measure)
        if (label := replace(gate, measure=name).named(keys, _parameters(options)).measure) not in keys:
            more.setdefault(label, name)
    names = more.values()
    return measures | dict(zip(names, names)) if isinstance(measures, dict) else [measures, *names]


def _named(texts: list[str]) -> dict[str, str]:
    """The paths of runs by name; of a folder or a pattern all its files.

    Raises:
        OSError: no file has the pattern, or a folder has no file.
        ValueError: a name occurs twice, or a name or a path is missing.
    """
    runs: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        named = bool(separator) and "/" not in name and not Path(text).exists()
        if named and not (name and path):
            raise ValueError(f"Expected a run as file or name=file, got {text!r}")
        for key, place in [(name, path)] if named else named_runs(text):
            if key in runs:
                raise ValueError(f"Expected runs with different names, got {key!r} twice; write name=path")
            runs[key] = str(place)
    return runs


def _about(options: argparse.Namespace) -> dict[str, Any]:
    """Options with the defaults of the preset, versions, and a digest of the judgments."""
    from torchrank.evaluation.evaluate import Options

    source = options.qrels_source
    data = source.getvalue() if isinstance(source, Input) else b""
    if isinstance(source, str) and Path(source).is_file():
        data = Path(source).read_bytes()
    digest = hashlib.blake2b(data, digest_size=16).hexdigest() if data else None
    names = ("runs", "measures", *ARGUMENTS, "interval", "by", "group", "reduce", "human", "strata", "width")
    chosen = {name: getattr(options, name) for name in names if hasattr(options, name)}
    effective = Options.of(chosen["preset"], **{field.name: chosen[field.name] for field in fields(Options)})
    versions = {"torchrank": __version__, "torch": import_module("torch").__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    about = {"options": chosen | vars(effective), "torchrank": __version__, "versions": versions}
    return about | {"qrels": {"path": options.qrels, "blake2b": digest}}


def _slices(path: str) -> dict[str, str]:
    """The slice of each query, from lines of a query and its slice."""
    slices: dict[str, str] = {}
    check_readable(path)
    for number, line in enumerate(Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if not (fields := [decode(field) for field in line.strip().split(maxsplit=1)]):
            continue
        if len(fields) < 2 or fields[0] in slices:
            where = f"in line {number} of {path}, got {decode(line)!r}"
            raise WrongDataError(f"Expected a query and its slice, each query once, {where}")
        slices[fields[0]] = fields[1]
    return slices
