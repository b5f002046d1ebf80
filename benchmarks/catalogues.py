"""The workloads of one score for each item of a catalogue, of which few are relevant."""

from __future__ import annotations

import functools

import benchmarks.contenders as c
import benchmarks.data as data
import benchmarks.peers as peers
from benchmarks.plan import COMPILED, NUMBERS, OURS, Contender, Target, Workload, at_most, faster

NEXT_ITEM = "ndcg@10,100 mrr@10 map@100 recall@100 precision@10 hitrate@10"
LINKS = "mr mrr hitrate@1,3,10"
CATALOGUE = "ndcg@10 recall@100 mr"


def ours(suite: c.Suite) -> dict[str, Contender]:
    """torchrank's update, eager and compiled. They differ if each query has one relevant candidate."""
    return {OURS: suite.update, COMPILED: suite.compiled}


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
    suite, limit = c.Suite(CATALOGUE), 1.6 if relevant == 1 else 2.2
    return Workload(
        "catalogue",
        f"{relevant} relevant",
        "{queries:,} queries, {items:,} items, {dimensions} dimensions, 3 measures",
        shape={"queries": 1024, "items": 200_000, "dimensions": 64, "relevant": relevant},
        quick={"queries": 20, "items": 10_000, "dimensions": 16, "relevant": relevant},
        make=data.embeddings,
        contenders={
            OURS: suite.embedded,
            COMPILED: functools.partial(suite.compiled, eager=suite.embedded),
            "blocked product": c.blocked_product,
        },
        floor="blocked product",
        references={"ranks by counting": c.counted(CATALOGUE)},
        targets=(
            at_most(limit, "blocked product"),
            at_most(limit, "blocked product", contender=COMPILED),
            *memory,
        ),
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
        memory=(OURS,) if dtype == "float32" else (),
        reads=lambda data: data.scores.nbytes,
        devices=("cuda",),
    )


def accelerator_embeddings(dtype: str, precision: str | None = None) -> Workload:
    """The share of an accelerator's multiplications that a ranking of embeddings reaches."""
    suite = c.Suite("ndcg@10 recall@100 mr")
    options = {} if precision is None else {"precision": precision}
    return Workload(
        "accelerator",
        f"embeddings, {dtype}" + (f", {precision}" if precision else ""),
        "{queries:,} queries, {items:,} items, {dimensions} dimensions, 3 measures",
        shape={"queries": 1024, "items": 1_000_000, "dimensions": 128, "relevant": 1, "dtype": dtype},
        quick={"queries": 20, "items": 10_000, "dimensions": 16, "relevant": 1, "dtype": dtype},
        make=data.embeddings,
        contenders={OURS: functools.partial(suite.embedded, **options), "blocked product": c.blocked_product},
        floor="blocked product",
        targets=(Target(64, quantity="peak_mb", device="cuda"),) if dtype == "bfloat16" else (),
        memory=(OURS,) if dtype == "bfloat16" else (),
        devices=("cuda",),
    )
