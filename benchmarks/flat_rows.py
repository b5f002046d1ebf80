"""The workloads of flat rows, and of the classes that replace torchmetrics' own."""

from __future__ import annotations

import benchmarks.contenders as c
import benchmarks.data as data
import benchmarks.peers as peers
from benchmarks.plan import NUMBERS, OURS, Target, Workload, at_most, faster

SIX = "MAP MRR NormalizedDCG Precision Recall HitRate"
FLAT = "ndcg@10 mrr map precision@10 recall@100"

# Rows of lists of equal length, one after the other, and rows of lists of different lengths in no order.
ROWS_OF_LISTS = {"queries": 8000, "candidates": 40}
MANY_ROWS = {"rows": 300_000, "queries": 5000, "longest": 3000}
SHORT_LISTS = {"queries": 60, "candidates": 20}
SOME_ROWS = {"rows": 1200, "queries": 40, "longest": 300}


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
