"""An epoch of small batches, updates and one compute on one thread, beside a few lines of plain torch and PyG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import benchmarks.data as data
import torchrank as tr
from benchmarks.plan import OURS, Contender, Data, Numbers, Prepared, Shape, Target, Workload, at_most, cuts, label

K = 10
LINES, PYG = "ten lines of torch", "PyG, ids"
SUITE = "ndcg@10 mrr@10 recall@10"
#: numbers of measures, beside the three of SUITE
SUITES = {
    2: "ndcg@10 recall@10",
    8: "ndcg@5,10 recall@5,10 precision@5,10 mrr@10 map@10",
    20: "ndcg@1,5,10,20 recall@1,5,10,20 precision@1,5,10,20 hitrate@1,5,10,20 map@5,10,20 mrr@10",
}


def on_one_thread(run: Callable[[], Any], read: Callable[[Any], Numbers]) -> Prepared:
    """A contender whose operations have one thread, so that its time is that of a processor."""
    threads = torch.get_num_threads()
    return Prepared(run, read, lambda: torch.set_num_threads(1), lambda: torch.set_num_threads(threads))


# ---- contenders ------------------------------------------------------------------------------------------------------


def epoch(
    measures: str, make: Callable[[str], Any] = lambda measures: tr.RankingCollection(measures.split())
) -> Contender:
    """Updates with each batch, and one compute."""

    def prepare(data: Data) -> Prepared:
        metric = make(measures).to(data.device)

        def run() -> Numbers:
            metric.reset()
            for args, kwargs in data.batches:
                metric.update(*args, **kwargs)
            found = metric.compute()
            return found if isinstance(found, Mapping) else {measures: found}

        return on_one_thread(run, lambda found: {name: found[name] for name in labels(measures) if name in found})

    return prepare


def labels(measures: str) -> list[str]:
    """The label of each measure."""
    return [label(name, k) for name, k in cuts(measures)]


def one(measure: str) -> Contender:
    """An epoch of one metric."""
    return epoch(measure, tr.parse)


def lines(measured: Callable[[Tensor, Tensor, Tensor, bool], Mapping[str, Tensor]], measures: str) -> Contender:
    """Plain torch: sums of the values of each measure, from the discounts of the first K ranks."""
    several = " " in measures

    def prepare(data: Data) -> Prepared:
        def run() -> Numbers:
            total, number = dict.fromkeys(labels(measures), 0.0), 0
            for (scores, target), _ in data.batches:
                discount = torch.arange(2, K + 2, dtype=torch.float32, device=data.device).log2().reciprocal()
                found = measured(scores, target, discount, several)
                for name in total:
                    total[name] = total[name] + found[name].sum()
                number += len(scores)
            return {name: value / number for name, value in total.items()}

        return on_one_thread(run, lambda found: found)

    return prepare


def of_grades(scores: Tensor, target: Tensor, discount: Tensor, several: bool) -> Mapping[str, Tensor]:
    """Sort the K best scores."""
    grade = target.gather(-1, scores.topk(K).indices)
    ideal = (target.topk(K).values * discount).sum(-1)
    found = {"ndcg@10": ((grade * discount).sum(-1) / ideal).nan_to_num(0.0)}
    if several:
        hit = grade > 0
        found["mrr@10"] = hit.any(-1) / (1.0 + hit.int().argmax(-1))
        found["recall@10"] = (hit.sum(-1) / (target > 0).sum(-1)).nan_to_num(0.0)
    return found


def of_labels(scores: Tensor, target: Tensor, discount: Tensor, several: bool) -> Mapping[str, Tensor]:
    """Look for the label among the K best."""
    hit = scores.topk(K).indices == target.unsqueeze(-1)
    found = {"mrr@10": (hit / torch.arange(1, K + 1, dtype=discount.dtype, device=hit.device)).sum(-1)}
    return {**found, "ndcg@10": (hit * discount).sum(-1), "recall@10": hit.any(-1)} if several else found


def pyg(measures: str) -> Contender:
    """PyTorch Geometric's collection, which takes ids and the pairs of query and relevant id."""
    classes = {"ndcg": "NDCG", "recall": "Recall", "precision": "Precision"}

    def prepare(data: Data) -> Prepared:
        from torch_geometric import metrics

        made = {label(name, k): getattr(metrics, f"LinkPred{classes[name]}")(k) for name, k in cuts(measures)}
        suite = metrics.LinkPredMetricCollection(made).to(data.device)

        def run() -> Numbers:
            suite.reset()
            for ids, pairs in data.listed:
                suite.update(ids, pairs)
            return suite.compute()

        return on_one_thread(run, lambda found: found)

    return prepare


# ---- data ------------------------------------------------------------------------------------------------------------


def split(shape: Shape, device: str, make: Callable[[Shape, str], Data]) -> Data:
    """Scores and their target in batches."""
    made = make({**shape, "queries": shape["queries"] * shape["batches"]}, device)
    parts = zip(made.scores.split(shape["queries"]), made.target.split(shape["queries"]))
    return Data(device=device, batches=[((scores.clone(), target.clone()), {}) for scores, target in parts])


def with_ids(shape: Shape, device: str) -> Data:
    """Scores and grades, and what wrappers take beside them: the number and the slice of each query."""
    made = split(shape, device, data.graded)
    for n, (_, kwargs) in enumerate(made.batches):
        numbers = torch.arange(shape["queries"], device=device)
        kwargs |= {"query_ids": numbers + n * shape["queries"], "slices": numbers % 4}
    return made


def ids(shape: Shape, device: str, pairs: bool) -> Data:
    """Lists of ids, best first, with the relevant ids of each as a row, or as pairs."""
    queries, batches, listed = shape["queries"], [], []
    total = queries * shape["batches"]
    order = torch.rand(total, shape["items"], generator=data.seeded(device), device=device).argsort(-1)
    relevant = data.some_of(total, shape["items"], shape["relevant"], device)
    owner = torch.arange(queries, device=device).repeat_interleave(shape["relevant"])
    for some, items in zip(order[:, : shape["positions"]].split(queries), relevant.split(queries)):
        found = some.clone(), (owner, items.flatten())
        listed.append(found)
        batches.append((found if pairs else (found[0], items.clone()), {}))
    return Data(device=device, batches=batches, listed=listed)


# ---- rows ------------------------------------------------------------------------------------------------------------


def wrapped(name: str, make: Callable[[str], Any]) -> Contender:
    """An epoch of a metric around the suite, with the arguments that it takes."""
    taken = {"Sliced": ["slices"], "Bootstrapped": ["query_ids"], "PerQuery": ["query_ids"]}.get(name, [])

    def prepare(data: Data) -> Prepared:
        batches = [(args, {key: kwargs[key] for key in taken}) for args, kwargs in data.batches]
        if name == "Compared":
            batches = [(({"a": scores, "b": scores.flip(0)}, target), {}) for (scores, target), _ in batches]
        ready = epoch(SUITE, make)(Data(device=data.device, batches=batches))
        if name == "PerQuery":  # whose result is a table of all queries
            metric = make(SUITE)

            def run() -> None:
                metric.reset()
                for args, kwargs in batches:
                    metric.update(*args, **kwargs)
                metric.metric_state  # noqa: B018 - ranks what waits

            return on_one_thread(run, lambda _: {})
        return Prepared(ready.run, None, ready.before, ready.after)

    return prepare


def plain(data: Data) -> Prepared:
    """The suite alone, without the arguments of wrappers."""
    return epoch(SUITE)(Data(device=data.device, batches=[(args, {}) for args, _ in data.batches]))


WRAPPERS = {
    "Sliced": lambda measures: tr.Sliced(measures.split(), slices=["a", "b", "c", "d"]),
    "Bootstrapped": lambda measures: tr.Bootstrapped(measures.split(), replicates=100),
    "Compared": lambda measures: tr.Compared(measures.split(), ["a", "b"]),
    "PerQuery": lambda measures: tr.PerQuery(measures.split()),
}


def epochs() -> tuple[Workload, ...]:
    """One metric and several, for labels, grades, lists of ids and wrappers."""
    size = {"queries": 64, "candidates": 100, "batches": 200}
    graded = {**size, "grades": 3, "decimals": None}
    listed = {"queries": 64, "positions": 20, "relevant": 10, "items": 500, "batches": 200}
    rows = []

    def add(
        row: str,
        what: str,
        shape: Shape,
        make: Callable[[Shape, str], Data],
        contenders: Mapping[str, Contender],
        targets: tuple[Target, ...] = (),
    ) -> None:
        floor = LINES if LINES in contenders else None
        quick = {**shape, "queries": min(8, shape["queries"]), "batches": 3}
        what = "{batches} batches of " + what
        rows.append(Workload("epoch", row, what, shape, quick, make, contenders, floor, targets))

    kinds: dict[str, Any] = {
        "labels": (size, data.labels, of_labels, "mrr@10", 0.5, 0.6),
        "grades": (graded, data.graded, of_grades, "ndcg@10", 1.2, 1.5),
    }
    for kind, (shape, make, measured, measure, single, three) in kinds.items():

        def made(shape: Shape, device: str, make: Callable[[Shape, str], Data] = make) -> Data:
            return split(shape, device, make)

        what = "{queries} x {candidates}, "
        contenders = {OURS: one(measure), LINES: lines(measured, measure)}
        add(f"{kind}, 1 measure", what + measure, shape, made, contenders, (at_most(single, LINES),))
        contenders = {OURS: epoch(SUITE), LINES: lines(measured, SUITE)}
        add(f"{kind}, 3 measures", what + SUITE, shape, made, contenders, (at_most(three, LINES),))
        for number, measures in SUITES.items():
            add(f"{kind}, {number} measures", what + measures, shape, made, {OURS: epoch(measures)})
        for queries in (1, 16, 512):
            add(f"{kind}, {queries} queries", what + SUITE, {**shape, "queries": queries}, made, contenders)
    measures = "precision@10 recall@10 ndcg@10"
    for row, pairs, limit in (("ids", False, 0.35), ("ids, pairs", True, 0.5)):
        add(
            row,
            "{queries} x {positions} ids, {relevant} relevant, " + measures,
            listed,
            lambda shape, device, pairs=pairs: ids(shape, device, pairs),
            {OURS: epoch(measures), PYG: pyg(measures)},
            (at_most(limit, PYG),),
        )
    contenders = {OURS: plain} | {name: wrapped(name, make) for name, make in WRAPPERS.items()}
    targets = tuple(at_most(2, OURS, contender=name) for name in WRAPPERS)
    add("wrappers", "{queries} x {candidates}, " + SUITE, graded, with_ids, contenders, targets)
    return tuple(rows)
