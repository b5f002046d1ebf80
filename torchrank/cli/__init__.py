"""The ``torchrank`` command."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from torchrank.cli.formats import FORMATS, refused, show, width_of
from torchrank.display import printable
from torchrank.names.arguments import did_you_mean
from torchrank.names.parse import OPTIONS
from torchrank.version import __version__

#: treatments of unjudged documents
UNJUDGED = ("irrelevant", "condensed", "lower", "upper")

#: tests of `compare`
TESTS = ("t", "randomization", "wilcoxon", "sign", "bootstrap", "anytime", "tukey", "randomized-tukey")

#: the exit status of errors that nobody has foreseen
UNFORESEEN = 70

#: end of the help of commands on files
STATUSES = """\
exit status: 0 = done, 2 = wrong call or unreadable file, 3 = wrong data,
             4 = judgments and a run have nothing in common,
             70 = an error in torchrank, or too little memory"""

# A measure, but no path: ndcg@10, ndcg_cut.10, AP(rel=2)@100
_NAME = re.compile(r"[A-Za-z]\w*(-\w+)*(\.\d[\d,.]*)?(\(.*\))?(@\d[\d,-]*)?(-l\d+)?,?")

#: packages of the extra [demo]: import name -> name in the package index
DEMO = {"lightning": "lightning", "sklearn": "scikit-learn", "matplotlib": "matplotlib"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: arguments of ``torchrank``; None = the arguments of this process.

    Returns:
        The exit status.
    """
    options = argparse.Namespace(status=0)
    if arguments is None:
        codecs.register_error("torchrank", _escaped)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="torchrank")  # type: ignore[union-attr]
    try:
        try:
            _parser().parse_args(_joined(sys.argv[1:] if arguments is None else arguments), options)
            options.status = options.run(options) or 0
        finally:
            sys.stdout.flush()  # a closed pipe raises here instead of at the end of Python, where it prints a traceback
    except OSError as error:
        # E.g. of `torchrank measures | head -1`: the reader has closed the pipe. Or the disk is full.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return options.status if isinstance(error, BrokenPipeError) else refused("", error, 2)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            print(f"torchrank: Expected more memory, got too little: {error}; evaluate fewer runs", file=sys.stderr)
        else:
            traceback.print_exc()
            print("torchrank: this is an error in torchrank; please report the lines above", file=sys.stderr)
        return UNFORESEEN
    return int(options.status)


def _joined(arguments: Sequence[str]) -> list[str]:
    """Arguments in which the names after ``-m`` are one argument, whether they were quoted or not."""
    joined: list[str] = []
    names = False  # whether the argument before is a name of a measure, and not the only one that must be one
    for text in map(str, arguments):
        if names and _NAME.fullmatch(text) and not Path(text).exists():
            joined[-1] += f" {text}"
            continue
        names = joined[-1:] in (["-m"], ["--measures"]) or text.startswith("--measures=")
        joined.append(text)
    return joined


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    """Characters that the output does not have: bytes of ids that are not UTF-8 as they are, others as escapes."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    data = bytes([ord(character) & 0xFF]) if "\udc80" <= character <= "\udcff" else character.encode("unicode_escape")
    return data, error.start + 1


def _parser() -> argparse.ArgumentParser:
    about, examples = "Ranking metrics for PyTorch.", _examples("torchrank")
    parser = _Parser(prog="torchrank", description=about, epilog=examples, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=f"torchrank {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.set_defaults(run=lambda _: parser.print_help())

    _add_evaluations(commands)

    lists = _Parser(add_help=False)
    lists.add_argument("--wide", action="store_true", help="print long lines whole")
    lists.add_argument("--markdown", action="store_true", help="print a table in Markdown")
    for command, names, about in (
        ("measures", "NAME", "List all measures, or describe some: formula, range, source, names in other libraries."),
        ("presets", "LIBRARY", "List the libraries whose numbers can be reproduced, or the settings of some."),
        ("spellings", "NAME", "List the names of measures in other libraries, each with its label here."),
    ):
        text = about[0].lower() + about[1:].rstrip(".").partition(":")[0]
        parser_of = commands.add_parser(command, parents=[lists], help=text, description=about)
        shown = "as recbole or scikit-learn" if command == "presets" else "as ndcg, nDCG@10 or P_5"
        parser_of.add_argument("names", nargs="*", metavar=names, help=f"{shown}; none = all")
        parser_of.set_defaults(run=lambda options, command=command: _list(command, options))

    demo = commands.add_parser(
        "demo",
        help="train a small encoder and watch its ranking metrics rise",
        description="Train a small encoder on scikit-learn's handwritten digits with Lightning, and print how well "
        "each held-out image finds the others of its digit: before training, and after every epoch.",
    )
    demo.add_argument("--epochs", type=_least(0), default=15, help="default: %(default)s; 0 only evaluates")
    about = "train and validate on N processes (default: 1)"
    demo.add_argument("--workers", type=_least(1), default=1, metavar="N", help=about)
    demo.add_argument("--seed", type=_least(0), default=0, help="of split, weights and batches (default: %(default)s)")
    about = "draw the curves: .png, .svg, .pdf"
    demo.add_argument("--plot", type=_new_file(".png", ".svg", ".pdf"), metavar="FILE", help=about)
    demo.add_argument("--save", type=_new_file(), metavar="FILE", help="write the weights of the encoder when done")
    demo.add_argument("--load", type=_old_file, metavar="FILE", help="begin with weights that --save has written")
    demo.set_defaults(run=_demo)
    return parser


def _add_evaluations(commands: Any) -> None:
    """Add the commands on files of judgments and runs."""

    def command(name: str, arguments: str, parents: list[Any], about: str, description: str = "") -> Any:
        """Add a command: its name, the arguments that it needs, parsers of its options, and texts of the help."""

        def run(options: argparse.Namespace) -> int:
            from torchrank.cli import commands  # imports NumPy

            return commands.run(name, options)

        ending = _examples(name)
        parser = commands.add_parser(
            name,
            usage=f"torchrank {name} [OPTION ...] {arguments}",  # all options would hide the error behind them
            parents=parents,
            help=about,
            description=description,
            epilog=ending if "exit status" in ending else f"{ending}\n{STATUSES}",
            formatter_class=_Help,
        )
        parser.set_defaults(run=run)
        return parser

    reading = argparse.ArgumentParser(add_help=False)
    about = "the line of a document that a query has twice (default: error)"
    reading.add_argument("--duplicates", choices=("error", "first", "best"), default="error", help=about)
    about = (
        "refuse compressed, Parquet and Arrow files of more than 64 MB and N times their size in memory (default: 100)"
    )
    reading.add_argument("--expansion", type=_least(1), default=100, metavar="N", help=about)
    printing = argparse.ArgumentParser(add_help=False)
    about = "names of measures, one or several (default: ndcg@10 map mrr recall@100, or all of --preset)"
    printing.add_argument(*("-m", "--measures"), type=_text, action="append", metavar="NAME", help=about)
    printing.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    printing.add_argument("--wide", action="store_true", help="print all columns of tables, also in a narrow terminal")
    files = argparse.ArgumentParser(add_help=False, parents=[reading, printing])
    about = "file of judgments (TREC, BEIR, JSON, ...; also gzip, bz2, xz, zstd, lz4; - = standard input)"
    files.add_argument("qrels", metavar="QRELS", help=about)
    about = "file of a run, folder of runs, pattern such as 'runs/*.zst', or name=file"
    files.add_argument("runs", nargs="+", metavar="RUN", help=about)
    about = f"the measures and options of {', '.join(OPTIONS)}"
    files.add_argument("--preset", choices=tuple(OPTIONS), metavar="TOOL", help=about)
    files.add_argument("--queries", choices=("judged", "both"), help="the queries of means (default: judged)")
    files.add_argument("--precision", choices=("double", "single"), help="single as in pytrec_eval (default: double)")
    about = "order of equal scores (default: document)"
    files.add_argument("--ties", choices=("document", "rows", "expected"), help=about)
    about = "leave out documents whose id is that of their query"
    files.add_argument("--ignore-identical-ids", action=argparse.BooleanOptionalAction, help=about)
    about = "what separates a document from its chunk in ids, as # in doc#chunk"
    files.add_argument("--parent", type=_text, metavar="TEXT", help=about)
    about = "leave out pairs of query and document, as seen ones: lines of both, or a file of judgments"
    files.add_argument("--exclude", type=_text, metavar="FILE", help=about)
    files.add_argument("--depth", type=_least(1), metavar="K", help="keep the first K documents of each query")
    about = "lowest relevant grade of measures that do not use grades, as map and mrr (default: 1)"
    files.add_argument("--relevance-level", type=_grade, metavar="GRADE", help=about)
    files.add_argument("--unjudged", choices=UNJUDGED, help="treatment of unjudged documents (default: irrelevant)")

    results = argparse.ArgumentParser(add_help=False, parents=[files])
    about = "write the values of all queries; - = print them"
    results.add_argument("-q", "--per-query", type=_new_file(), metavar="FILE", help=about)
    about = "also print slices: a file with a query and its slice in each line"
    results.add_argument("--by", type=_text, metavar="FILE", help=about)
    about = "one value for each group of queries; TEXT separates the group from the rest of the id, as _ in group_1"
    results.add_argument("--group", type=_text, metavar="TEXT", help=about)
    about = "with --group: the value of a group (default: min)"
    results.add_argument("--reduce", choices=("min", "max", "mean", "all"), help=about)
    about = "human judgments of a random sample of the queries; QRELS are then those of a model"
    results.add_argument("--human", type=_text, metavar="FILE", help=about)
    about = "with --human: a file with a query and its stratum in each line"
    results.add_argument("--strata", type=_text, metavar="FILE", help=about)
    about = "draw the means, or the differences"
    results.add_argument("--plot", type=_new_file(".png", ".svg", ".pdf"), metavar="FILE", help=about)
    results.add_argument("--html", type=_new_file(".html", ".htm"), metavar="FILE", help="write a report for a browser")

    evaluate = command(
        "eval", "QRELS RUN [RUN ...]", [results], "print the measures of runs, with intervals",
        "Print the measures of one or several runs with confidence intervals, and how judgments and runs fit together.",
    )  # fmt: skip
    about = "of intervals (default: %(default)s)"
    evaluate.add_argument("--interval", type=_share, default=0.95, metavar="LEVEL", help=about)
    about = "with --human: print how many queries people have to judge for an interval of this width"
    evaluate.add_argument("--width", type=_difference, metavar="W", help=about)

    compare = command(
        "compare", "QRELS RUN RUN [RUN ...]", [results], "print the differences of runs, with tests and gates",
        "Compare runs query by query.",
    )  # fmt: skip
    about = "a row for each pair, or the table of a paper: runs x measures, with letters (default: %(default)s)"
    compare.add_argument("--table", choices=("pairs", "paper"), default="pairs", help=about)
    about = "compare each run with this one; default: all pairs"
    compare.add_argument("--baseline", type=_text, metavar="NAME", help=about)
    tests = compare.add_mutually_exclusive_group()
    tests.add_argument("--test", default="t", metavar="TEST", choices=TESTS, help=f"{', '.join(TESTS)} (default: t)")
    about = "test and gates hold at all looks together, e.g. if queries are added until a gate is met"
    tests.add_argument("--anytime", dest="test", action="store_const", const="anytime", help=about)
    compare.add_argument("--correction", choices=("holm", "bh", "none"), help="default: holm")
    about = "correct over the pairs of each measure, or over all (default: measure)"
    compare.add_argument("--family", choices=("measure", "all"), default="measure", help=about)
    compare.add_argument("--alpha", type=_share, default=0.05, help="error rate of tests (default: %(default)s)")
    compare.add_argument("--seed", type=_least(0), default=0, help="of tests that draw (default: %(default)s)")
    about = "print the N queries with the largest losses in the first measure"
    compare.add_argument("--worst", type=_least(1), metavar="N", help=about)
    about = "'ndcg@10 < -0.005': fail if this is significant"
    compare.add_argument("--fail-if", action="append", default=[], metavar="COND", help=about)
    about = "'ndcg@10 > -0.01': pass only if significant"
    compare.add_argument("--require", action="append", default=[], metavar="COND", help=about)
    compare.texts = _about_compare

    convert = command("convert", "IN OUT", [reading], "write a run in another format")
    convert.add_argument("source", metavar="IN", help="file of a run; - = standard input")
    convert.add_argument("out", type=_new_file(), metavar="OUT", help="file to write; its ending selects the format")
    convert.texts = _about_convert

    power = command(
        "power", "--delta DELTA QRELS RUN RUN [RUN ...]", [files], "print how many queries show a difference",
        "Print the number of queries that show a difference of two runs, and the differences that the queries at hand"
        " show.",
    )  # fmt: skip
    power.add_argument("--delta", type=_difference, required=True, help="the difference that matters")
    power.add_argument("--power", type=_share, default=0.8, help="probability to show it (default: %(default)s)")
    power.add_argument("--alpha", type=_share, default=0.05, help="error rate of tests (default: %(default)s)")

    agree = command(
        "agree", "QRELS QRELS [QRELS ...] [--runs RUN RUN [RUN ...]]", [reading, printing],
        "print how far judges agree", "Print how far two or more judges agree on documents, and on the order of runs.",
    )  # fmt: skip
    agree.add_argument("judgments", nargs="+", metavar="QRELS", help="file of judgments, or name=file")
    agree.add_argument("--runs", nargs="+", metavar="RUN", help="files of runs, or name=file")


def _examples(command: str) -> str:
    """The end of the help of a command: examples, in lines of at most 80 characters."""
    return (Path(__file__).parent / "help" / f"{command}.txt").read_text(encoding="utf-8")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors show arguments without the characters that command a terminal."""

    #: makes further texts of the help when it is shown, because it imports NumPy
    texts: Callable[[], dict[str, str]] = dict

    def format_help(self) -> str:
        vars(self).update(self.texts())
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        commands: Any = self._subparsers
        parsers = commands._group_actions[0].choices if commands else {}
        if wrong := re.match(r"argument COMMAND: invalid choice: '([\w-]+)'", message):
            message += did_you_mean(wrong[1], parsers)
        if wrong := re.match(r"unrecognized arguments: --([\w-]+)", message):
            options = {name.lstrip("-") for parser in parsers.values() for name in parser._option_string_actions}
            message += did_you_mean(wrong[1], options)
        super().error(printable(message))


class _Help(argparse.HelpFormatter):
    """Help whose texts of one line are wrapped, and whose other texts are kept as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _about_convert() -> dict[str, str]:
    from torchrank.tables.files import WRITERS

    endings = ", ".join(WRITERS)
    return {"description": f"Read a run in any format and write it as {endings}, or these with .gz."}


def _about_compare() -> dict[str, str]:
    from torchrank.statistics.comparison import COLUMNS

    printed = (column for column in COLUMNS if column.printed and not column.margin)
    columns = "\n".join(f"  {column.name:13}{column.about}" for column in printed)
    return {"epilog": _examples("compare").replace("COLUMNS", columns)}


def _demo(options: argparse.Namespace) -> int:
    missing = [package for name, package in DEMO.items() if find_spec(name) is None]
    if missing:
        way_out = f"run `pip install {' '.join(missing)}` (the extra 'demo' of torchrank installs what the demo needs)"
        return refused("demo", ImportError(f"Expected {' and '.join(missing)} to be installed; {way_out}"), 2)
    from torchrank.cli.demo import run  # importing Lightning takes seconds, which `torchrank --help` does not need

    return run(options.epochs, options.workers, options.seed, options.plot, options.save, options.load)


def _list(command: str, options: argparse.Namespace) -> int:
    from torchrank.cli.lists import LISTS  # imports all measures

    pages_of, table, lines = LISTS[command]
    try:
        pages = [page for name in options.names for page in pages_of(name)]
    except ValueError as error:
        return refused(command, error, 2)
    show("\n\n".join(pages) if pages else table() if options.markdown else lines(width_of(options.wide)))
    return 0


def _new_file(*endings: str) -> Callable[[str], str]:
    """Argument type: the path of a file that can be written. Checked before the work begins, not after it."""

    def path(text: str) -> str:
        if not Path(text).absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"Expected a file in a folder that exists, got {text}")
        if Path(text).is_dir():
            raise argparse.ArgumentTypeError(f"Expected a file, got the folder {text}; name a file in it")
        if endings and Path(text).suffix not in endings:
            raise argparse.ArgumentTypeError(f"Expected a file that ends in {', '.join(endings)}, got {text}")
        return text

    return path


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(f"Expected a text, got {text!r}; leave the option out")
    return text


def _old_file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"Expected a file that exists, got {text}")
    return text


def _grade(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


def _number(expected: str, holds: Callable[[float], bool], kind: type = float) -> Callable[[str], Any]:
    """Argument type: a number with a property."""

    def number(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if holds(value := float(text)):
                return kind(value)
        raise argparse.ArgumentTypeError(f"Expected {expected}, got {text!r}")

    return number


_share = _number("a number between 0 and 1", lambda value: 0 < value < 1)
_difference = _number("a difference other than 0, as 0.01", lambda value: value != 0 and math.isfinite(value))


def _least(bound: int) -> Callable[[str], int]:
    return _number(f"an integer >= {bound}", lambda value: value >= bound and value.is_integer(), int)
