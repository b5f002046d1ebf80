"""Batches of 64 queries, in which the fixed cost of an update is most of it, beside a few lines of plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

import benchmarks.contenders as c
import benchmarks.data as data
import benchmarks.peers as peers
import torchrank as tr
from benchmarks.plan import OURS, Contender, Data, Numbers, Prepared, Shape, Workload, at_most

K = 10
LINES, PYG = "ten lines of torch", "PyG, ids"


def lines(measured: Callable[[Data, Tensor], Mapping[str, Tensor]], measures: str) -> Contender:
    """Plain torch: the sum and the number of the values of each measure, from the discounts of the first K ranks."""

    def prepare(data: Data) -> Prepared:
        def run() -> Numbers:
            discount = torch.arange(2, K + 2, dtype=torch.float64, device=data.device).log2().reciprocal()
            found = measured(data, discount)
            return {name: (found[name].sum(), len(found[name])) for name in measures.split()}

        return Prepared(run, lambda found: {name: total / number for name, (total, number) in found.items()})

    return prepare


def of_grades(data: Data, discount: Tensor) -> Mapping[str, Tensor]:
    """Sort the K best scores."""
    grade = data.target.gather(-1, data.scores.topk(K).indices)
    ideal = (data.target.topk(K).values * discount).sum(-1)
    found = {"ndcg@10": ((grade * discount).sum(-1) / ideal).nan_to_num(0.0)}
    if not data.several:
        return found
    hit = grade > 0
    found["mrr@10"] = hit.any(-1) / (1.0 + hit.int().argmax(-1))
    found["recall@10"] = (hit.sum(-1) / (data.target > 0).sum(-1)).nan_to_num(0.0)
    return found


def of_labels(data: Data, discount: Tensor) -> Mapping[str, Tensor]:
    """Count the scores above that of the label."""
    rank = (data.scores > data.scores.gather(-1, data.relevant)).sum(-1)
    hit = rank < K
    found = {"ndcg@10": hit * discount[rank.clamp_max(K - 1)]}
    return {**found, "mrr@10": hit / (1.0 + rank), "recall@10": hit.double()} if data.several else found


def of_ids(data: Data, discount: Tensor) -> Mapping[str, Tensor]:
    """Compare all ids with all relevant ones."""
    hit = (data.scores[:, :K, None] == data.target[:, None]).any(-1)
    relevant = data.target.shape[1]
    return {
        "precision@10": hit.sum(-1) / K,
        "recall@10": hit.sum(-1) / relevant,
        "ndcg@10": (hit * discount).sum(-1) / discount[: min(K, relevant)].sum(),
    }


def alone(measure: str) -> Contender:
    """An update of one metric."""

    def prepare(data: Data) -> Prepared:
        metric = tr.parse(measure).to(data.device)
        return Prepared(lambda: metric.update(data.scores, data.target), lambda _: {measure: metric.compute()})

    return prepare


def ids(shape: Shape, device: str) -> Data:
    """Lists of ids, best first, and the relevant ids of each."""
    order = torch.rand(shape["queries"], shape["items"], generator=data.seeded(device), device=device).argsort(-1)
    relevant = data.some_of(shape["queries"], shape["items"], shape["relevant"], device)
    return Data(device=device, scores=order[:, : shape["positions"]].clone(), target=relevant)


def small_batches() -> tuple[Workload, ...]:
    """One metric and three, for labels, grades and lists of ids."""
    size = {"queries": 64, "candidates": 100}
    graded = {**size, "grades": 3, "decimals": None}
    kinds = {"labels": (size, data.labels, of_labels), "grades": (graded, data.graded, of_grades)}
    suite = "ndcg@10 mrr@10 recall@10"
    rows = []
    for kind, (shape, make, measured) in kinds.items():
        for measures, several, limit in (("ndcg@10", False, 4), (suite, True, 8)):
            rows.append(
                Workload(
                    "small_batches",
                    f"{kind}, {'3 measures' if several else '1 measure'}",
                    "{queries} x {candidates}, " + measures,
                    shape=shape,
                    quick={**shape, "queries": 8},
                    make=lambda shape, device, make=make, several=several: Data(
                        **vars(make(shape, device)), several=several
                    ),
                    contenders={
                        OURS: c.Suite(measures).update if several else alone(measures),
                        LINES: lines(measured, measures),
                    },
                    floor=LINES,
                    targets=(at_most(limit, LINES),),
                )
            )
    measures = "precision@10 recall@10 ndcg@10"
    shape = {"queries": 64, "positions": 20, "relevant": 10, "items": 500}
    rows.append(
        Workload(
            "small_batches",
            "ids, 3 measures",
            "{queries} x {positions} ids, {relevant} relevant, " + measures,
            shape=shape,
            quick={**shape, "queries": 8},
            make=ids,
            contenders={
                OURS: c.Suite(measures).update,
                LINES: lines(of_ids, measures),
                PYG: peers.pyg(measures, K, ids=True),
            },
            floor=LINES,
            targets=(at_most(1.5, PYG),),
        )
    )
    return tuple(rows)
