"""``python -m benchmarks``: measure torchrank beside floors and peers, and print the tables of the pages."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import benchmarks.busy as busy
import benchmarks.by_measure as by_measure
import benchmarks.kernels as kernels
import benchmarks.launches as launches
import benchmarks.plans as plans
import benchmarks.products as products
import benchmarks.report as report
import benchmarks.rivals as rivals
import benchmarks.scale as scale
import benchmarks.stages as stages
import benchmarks.trace as trace
import benchmarks.visit as visit
from benchmarks.plan import Workload
from benchmarks.rows import Settings, measured
from benchmarks.scaling import scaled
from benchmarks.table import short, tables
from benchmarks.workloads import WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 if contenders computed different numbers."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except report.RefusedError as error:
        parser.error(str(error))


def _run(options: argparse.Namespace) -> int:
    if options.table is not None:
        if options.visit and options.table is True and not report.all_of(options.device):
            print("No accelerator was at hand: nothing is measured yet.")
            return 0
        path = report.newest(options.device) if options.table is True else options.table
        print((short if options.short else visit.page if options.visit else tables)(report.read(path)))
        return 0
    printed = {
        "trace": trace.table,
        "busy": busy.table,
        "launches": launches.table,
        "kernels": kernels.table,
        "products": products.table,
        "rivals": rivals.table,
        "plan": functools.partial(plans.table, options.quick),
        "by_measure": by_measure.profile,
        "stages": stages.table,
        "scale": functools.partial(scale.tables, options.quick),
    }
    for name, text in printed.items():
        if getattr(options, name):
            print(text())
            return 0
    if options.visit:
        quick = options.quick or options.device == "cpu"
        settings = Settings(options.device, quick, 0.5, lambda name: print(name, file=sys.stderr, flush=True))
        print(visit.page(visit.visit(settings, options.out)))
        return 0
    if options.short:
        raise report.RefusedError("Expected --table beside --short, got --short alone")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise report.RefusedError("Expected a CUDA device for --device cuda, found none")
    chosen = [w for w in WORKLOADS if options.device in w.devices and (not options.only or w.name in options.only)]
    if options.scaling:
        chosen = [workload for workload in chosen if workload.grow]
    if not chosen:
        raise report.RefusedError(f"Expected workloads for {options.device}, got {', '.join(options.only)}")
    path = options.out or (None if options.quick else report.default_path(report.machine(options.device)))
    found = _measure(chosen, options, path)
    print(tables(report.read(path) if path else found))
    return int(any(not check["agree"] for row in found["workloads"].values() for check in row["checks"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split(": ", 1)[1])
    parser.add_argument("--only", type=_names, default=[], metavar="NAME[,NAME]", help="measure these workloads")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small shapes and few repetitions, to see that it works")
    parser.add_argument("--scaling", action="store_true", help="double each size, to see how time and memory grow")
    parser.add_argument("--by-measure", action="store_true", help="print a profile of 40 measures, label by label")
    parser.add_argument("--budget", type=float, default=3.0, metavar="S", help="seconds of a contender (%(default)s)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write here instead of benchmarks/results; keeps what it has of others"
    )
    parser.add_argument(
        "--table", type=Path, nargs="?", const=True, metavar="FILE", help="measure nothing, print the (newest) file"
    )
    parser.add_argument("--stages", action="store_true", help="print where a class of torchrank.retrieval takes time")
    parser.add_argument("--busy", action="store_true", help="print the first updates of processes on busy cores")
    parser.add_argument("--trace", action="store_true", help="measure nothing, print the calls of a batch of NDCG")
    parser.add_argument(
        "--plan", action="store_true", help="measure nothing, print how the batch of each row is ranked"
    )
    parser.add_argument("--launches", action="store_true", help="measure nothing, print the kernels of a batch")
    parser.add_argument("--rivals", action="store_true", help="print numbers and times beside small new libraries")
    parser.add_argument("--products", action="store_true", help="measure nothing, print the products of embeddings")
    parser.add_argument(
        "--kernels", action="store_true", help="measure nothing, print the resources of Triton's kernels"
    )
    parser.add_argument("--visit", action="store_true", help="run all that an accelerator must show, in eight minutes")
    parser.add_argument("--scale", action="store_true", help="print the tables of SCALE.md, which takes minutes")
    parser.add_argument("--short", action="store_true", help="with --table: only the rows of the front page")
    return parser


def _names(text: str) -> list[str]:
    names, known = text.split(","), list(dict.fromkeys(workload.name for workload in WORKLOADS))
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"Expected some of {', '.join(known)}, got {', '.join(unknown)}")
    return names


def _measure(chosen: list[Workload], options: argparse.Namespace, path: Path | None) -> report.Report:
    """Measure workload by workload, and write the file after each."""
    fresh = report.new(options.device, options.quick)
    if path:
        fresh = report.merged(fresh, path)  # raises for an unsuitable file now, and not after hours of measuring
    part, measure = ("scaling", scaled) if options.scaling else ("workloads", measured)
    tqdm.monitor_interval = 0  # tqdm's monitor thread would disturb the times
    with tqdm(chosen, unit="workload", file=sys.stderr) as bar:
        for workload in bar:
            bar.set_description(workload.key)
            settings = Settings(options.device, options.quick, options.budget, _shown(bar))
            watch = report.Watch()
            row: dict[str, Any] = measure(workload, settings)
            row["measured"] = watch.told(row.pop("cpu_seconds", 0.0))
            fresh[part][workload.key] = row
            if path:
                report.write(_in_order(fresh), path)
    return _in_order(fresh)


def _shown(bar: tqdm) -> Callable[[str], None]:
    """Show the current step, but rarely, because writing to the screen takes time as well."""
    pause, last = (0.2 if bar.fp.isatty() else 10.0), 0.0

    def show(message: str) -> None:
        nonlocal last
        bar.set_postfix_str(message, refresh=False)
        if time.monotonic() - last > pause:
            bar.refresh()
            last = time.monotonic()

    return show


def _in_order(found: report.Report) -> report.Report:
    """Results in the order of the workloads."""
    keys = [workload.key for workload in WORKLOADS]
    parts = {part: {key: found[part][key] for key in keys if key in found[part]} for part in ("workloads", "scaling")}
    return {**found, **parts}


if __name__ == "__main__":
    sys.exit(main())
