"""The ``torchrank`` command."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import math
import os
import re
import sys
import tomllib
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

#: the texts of the help: examples of each command, and what each option does
TEXTS = Path(__file__).parent / "help"
HELP: dict[str, str] = tomllib.loads((TEXTS / "options.toml").read_text(encoding="utf-8"))

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

    reading, printing = argparse.ArgumentParser(add_help=False), argparse.ArgumentParser(add_help=False)
    _add(reading, "--duplicates", choices=("error", "first", "best"), default="error")
    _add(reading, "--expansion", type=_least(1), default=100, metavar="N")
    _add(printing, "-m", "--measures", type=_text, action="append", metavar="NAME")
    _add(printing, "--format", choices=FORMATS, default="table")
    _add(printing, "--wide", action="store_true")

    files = argparse.ArgumentParser(add_help=False, parents=[reading, printing])
    _add(files, "qrels", metavar="QRELS")
    _add(files, "runs", nargs="+", metavar="RUN")
    _add(files, "--preset", choices=tuple(OPTIONS), metavar="TOOL")
    _add(files, "--queries", choices=("judged", "both"))
    _add(files, "--precision", choices=("double", "single"))
    _add(files, "--ties", choices=("document", "rows", "expected"))
    _add(files, "--ignore-identical-ids", action=argparse.BooleanOptionalAction)
    _add(files, "--parent", type=_text, metavar="TEXT")
    _add(files, "--exclude", type=_text, metavar="FILE")
    _add(files, "--depth", type=_least(1), metavar="K")
    _add(files, "--relevance-level", type=_grade, metavar="GRADE")
    _add(files, "--unjudged", choices=UNJUDGED)

    results = argparse.ArgumentParser(add_help=False, parents=[files])
    _add(results, "-q", "--per-query", type=_new_file(), metavar="FILE")
    _add(results, "--by", type=_text, metavar="FILE")
    _add(results, "--group", type=_text, metavar="TEXT")
    _add(results, "--reduce", choices=("min", "max", "mean", "all"))
    _add(results, "--human", type=_text, metavar="FILE")
    _add(results, "--strata", type=_text, metavar="FILE")
    _add(results, "--plot", type=_new_file(".png", ".svg", ".pdf"), metavar="FILE")
    _add(results, "--html", type=_new_file(".html", ".htm"), metavar="FILE")

    evaluate = command(
        "eval", "QRELS RUN [RUN ...]", [results], "print the measures of runs, with intervals",
        "Print the measures of one or several runs with confidence intervals, and how judgments and runs fit together.",
    )  # fmt: skip
    _add(evaluate, "--interval", type=_share, default=0.95, metavar="LEVEL")
    _add(evaluate, "--width", type=_difference, metavar="W")

    compare = command(
        "compare", "QRELS RUN RUN [RUN ...]", [results], "print the differences of runs, with tests and gates",
        "Compare runs query by query.",
    )  # fmt: skip
    _add(compare, "--table", choices=("pairs", "paper"), default="pairs")
    _add(compare, "--baseline", type=_text, metavar="NAME")
    tests = compare.add_mutually_exclusive_group()
    _add(tests, "--test", default="t", metavar="TEST", choices=TESTS)
    _add(tests, "--anytime", dest="test", action="store_const", const="anytime")
    _add(compare, "--correction", choices=("holm", "bh", "none"))
    _add(compare, "--family", choices=("measure", "all"), default="measure")
    _add(compare, "--alpha", type=_share, default=0.05)
    _add(compare, "--seed", type=_least(0), default=0)
    _add(compare, "--worst", type=_least(1), metavar="N")
    _add(compare, "--fail-if", action="append", default=[], metavar="COND")
    _add(compare, "--require", action="append", default=[], metavar="COND")

    convert = command(
        "convert", "IN OUT", [reading], "write a run in another format",
        "Read a run in any format and write it as .run, .trec, .txt, .tsv, .json, .jsonl, or these with .gz.",
    )  # fmt: skip
    _add(convert, "source", metavar="IN")
    _add(convert, "out", type=_new_file(), metavar="OUT")

    power = command(
        "power", "--delta DELTA QRELS RUN RUN [RUN ...]", [files], "print how many queries show a difference",
        "Print the number of queries that show a difference of two runs, and the differences that the queries at hand"
        " show.",
    )  # fmt: skip
    _add(power, "--delta", type=_difference, required=True)
    _add(power, "--power", type=_share, default=0.8)
    _add(power, "--alpha", type=_share, default=0.05)

    agree = command(
        "agree", "QRELS QRELS [QRELS ...] [--runs RUN RUN [RUN ...]]", [reading, printing],
        "print how far judges agree", "Print how far two or more judges agree on documents, and on the order of runs.",
    )  # fmt: skip
    _add(agree, "judgments", nargs="+", metavar="QRELS")
    _add(agree, "--runs", nargs="+", metavar="RUN")


def _add(parser: Any, *names: str, **options: Any) -> None:
    """Add an argument, whose text of the help is in ``help/options.toml``."""
    parser.add_argument(*names, help=HELP[names[-1]], **options)


def _examples(command: str) -> str:
    """The end of the help of a command: examples, in lines of at most 80 characters."""
    return (TEXTS / f"{command}.txt").read_text(encoding="utf-8")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors show arguments without the characters that command a terminal."""

    def format_help(self) -> str:
        if "COLUMNS" in (self.epilog or ""):
            from torchrank.statistics.comparison import COLUMNS  # imports NumPy

            printed = (column for column in COLUMNS if column.printed and not column.margin)
            columns = "\n".join(f"  {column.name:13}{column.about}" for column in printed)
            self.epilog = str(self.epilog).replace("COLUMNS", columns)
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


def _demo(options: argparse.Namespace) -> int:
    missing = [package for name, package in DEMO.items() if find_spec(name) is None]
    if missing:
        way_out = f"run `pip install {' '.join(missing)}` (the extra 'demo' of torchrank installs what the demo needs)"
        return refused("demo", ImportError(f"Expected {' and '.join(missing)} to be installed; {way_out}"), 2)
    from torchrank.cli.demo import run  # importing Lightning takes seconds, which `torchrank --help` does not need

    return run(options.epochs, options.workers, options.seed, options.plot, options.save)


def _list(command: str, options: argparse.Namespace) -> int:
    from torchrank.cli.lists import LISTS  # imports all measures

    pages_of, lines = LISTS[command]
    try:
        pages = [page for name in options.names for page in pages_of(name)]
    except ValueError as error:
        return refused(command, error, 2)
    show("\n\n".join(pages) if pages else lines(width_of(options.wide)))
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
