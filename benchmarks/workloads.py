"""The workloads. Each has one function: sizes, inputs, contenders and targets. Add new ones to ``WORKLOADS``.

Those of flat rows and of catalogues have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import benchmarks.contenders as c
import benchmarks.data as data
import benchmarks.files as files
import benchmarks.peers as peers
import benchmarks.small as s
import torchrank as tr
from benchmarks.busy import BUDGET, FLOOR, largest, slowed
from benchmarks.catalogues import (
    NEXT_ITEM,
    accelerator,
    accelerator_embeddings,
    catalogue,
    catalogue_top_k,
    link_prediction,
    next_item,
    top_k,
)
from benchmarks.epoch import epochs
from benchmarks.flat_rows import SIX, flat, flat_cut, retrieval
from benchmarks.imports import importing
from benchmarks.plan import NUMBERS, OURS, Data, Target, Workload, at_most, faster
from benchmarks.sync import LARGE, SMALL, synchronised

LTR = "ndcg@5,10 mrr@10 map@10 precision@10 recall@10 hitrate@10"
RUN = "ndcg@10,100 mrr@10 map@100 recall@100 precision@10"

FORTY = (
    "ndcg@5,10 ndcg(gain=exponential)@10 dcg@10 cg@10 mrr mrr@10 map map@10 map(normalize=min)@10 precision@1,5,10"
    " recall@5,10 f1@10 hitrate@10 rprecision fallout@10 auroc bpref judged@10 err@10 nerr@10 rbp qmeasure@10"
    " arp iprec(recall=0.3) elevenpoint relprecision@10 opa lrap coverageerror rankingloss accuracy@10 mcc@10"
    " pwa@10 setap mr mr(adjusted=index,filtered=True)"
)

#: 20 measures that have a cutoff, and ten cutoffs
TWENTY = (
    "ndcg ndcg(gain=exponential) dcg cg err nerr rbp pwa qmeasure map map(normalize=min) mrr precision recall f1"
    " hitrate fallout relprecision accuracy mcc"
)
TEN = "1,2,3,5,8,10,15,20,30,40"


def ltr(row: str, decimals: int | None) -> Workload:
    """Learning to rank."""
    suite = c.Suite(LTR)
    return Workload(
        "ltr",
        row,
        "{queries:,} x {candidates:,}, grades 0 to 4, 7 measures",
        shape={"queries": 8000, "candidates": 40, "grades": 5, "decimals": decimals},
        quick={"queries": 60, "candidates": 20, "grades": 5, "decimals": decimals},
        make=data.graded,
        contenders={
            OURS: suite.update,
            NUMBERS: suite.numbers,
            "torch.sort": c.sort,
            "torch.topk(10)": c.best(10),
            "torchmetrics, nDCG alone": peers.torchmetrics("ndcg@10"),
        },
        floor="torch.sort",
        references={} if decimals else {"pytrec_eval": peers.pytrec_eval(LTR)},  # trec_eval orders ties by names
        targets=(
            at_most(4, "torch.sort"),
            faster(100, "torchmetrics, nDCG alone", contender=NUMBERS),
            Target(1.0, device="cuda"),
        ),
        grow={"queries": "queries", "candidates": "candidates"},
    )


def padded() -> Workload:
    """Learning to rank with lists of different lengths, of which a few have ties, and measures of all ranks."""
    suite = c.Suite("ndcg map mrr auroc", c.masked)
    return Workload(
        "padded",
        "",
        "{queries:,} x {candidates:,}, a quarter of it padding, 1 % with a tie, 4 measures without a cutoff",
        shape={"queries": 8000, "candidates": 40, "grades": 5},
        quick={"queries": 60, "candidates": 20, "grades": 5},
        make=data.padded,
        contenders={OURS: suite.update, NUMBERS: suite.numbers, "torch.sort": c.sort},
        floor="torch.sort",
        targets=(at_most(4, "torch.sort"),),
        grow={"queries": "queries", "candidates": "candidates"},
    )


def few_relevant() -> Workload:
    """Graded lists with few relevant documents, of which some lists have many more than others."""
    suite = c.Suite("ndcg map mrr rprecision")
    return Workload(
        "few_relevant",
        "",
        "{queries:,} x {candidates:,}, {relevant} relevant on average, 4 measures without a cutoff",
        shape={"queries": 8000, "candidates": 200, "grades": 3, "relevant": 5},
        quick={"queries": 60, "candidates": 100, "grades": 3, "relevant": 3},
        make=data.few_relevant,
        contenders={OURS: suite.update, "torch.sort": c.sort},
        floor="torch.sort",
        references={"pytrec_eval": peers.pytrec_eval("ndcg map mrr")},
        targets=(at_most(1, "torch.sort"),),
        grow={"queries": "queries", "candidates": "candidates"},
    )


def forty() -> Workload:
    """Forty measures of one ranking."""
    suite = c.Suite(FORTY)
    return Workload(
        "suite",
        "",
        "{queries:,} x {candidates:,}, grades 0 to 4, 40 measures",
        shape={"queries": 8000, "candidates": 40, "grades": 5, "decimals": None},
        quick={"queries": 60, "candidates": 20, "grades": 5, "decimals": None},
        make=data.graded,
        contenders={
            OURS: suite.update,
            "7 of them": c.Suite(LTR).update,
            "their ranking alone": c.ranking,
            "torch.sort": c.sort,
        },
        floor="their ranking alone",
        references={"pytrec_eval": peers.pytrec_eval(FORTY)},
        targets=(at_most(20, "their ranking alone"),),
        grow={"queries": "queries", "candidates": "candidates"},
    )


def cutoffs(row: str, queries: int, decimals: int | None, targets: tuple[Target, ...]) -> Workload:
    """Twenty measures at ten cutoffs, beside the same measures at one cutoff."""
    suite = c.Suite(" ".join(f"{name}@{TEN}" for name in TWENTY.split()))
    return Workload(
        "cutoffs",
        row,
        "{queries:,} x {candidates:,}, grades 0 to 4, 20 measures at 10 cutoffs",
        shape={"queries": queries, "candidates": 40, "grades": 5, "decimals": decimals},
        quick={"queries": 60, "candidates": 20, "grades": 5, "decimals": decimals},
        make=data.graded,
        contenders={
            OURS: suite.update,
            "at one cutoff": c.Suite(" ".join(f"{name}@10" for name in TWENTY.split())).update,
            "their ranking alone": c.ranking,
        },
        floor="at one cutoff",
        references={} if decimals else {"pytrec_eval": peers.pytrec_eval(f"ndcg@{TEN} map@{TEN} recall@{TEN}")},
        targets=targets,
    )


def all_ranks() -> Workload:
    """Measures of all ranks of long lists. The memory beside the scores must not exceed their own."""
    suite = c.Suite("map auroc ndcg")
    shape = {"queries": 256, "candidates": 100_000, "relevant": 1000}
    return Workload(
        "all_ranks",
        "",
        "{queries:,} x {candidates:,}, {relevant:,} relevant, 3 measures without a cutoff",
        shape=shape,
        quick={"queries": 4, "candidates": 2000, "relevant": 20},
        make=data.run,
        contenders={OURS: suite.update, "torch.sort": c.sort},
        floor="torch.sort",
        references={"ranks by counting": c.counted("map ndcg")},
        targets=(Target(shape["queries"] * shape["candidates"] * 4 / 1e6, quantity="peak_mb"),),
        memory=(OURS,),
        grow={"queries": "queries", "candidates": "candidates", "positives": "relevant"},
    )


def many_relevant() -> Workload:
    """Scores over a catalogue, of which each query has many relevant items."""
    suite = c.Suite("map recall@100 ndcg@100 mr", c.listed)
    return Workload(
        "many_relevant",
        "",
        "{queries:,} x {candidates:,}, {relevant} relevant, 4 measures",
        shape={"queries": 1024, "candidates": 20_000, "relevant": 50},
        quick={"queries": 20, "candidates": 500, "relevant": 20},
        make=data.run,
        contenders={OURS: suite.update, "torch.sort": c.sort, "amax": c.largest},
        floor="torch.sort",
        references={"ranks by counting": c.counted("map recall@100 ndcg@100 mr")},
        targets=(at_most(0.5, "torch.sort"),),
        grow={"queries": "queries", "candidates": "candidates", "positives": "relevant"},
    )


def statistics() -> Workload:
    """Bootstrap, slices, kept values and two systems, each beside a plain update."""
    suite, replicates, slices = c.Suite(LTR), 200, 20
    return Workload(
        "statistics",
        "",
        "{queries:,} x {candidates:,}, grades 0 to 4, 7 measures; bootstrap of 200 replicates",
        shape={"queries": 8000, "candidates": 40, "grades": 5, "decimals": None},
        quick={"queries": 60, "candidates": 20, "grades": 5, "decimals": None},
        make=data.graded,
        contenders={
            OURS: suite.wrapped(lambda x: tr.Bootstrapped(x, replicates), lambda numbers: {"query_ids": numbers}),
            "plain update": suite.update,
            "Sliced, 20 slices": suite.wrapped(lambda x: tr.Sliced(x, slices), lambda n: {"slices": n % slices}),
            "PerQuery": suite.wrapped(tr.PerQuery, lambda numbers: {"query_ids": numbers}),
            "Compared, 2 systems": suite.wrapped(lambda x: tr.Compared(x, ["a", "b"]), systems=True),
            "torchmetrics BootStrapper, nDCG alone": peers.bootstrapper("ndcg@10", replicates),
        },
        floor="plain update",
        targets=(at_most(2, "plain update"),),
    )


def correlation(measure: str) -> Workload:
    """Rank correlation of two rankings."""
    torchmetrics = {"torchmetrics": peers.torchmetrics_kendall} if measure == "kendalltau" else {}
    return Workload(
        "correlation",
        measure,
        "{queries:,} x {candidates:,}, no ties",
        shape={"queries": 200, "candidates": 1000},
        quick={"queries": 10, "candidates": 50},
        make=data.two_rankings,
        contenders={
            NUMBERS: c.Suite(measure).numbers,
            "two sorts": c.sort_twice,
            "scipy, in a loop": peers.scipy(measure),
            **torchmetrics,
        },
        floor="two sorts",
        targets=(faster(10, "scipy, in a loop", contender=NUMBERS),),
        grow={"queries": "queries", "candidates": "candidates"},
    )


def run() -> Workload:
    """Evaluation of a judged run."""
    suite = c.Suite(RUN)
    return Workload(
        "run",
        "",
        "{queries:,} x {candidates:,}, {relevant} relevant, 6 measures",
        shape={"queries": 1000, "candidates": 1000, "relevant": 20},
        quick={"queries": 20, "candidates": 200, "relevant": 5},
        make=data.run,
        contenders={
            OURS: suite.update,
            NUMBERS: suite.numbers,
            "torch.topk(100)": c.best(100),
            "ranx": peers.ranx(RUN),
            "pytrec_eval": peers.pytrec_eval(RUN),
            "torchmetrics": peers.torchmetrics(RUN),
        },
        floor="torch.topk(100)",
        references={"ranks by counting": c.counted(RUN)},
        targets=(
            at_most(3, "torch.topk(100)"),
            faster(12, "ranx", contender=NUMBERS),
            faster(20, "pytrec_eval", contender=NUMBERS),
            faster(80, "torchmetrics", contender=NUMBERS),
        ),
        grow={"queries": "queries", "candidates": "candidates", "positives": "relevant"},
    )


MILLION = {"queries": 1000, "documents": 1000, "judged": 20}
FEW = {"queries": 10, "documents": 50, "judged": 5}


def read(row: str, make: Callable[..., Data], what: str, targets: tuple[Target, ...], floor: str | None) -> Workload:
    """Reading and evaluation of a run within a process."""
    floors = {floor: files.three_columns} if floor else {}
    peers = {"pytrec_eval": files.pytrec_eval, "ranx": files.ranx, "ir_measures": files.ir_measures}
    return Workload(
        "files",
        row,
        f"{{queries:,}} x {{documents:,}}, {{judged}} judged, {what}: {files.MEASURES}",
        shape=MILLION,
        quick=FEW,
        make=make,
        contenders={OURS: files.evaluate, **floors, **peers},
        floor=floor,
        targets=targets,
        memory=(OURS, "pytrec_eval"),
        devices=("cpu",),
    )


def frames() -> Workload:
    """Reading of a run from data frames."""
    others = {f"{library} {kind}": files.frame(library, kind) for library, kind in files.FRAMES}
    return Workload(
        "frames",
        "",
        "read_run of {queries:,} x {documents:,} rows; torchrank: arrays of integer ids",
        shape=MILLION,
        quick=FEW,
        make=files.columns,
        contenders={OURS: files.frame("arrays", "int64"), **others},
        targets=(Target(300, contender="polars String"),),
        devices=("cpu",),
    )


def command(lines: str, queries: int, peers: tuple[str, ...], targets: tuple[Target, ...]) -> Workload:
    """Whole commands, from two files to printed numbers."""
    both = (OURS, "import of torch and torchmetrics", files.TREC_EVAL, *peers)
    return Workload(
        "command",
        lines,
        f"whole process, {{queries:,}} x {{documents:,}}, {{judged}} judged: {files.MEASURES}",
        shape={**MILLION, "queries": queries, "commands": both, "seconds": 20},
        quick={**FEW, "commands": (OURS,), "seconds": 0},
        measure=files.whole,
        targets=targets,
        devices=("cpu",),
    )


def busy(row: str, measures: str, sizes: dict[str, object]) -> Workload:
    """An update while other processes keep all cores busy."""
    labels = "decimals" not in sizes
    make = data.labels if labels else data.graded
    sizes = {**sizes, "seconds": BUDGET}
    small = {"queries": 60, "candidates": 20, "seconds": 0.01}
    return Workload(
        "busy",
        row,
        "{queries:,} x {candidates:,}, " + ("1 positive" if labels else "grades 0 to 4"),
        shape=sizes,
        quick={**sizes, **small},
        measure=slowed(make, {OURS: c.Suite(measures).update, FLOOR: largest}),
        floor=FLOOR,
        targets=(at_most(2, FLOOR, quantity="slowed"),),
        devices=("cpu",),
    )


def sync() -> Workload:
    """A compute on several workers."""
    return Workload(
        "sync",
        "",
        "compute of a suite on {workers} gloo workers, few = {few:,} and many = {many:,} queries each",
        shape={"workers": 4, SMALL: 1000, LARGE: 10_000, "candidates": 20, "seconds": 3},
        quick={"workers": 2, SMALL: 10, LARGE: 20, "candidates": 20, "seconds": 0},
        measure=synchronised,
        targets=(
            Target(2, contender=f"{OURS}, {LARGE}", quantity="collectives"),
            Target(1, contender=f"{OURS}, {LARGE}", versus=f"{OURS}, {SMALL}", quantity="bytes"),
        ),
        devices=("cpu",),
    )


def imports() -> Workload:
    """The import in a new interpreter."""
    return Workload(
        "import",
        "",
        "python -c 'from torchrank import NDCG', which imports all public names",
        shape={},
        quick={},
        contenders={OURS: importing("from torchrank import NDCG"), "torchmetrics": importing("import torchmetrics")},
        floor="torchmetrics",
        targets=(at_most(1.03, "torchmetrics"),),
        devices=("cpu",),
    )


def small(row: str, case: s.Case) -> Workload:
    """A small input with a wide, long or tied part. Its time and its memory have bounds."""
    memory = Target(case.most or s.TIMES * case.size + s.ROOM_MB, quantity="peak_mb")
    return Workload(
        "small",
        row,
        f"{case.size:g} MB",
        shape=case.shape,
        quick=case.quick,
        make=case.data,
        contenders={OURS: case.contender},
        targets=(Target(1000 * s.SECONDS), memory),
        memory=(OURS,),
        devices=("cpu",),
    )


WORKLOADS: tuple[Workload, ...] = (
    ltr("no ties", None),
    ltr("many ties", 1),
    padded(),
    few_relevant(),
    forty(),
    cutoffs("no ties", 8000, None, (at_most(3, "at one cutoff"),)),
    cutoffs("few queries", 64, None, ()),
    cutoffs("many ties", 8000, 1, ()),
    *epochs(),
    run(),
    all_ranks(),
    many_relevant(),
    read("1,000,000 lines", files.written, "two files", (Target(600),), "numpy.loadtxt, three columns"),
    read("dictionaries", files.tables, "two dictionaries", (at_most(0.5, "pytrec_eval"),), None),
    frames(),
    command("1,000,000 lines", 1000, ("pytrec_eval", "ranx", "ir_measures"), ()),
    command(
        "10,000,000 lines",
        10_000,
        (),
        (at_most(0.6, files.TREC_EVAL), Target(1000, quantity="peak_mb")),
    ),
    statistics(),
    *(correlation(measure) for measure in ("kendalltau", "weightedtau", "spearman")),
    next_item(),
    link_prediction(),
    *(
        busy(f"{queries:,} x {candidates:,}", f"{NEXT_ITEM} mr", {"queries": queries, "candidates": candidates})
        for queries, candidates in ((4096, 20_000), (256, 100_000), (1000, 1000))
    ),
    *(
        busy(f"8,000 x 40, {row}", LTR, {"queries": 8000, "candidates": 40, "grades": 5, "decimals": decimals})
        for row, decimals in (("no ties", None), ("many ties", 1))
    ),
    top_k(256, 100_000, 10, 2.5),
    top_k(64, 1_000_000, 10, 2.5),
    top_k(256, 100_000, 100, 1.4),
    top_k(64, 1_000_000, 100, 1.4),
    catalogue(1),
    catalogue(5),
    catalogue_top_k(100, 5),
    flat(),
    flat_cut(lists=False),
    flat_cut(lists=True),
    *(
        retrieval(name, lists, 50, memory=name in ("MAP", "PrecisionRecallCurve"))
        for lists in (True, False)
        for name in c.RETRIEVAL
    ),
    *(retrieval(SIX, lists, 100, memory=True) for lists in (True, False)),
    *(small(row, case) for row, case in s.CASES.items()),
    sync(),
    imports(),
    accelerator("float32"),
    accelerator("bfloat16"),
    accelerator_embeddings("bfloat16"),
    accelerator_embeddings("float32", "tf32"),
    accelerator_embeddings("float32"),
)


def find(key: str) -> Workload:
    """The workload with the key ``name: row``."""
    return next(workload for workload in WORKLOADS if workload.key == key)
