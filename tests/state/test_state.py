"""State, far from the ordinary: large values, odd weights, wrappers, threads, compilers."""

import bisect
import functools
import inspect
import itertools
import math
import pickle
import sys
import threading
import warnings
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import nn
from torchmetrics.wrappers import Running

import torchrank as tr
from tests.support import workers
from tests.support.cases import cases
from tests.support.optional import stats
from tests.support.simulated_device import Device
from tests.support.workers import batch
from torchrank.layouts.checks import Problem
from torchrank.retrieval import RetrievalMRR
from torchrank.state import sums, synchronisation
from torchrank.state.scoring import _chunks

BATCHES = [batch(seed) for seed in range(7)]


def fill(metric, batches):
    for arguments in batches:
        metric.update(*arguments)
    return metric


def test_pairs_of_float32_lose_nothing_in_an_addition():
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(2, 9, dtype=torch.float32)
    exact = [Fraction(0)] * 9
    for power in (3, -3, 6, 0, -6, 5):
        extra = torch.rand(9, generator=generator) * 10.0**power
        total = sums.add(total, extra)
        exact = [x + Fraction(y) for x, y in zip(exact, extra.tolist())]
    for want, high, low in zip(exact, *total.tolist()):
        assert high != want  # one float32 is too short
        assert abs(Fraction(high) + Fraction(low) - want) < want * Fraction(1, 10**11)


# ---- the standard error ----------------------------------------------------------------------------------------------


def cumulative_gains(values):
    """A ranking in which the cumulative gain of each query is a given number."""
    return tr.Ranking.from_scores(torch.zeros(len(values), 1), values.unsqueeze(-1))


def whole_numbers(values):
    """Floats times a power of two that makes them integers, and this power."""
    ratios = [x.as_integer_ratio() for x in values.tolist()]
    power = max(below for _, below in ratios)
    return [above * (power // below) for above, below in ratios], power


def exact_error(values, weights):
    """In integers, without rounding."""
    (v, power), (w, _) = whole_numbers(values), whole_numbers(weights)
    total, scored = sum(w), sum(weight > 0 for weight in w)
    mean = sum(a * b for a, b in zip(v, w))  # times the total
    square = sum((b * (a * total - mean)) ** 2 for a, b in zip(v, w))
    return math.sqrt(Fraction(square * scored, (scored - 1) * total**4 * power**2))


ONE = torch.ones(300, dtype=torch.float64)
WEIGHTS = {
    "one": ONE,
    "tiny": ONE * 1e-120,
    "huge": ONE * 1e120,
    "both": torch.where(torch.arange(300) % 2 > 0, ONE * 1e120, ONE * 1e-120),
    "one and huge": torch.where(torch.arange(300) % 2 > 0, ONE * 1e120, ONE),
    "random": torch.rand(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 8,
}


CENTRES = (10.0, 2.0**20 + 64, 1e6 / 3, 1e9, 2.0**30 + 2**16, 1e11)


def sums_of(values, weights, batches):
    """The sums [batch, SIZE] of batches of as many queries each."""
    v, w = values.view(batches, -1), weights.view(batches, -1)
    number, nothing = torch.full((batches,), v.shape[1]), torch.zeros(batches)
    return sums.summed(v, w, number, nothing, torch.zeros(batches, sums.SIZE - sums.Sum.ERRORS))


@cases("direct", [0, sums.DIRECT])
@cases("weights", WEIGHTS)
@cases("centre", CENTRES)
def test_the_standard_error_of_large_values_is_that_of_exact_arithmetic(monkeypatch, centre, weights, direct):
    monkeypatch.setattr(sums, "DIRECT", direct)
    weights = WEIGHTS[weights]
    values = centre + torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    metric, other = tr.CG(), tr.CG()
    for number, (v, w) in enumerate(zip(values.chunk(3), weights.chunk(3))):
        (metric if number else other).update(cumulative_gains(v), weights=w)
    metric.merge_state(other)
    tolerance = 1e-3 if centre < 1e11 else 2e-2
    wanted = exact_error(values, weights)
    assert metric.standard_error.item() == pytest.approx(wanted, rel=tolerance)
    assert metric.compute().item() == pytest.approx(centre, rel=1)
    torch.testing.assert_close(metric.sums, sums_of(values, weights, 3).sum(0), rtol=1e-9, atol=0)
    for batches in (1, 30, 300):
        total = functools.reduce(sums.add, sums_of(values, weights, batches))
        assert metric.error_of(total).item() == pytest.approx(wanted, rel=tolerance), batches


def test_values_far_from_each_other_beside_large_ones():
    values = torch.cat([torch.full((500,), 1e9, dtype=torch.float64), torch.zeros(10), -ONE.new_full((9,), 0)])
    wanted, metric = exact_error(values, torch.ones(len(values))), tr.CG()
    for batches in (1, 3, len(values)):
        total = functools.reduce(sums.add, sums_of(values, torch.ones(len(values)), batches))
        assert metric.error_of(total).item() == pytest.approx(wanted, rel=1e-6)
    for v in values.chunk(7):
        metric.update(cumulative_gains(v))
    assert metric.standard_error.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e155])
def test_weights_with_squares_beyond_float64_have_a_mean_and_no_standard_error(scale):
    metric = tr.HitRate(top_k=1)
    weights = torch.tensor([scale, 3 * scale], dtype=torch.float64)
    metric.update(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([0, 0]), weights=weights)
    assert metric.compute().item() == 0.25
    assert metric.standard_error.isnan()
    assert all(map(math.isnan, metric.interval()))


@pytest.mark.parametrize("scale", [1e-120, 1e120, 3.0])
def test_weights_of_one_size_change_neither_z_nor_its_standard_error(scale):
    plain, scaled = tr.MR(adjusted="z"), tr.MR(adjusted="z")
    for preds, target in BATCHES:
        plain.update(preds, target)
        scaled.update(preds, target, weights=torch.full((len(preds),), scale, dtype=torch.float64))
    torch.testing.assert_close(scaled.compute(), plain.compute())
    torch.testing.assert_close(scaled.standard_error, plain.standard_error)
    assert plain.compute().isfinite()


def test_a_metric_made_where_tensors_have_no_values_has_its_state_on_the_cpu():
    with torch.device("meta"):
        metrics = [tr.MRR(), tr.MRR(aggregation="median"), RetrievalMRR()]
    for metric in metrics:
        metric.update(torch.tensor([0.1, 0.9]), torch.tensor([1, 0]), indexes=torch.tensor([0, 0]))
        assert (metric.device.type, metric.compute().item()) == ("cpu", 0.5)


def test_a_bad_weight_counts_unless_its_query_is_ignored():
    scores, labels = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, -100, 1])
    for weights, bad in (([1, math.nan, 1], 0), ([1, -1, math.nan], 1), ([math.inf, 1, -1], 2)):
        metric = tr.MRR()
        metric.update(scores, labels, weights=torch.tensor(weights))
        if bad:
            with pytest.raises(ValueError, match=f"{bad} quer.* weights? "):
                metric.compute()
        else:
            assert metric.compute() == tr.MRR().score(scores, labels)[::2].mean()


def test_chunks_have_the_numbers_of_their_queries_and_the_errors_of_a_ranking_once():
    ranks = [torch.arange(1, n + 1) for n in (5, 2, 4)]
    rankings = [tr.Ranking.from_ranks(x) for x in ranks]
    rankings[0] = replace(rankings[0], errors=torch.tensor([7, *[0] * (len(Problem) - 1)]))
    for step, sizes in ((2, [2, 2, 1, 2, 2, 2]), (4, [4, 1, 2, 4]), (9, [5, 2, 4])):
        found = list(_chunks(rankings, step))
        assert [chunk.num_queries for chunk in found] == sizes
        assert torch.cat([chunk.queries for chunk in found]).tolist() == list(range(11))
        assert torch.cat([chunk.first[:, 0] for chunk in found]).tolist() == torch.cat(ranks).tolist()
        assert sum(chunk.errors for chunk in found)[0] == 7


def test_a_query_of_an_epoch_before_is_not_taken_for_one_that_is_cut():
    rows = torch.rand(4), torch.tensor([1, 0, 1, 0])
    metric = tr.MRR()
    for first in (metric.forward, metric.update):
        first(*rows, indexes=torch.tensor([0, 0, 1, 1]))
        metric.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metric.update(*rows, indexes=torch.tensor([1, 1, 2, 2]))
        with pytest.warns(UserWarning, match="Counted the last query of an update"):
            metric.update(*rows, indexes=torch.tensor([2, 2, 3, 3]))
        metric.reset()


@pytest.mark.parametrize(
    ("name", "value"), [("aggregation", "average"), ("empty_target_action", "nan"), ("validate_args", "yes")]
)
def test_an_argument_that_all_metrics_have_is_one_of_its_values(name, value):
    with pytest.raises(ValueError, match=f"Expected {name} to be one of .*, got '{value}'"):
        tr.MRR(**{name: value})


def test_batches_of_one_flat_row_are_whole_queries():
    metric = tr.MRR()
    for number in range(3):
        metric.update(torch.rand(1), torch.tensor([1]), indexes=torch.tensor([number]))
    assert metric.num_queries == 3


def third(values):
    return values.quantile(0.3)


@pytest.mark.parametrize("aggregation", ["median", third], ids=["median", "function"])
def test_one_value_that_is_nan_leaves_no_interval_of_many(aggregation):
    ranks = torch.arange(1.0, 101.0).unsqueeze(-1)
    metric = tr.MR(aggregation=aggregation)
    metric.update(tr.Ranking.from_ranks(ranks))
    low, high = metric.interval()
    assert low < metric.compute() < high
    metric.update(tr.Ranking.from_ranks(torch.tensor([[math.inf]])))  # not retrieved from a list of unknown length
    assert all(map(math.isnan, metric.interval()))


def constant(values):
    return 0.5


def pair_of(values):
    return values[:2]


@pytest.mark.parametrize(
    ("function", "method"),
    [(third, "anytime"), (constant, "auto"), (pair_of, "auto")],
    ids=["looks", "constant", "pair"],
)
def test_a_function_without_a_bootstrap_distribution_has_no_interval(function, method):
    metric = tr.MR(aggregation=function)
    metric.update(tr.Ranking.from_ranks(torch.arange(1.0, 101.0).unsqueeze(-1)))
    assert all(map(math.isnan, metric.interval(method=method)))


def test_a_state_of_another_size_is_refused_and_changes_nothing():
    metric = fill(tr.MRR(), BATCHES)
    metric.persistent(True)
    with pytest.raises(RuntimeError, match=r"to be a tensor \[20\] of torch.float64, got a tensor \[15\]"):
        metric.load_state_dict({"mrr:sums": torch.ones(15, dtype=torch.float64)})
    assert metric.compute() == fill(tr.MRR(), BATCHES).compute()


def test_a_state_that_was_saved_with_seven_more_sums_is_read_without_them():
    metric, former = fill(tr.MRR(), BATCHES), tr.MRR()
    errors = sums.Sum.ERRORS
    saved = torch.cat([metric.sums[:errors], torch.full((7,), 9.0), metric.sums[errors : errors + 8]])
    former.load_state_dict({"mrr:sums": saved})
    assert torch.equal(former.sums, metric.sums)
    # In float32 a state has two rows: the sums and their rounding errors.
    both = sums.current(torch.stack([saved, saved / 2]), len(metric.sums))
    assert torch.equal(both, torch.stack([metric.sums, metric.sums / 2]))


@pytest.mark.parametrize("options", [{"dist_sync_fn": len}, {"sync_on_compute": False}], ids=["function", "alone"])
def test_a_state_that_is_synchronised_in_another_way_is_not_reduced_together_with_others(options):
    assert tr.MRR().reducible()
    assert not tr.MRR(**options).reducible()


# ---- numbers that float32 does not hold ------------------------------------------------------------------------------


def test_a_value_beyond_float32_is_float64_and_any_other_float32():
    metric = tr.DCG(gain="exponential")
    large, small = ((torch.tensor([[0.9]]), torch.tensor([[grade]])) for grade in (140, 3))
    assert metric(*large).item() == 2.0**140 - 1
    assert metric.compute().item() == metric.score(*large).item() == 2.0**140 - 1
    metric.update(*small)
    assert metric.compute().item() == pytest.approx(2.0**139)
    assert metric.standard_error.item() == pytest.approx(2.0**139)
    metric.reset()
    metric.update(*small)
    assert metric.compute().dtype == torch.float32
    values = tr.CG(gain="exponential", aggregation="none")
    values.update(torch.tensor([[0.9], [0.9]]), torch.tensor([[140], [3]]))
    assert values.compute().tolist() == [2.0**140 - 1, 7.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda big, ids: tr.MRR().update(big, torch.tensor([3])),
        lambda big, ids: tr.MRR().update(ids, big),
        lambda big, ids: tr.MRR().update(ids, [big[0]]),
        lambda big, ids: tr.MRR().update(ids, (torch.zeros(2, dtype=torch.int64), big[0])),
        lambda big, ids: tr.MRR().update(ids, ids, exclude=(torch.zeros(2, dtype=torch.int64), big[0])),
        lambda big, ids: tr.Popularity(3, interactions=torch.arange(9)).update(big),
        lambda big, ids: tr.Ranking.from_ids(big, ids),
        lambda big, ids: tr.Ranking.from_rankings(ids, big),
        lambda big, ids: tr.Ranking.from_rankings(big, ids),
    ],
)
def test_ids_that_int64_may_not_hold_are_refused(call):
    with pytest.raises(TypeError, match="int64 can hold"):
        call(torch.tensor([[2**63 + 5, 3]], dtype=torch.uint64), torch.tensor([[5, 3]]))


# ---- kept values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["update", "forward"])
def test_kept_values_lie_in_few_parts_in_the_order_of_their_queries(method):
    metric = tr.MRR(aggregation="none")
    sizes = [*(1 for _ in range(90)), *range(30, 0, -1), 0, 0, 5, 0, 0]
    expected = []
    for number, size in enumerate(sizes):
        ranks = torch.arange(1, size + 1) + number
        getattr(metric, method)(tr.Ranking.from_ranks(ranks.unsqueeze(-1)))
        expected += (1 / ranks).tolist()
        assert len(metric.rows) <= 9
    torch.testing.assert_close(metric.compute(), torch.tensor(expected))


def test_forward_copies_no_kept_values():
    metric = fill(tr.MRR(aggregation="median"), [batch(1, 64), batch(2, 8)])
    first = metric.rows[0].data_ptr()
    metric(*batch(3, 1))
    assert metric.rows[0].data_ptr() == first


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize("name", ["mrr", "ndcg(aggregation=median)@3", "mrr(aggregation=none)"])
def test_running_is_the_metric_of_the_last_batches(name, method):
    metric = Running(tr.parse(name), window=3)
    for number, arguments in enumerate(BATCHES[:5]):
        getattr(metric, method)(*arguments)
        expected = fill(tr.parse(name), BATCHES[max(0, number - 2) : number + 1]).compute()
        for _ in range(2):
            torch.testing.assert_close(metric.compute().sort().values, expected.sort().values, rtol=0, atol=0)


@pytest.mark.parametrize("method", ["update", "forward"])
def test_running_around_a_metric_that_keeps_rows(method):
    metric = Running(RetrievalMRR(), window=2)
    for number, (preds, target) in enumerate(BATCHES[:4]):
        indexes = torch.arange(len(preds)).repeat_interleave(9) + 100 * number
        getattr(metric, method)(preds.flatten(), target.flatten() > 0, indexes=indexes)
        expected = fill(tr.MRR(), BATCHES[max(0, number - 1) : number + 1]).compute()
        for _ in range(2):
            torch.testing.assert_close(metric.compute(), expected)


# ---- threads, compilers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mrr", "mrr(aggregation=median)"])
def test_threads_that_update_one_metric_lose_nothing(name):
    metric, start = tr.parse(name), threading.Barrier(4)
    ranking = tr.Ranking.from_ranks(torch.tensor([[1], [2]]))

    def work():
        torch.set_num_threads(1)
        start.wait()
        for _ in range(80):
            metric.update(ranking)

    threads, interval = [threading.Thread(target=work) for _ in range(4)], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert metric.num_queries == 4 * 80 * 2
    if metric.rows is not None:
        assert sum(map(len, metric.rows)) == 4 * 80 * 2


class Model(nn.Module):
    """A module that holds a metric and, if told to, updates it."""

    def __init__(self, metric, method=None):
        super().__init__()
        self.layer = nn.Linear(9, 9)
        self.metric = metric
        self.method = method

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Updating(Model):
    def forward(self, x, target):
        scores = self.layer(x)
        getattr(self.metric, self.method)(scores, target)
        return scores * 2


#: A metric of each kind, and one whose class has annotations and properties of its own.
HELD = [
    lambda: tr.MR(adjusted="z"),
    tr.FBeta,
    lambda: tr.PRCurve(3),
    lambda: tr.Coverage(num_items=3),
    lambda: tr.Popularity(3, interactions=torch.arange(4)),
    lambda: tr.MRR() / 2,
    lambda: tr.RankingCollection(["ndcg@5", "recall(aggregation=none)@3"]),
    RetrievalMRR,
]


def test_a_module_that_holds_a_metric_can_be_scripted():
    for make in HELD:
        model = Model(make())
        x = torch.rand(2, 9)
        assert torch.equal(torch.jit.script(model)(x), model(x))


@pytest.mark.parametrize(
    ("make", "method"),
    [(lambda: tr.NDCG(top_k=5), "forward"), (lambda: tr.RankingCollection(["ndcg@5", "mrr", "mr"]), "update")],
    ids=["metric", "collection"],
)
def test_torch_compile_leaves_the_update_out_of_its_graphs(make, method):
    graphs = []

    def backend(graph, _):
        graphs.append([node for node in graph.graph.nodes if node.op.startswith("call")])
        return graph.forward

    torch._dynamo.reset()
    model = Updating(make(), method)
    compiled = torch.compile(model, backend=backend)
    expected = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for queries in (3, 4, 5):
            x, target = torch.rand(queries, 9), torch.randint(0, 2, (queries, 9))
            compiled(x, target)
            expected.update(model.layer(x), target)
    torch._dynamo.reset()
    assert [len(nodes) for nodes in graphs] == [1] * len(graphs)  # the layer, and the product
    assert 2 <= len(graphs) <= 6
    flat = (lambda x: x) if isinstance(expected, tr.RankingCollection) else (lambda x: {"": x})
    for one, other in zip(flat(model.metric.compute()).values(), flat(expected.compute()).values()):
        torch.testing.assert_close(one, other)


SUITE, LISTED, ONES = tr.RankingCollection(["ndcg@5", "mrr"]), tr.Unrepeated(top_k=3), torch.ones(3)
SLICED, DROP_IN = tr.Sliced("mrr", 2), RetrievalMRR()
#: Calls with scores [query, candidate], grades like them, and one label for each query.
CALLS = {
    "score": lambda x, grades, label: SUITE["mrr"].score(x, grades),
    "score of a collection": lambda x, grades, label: SUITE.score(x, grades),
    "score of lists": lambda x, grades, label: LISTED.score(grades),
    "compute": lambda x, grades, label: SUITE["mrr"].compute(),
    "interval": lambda x, grades, label: SUITE["mrr"].interval(),
    "standard_error": lambda x, grades, label: SUITE["mrr"].standard_error,
    "counts": lambda x, grades, label: (SUITE["mrr"].num_queries, SUITE["mrr"].num_empty),
    "merge_state": lambda x, grades, label: SUITE["mrr"].merge_state(SUITE["mrr"]),
    "reset": lambda x, grades, label: (SUITE["mrr"].reset(), LISTED.reset(), DROP_IN.reset()),
    "of a collection": lambda x, grades, label: (SUITE.intervals(), SUITE.summary(), SUITE.reset()),
    "of a wrapper": lambda x, grades, label: (SLICED.summary(), SLICED.estimates(), SLICED.num_queries, SLICED.reset()),
    "a metric": lambda x, grades, label: tr.FBeta(3, beta=2.0).score(x, grades),
    "a metric with data": lambda x, grades, label: tr.Popularity(3, interactions=label),
    "a collection": lambda x, grades, label: tr.RankingCollection("ndcg@5, mrr"),
    "a wrapper": lambda x, grades, label: tr.Sliced("mrr", 2),
    "of torchrank.retrieval": lambda x, grades, label: RetrievalMRR(),
    "from_scores": lambda x, grades, label: tr.Ranking.from_scores(x, grades),
    "from_label": lambda x, grades, label: tr.Ranking.from_label(x, label),
    "from_flat": lambda x, grades, label: tr.Ranking.from_flat(ONES, label, label),
    "from_ids": lambda x, grades, label: tr.Ranking.from_ids(grades, label),
    "from_rankings": lambda x, grades, label: tr.Ranking.from_rankings(grades, grades),
    "from_ranks": lambda x, grades, label: tr.Ranking.from_ranks(label),
    "from_negatives": lambda x, grades, label: tr.Ranking.from_negatives(x, x),
    "from_embeddings": lambda x, grades, label: tr.Ranking.from_embeddings(x, x, label),
    "from_score_blocks": lambda x, grades, label: tr.Ranking.from_score_blocks([x, x], label),
}


def test_torch_compile_leaves_calls_and_constructors_out_of_its_graphs():
    from torch._dynamo.testing import CompileCounter  # here, because workers import this module without the compiler

    torch._dynamo.reset()
    arguments = torch.rand(3, 9), torch.stack([torch.arange(9)] * 3), torch.arange(1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in CALLS.items():
            counter = CompileCounter()
            torch.compile(call, backend=counter)(*arguments)
            assert (name, counter.op_count) == (name, 0)
    torch._dynamo.reset()


def use_without_the_compiler():
    suite = tr.RankingCollection(["ndcg@5", "mrr(aggregation=median)"])
    suite.update(torch.rand(3, 9), torch.ones(3, 9))
    suite(torch.rand(3, 9), torch.ones(3, 9))
    suite.compute()
    assert "torch._dynamo" not in sys.modules


@pytest.mark.xdist_group("processes")
def test_the_compiler_is_imported_by_nothing_here():
    process = workers.CONTEXT.Process(target=workers.call, args=(__name__, "use_without_the_compiler"))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_attributes_are_kept_as_torch_and_torchmetrics_keep_them():
    class Holding(tr.MRR):
        name = "holding"

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.register_buffer("table", torch.zeros(2))

    metric = Holding()
    assert [name for name, _ in metric.named_children()] == ["layer"]
    metric.layer = metric.table = None
    assert metric.layer is metric.table is None
    assert not [*metric.children(), *metric.buffers(), *metric.parameters()]
    with pytest.raises(RuntimeError, match="Can't change const"):
        metric.higher_is_better = False
    with pytest.raises(AttributeError):
        metric.label = "mrr"
    metric.note = "mine"
    assert metric.clone().note == "mine"


def test_methods_left_out_of_graphs_keep_their_signature_and_can_be_copied():
    suite = tr.RankingCollection(["ndcg@5", "mrr"])
    parameters = ["preds", "target", "mask", "indexes", "group_sizes", "exclude", "tie_break", "groups", "repeats"]
    for metric, method in itertools.product((suite, suite["mrr"]), ("update", "score")):
        assert list(inspect.signature(getattr(metric, method)).parameters) == [*parameters, "weights"]
    wrapper = tr.Sliced("mrr", slices=2)
    assert list(inspect.signature(wrapper.update).parameters)[:4] == ["preds", "target", "slices", "query_ids"]
    twin = fill(pickle.loads(pickle.dumps(suite)), BATCHES)
    assert twin.clone().compute() == fill(suite, BATCHES).compute()


@pytest.mark.parametrize("how", ["mean", "sum", "median", "midpoint", "min", "max"])
def test_a_value_that_is_nan_makes_every_aggregate_nan_and_a_skipped_query_does_not(how):
    ranks = torch.tensor([[2.0], [float("inf")], [0.0], [3.0]])  # not retrieved from a list of unknown length; no query
    metric = tr.MR(aggregation=how)
    metric.update(tr.Ranking.from_ranks(ranks))
    assert metric.compute().isnan()
    assert all(map(math.isnan, metric.interval()))
    metric.reset()
    metric.update(tr.Ranking.from_ranks(ranks), weights=torch.tensor([1.0, 0, 1, 1]))
    want = {"sum": 5, "median": 2, "min": 2, "max": 3}.get(how, 2.5)
    assert metric.compute().item() == pytest.approx(want)


@pytest.mark.parametrize("ratio", [1, 1e3, 1e6, 1e-6, 1e7])
def test_the_standard_error_of_very_different_weights_is_that_of_one_batch(ratio):
    values, weights = torch.tensor([[0.3], [0.9]], dtype=torch.float64), torch.tensor([ratio, 1], dtype=torch.float64)
    whole, parts = tr.CG(top_k=1), tr.CG(top_k=1)
    whole.update(torch.zeros(2, 1), values, weights=weights)
    for row in (slice(0, 1), slice(1, 2)):
        parts.update(torch.zeros(1, 1), values[row], weights=weights[row])
    # sum(w^2 (v - m)^2) is twice the square of 0.6 * ratio / (ratio + 1), and n / (n - 1) is 2.
    assert whole.standard_error.item() == pytest.approx(1.2 * ratio / (ratio + 1) ** 2, rel=1e-5)
    assert parts.standard_error.item() == pytest.approx(whole.standard_error.item(), rel=3e-3)


def test_the_interval_of_a_mean_is_that_of_students_t():
    ranks = torch.tensor([1, 2, 3, 1, 5, 4, 2])
    metric = tr.MRR()
    metric.update(-torch.arange(5.0).expand(7, 5), ranks - 1)
    values = 1 / ranks.double().numpy()
    assert metric.compute().item() == pytest.approx(values.mean())
    wanted = stats.t.interval(0.9, len(values) - 1, values.mean(), stats.sem(values))
    assert metric.interval(0.9) == pytest.approx(wanted)


def test_the_interval_of_a_median_contains_it_with_the_probability_that_is_asked():
    metric = tr.MRR(aggregation="median")
    ranks = 1 + torch.randperm(31, generator=torch.Generator().manual_seed(0))
    metric.update(-torch.arange(31.0).expand(31, 31), ranks - 1)
    ordered = sorted(1 / ranks.double().numpy())
    low, high = (bisect.bisect(ordered, end - 1e-9) for end in metric.interval(0.95))
    # The median is between both if more than ``low`` and fewer than ``high + 1`` of 31 values are below it.
    inside = stats.binom.cdf(high, 31, 0.5) - stats.binom.cdf(low, 31, 0.5)
    narrower = stats.binom.cdf(high - 1, 31, 0.5) - stats.binom.cdf(low + 1, 31, 0.5)
    assert (low, high) == (low, 30 - low)
    assert narrower < 0.95 <= inside


@pytest.mark.parametrize("count", range(2, 13))
def test_few_values_have_an_interval_of_the_median_if_their_range_contains_it_often_enough(count):
    metric = tr.MRR(aggregation="median")
    metric.update(-torch.arange(count * 1.0).expand(count, count), torch.arange(count))
    low, high = metric.interval(0.95)
    if 1 - 2 * 0.5**count < 0.95:  # all values can be on one side of the median
        assert math.isnan(low)
        assert math.isnan(high)
    else:
        place = int(stats.binom.ppf(0.025, count, 0.5)) - 1
        assert (low, high) == (1 / (count - place), 1 / (place + 1))


def test_a_count_that_float32_would_round_is_exact():
    metric = tr.NumQ()
    metric.update(torch.tensor([[0.5, 0.1]]), torch.tensor([[1, 0]]))
    one = metric.clone()
    for _ in range(25):
        metric.merge_state(metric.clone())
    assert metric.compute().dtype == torch.float32  # 2 ** 25, without rounding
    metric.merge_state(one)
    assert (metric.compute().dtype, metric.compute().item()) == (torch.float64, 2**25 + 1)


@pytest.mark.parametrize("more", [-1, 0, 3])
def test_sums_keep_their_rounding_errors_on_a_device_without_float64(more):
    state = torch.rand(sums.SIZE + more, dtype=torch.float64)
    with Device("mps", float64=False) as device:
        there = sums.carry(state, device.device)
        assert there.shape == ((2, len(state)) if more >= 0 else state.shape)
        back = sums.carry(there, torch.device("cpu"))
    assert torch.allclose(back.double(), state, rtol=0, atol=1e-13) == (more >= 0)


def average(values):
    return values.mean()


def test_the_interval_of_a_function_is_that_of_a_bootstrap_and_a_sequence_has_the_usual_level():
    grades = torch.rand((400, 1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own, mean = tr.CG(top_k=1, aggregation=average), tr.CG(top_k=1)
    for metric in (own, mean):
        metric.update(torch.zeros(400, 1), grades)
    for level in (0.5, 0.9):
        assert own.interval(level) == pytest.approx(mean.interval(level), abs=0.25 * float(mean.standard_error))
    assert mean.confidence_sequence() == mean.confidence_sequence(0.95)


def test_a_metric_that_checks_finds_bad_values_beside_one_that_does_not():
    suite = tr.RankingCollection({"checks": tr.MRR(), "trusts": tr.MRR(validate_args=False)})
    suite.update(torch.tensor([[0.5, math.nan, 0.25], [0.5, 0.75, 0.25]]), torch.tensor([[1, 0, 0], [0, 1, 0]]))
    with pytest.raises(ValueError, match="1 query with NaN"):
        suite["checks"].compute()
    suite["trusts"].compute()


@pytest.mark.parametrize(
    ("backends", "device", "refused"),
    [
        ("cuda:nccl", "cpu", True),
        ("cpu:gloo,cuda:nccl", "cpu", False),
        ("cuda:nccl", "cuda", False),
        ("cpu:gloo,cuda:nccl", "cuda", False),
        ("cpu:gloo", "cpu", False),
    ],
)
def test_only_a_metric_on_the_cpu_needs_a_group_that_reduces_there(monkeypatch, backends, device, refused):
    for name, found in {"get_rank": 1, "get_world_size": 3, "get_backend_config": backends}.items():
        monkeypatch.setattr(synchronisation.dist, name, lambda group, found=found: found)
    if refused:
        with pytest.raises(ValueError, match=rf"reduces tensors on the CPU, got '{backends}' and a metric on the CPU"):
            synchronisation.place_in(None, torch.device(device))
    else:
        assert synchronisation.place_in(None, torch.device(device)) == (1, 3)
