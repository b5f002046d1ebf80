"""The ``torchrank`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torchrank import __version__
from torchrank.names.presets import OPTIONS, table

#: formats of the results of `eval` and `compare`
FORMATS = ("table", "json", "jsonl", "csv", "markdown", "latex")

#: treatments of unjudged documents
UNJUDGED = ("irrelevant", "condensed", "lower", "upper")

#: packages of the extra [demo]: import name -> name in the package index
DEMO = {"lightning": "lightning", "sklearn": "scikit-learn", "matplotlib": "matplotlib"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: arguments of ``torchrank``; None = the arguments of this process.

    Returns:
        The exit status.
    """
    status = 0
    try:
        try:
            options = _parser().parse_args(arguments)
            status = options.run(options) or 0
        finally:
            sys.stdout.flush()  # a closed pipe raises here instead of at the end of Python, where it prints a traceback
    except BrokenPipeError:  # e.g. of `torchrank measures | head -1`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrank", description="Ranking metrics for PyTorch.")
    parser.add_argument("--version", action="version", version=f"torchrank {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.set_defaults(run=lambda _: parser.print_help())

    demo = commands.add_parser(
        "demo",
        help="train a small encoder and watch its ranking metrics rise",
        description="Train a small encoder on scikit-learn's handwritten digits with Lightning, and print how well "
        "each held-out image finds the others of its digit: before training, and after every epoch.",
    )
    demo.add_argument("--epochs", type=_at_least(0), default=15, help="default: %(default)s; 0 only evaluates")
    demo.add_argument(
        "--workers", type=_at_least(1), default=1, metavar="N", help="train and validate on N processes (default: 1)"
    )
    demo.add_argument(
        "--seed", type=_at_least(0), default=0, help="of split, weights and batches (default: %(default)s)"
    )
    demo.add_argument(
        "--plot", type=_new_file(".png", ".svg", ".pdf"), metavar="FILE", help="draw the curves: .png, .svg, .pdf"
    )
    demo.add_argument("--save", type=_new_file(), metavar="FILE", help="write the weights of the encoder when done")
    demo.add_argument("--load", type=_old_file, metavar="FILE", help="begin with weights that --save has written")
    demo.set_defaults(run=_demo)

    _add_evaluations(commands)

    presets = commands.add_parser(
        "presets",
        help="print which settings reproduce which library",
        description="Print the labels of measures that reproduce the numbers of other libraries. Without arguments all"
        " libraries, in Markdown.",
    )
    presets.add_argument("libraries", nargs="*", metavar="LIBRARY", help="as recbole or scikit-learn; none = all")
    presets.set_defaults(run=_presets)

    measures = commands.add_parser(
        "measures",
        help="print a list of all measures, or describe some",
        description="Print measures: label, formula, range, source, and other libraries that have them. Without"
        " arguments all measures, in Markdown.",
    )
    measures.add_argument(
        "names", nargs="*", metavar="NAME", help="as ndcg, nDCG@10 or another library's spelling; none = all"
    )
    measures.set_defaults(run=_measures)

    spellings = commands.add_parser(
        "spellings",
        help="print the names of measures in other libraries",
        description="Print the names of measures in other libraries, each with its label here, in Markdown.",
    )
    spellings.set_defaults(run=_spellings)
    return parser


def _add_evaluations(commands: Any) -> None:
    """Add the commands on files of judgments and runs."""
    files = argparse.ArgumentParser(add_help=False)
    files.add_argument("qrels", metavar="QRELS", help="file of judgments (TREC, BEIR, JSON, ...; - = standard input)")
    files.add_argument("runs", nargs="+", metavar="RUN", help="file of a run, or name=file")
    files.add_argument("-m", "--measures", help="default: ndcg@10 map mrr recall@100, or all of --preset")
    files.add_argument("--preset", choices=tuple(OPTIONS), help="the measures and options of a tool")
    files.add_argument("--queries", choices=("judged", "both"), help="the queries of means (default: judged)")
    files.add_argument("--precision", choices=("double", "single"), help="single as in pytrec_eval (default: double)")
    files.add_argument("--ties", choices=("document", "expected"), help="order of equal scores (default: document)")
    files.add_argument(
        "--ignore-identical-ids",
        action=argparse.BooleanOptionalAction,
        help="leave out documents named like their query",
    )
    files.add_argument("--depth", type=_at_least(1), metavar="K", help="keep the first K documents of each query")
    files.add_argument("--relevance-level", type=_grade, metavar="GRADE", help="lowest relevant grade (default: 1)")
    files.add_argument("--unjudged", choices=UNJUDGED, help="treatment of unjudged documents (default: irrelevant)")

    evaluate = commands.add_parser(
        "eval",
        parents=[files],
        help="print the measures of runs, with intervals",
        description="Print the measures of one or several runs with confidence intervals, and how judgments and runs"
        " fit together.",
    )
    evaluate.add_argument("-q", "--per-query", metavar="FILE", help="write the values of all queries; - = output")
    evaluate.add_argument("--by", metavar="FILE", help="print slices, too: a file of queries and the slice of each")
    evaluate.add_argument("--interval", type=_share, default=0.95, metavar="LEVEL", help="default: %(default)s")
    evaluate.add_argument(
        "--html", type=_new_file(".html", ".htm"), metavar="FILE", help="write a report for a browser"
    )
    evaluate.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    evaluate.set_defaults(run=lambda options: _evaluation("evaluated", options))

    compare = commands.add_parser(
        "compare",
        parents=[files],
        help="print the differences of runs, with tests and gates",
        description="Compare runs query by query. Exit status: 0 = passed, 1 = a gate failed, 2 = wrong call or"
        " unreadable file, 3 = wrong data.",
    )
    compare.add_argument("--baseline", metavar="NAME", help="compare each run with this one; default: all pairs")
    compare.add_argument("--test", default="t", help="t, randomization, bootstrap, wilcoxon, sign, tukey, ...")
    compare.add_argument("--correction", choices=("holm", "bh", "none"), help="default: holm")
    compare.add_argument("--alpha", type=_share, default=0.05, help="default: %(default)s")
    compare.add_argument("--seed", type=_at_least(0), default=0, help="of tests that draw (default: %(default)s)")
    compare.add_argument("--worst", type=_at_least(1), metavar="N", help="print the N largest losses")
    compare.add_argument(
        "--fail-if", action="append", default=[], metavar="COND", help="'ndcg@10 < -0.005': fail if this is significant"
    )
    compare.add_argument(
        "--require", action="append", default=[], metavar="COND", help="'ndcg@10 > -0.01': pass only if significant"
    )
    compare.add_argument("--plot", type=_new_file(".png", ".svg", ".pdf"), metavar="FILE", help="draw the differences")
    compare.add_argument("--html", type=_new_file(".html", ".htm"), metavar="FILE", help="write a report for a browser")
    compare.add_argument("--format", choices=FORMATS, default="table", help="default: %(default)s")
    compare.set_defaults(run=lambda options: _evaluation("compared", options))

    convert = commands.add_parser(
        "convert",
        help="write a run in another format",
        description="Read a run in any format and write it as .run, .tsv, .json or .jsonl, or these with .gz.",
    )
    convert.add_argument("source", metavar="IN", help="file of a run; - = standard input")
    convert.add_argument("out", metavar="OUT", help="file to write; its ending selects the format")
    convert.set_defaults(run=_convert)

    power = commands.add_parser(
        "power",
        parents=[files],
        help="print how many queries show a difference",
        description="Print the number of queries that show a difference of two runs, and the differences that the"
        " queries at hand show.",
    )
    power.add_argument("--delta", type=float, required=True, help="the difference that matters")
    power.add_argument("--power", type=_share, default=0.8, help="default: %(default)s")
    power.add_argument("--alpha", type=_share, default=0.05, help="default: %(default)s")
    power.set_defaults(run=lambda options: _evaluation("powered", options))


def _convert(options: argparse.Namespace) -> int:
    from torchrank.cli.convert import converted

    return converted(options)


def _evaluation(name: str, options: argparse.Namespace) -> int:
    import torchrank.cli.evaluation as evaluation

    status: int = getattr(evaluation, name)(options)
    return status


def _demo(options: argparse.Namespace) -> int:
    missing = [package for name, package in DEMO.items() if find_spec(name) is None]
    if missing:
        needs = " and ".join(missing)
        print(
            f'torchrank demo needs {needs}, not installed here: pip install "torchrank-metrics[demo]"', file=sys.stderr
        )
        return 1
    from torchrank.cli.demo import run  # importing Lightning takes seconds, which `torchrank --help` does not need

    return run(options.epochs, options.workers, options.seed, options.plot, options.save, options.load)


def _presets(options: argparse.Namespace) -> int:
    from torchrank.cli.presets import library, page

    try:
        names = [library(name) for name in options.libraries]
    except ValueError as error:
        return _refused("presets", error)
    print("\n\n".join(map(page, names)) if names else table())
    return 0


def _measures(options: argparse.Namespace) -> int:
    from torchrank.cli.measures import run

    try:
        return run(options.names)
    except ValueError as error:
        return _refused("measures", error)


def _spellings(options: argparse.Namespace) -> int:
    from torchrank.cli.spellings import table

    print(table())
    return 0


def _refused(command: str, error: ValueError) -> int:
    print(f"torchrank {command}: {error}", file=sys.stderr)
    return 2


def _new_file(*endings: str) -> Callable[[str], str]:
    """Argument type: the path of a file that can be written. Checked before the work begins, not after it."""

    def path(text: str) -> str:
        if not Path(text).absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"Expected a file in a folder that exists, got {text}")
        if endings and Path(text).suffix not in endings:
            raise argparse.ArgumentTypeError(f"Expected a file that ends in {', '.join(endings)}, got {text}")
        return text

    return path


def _old_file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"Expected a file that exists, got {text}")
    return text


def _share(text: str) -> float:
    if not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"Expected a number between 0 and 1, got {text}")
    return float(text)


def _grade(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"Expected a number >= {least}, got {text}")
        return int(text)

    return number
