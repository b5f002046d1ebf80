"""Small batches wait and are ranked as one: the same numbers, whoever looks in between, and nothing is lost."""

import copy
import functools
import os
import pickle
import random
import sys
import threading
import warnings

import numpy
import pytest
import torch
import torchmetrics

import torchrank as tr
from tests.support import layout_cases
from torchrank.state import waiting
from torchrank.state.sums import Sum

LAYOUTS = [
    *("dense_masked", "dense_float_grades", "dense_excluded", "dense_tie_break", "labels", "labels_excluded"),
    *("catalogue_pairs", "catalogue_triples_excluded", "ids_and_padded_ids", "ids_excluded", "flat", "flat_masked"),
]


def part_of(layout, first, last):
    """Some queries of a batch of 60 or more, cut out without the library, as arguments of their own."""
    _, batch = layout_cases.batch(layout, 60)
    found = dict(zip(("preds", "target"), batch.args)) | batch.kwargs
    if "indexes" in found:  # of query n: 3 n - 5
        rows = (found["indexes"] >= 3 * first - 5) & (found["indexes"] < 3 * last - 5)
        return {name: x[rows] for name, x in found.items()}
    for name, x in found.items():
        if isinstance(x, tuple):
            inside = (x[0] >= first) & (x[0] < last)
            found[name] = x[0][inside] - first, *(column[inside] for column in x[1:])
        else:
            found[name] = x[first:last].clone()
    return found


def labelled(queries, candidates=5, seed=0):
    """Scores with ties, and labels."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.rand((queries, candidates), generator=g)
    return scores.where(scores > 0.4, 0.5), torch.randint(-1, candidates, (queries,), generator=g)


# ---- who looks -------------------------------------------------------------------------------------------------------


def loaded(metric):
    twin = copy.deepcopy(metric)
    twin.reset()
    for one in (metric, twin):
        one.persistent(True)
    twin.load_state_dict(metric.state_dict())
    return twin


def merged(metric):
    other = copy.deepcopy(metric)
    metric.reset()
    metric.merge_state(other)
    return metric


def looked(metric):
    """Every property and number of a metric and of the members of a collection."""
    for one in metric.values() if isinstance(metric, tr.RankingCollection) else [metric]:
        for name in ("num_queries", "num_empty", "standard_error", "num_rows"):
            getattr(one, name, None)
        hash(one)
        with one.sync_context():
            one.metric_state  # noqa: B018
    return metric


READERS = {
    "nobody": lambda metric: metric,
    "compute": lambda metric: (metric.compute() and None) or metric,
    "summary": lambda metric: (metric.summary() if hasattr(metric, "summary") else 0, metric)[1],
    "properties": looked,
    "state_dict": loaded,
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "copy": copy.deepcopy,
    "shallow copy": copy.copy,
    "merge": merged,
    "to": lambda metric: metric.to(torch.device("cpu")),
}

NAMES = ["ndcg@3", "mrr", "recall@2", "map(empty_target_action=skip)"]
SUBJECTS = {
    "metric": lambda: tr.NDCG(top_k=3),
    "values kept": lambda: tr.MRR(aggregation="median"),
    "collection": lambda: tr.RankingCollection(NAMES),
    "Sliced": lambda: tr.Sliced(NAMES, slices=["a", "b"]),
    "Bootstrapped": lambda: tr.Bootstrapped(NAMES, replicates=7),
    "PerQuery": lambda: tr.PerQuery(NAMES),
    "TieReport": lambda: tr.TieReport(NAMES),
    "Abstention": lambda: tr.Abstention(NAMES[:3]),
    "Grouped": lambda: tr.Grouped(NAMES, "mean"),
}


def by_query(seed, subject, layout, first, last):
    """What a wrapper wants for each query, and options of the batches of some seeds."""
    queries, g = torch.arange(first, last), torch.Generator().manual_seed(first)
    more = {"weights": torch.tensor([0.0, 0.5, 2.0])[queries % 3]} if seed == 1 else {}
    if seed == 2 and layout.startswith(("dense", "labels")):
        more["groups"] = torch.randint(-1, 2, part_of(layout, first, last)["preds"].shape, generator=g)
    if subject == "Sliced":
        more["slices"] = queries % 3 - 1
    if subject in ("Bootstrapped", "PerQuery"):
        more["query_ids"] = queries.clone()
    if subject == "Grouped":
        more["group"] = 100 * first + (queries - first) // 2
    if subject == "Abstention":
        more["confidence"] = torch.rand(len(queries), generator=g)
    return more


def numbers(metric):
    """All results in float64."""
    if isinstance(metric, tr.RankingCollection):
        return {key: numbers(one) for key, one in metric.items()}
    if isinstance(metric, tr.PerQuery):
        return metric.compute().to_dict()
    if hasattr(metric, "num_parts"):
        found = {key: x.item() for key, x in metric.results(metric.sums).items()}
        return found | {"queries": metric.num_queries}
    if isinstance(metric, tr.TieReport):
        return {key: x.item() for key, x in metric.compute().items()}
    rows = None if metric.rows is None else torch.cat(metric.rows)
    return {"value": metric.value_of(metric.sums, rows).item(), "all": metric.num_queries, "empty": metric.num_empty}


def same(found, want):
    if isinstance(want, dict):
        assert found.keys() == want.keys()
        for key in want:
            same(found[key], want[key])
    elif isinstance(want, list | tuple):
        assert len(found) == len(want)
        for one, other in zip(found, want):
            same(one, other)
    elif isinstance(want, float):
        tolerance = 1e-6 if float(numpy.float32(want)) == want else 1e-12
        assert found == pytest.approx(want, rel=tolerance, abs=tolerance, nan_ok=True)
    else:
        assert found == want


@pytest.mark.parametrize(
    ("layout", "subject"),
    [
        (layout, subject)
        for layout in LAYOUTS
        for subject in SUBJECTS
        # Their queue is that of a collection: a sum of queries meets one kind of layout, options by query another.
        if subject == "collection" or layout in (LAYOUTS[0], LAYOUTS[(3 * [*SUBJECTS].index(subject) + 4) % 10])
    ],
)
def test_the_numbers_are_those_of_one_batch_whoever_looks_in_between(layout, subject, monkeypatch):
    waited = 0
    for seed in range(3) if subject == "collection" else (1,):  # without options, with weights, with groups
        draw = random.Random(f"{layout} {subject} {seed}")
        # Little room, so that the queue is also full.
        monkeypatch.setattr(waiting, "ROOM", {"cpu": draw.choice([2**15, 2**17, 2**22])})
        if layout == "labels" and seed == 1:  # large batches of labels, as on an accelerator
            monkeypatch.setattr(waiting, "ROOM", {})
            monkeypatch.setattr(waiting, "ROOM_OF_ACCELERATORS", draw.choice([6000, 12_000]))
        metric, alone, last, given = SUBJECTS[subject](), SUBJECTS[subject](), 0, []
        while last < 30:
            first, last = last, last + draw.choice([1, 2, 3, 7])
            given.append(by_query(seed, subject, layout, first, last))
            batch = copy.deepcopy(part_of(layout, first, last) | given[-1])
            metric.update(**batch)
            waited += bool(metric._waiting.batches)
            for x in batch.values():  # the caller writes into its tensors
                for one in x if isinstance(x, tuple) else [x]:
                    one.zero_()
            metric = READERS[draw.choice([*READERS, *["nobody"] * 12])](metric)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone.update(**part_of(layout, 0, last), **{name: torch.cat([x[name] for x in given]) for name in given[0]})
        same(numbers(metric), numbers(alone))
    assert waited > 2


def test_systems_that_are_compared_wait_together():
    metric, alone = (tr.Compared(NAMES, ["a", "b"]) for _ in range(2))
    batches = [(*(labelled(4, seed=n + at)[0] for at in (0, 50)), labelled(4, seed=n)[1]) for n in range(9)]
    for a, b, label in batches:
        metric.update({"a": a, "b": b}, label)
    assert len(metric._waiting.batches) == 8
    a, b, label = map(torch.cat, zip(*batches))
    alone.update({"a": a, "b": b}, label)
    same({k: v.item() for k, v in metric.compute().items()}, {k: v.item() for k, v in alone.compute().items()})


# ---- what does not wait, and what is lost ----------------------------------------------------------------------------


def waited(metric, *batches):
    for batch in batches:
        metric.update(*batch)
    return len(metric._waiting.batches)


BATCH = torch.arange(24.0).view(4, 6), torch.tensor([0, 1, 2, 3])


def test_batches_wait_while_shapes_and_dtypes_stay():
    metric = tr.MRR()
    assert waited(metric, BATCH) == 0  # the first one is ranked with all checks
    assert waited(metric, BATCH, (torch.rand(9, 6), torch.zeros(9, dtype=torch.long))) == 2
    assert waited(metric, (torch.rand(4, 7), BATCH[1])) == 0
    assert waited(metric, (torch.rand(4, 7), BATCH[1])) == 1
    assert waited(metric, (torch.rand(4, 7).double(), BATCH[1])) == 0
    assert metric.num_queries == 4 + 4 + 9 + 4 + 4 + 4


@pytest.mark.parametrize("make", [tr.MRR, lambda: tr.RankingCollection("mrr@10, map, auroc, hitrate@3")])
def test_on_an_accelerator_the_rankings_of_large_batches_of_labels_wait(make, monkeypatch):
    monkeypatch.setattr(waiting, "ROOM", {})
    monkeypatch.setattr(waiting, "ROOM_OF_ACCELERATORS", 2**15)
    metric, alone = make(), make()
    alone.waits = False
    for number, queries in enumerate((7, 7, 9, 1, 7, 6, 7, 8)):  # one query is small enough to wait with its scores
        batch = *labelled(queries, 700, number), torch.rand(queries)
        batch[1][0] = -100  # a query that does not count
        batch[1][-1] = 700 if queries > 8 else 0
        alone.update(*batch[:2], weights=batch[2])
        metric.update(*batch[:2], weights=batch[2])
        for x in batch:
            x.zero_()
    assert [type(batch["preds"]) for batch in metric._waiting.batches] == [tr.Ranking] * 4
    with pytest.raises(ValueError) as first:  # labels of 700
        metric.compute()
    with pytest.raises(ValueError) as second:
        alone.compute()
    assert str(first.value) == str(second.value)
    for one, other in zip(*(x.values() if isinstance(x, tr.RankingCollection) else [x] for x in (metric, alone))):
        parts = [sums.tolist() for x in (one, other) for sums in (x.sums[: Sum.SQUARES], x.sums[Sum.ERRORS :])]
        assert [*parts[0], *parts[1]] == pytest.approx([*parts[2], *parts[3]], rel=1e-12)


def test_a_batch_that_cannot_be_ranked_before_it_waits_loses_nothing(monkeypatch):
    monkeypatch.setattr(waiting, "ROOM", {})
    monkeypatch.setattr(waiting, "ROOM_OF_ACCELERATORS", 2**15)
    batch = torch.arange(4900.0).view(7, 700), torch.arange(7)

    def full(*_):
        raise MemoryError

    for before in (1, 3):
        metric, alone = tr.MRR(), tr.MRR()
        waited(metric, *[batch] * before)
        waited(alone, *[batch] * before)
        with monkeypatch.context() as patch:
            patch.setattr(waiting, "ranking_for", full)
            with pytest.raises(MemoryError):
                metric.update(*batch)
        assert metric.compute() == alone.compute()
        assert metric.num_queries == 7 * before
        metric.update(*batch)
        assert metric.num_queries == 7 * before + 7


def test_lists_do_not_wait_as_rankings_of_labels_and_nothing_waits_if_the_user_asks_for_it(monkeypatch):
    monkeypatch.setattr(waiting, "ROOM", {})
    monkeypatch.setattr(waiting, "ROOM_OF_ACCELERATORS", 2**15)
    grades, lists = (torch.rand(7, 700), torch.ones(7, 700)), (torch.rand(7, 700), [torch.tensor([0])] * 7)
    sliced = {"slices": torch.zeros(7, dtype=torch.long)}
    ids = torch.rand(7, 700).argsort(), torch.arange(7)
    mixed = tr.RankingCollection(["mrr", tr.CategoryEntropy(categories=torch.arange(700))])
    for metric, batch, more in (
        (mixed, ids, {}),
        (tr.MRR(), grades, {}),
        (tr.MRR(), lists, {}),
        (tr.Sliced("mrr", slices=["a"]), (grades[0], torch.zeros(7, dtype=torch.long)), sliced),
        (tr.MRR(), BATCH, {}),
        (tr.RankingCollection("mrr, map"), BATCH, {}),
    ):
        metric.waits = batch is not BATCH
        for _ in range(3):
            metric.update(*batch, **more)
            assert not metric._waiting.batches


def memory(batch):
    """The bytes of the tensors of a batch that waits."""
    found = [vars(x) if isinstance(x, tr.Ranking) else {"": x} for x in batch.values()]
    return sum(x.nbytes for tensors in found for x in tensors.values() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("accelerator", [False, True])
def test_what_waits_takes_no_more_than_is_said(accelerator, monkeypatch):
    room = 4 * 2**20
    if accelerator:
        room = 2**18
        monkeypatch.setattr(waiting, "ROOM", {})
        monkeypatch.setattr(waiting, "ROOM_OF_ACCELERATORS", room)
    metric, most = tr.MRR(), 0
    batch = torch.rand(500, 300), torch.zeros(500, dtype=torch.long)  # 600 kB
    for _ in range(30):
        metric.update(*batch)
        kept = metric._waiting.batches
        assert sum(map(memory, kept)) <= metric._waiting.size <= room
        most = max(most, len(kept))
    assert most == (7 if accelerator else 6)


@pytest.mark.parametrize("names", [{"weights": None, "mask": None}, {"exclude": None, "indexes": torch.arange(8)}])
def test_arguments_that_are_none_do_not_keep_a_batch_from_waiting(names):
    flat = "indexes" in names
    batch = (torch.rand(8), torch.ones(8, dtype=torch.long)) if flat else BATCH
    metric = tr.MRR()
    for number in range(3):
        metric.update(*batch, **names)
        assert len(metric._waiting.batches) == number


@pytest.mark.parametrize(
    "wrong",
    [
        *((torch.rand(4, 6), target) for target in (torch.tensor([0, 1, 2]), torch.rand(4, 5), "mrr", ())),
        (torch.rand(4, 6), (torch.tensor([0]), torch.tensor([0, 1]))),
        (torch.rand(4, 6), torch.tensor([0, 1, 2, 3]), torch.ones(4, 6)),
        (torch.rand(4, 6, 2), torch.tensor([0, 1, 2, 3])),
    ],
)
def test_a_wrong_batch_raises_at_once_and_loses_nothing(wrong):
    suite = tr.RankingCollection("mrr, ndcg")
    waited(suite, BATCH, BATCH)
    with pytest.raises((TypeError, ValueError)):
        suite.update(*wrong[:2], **({"mask": wrong[2]} if len(wrong) > 2 else {}))
    suite.update(*BATCH)
    assert suite["mrr"].num_queries == 12


@pytest.mark.parametrize("query", [-1, 3, 4, 100])
@pytest.mark.parametrize("argument", ["target", "exclude"])
def test_a_pair_outside_of_its_batch_is_bad_and_no_pair_of_the_next(query, argument):
    metric, good = tr.HitRate(top_k=1), (torch.tensor([0]), torch.tensor([1]))
    for pair in (good, (torch.tensor([query]), torch.tensor([0])), good):
        more = {"target": pair} if argument == "target" else {"target": torch.zeros(3).long(), "exclude": pair}
        metric.update(torch.rand(3, 2), **more)
    assert len(metric._waiting.batches) == 2
    with pytest.raises(ValueError, match="out of range"):
        metric.compute()


def test_a_failure_names_the_batches_that_wait_and_loses_none(monkeypatch):
    metric = tr.MRR()
    waited(metric, BATCH, BATCH, BATCH)
    accumulate = tr.MRR.accumulate
    monkeypatch.setattr(tr.MRR, "accumulate", lambda *_: (_ for _ in ()).throw(MemoryError("full")))
    with pytest.raises(MemoryError, match="full") as failure:
        metric.compute()
    assert "the last 2 updates" in "".join(failure.value.__notes__)
    monkeypatch.setattr(tr.MRR, "accumulate", accumulate)
    metric.update(*BATCH)
    assert metric.num_queries == 16
    alone = tr.MRR()
    alone.update(*(torch.cat([x] * 4) for x in BATCH))
    assert metric.compute() == alone.compute()


def test_a_collection_that_fails_half_way_adds_nothing_twice(monkeypatch):
    suite = tr.RankingCollection(["mrr(aggregation=median)", "map", "ndcg"])
    waited(suite, BATCH, BATCH, BATCH)
    accumulate = tr.MAP.accumulate
    monkeypatch.setattr(tr.MAP, "accumulate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    for reader in (lambda: suite["ndcg"].num_queries, lambda: suite(*BATCH)):  # forward sets more aside
        with pytest.raises(KeyboardInterrupt):
            reader()
    monkeypatch.setattr(tr.MAP, "accumulate", accumulate)
    assert [metric.num_queries for metric in suite.values()] == [12, 12, 12]
    assert sum(map(len, suite["mrr(aggregation=median)"].rows)) == 12


def test_reset_drops_what_waits():
    for metric in (tr.MRR(), tr.RankingCollection("mrr, map")):
        waited(metric, BATCH, BATCH)
        metric.reset()
        metric.update(*BATCH)
        one = metric if isinstance(metric, tr.MRR) else metric["map"]
        assert one.num_queries == 4


def test_members_of_a_collection_can_be_updated_reset_and_read_by_themselves():
    suite = tr.RankingCollection("mrr, map, ndcg")
    waited(suite, BATCH, BATCH)
    suite["mrr"].update(*BATCH)
    suite["mrr"].update(*BATCH)
    suite["ndcg"].reset()
    waited(suite, BATCH, BATCH)
    other = tr.RankingCollection([suite["map"], "recall"])
    waited(other, BATCH, BATCH)
    waited(suite, BATCH)
    assert {key: metric.num_queries for key, metric in suite.items()} == {"mrr": 28, "map": 28, "ndcg": 12}
    assert other["recall"].num_queries == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_has_the_batches_that_wait():
    metric = tr.MRR()
    waited(metric, BATCH, BATCH)
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, bytes([metric.num_queries]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == bytes([8])
    assert metric.num_queries == 8


def test_a_warning_of_values_comes_once():
    metric = tr.MRR()
    grades = torch.tensor([[0.7, 0.2, 0.1, 0.0, 0.3, 0.6]]).repeat(4, 1)
    waited(metric, *[(torch.rand(4, 6), grades)] * 5)
    with pytest.warns(UserWarning, match="relevance_level") as caught:
        metric.compute()
    assert len(caught) == 1


def test_an_argument_that_is_given_twice_is_refused():
    metric = tr.MRR()
    waited(metric, BATCH)
    for arguments, keywords in [((*BATCH, *[None] * 30), {}), (BATCH, {"preds": BATCH[0]})]:
        with pytest.raises(TypeError):
            metric.update(*arguments, **keywords)
    assert metric.num_queries == 4


def of_torchmetrics():
    """Wrappers of torchmetrics around a metric, which read and replace its state in ways of their own."""
    wrappers = torchmetrics.wrappers
    yield lambda: torchmetrics.MetricCollection({"a": tr.MRR(), "b": tr.MRR(top_k=2), "c": tr.NDCG()})
    yield lambda: torchmetrics.MetricCollection([tr.MRR(), tr.NDCG()], compute_groups=False)
    yield lambda: wrappers.MinMaxMetric(tr.MRR())
    yield lambda: wrappers.MetricTracker(tr.RankingCollection("mrr, ndcg"))
    yield lambda: wrappers.Running(tr.MRR(), window=3)


@pytest.mark.parametrize("make", list(of_torchmetrics()))
def test_wrappers_of_torchmetrics_see_every_batch(make, monkeypatch):
    found, batches = [], [labelled(3, seed=seed) for seed in range(12)]
    for waits in (True, False):
        monkeypatch.setattr(tr.RankingMetric, "waits", waits)
        metric, seen = make(), []
        for n, batch in enumerate(batches):
            if n % 6 == 0 and hasattr(metric, "increment"):
                metric.increment()
            metric(*batch) if n in (4, 9) else metric.update(*batch)
            if n in (2, 7):
                seen.append(metric.compute())
            if n == 8:
                metric = copy.deepcopy(metric)
        found.append([*seen, metric.compute()])
    torch.testing.assert_close(*found, rtol=1e-6, atol=0)


# ---- what an attack has found ----------------------------------------------------------------------------------------


def waiting_suite():
    suite = tr.RankingCollection("mrr, ndcg")
    assert waited(suite, BATCH, BATCH, BATCH) == 2
    return suite


def test_what_waits_belongs_to_the_metrics_that_were_there():
    suite = waiting_suite()
    suite.waits = False
    assert suite["mrr"].num_queries == 12
    for change in (
        lambda suite: suite.add_metrics({"mse": torchmetrics.MeanSquaredError()}),
        lambda suite: suite.__setitem__("mse", torchmetrics.MeanSquaredError()),
        lambda suite: suite.add_metrics(tr.MAP()),
        lambda suite: suite.__setitem__("map", tr.MAP()),
        lambda suite: suite.__setitem__("mrr", tr.MRR()),
        lambda suite: suite.__delitem__("mrr"),
        lambda suite: suite.pop("mrr"),
        lambda suite: suite.clear(),
    ):
        suite = waiting_suite()
        before = list(suite.values())
        change(suite)
        assert [metric.num_queries for metric in before] == [12, 12]
        new = [metric for metric in suite.values() if not any(metric is one for one in before)]
        assert all(metric.update_count == 0 for metric in new)
        assert all(metric.num_queries == 0 for metric in new if isinstance(metric, tr.RankingMetric))
        if any(isinstance(metric, torchmetrics.MeanSquaredError) for metric in new):
            scores = torch.rand(4, 6), torch.randint(0, 2, (4, 6))
            waited(suite, scores, scores)
            assert [metric.update_count for metric in suite.values()] == [5, 5, 2]


def test_a_metric_with_two_keys_gets_each_batch_twice():
    metric = tr.MRR()
    waited(tr.RankingCollection({"a": metric, "b": metric}), BATCH, BATCH, BATCH)
    assert metric.num_queries == 24


def test_what_waits_is_ranked_without_autocast():
    suite = tr.RankingCollection("mrr")
    half = BATCH[0].half(), BATCH[1]
    waited(suite, half, half, half)
    with torch.autocast("cpu", torch.bfloat16):
        found = suite.compute()
    alone = tr.RankingCollection("mrr")
    alone.update(*half)
    assert found == alone.compute()


def test_a_warning_that_is_an_error_keeps_no_batch_from_the_state():
    metric, padded = tr.MRR(), torch.tensor([[1, 0, -1], [1, -1, -1]])
    metric.update(torch.rand(2, 3), padded.clamp_min(0))
    waited(metric, (torch.tensor([[0.3, 0.2, 0.1], [0.3, 0.1, 0.1]]), padded))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            metric.compute()
        assert metric.compute() >= 0
    assert metric.num_queries == 4


def test_a_reader_beside_a_thread_that_updates_has_a_number():
    metric, before = tr.MRR(), sys.getswitchinterval()
    thread = threading.Thread(target=lambda: [metric.update(*BATCH) for _ in range(1000)])
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while thread.is_alive():
            assert metric.num_queries % 4 == 0
            copy.copy(metric)
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert metric.num_queries == 4000


def test_small_unsigned_indexes_are_looked_at_for_a_query_that_was_cut():
    metric, other = tr.MRR(), tr.MRR()
    for first in (0, 1):
        for call in (metric.update, other.forward):
            with pytest.warns(UserWarning, match="same index") if first else warnings.catch_warnings():
                indexes = torch.tensor([first, first + 1]).to(torch.uint16)
                call(torch.tensor([0.1, 0.2]), torch.tensor([1, 1]), indexes=indexes)


def test_an_update_of_the_user_with_the_marks_of_ours_is_called_for_each_batch():
    class Counted(tr.MRR):
        name = "countedmrr"
        calls = 0

        @functools.wraps(tr.MRR.update)
        def update(self, *args, **kwargs):
            self.calls += 1
            super().update(*args, **kwargs)

    metric, found = Counted(), tr.MRR()
    for seed in range(3):
        scores = torch.rand(4, 5, generator=torch.Generator().manual_seed(seed))
        metric.update(scores, torch.arange(4))
        found.update(scores, torch.arange(4))
    assert metric.calls == 3
    assert metric.compute() == found.compute()


def test_a_state_that_is_assigned_replaces_the_batches_that_wait():
    metric, batch = tr.NDCG(top_k=2), (torch.rand(3, 4), torch.ones(3, 4).long())
    for _ in range(4):
        metric.update(*batch)
    for name, default in metric._defaults.items():
        setattr(metric, name, default.clone())
    metric.update(*batch)
    assert metric.num_queries == 3
