"""Plans and chunks of a batch; a metric looks no further than it says, whatever way is taken."""

import functools
import itertools

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.brute_force_ranks import DTYPES, FORCED, some_scores
from tests.support.cases import cases
from tests.support.oracle_comparison import EACH, IN_TURN, scored
from tests.support.unread import NothingRead, leave_values_unread
from torchrank.engine import rank
from torchrank.engine.judged import Counting
from torchrank.engine.rank_layout import as_matrix, chunks, plan
from torchrank.hardware import costs
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import DenseLayout, Need
from torchrank.layouts.checks import no_errors

WAYS = {
    "as it comes": {},
    "few, by counting": {"rare": 0, **FORCED[Counting.COUNT]},
    "few, among the best": {"rare": 0, **FORCED[Counting.TOP]},
    "few, by sorting": {"rare": 0, **FORCED[Counting.SORT]},
    "few, in groups": {"rare": 0, "padding": 0, "rectangle_counted": -10, "copied": 100},
    "all, sorted": {"rare": 10**9, "best_of": 10**9},
    "all, the best": {
        "rare": 10**9,
        "best_of": 0,
        "block": 1,
    },  # a query with a tie at the cut is no matter of the others
    "no value is read": {},
}


@pytest.fixture(params=WAYS)
def way(request, assume, monkeypatch):
    assume(**WAYS[request.param])
    if request.param == "no value is read":
        leave_values_unread(monkeypatch)
    return request.param


@pytest.mark.parametrize("need", [Need(), Need(relevant=True), Need(1, relevant=True), Need(2, metrics=9)], ids=str)
@pytest.mark.parametrize("layout", list(filter(layout_cases.is_read_never, layout_cases.LAYOUTS)))
def test_no_engine_reads_a_value_of_an_accelerator(assume, monkeypatch, layout, need):
    leave_values_unread(monkeypatch)
    _, batch = layout_cases.batch(layout, 20)
    for engine in Counting:
        assume(**FORCED[engine])
        with NothingRead():
            assert list(rank(arrange(*batch.args, **batch.kwargs), need))


@pytest.mark.parametrize("counting", Counting, ids=str)
def test_a_ranking_reaches_as_far_as_it_was_asked_to(assume, counting):
    assume(**FORCED[counting])
    for reach in (None, 4):
        (ranking,) = rank(arrange(torch.rand(3, 50), torch.tensor([1, 2, 3])), Need(reach, relevant=True))
        assert ranking.reach == reach


#: every combination of parameters with a cutoff
REACHING = [config for config in EACH if config.metric().required.reach]


@pytest.mark.parametrize(
    ("way", "layout"),
    [
        *((way, "dense") for way in WAYS),
        *(("as it comes", layout) for layout in ("dense, float grades", "list", "pairs", "triples", "flat")),
        *((way, "triples") for way in WAYS if way.startswith("few")),
    ],
    indirect=["way"],
)
def test_no_metric_looks_further_than_it_says(way, layout):
    seed = len(way + layout)
    scores = some_scores(25, 60, DTYPES[seed % 4], seed)
    g = torch.Generator().manual_seed(seed)
    grade = torch.randint(-1, 4, (25, 60), generator=g) * (torch.rand(25, 1, generator=g) > torch.rand(60, generator=g))
    if layout not in ("dense", "triples", "flat"):
        grade = grade.clamp(0, 1)
    if layout == "dense, float grades":
        grade = grade * torch.tensor([0.5, 1.0, 2.5, 20.0])[torch.randint(4, grade.shape, generator=g)]
    pairs = (grade > 0).nonzero(as_tuple=True)
    given = {
        "list": (scores, [(row > 0).nonzero().squeeze(-1) for row in grade]),
        "pairs": (scores, pairs),
        "triples": (scores, (*pairs, grade[pairs])),
    }.get(layout, (scores, grade))
    full = tr.Ranking.from_scores(scores, grade)
    assert full.reach is None
    more = {}
    if layout == "flat":
        order = torch.randperm(scores.numel(), generator=g)
        given = tuple(x.flatten()[order] for x in (scores, grade))
        more["indexes"] = torch.arange(25).repeat_interleave(60)[order]
    tried = IN_TURN[seed % 8 :: 8]
    if (way, layout) == ("as it comes", "dense"):
        tried = REACHING
    elif way == "all, the best":  # without a cutoff all are sorted
        tried = REACHING[::12]
    metrics = [layout_cases.scoring(config) for config in tried]
    if layout in ("list", "pairs", "triples"):  # these name nothing but relevant candidates
        metrics = [metric for metric in metrics if metric.required.relevant]
    got, want = scored(metrics, *given, **more), scored(metrics, full)
    assert got
    for label in got:
        torch.testing.assert_close(got[label], want[label], rtol=1e-9, atol=1e-12, equal_nan=True, msg=label)


FURTHER = ["ndcg@6", "mrr", "mr", "map", "rprecision", "auroc@3", "fallout@3", "mrr(filtered=True)@2", "recall@10"]


@cases("judged", [1, 200])
@cases("name", FURTHER)
def test_a_ranking_up_to_a_rank_is_refused_by_metrics_with_a_larger_reach(judged, name):
    g = torch.Generator().manual_seed(0)
    blocks = [torch.randn(4, 1000, generator=g) for _ in range(3)]
    relevant = [torch.randperm(3000, generator=g)[:judged] for _ in range(4)]
    ranking = tr.Ranking.from_score_blocks(blocks, relevant, top_k=5)
    near = tr.RankingCollection(["ndcg@5", "precision@1", "map(normalize=retrieved)@5", "mrr@3"])
    whole = near.score(torch.cat(blocks, dim=-1), relevant)
    torch.testing.assert_close(near.score(ranking), whole)
    metric = tr.parse(name)
    label = metric.label.replace("(", r"\(").replace(")", r"\)")
    for use in (metric.score, metric.update, tr.RankingCollection(["ndcg@5", metric]).update):
        with pytest.raises(ValueError, match=rf"{label} with .* exact, got one with top_k=5"):
            use(ranking)


ALONE = "rank the judged items of each list"
GROUPED = "rank the judged items, in groups of queries with similar numbers of them"


@pytest.mark.parametrize(
    ("shape", "relevant", "how"),
    [
        ((1000, 40), [1], "sort each list"),  # short lists
        *(((100, 2000), few, ALONE) for few in ([20], [10, 30])),
        ((100, 2000), [*[2] * 7, 200], GROUPED),
        ((100, 2000), [200], "sort each list"),
    ],
)
def test_relevant_candidates_are_ranked_alone_if_they_are_few_in_long_lists(assume, shape, relevant, how):
    assume(long=costs.Costs().long, rare=costs.Costs().rare)
    target = torch.zeros(shape, dtype=torch.int8)
    for query, row in enumerate(target):
        row[: relevant[query % len(relevant)]] = 1
    said = plan(arrange(torch.rand(shape), target), Need(10, relevant=True))[0]
    assert said == (how if how.startswith("sort") else f"the relevant candidates are judged items; {how}")


@pytest.mark.parametrize(("width", "metrics", "matrix"), [(40, 1, True), (40, 2, False), (2000, 1, False)])
def test_flat_rows_are_a_matrix_for_one_metric_of_short_lists(width, metrics, matrix):
    target, indexes = torch.ones(100 * width, dtype=torch.int8), torch.arange(100).repeat_interleave(width)
    layout = arrange(torch.rand(100 * width), target, indexes=indexes)
    how = plan(layout, Need(relevant=True, metrics=metrics))[0]
    assert how == ("flat rows are a matrix; sort each list" if matrix else "sort all rows together")


def test_flat_rows_are_a_matrix_if_they_are_lists_of_one_length_in_ascending_order():
    for count in range(1, 5):
        for lengths in itertools.product(range(1, 4), repeat=count):
            queries = [query for query, length in enumerate(lengths) for _ in range(length)]
            rows = torch.rand(len(queries)), torch.ones(len(queries))
            matrix = as_matrix(arrange(*rows, indexes=torch.tensor(queries)), 3)
            assert (None if matrix is None else matrix.scores.shape[1]) == (
                lengths[0] if len({*lengths}) == 1 else None
            )
            if count > 1:
                assert as_matrix(arrange(*rows, indexes=torch.tensor(queries).flip(0)), 3) is None
    assert as_matrix(arrange(*rows, indexes=torch.tensor(queries)), 2) is None


def test_a_row_of_another_query_within_lists_of_equal_length_is_found():
    generator = torch.Generator().manual_seed(7)
    indexes = torch.arange(2000).repeat_interleave(3)
    indexes[5002] = 3000  # the middle row of a list, far behind the rows that are looked at first
    scores, target = torch.rand(6000, generator=generator), torch.randint(2, (6000,), generator=generator)
    order = torch.randperm(6000, generator=generator)
    got = tr.MRR().score(scores, target, indexes=indexes)
    want = tr.MRR().score(scores[order], target[order], indexes=indexes[order])
    assert len(got) == 2001
    torch.testing.assert_close(got, want)


ALIKE = {(12, 10): [12], (13, 10): [7, 6], (25, 10): [9, 9, 7], (3, 80): [1, 1, 1], (2, 500): [1, 1], (0, 10): [0]}


@pytest.mark.parametrize(("shape", "sizes"), [*ALIKE.items(), ((4, 0), [4])])
def test_chunks_are_alike_and_at_most_a_quarter_larger_than_the_room(assume, shape, sizes):
    assume(block=100)
    layout = DenseLayout(no_errors(torch.device("cpu")), True, torch.zeros(shape), torch.zeros(shape), None)
    cuts = chunks(layout, Need(reach=1))
    assert ([stop - start for start, stop in cuts] or [shape[0]]) == sizes


def test_bad_values_of_a_batch_are_counted_once_whatever_its_chunks(assume):
    assume(block=10)
    layout = arrange(torch.rand(40, 20), torch.full((40,), 20))
    assert len(chunks(layout, Need(reach=1))) > 2
    assert layout.errors.sum() > 0
    assert torch.equal(sum(ranking.errors for ranking in rank(layout, Need(reach=1))), layout.errors)


def test_chunks_of_an_accelerator_are_a_multiple_of_those_of_a_cpu(assume, monkeypatch):
    layout = DenseLayout(no_errors(torch.device("cpu")), True, torch.zeros(25, 80), torch.zeros(25, 80), None)
    assume(block=400)
    wanted = chunks(layout, Need(reach=1))
    assume(block=100, device_chunk=4)
    assert len(chunks(layout, Need(reach=1))) == 25
    leave_values_unread(monkeypatch)
    assert chunks(layout, Need(reach=1)) == wanted == tuple((start, start + 5) for start in range(0, 25, 5))


def test_lists_with_many_relevant_candidates_behind_lists_with_few_are_all_sorted():
    few, candidates = 2**22 // 4096 + 1, 4096  # more lists than are looked at together
    grade = torch.zeros(few + 1, candidates, dtype=torch.int64)
    grade[:, 7] = 1
    plan_of = functools.partial(plan, need=Need(relevant=True))
    scores = torch.rand(grade.shape)
    errors = no_errors(torch.device("cpu"))
    assert "judged items" in plan_of(DenseLayout(errors, True, scores, grade, None))[0]
    grade[few // 2 :] = 1
    assert plan_of(DenseLayout(errors, True, scores, grade, None))[0].startswith("sort each list")
