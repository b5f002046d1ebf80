"""The workloads. Each has one function: sizes, inputs, contenders and targets. Add new ones to ``WORKLOADS``."""

from __future__ import annotations

import functools
from collections.abc import Callable

import benchmarks.contenders as c
import benchmarks.data as data
import benchmarks.files as files
import benchmarks.peers as peers
import benchmarks.small as s
import torchrank as tr
from benchmarks.busy import BUDGET, FLOOR, largest, slowed
from benchmarks.imports import importing
from benchmarks.plan import COMPILED, NUMBERS, OURS, Contender, Data, Target, Workload, at_most, faster
from benchmarks.sync import LARGE, SMALL, synchronised

LTR = "ndcg@5,10 mrr@10 map@10 precision@10 recall@10 hitrate@10"
RUN = "ndcg@10,100 mrr@10 map@100 recall@100 precision@10"
NEXT_ITEM = "ndcg@10,100 mrr@10 map@100 recall@100 precision@10 hitrate@10"
LINKS = "mr mrr hitrate@1,3,10"
CATALOGUE = "ndcg@10 recall@100 mr"
SIX = "MAP MRR NormalizedDCG Precision Recall HitRate"
FLAT = "ndcg@10 mrr map precision@10 recall@100"

FORTY = (
    "ndcg@5,10 ndcg(gain=exponential)@10 dcg@10 cg@10 mrr mrr@10 map map@10 map(normalize=min)@10 precision@1,5,10"
    " recall@5,10 f1@10 hitrate@1,10 rprecision fallout@10 auroc bpref judged@10 err@10 nerr@10 rbp qmeasure@10"
    " arp iprec(recall=0.3) elevenpoint relprecision@10 opa lrap coverageerror rankingloss accuracy@10 mcc@10"
    " pwa@10 setap mr mr(adjusted=index,filtered=True)"
)

# Rows of lists of equal length, one after the other, and rows of lists of different lengths in no order.
ROWS_OF_LISTS = {"queries": 8000, "candidates": 40}
MANY_ROWS = {"rows": 300_000, "queries": 5000, "longest": 3000}
SHORT_LISTS = {"queries": 60, "candidates": 20}
SOME_ROWS = {"rows": 1200, "queries": 40, "longest": 300}

#: 20 measures that have a cutoff, and ten cutoffs
TWENTY = (
    "ndcg ndcg(gain=exponential) dcg cg err nerr rbp pwa qmeasure map map(normalize=min) mrr precision recall f1"
    " hitrate fallout relprecision accuracy mcc"
)
TEN = "1,2,3,5,8,10,15,20,30,40"


def ours(suite: c.Suite) -> dict[str, Contender]:
    """torchrank's update, eager and compiled. They differ if each query has one relevant candidate."""
    return {OURS: suite.update, COMPILED: suite.compiled}


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


def next_item() -> Workload:
    """Prediction of the next item out of a catalogue."""
    suite = c.Suite(f"{NEXT_ITEM} mr")
    return Workload(
        "next_item",
        "",
        "{queries:,} x {candidates:,}, 1 positive, 8 measures",
        shape={"queries": 4096, "candidates": 20_000},
        quick={"queries": 30, "candidates": 500},
        make=data.labels,
        contenders={
            **ours(suite),
            NUMBERS: suite.numbers,
            "amax": c.largest,
            "PyG, topk(100) and metrics": peers.pyg(NEXT_ITEM, 100),
        },
        floor="amax",
        references={"ranks by counting": c.counted(f"{NEXT_ITEM} mr")},
        targets=(
            at_most(4, "amax"),
            at_most(1.6, "amax", contender=COMPILED),
            faster(3, "PyG, topk(100) and metrics", contender=NUMBERS),
        ),
        grow={"queries": "queries", "candidates": "candidates"},
        reads=lambda data: data.scores.nbytes,
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


def link_prediction() -> Workload:
    """Filtered link prediction."""
    suite = c.Suite(LINKS, c.filtered)
    return Workload(
        "link_prediction",
        "",
        "{queries:,} x {candidates:,}, 1 positive, {excluded} excluded a row, 5 measures",
        shape={"queries": 256, "candidates": 100_000, "excluded": 50},
        quick={"queries": 10, "candidates": 500, "excluded": 20},
        make=data.labels,
        contenders={**ours(suite), "amax": c.largest, "PyKEEN, ranks unfiltered": peers.pykeen},
        floor="amax",
        references={"ranks by counting": c.counted(LINKS)},
        targets=(
            at_most(4.5, "amax"),
            at_most(1.6, "amax", contender=COMPILED),
            faster(15, "PyKEEN, ranks unfiltered"),
        ),
        grow={"queries": "queries", "candidates": "candidates"},
        reads=lambda data: data.scores.nbytes,
    )


def top_k(queries: int, candidates: int, k: int, limit: float) -> Workload:
    """Search of the best scores and their ids."""
    return Workload(
        "top_k",
        f"{queries} x {candidates:,}, k = {k}",
        "exact, with ids",
        shape={"queries": queries, "candidates": candidates, "k": k},
        quick={"queries": 4, "candidates": candidates // 50, "k": k},
        make=data.scores_alone,
        contenders={OURS: c.our_best_k, "torch.topk": c.best_k, "amax": c.largest},
        floor="amax",
        targets=(faster(limit, "torch.topk"),),
        reads=lambda data: data.scores.nbytes,
    )


def catalogue(relevant: int) -> Workload:
    """Ranking of a catalogue by the similarity of embeddings."""
    memory = (Target(256, quantity="peak_mb", device=None),) if relevant == 1 else ()
    return Workload(
        "catalogue",
        f"{relevant} relevant",
        "{queries:,} queries, {items:,} items, {dimensions} dimensions, 3 measures",
        shape={"queries": 1024, "items": 200_000, "dimensions": 64, "relevant": relevant},
        quick={"queries": 20, "items": 10_000, "dimensions": 16, "relevant": relevant},
        make=data.embeddings,
        contenders={OURS: c.Suite(CATALOGUE).embedded, "blocked product": c.blocked_product},
        floor="blocked product",
        references={"ranks by counting": c.counted(CATALOGUE)},
        targets=(at_most(1.6 if relevant == 1 else 2.2, "blocked product"), *memory),
        memory=(OURS,),
        grow={"queries": "queries", "candidates": "items"} | ({"positives": "relevant"} if relevant > 1 else {}),
    )


def catalogue_top_k(top_k: int, relevant: int) -> Workload:
    """Ranking of a catalogue whose ranks are exact up to a reach only."""
    suite = c.Suite(f"ndcg@10 recall@{top_k} mrr@{top_k}")
    return Workload(
        "catalogue",
        f"{relevant} relevant, top_k = {top_k}",
        "{queries:,} queries, {items:,} items, {dimensions} dimensions, 3 measures",
        shape={"queries": 1024, "items": 200_000, "dimensions": 64, "relevant": relevant},
        quick={"queries": 20, "items": 10_000, "dimensions": 16, "relevant": relevant},
        make=data.embeddings,
        contenders={
            OURS: functools.partial(suite.embedded, top_k=top_k),
            "without top_k": suite.embedded,
            "blocked product": c.blocked_product,
        },
        floor="blocked product",
        references={"ranks by counting": c.counted(" ".join(suite.measures))},
        targets=(at_most(1, "without top_k"),),
    )


def flat() -> Workload:
    """Flat rows in random order."""
    suite = c.Suite(FLAT, c.flat)
    return Workload(
        "flat",
        "",
        "{rows:,} rows of {queries:,} queries, in no order, 5 measures",
        shape={**MANY_ROWS, "share": 0.1},
        quick={**SOME_ROWS, "share": 0.1},
        make=data.flat_rows,
        contenders={
            OURS: suite.update,
            NUMBERS: suite.numbers,
            "torch.sort of keys": c.sort_keys,
            "torchmetrics, nDCG alone": peers.torchmetrics("ndcg@10"),
        },
        floor="torch.sort of keys",
        references={"pytrec_eval": peers.pytrec_eval(FLAT)},
        targets=(at_most(4, "torch.sort of keys"), faster(50, "torchmetrics, nDCG alone", contender=NUMBERS)),
        grow={"rows": "rows", "queries": "queries"},
    )


def flat_cut(lists: bool) -> Workload:
    """One binary measure of flat rows at a cutoff, beside the sort of their keys."""
    sizes = ROWS_OF_LISTS if lists else MANY_ROWS
    suite = c.Suite("precision@10", c.flat)
    return Workload(
        "flat",
        "precision@10, in lists" if lists else "precision@10, in no order",
        "{queries:,} x {candidates:,} rows" if lists else "{rows:,} rows of {queries:,} queries",
        shape={**sizes, "share": 0.1},
        quick={**(SHORT_LISTS if lists else SOME_ROWS), "share": 0.1},
        make=data.positive_lists if lists else data.positive_flat_rows,
        contenders={OURS: suite.update, "torch.sort of keys": c.sort_keys},
        floor="torch.sort of keys",
        targets=(at_most(1.7, "torch.sort of keys"),),
    )


def retrieval(names: str, lists: bool, times: float, memory: bool = False) -> Workload:
    """torchrank's classes with torchmetrics' names, one or a collection, against torchmetrics."""
    layout = "in lists" if lists else "in no order"
    sizes = ROWS_OF_LISTS if lists else MANY_ROWS
    quick = SHORT_LISTS if lists else SOME_ROWS
    bound = (Target(1, versus="torchmetrics", quantity="peak_mb"),) if memory else ()
    return Workload(
        "retrieval",
        f"{'six classes' if names == SIX else names}, {layout}",
        "{queries:,} x {candidates:,} rows" if lists else "{rows:,} rows of {queries:,} queries",
        shape={**sizes, "share": 0.1},
        quick={**quick, "share": 0.1},
        make=data.positive_lists if lists else data.positive_flat_rows,
        contenders={OURS: c.retrieval(names), "torchmetrics": peers.torchmetrics_rows(names)},
        memory=(OURS, "torchmetrics") if memory else (),
        targets=(faster(times, "torchmetrics", device=None), *bound),
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


def accelerator(dtype: str) -> Workload:
    """The share of an accelerator's bandwidth that an update uses."""
    suite = c.Suite(f"{NEXT_ITEM} mr")
    return Workload(
        "accelerator",
        dtype,
        "{queries:,} x {candidates:,}, 1 positive, 8 measures",
        shape={"queries": 1024, "candidates": 1_000_000, "dtype": dtype},
        quick={"queries": 8, "candidates": 1000, "dtype": dtype},
        make=data.labels,
        contenders={**ours(suite), "amax": c.largest, "torch.topk(100)": c.best(100)},
        floor="amax",
        # With many ties only the mean rank can be computed from the middle rank of each tie group.
        references={"ranks by counting": c.counted("mr")},
        targets=(faster(0.6, "amax", device="cuda"), faster(0.85, "amax", contender=COMPILED, device="cuda")),
        reads=lambda data: data.scores.nbytes,
        devices=("cuda",),
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
    forty(),
    cutoffs("no ties", 8000, None, (at_most(3, "at one cutoff"),)),
    cutoffs("few queries", 64, None, ()),
    cutoffs("many ties", 8000, 1, ()),
    run(),
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
)


def find(key: str) -> Workload:
    """The workload with the key ``name: row``."""
    return next(workload for workload in WORKLOADS if workload.key == key)
