"""Incomplete judgments: measures of them in every layout, and every measure with the unjudged taken out or bounded."""

import itertools
import math

import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support.cases import cases
from tests.support.oracle_comparison import MANY, configs_of
from tests.support.oracles import ORACLES
from torchrank.formulas import judgment_bounds

INF = math.inf


def in_every_layout():
    """A query with three judged of five candidates, as scores, as rows, and as the judgments of named items."""
    scores = tensor([[0.9, 0.7, 0.7, 0.3, -INF], [0.5, 0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
    target = tensor([[-2, 0, 1, -2, 1], [-2, 1, -2, 0, 1]])
    query, item = (target >= 0).nonzero(as_tuple=True)
    triples = (query, item, target[query, item])
    yield (scores, target), {}
    yield (scores.flatten(), target.flatten()), {"indexes": torch.arange(2).repeat_interleave(5)}
    shuffled = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    rows = torch.arange(2).repeat_interleave(5)
    yield (scores.flatten()[shuffled], target.flatten()[shuffled]), {"indexes": rows[shuffled]}
    yield (scores, triples), {}
    wide = torch.nn.functional.pad(scores, (0, 1), value=9.0)
    yield (wide, triples), {"exclude": (tensor([0, 1]), tensor([5, 5]))}
    yield (wide, triples), {"mask": torch.arange(6).expand(2, 6) < 5}


@pytest.mark.parametrize(
    "metric",
    [tr.Bpref(), tr.InfAP(), tr.Judged(top_k=3), tr.Judged()]
    + [tr.MAP(unjudged=u) for u in ("condensed", "lower", "upper")]
    + [tr.FallOut(top_k=3, unjudged=u) for u in ("condensed", "lower", "upper")]
    + [tr.NDCG(top_k=3, unjudged=u) for u in ("condensed", "lower", "upper")],
    ids=lambda metric: metric.label,
)
def test_every_layout_that_carries_judgments(metric, assume):
    for room in (2**19, 8):
        assume(block=room)
        values = [metric.score(*args, **kwargs) for args, kwargs in in_every_layout()]
        for value in values[1:]:
            torch.testing.assert_close(value, values[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("unjudged", ["condensed", "lower", "upper"])
def test_ids(unjudged):
    # The third is excluded, and so is one that is judged irrelevant and not in the list: neither could be anything.
    ids = tensor([[5, 7, 9, 3]])
    target = (torch.zeros(5, dtype=torch.int64), tensor([7, 3, 9, 1, 2]), tensor([1, 0, 0, -1, -1]))
    exclude = (torch.zeros(2, dtype=torch.int64), tensor([9, 2]))
    same = (tensor([[3.0, 2.0, 1.0, -INF]]), tensor([[-1, 1, 0, -1]]))
    for name in ("map", "recall@1", "bpref", "auroc", "fallout@2"):
        metric = tr.parse(name, unjudged=unjudged)
        torch.testing.assert_close(metric.score(ids, target, exclude=exclude), metric.score(*same))
    assert tr.Bpref().score(ids, target, exclude=exclude).item() == 1


def judgments(grades, worth):
    """All ways in which the unjudged candidates can be irrelevant or relevant."""
    return itertools.product(*([0, worth] if grade < 0 else [grade] for grade in grades))


@pytest.mark.parametrize("level", [0.5, 2, 200])
def test_bounds_for_any_level_and_dtype(level):
    scores, target = tensor([[0.9, 0.8, 0.8, 0.1]]), tensor([[-1, 0, -1, 1]], dtype=torch.int8)
    every = tensor([*judgments(target[0].tolist(), max(1, level))], dtype=torch.float64)
    values = tr.MAP(relevance_level=level).score(scores.expand(len(every), -1), every)
    for unjudged, want in (("lower", values.min()), ("upper", values.max())):
        got = tr.MAP(relevance_level=level, unjudged=unjudged).score(scores, target)
        assert got.item() == pytest.approx(want.item())


#: parameters that the test sets itself
SET_HERE = {"top_k", "ties", "unjudged", "empty_target_action"}

JUDGED = judgment_bounds._judged

BOUNDED = sorted(
    name
    for name, cls in tr.RankingMetric.registry.items()
    if cls.takes_top_k and name in ORACLES and "lower" in cls.takes_unjudged_for and cls(top_k=2).reach_of_bounds
)


RANKED: dict[tuple[int, ...], tuple[tr.Ranking, list[int]]] = {}


def judged_in_all_ways(scores, target, worth):
    """The queries with each of their :func:`judgments`, ranked once for all measures, and how many each query has."""
    key = (worth, *target.flatten().tolist())
    if key not in RANKED:
        judged = [tensor(list(judgments(grades, worth))) for grades in target.tolist()]
        rows = list(map(len, judged))
        repeated = scores.repeat_interleave(tensor(rows), 0)
        RANKED[key] = tr.Ranking.from_scores(repeated, torch.cat(judged)), rows
    return RANKED[key]


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_at_a_cutoff_are_the_extremes_of_all_judgments_to_the_bits_of_all_choices(name, monkeypatch):
    cls, generator = tr.RankingMetric.registry[name], torch.Generator().manual_seed(3)
    target = torch.randint(-2, 3, (8, 6), generator=generator)
    target[:3] = -target[:3].abs()  # nothing is judged relevant
    scores = torch.rand(8, 6, generator=generator)
    scores[::2] = scores[::2].mul(5).round()  # ties
    scores[target.roll(1, -1) == 2] = -INF
    ranking = tr.Ranking.from_scores(scores, target)
    configs = [dict(config.parameters) for config in configs_of(name, MANY)]
    given = [{key: value for key, value in config.items() if key not in SET_HERE} for config in configs]
    given = [kwargs for n, kwargs in enumerate(given) if kwargs not in given[:n]]
    given += [{"ties": "optimistic"}, {"ties": "pessimistic"}]
    given = [kwargs for kwargs in given if not cls(**kwargs, top_k=2).no_bounds_reason]
    ways = [(kwargs, *how) for kwargs in given for how in (("lower", "skip"), ("upper", "pos"))]
    metrics = [cls(**kwargs, top_k=2, unjudged=one, empty_target_action=action) for kwargs, one, action in ways]
    assert any(metric.reach_of_bounds for metric in metrics)
    every_choice = judgment_bounds._extremes
    few = [metric.score(ranking) for metric in metrics]
    for metric, value, (kwargs, unjudged, action) in zip(metrics, few, ways):
        judged, rows = judged_in_all_ways(scores, target, math.ceil(max(1, kwargs.get("relevance_level", 1))))
        found = cls(**kwargs, top_k=2, empty_target_action=action).score(judged).split(rows)
        extreme = min if unjudged == "lower" else max
        want = [extreme((x for x in one.tolist() if x == x), default=math.nan) for one in found]
        assert value.tolist() == pytest.approx(want, abs=1e-12, nan_ok=True), metric.label
    # The few choices that are tried have the bits of all: for one and another parameter, and under other tie policies.
    monkeypatch.setattr(judgment_bounds, "_extremes", lambda unjudged, least, _: every_choice(unjudged, least, None))
    for metric, value in [*zip(metrics, few)][:3] + [*zip(metrics, few)][-3:]:
        assert torch.equal(value.nan_to_num(nan=-1), metric.score(ranking).nan_to_num(nan=-1)), metric.label


def test_long_lists_have_bounds_at_a_cutoff_and_are_refused_without(monkeypatch):
    tried = []
    monkeypatch.setattr(judgment_bounds, "_judged", lambda *args: tried.append(1) or JUDGED(*args))
    scores, target = torch.arange(40_000.0).flip(0)[None], torch.full((1, 40_000), -1)
    target[0, 1] = 1
    assert tr.Recall(top_k=2, unjudged="lower").score(scores, target).item() == 1 / 39_999
    assert len(tried) == 2 * 1 + 3  # one of the first two candidates is unjudged
    scores[:, 3:] = -INF  # candidates that were not retrieved are behind the cutoff
    assert tr.NDCG(top_k=10, unjudged="upper").score(scores, target).item() == pytest.approx(1)
    assert len(tried) == 2 * 1 + 3 + 2 * 2 + 3
    assert not tr.Recall(top_k=2, unjudged="lower").score(scores[:0], target[:0]).numel()
    assert len(tried) == 2 * 1 + 3 + 2 * 2 + 3 + 1
    with pytest.raises(ValueError, match=r"at most 16,384 candidates for map\(unjudged=upper\), got 40,000; .* top_k"):
        tr.MAP(unjudged="upper").score(scores, target)


def test_another_formula_does_not_inherit_the_bounds_at_a_cutoff():
    class Gap(tr.Precision):
        name = "gap"

        def measure(self, ranking):
            return (super().measure(ranking) - ranking.num_relevant(1) / ranking.num_candidates).abs()

    # Smallest if three of six candidates are relevant, as is half of the first two.
    scores, target = torch.arange(6.0).flip(0)[None], tensor([[1, 0, -1, -1, -1, -1]])
    assert Gap(top_k=2, unjudged="lower").score(scores, target) == 0


def test_a_single_relevant_candidate_behind_the_cutoff_is_tried():
    class Rare(tr.Precision):
        name = "rare"
        monotone_behind = True

        def measure(self, ranking):
            return 1 / ranking.num_relevant(1)

    scores, target = torch.arange(6.0).flip(0)[None], tensor([[0, 0, -1, -1, -1, -1]])
    for unjudged, want in (("lower", 1 / 4), ("upper", 1)):
        assert Rare(top_k=2, unjudged=unjudged, empty_target_action="skip").score(scores, target) == want


def test_bounds_that_cannot_be_had():
    with pytest.raises(ValueError, match="random"):
        tr.MAP(top_k=3, normalize="retrieved", unjudged="lower")
    tr.MAP(top_k=3, normalize="retrieved", unjudged="lower", ties="pessimistic")
    for make in (
        lambda **kwargs: tr.MR(average="positive", **kwargs),
        lambda **kwargs: tr.MRR(adjusted="z", **kwargs),
        lambda **kwargs: tr.PSP(average="pooled", **kwargs),
        lambda **kwargs: tr.PSNDCG(average="scaled", **kwargs),
        lambda **kwargs: tr.IPS(self_normalized=True, **kwargs),
    ):
        with pytest.raises(ValueError, match=r"whose mean weighs queries .* got 'upper'"):
            make(unjudged="upper")
        make(unjudged="condensed")
    tr.IPS(self_normalized="query", unjudged="upper")
    with pytest.raises(ValueError, match=r"whose number of candidates depends .* got 'upper'"):
        tr.Utility(1, rejection=2, unjudged="upper")
    tr.Utility(1, rejection=2, collection_size=10, unjudged="upper")
    for cls in (tr.OPA, tr.QMeasure):
        with pytest.raises(ValueError, match="unjudged"):
            cls(unjudged="upper")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_level_is_reached_in_the_dtype_of_the_grades(dtype):
    scores = tensor([[0.9, 0.8]])
    for level in (0.1, 0.7, 1.3):
        grades = tensor([[level, 0.0]], dtype=dtype)
        for cls in (tr.Precision, tr.RBP, tr.CWL, tr.PIA, tr.AlphaDCG):
            found = cls(1, relevance_level=level).score(scores, grades)
            assert found == cls(1).score(scores, (grades > 0).long()), f"{cls.name}, {level}"
        assert tr.ERRIA(1, relevance_level=level, max_grade=3).score(scores, grades) > 0
        for unjudged in ("lower", "upper"):
            assert tr.MRR(relevance_level=level, unjudged=unjudged).score(scores, grades) == 1
        unknown = tensor([[-1.0, level]], dtype=dtype)
        for unjudged, want in (("lower", 0.5), ("upper", 1)):
            assert tr.MRR(relevance_level=level, unjudged=unjudged).score(scores, unknown) == want
    whole = tensor([[-1, 2]])
    assert tr.MRR(relevance_level=1.3, unjudged="upper").score(scores, whole) == 1


def test_the_pool_is_the_same_beside_other_members_of_a_collection():
    scores = tensor([[4.0, 3, 2, 1]])
    for preds, target in (
        (scores, [tensor([3, 1])]),
        (scores, (tensor([0, 0]), tensor([3, 1]))),
        (tensor([[0, 1, 2, 3]]), tensor([[3, 1]])),
    ):
        beside = tr.RankingCollection([tr.InfAP(), tr.MRR(unjudged="upper")])
        alone = tr.InfAP().score(preds, target).item()
        assert beside.score(preds, target)["infap"].item() == alone == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("at_once", [1, 20, 2**16])
@pytest.mark.parametrize(("unjudged", "mean"), [("lower", 0.75), ("upper", 1)])
def test_a_query_is_empty_if_it_is_under_all_judgments(monkeypatch, at_once, unjudged, mean):
    monkeypatch.setattr(judgment_bounds, "MOST_ELEMENTS", at_once)
    metric = tr.NDCG(unjudged=unjudged, empty_target_action="skip")
    # Nothing is relevant in the second query if both of its unjudged candidates are irrelevant. The lowest value of
    # the others is that of the last candidate alone, 1 / log2(4).
    metric.update(tensor([[0.3, 0.2, 0.1]] * 3), tensor([[0, 0, 0], [-1, 0, -1], [1, -1, 0]]))
    assert (metric.num_queries, metric.num_empty) == (3, 1)
    assert metric.compute().item() == pytest.approx(mean)
    # The last judgments, under which all candidates are relevant, are not the only ones.
    area = tr.AUROC(unjudged=unjudged, empty_target_action="skip")
    area.update(tensor([[0.3, 0.2], [0.3, 0.2]]), tensor([[1, -1], [1, 1]]))
    assert (area.num_empty, area.compute().item()) == (1, 1)
    assert metric.score(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0,)


@cases(
    "label, bounded, a_sum",
    [
        *((label, True, True) for label in ("ndcg", "rbp", "recall@5", "psp", "ips", "ips(self_normalized=query)")),
        *((f"cwl(user={user})", True, True) for user in ("precision", "rbp", "sdcg", "insq")),
        *((f"cwl(user={user})", True, False) for user in ("rr", "ap", "inst", "bpm", "nerr8")),
        *((f"cwl(of={of},user=rr)", False, False) for of in ("depth", "total_utility")),
        ("cwl(of=total_utility)", True, True),
        ("cwl(of=depth)", True, False),
        ("recall@50%", True, False),
        ("utility", True, True),
        ("utility(rejection=1)", False, False),
        ("utility(collection_size=9,rejection=1)", True, False),
        ("utility(empty_target_action=skip)", True, False),
        *((label, True, False) for label in ("mr", "mrr", "mrr(filtered=True)", "map", "map(normalize=retrieved)")),
        *((f"{name}(average=positive,filtered=True)", False, False) for name in ("mr", "mrr")),
        *((f"mr(adjusted={how})", False, False) for how in ("ratio", "index", "z")),
        ("map(normalize=retrieved)@5", False, False),
        ("map(normalize=retrieved,ties=optimistic)@5", True, False),
        *((label, False, False) for label in ("psp(average=pooled)", "ips(self_normalized=True)")),
    ],
)
def test_values_that_are_sums_have_bounds_of_differences_and_others_may_have_bounds(label, bounded, a_sum):
    metric = tr.parse(label)
    assert (not metric.no_bounds_reason, not metric.nonlinear_reason) == (bounded, a_sum)
