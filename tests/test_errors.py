"""A wrong call of each kind says what was got and what was expected."""

import pytest
import torch
from torchmetrics.regression import MeanAbsoluteError

import torchrank as tr

SCORES = torch.tensor([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
GRADES = torch.tensor([[1, 0, 0], [0, 0, 1]])
IDS = torch.tensor([[5, 3, 1], [2, 4, 6]])
ROWS = torch.tensor([0.1, 0.2])
NAN, INF = float("nan"), float("inf")


def exponential(grade):
    return 3.0**grade - 1


# (arguments, keywords, type, what the message must say: what was expected, what was got)
SHAPES = {
    "preds is no tensor": (([0.1, 0.2], GRADES), {}, TypeError, ["preds to be a tensor", "list"]),
    "preds is bool": ((SCORES > 0.2, GRADES), {}, TypeError, ["floating point scores or integer ids", "torch.bool"]),
    "preds is complex": ((SCORES + 0j, GRADES), {}, TypeError, ["floating point scores", "complex"]),
    "preds has three dimensions": ((SCORES[None], GRADES[None]), {}, ValueError, ["[query, candidate]", "[1, 2, 3]"]),
    "one query without its dimension": ((SCORES[0], GRADES[0]), {}, ValueError, ["indexes [3]", "unsqueeze(0)"]),
    "grades of another shape": ((SCORES, GRADES[:, :2]), {}, ValueError, ["shape [2, 3]", "[2, 2]"]),
    "grades of another number of queries": ((SCORES, GRADES[:1]), {}, ValueError, ["[2, 3]", "[1, 3]"]),
    "labels of another number": ((SCORES, torch.tensor([1])), {}, ValueError, ["ids [2]", "shape [1]"]),
    "labels that are floating": ((SCORES, torch.tensor([1.0, 0.0])), {}, TypeError, ["integer ids", "torch.float32"]),
    "target missing": ((SCORES,), {}, TypeError, ["a list of 2 id tensors", "NoneType"]),
    "target is a dict": ((SCORES, {}), {}, TypeError, ["ids [2]", "dict"]),
    "grades that are complex": ((SCORES, GRADES + 0j), {}, TypeError, ["integer, bool or floating", "complex64"]),
    "a list of another length": (
        (SCORES, [torch.tensor([1])] * 3),
        {},
        ValueError,
        ["list of 2", "list of 3", "tuple"],
    ),
    "pairs that collation made a list": (
        (SCORES, [torch.tensor([0, 1, 1])] * 3),
        {},
        ValueError,
        ["(query, item) pairs are a tuple", "list of 3"],
    ),
    "a tuple of one": ((SCORES, (torch.tensor([0]),)), {}, ValueError, ["(query, item)", "[[1]]"]),
    "a tuple of unequal lengths": (
        (SCORES, (torch.tensor([0]), torch.tensor([0, 1]))),
        {},
        ValueError,
        ["equally long", "[[1], [2]]"],
    ),
    "a tuple of floats": (
        (SCORES, (torch.tensor([0.0]), torch.tensor([0]))),
        {},
        TypeError,
        ["integer ids", "float32"],
    ),
    "mask of another shape": ((SCORES, GRADES), {"mask": GRADES[:1] > 0}, ValueError, ["mask", "[2, 3]", "[1, 3]"]),
    "mask that is not bool": (
        (SCORES, GRADES),
        {"mask": GRADES},
        TypeError,
        ["mask to be a bool tensor", "torch.int64"],
    ),
    "tie_break of another shape": ((SCORES, GRADES), {"tie_break": ROWS}, ValueError, ["tie_break", "[3]", "[2]"]),
    "tie_break of ids": ((IDS, IDS), {"tie_break": IDS}, ValueError, ["no tie_break", "ids already ranked"]),
    "exclude that is no pair": ((SCORES, GRADES), {"exclude": GRADES}, ValueError, ["(query, item) tuple", "tensor"]),
    "exclude of unequal lengths": (
        (SCORES, GRADES),
        {"exclude": (torch.tensor([0]), torch.tensor([0, 1]))},
        ValueError,
        ["equally long", "[[1], [2]]"],
    ),
    "exclude of flat rows": (
        (ROWS, torch.tensor([0, 1])),
        {"indexes": torch.tensor([0, 0]), "exclude": (torch.tensor([0]), torch.tensor([0]))},
        ValueError,
        ["no exclude for flat rows"],
    ),
    "weights of another number": ((SCORES, GRADES), {"weights": torch.ones(3)}, ValueError, ["weights", "[2]", "[3]"]),
    "weights that are a list": ((SCORES, GRADES), {"weights": [1, 1]}, ValueError, ["weights", "[2]", "list"]),
    "indexes of another length": (
        (ROWS, torch.tensor([0, 1])),
        {"indexes": torch.tensor([0])},
        ValueError,
        ["indexes", "[2]", "[1]"],
    ),
    "indexes that are floating": (
        (ROWS, torch.tensor([0, 1])),
        {"indexes": ROWS},
        TypeError,
        ["integer indexes", "torch.float32"],
    ),
    "indexes beside a grid": ((SCORES, GRADES), {"indexes": GRADES}, ValueError, ["flat preds [row]", "[2, 3]"]),
    "indexes that are a list": (
        (ROWS, torch.tensor([0, 1])),
        {"indexes": [0, 0]},
        TypeError,
        ["indexes to be a tensor", "list"],
    ),
    "sparse preds": ((SCORES.to_sparse(), GRADES), {}, TypeError, ["dense tensor", "sparse_coo"]),
    "flat rows of ids": (
        (torch.tensor([1, 2]), torch.tensor([0, 1])),
        {"indexes": torch.tensor([0, 0])},
        TypeError,
        ["floating point scores", "torch.int64"],
    ),
    "flat target that is a list": (
        (ROWS, [0, 1]),
        {"indexes": torch.tensor([0, 0])},
        TypeError,
        ["target to be a tensor", "list"],
    ),
    "flat mask that is not bool": (
        (ROWS, torch.tensor([0, 1])),
        {"indexes": torch.tensor([0, 0]), "mask": ROWS},
        TypeError,
        ["mask to be a bool tensor", "torch.float32"],
    ),
    "integer scores with bool grades": (
        (IDS, GRADES > 0),
        {},
        TypeError,
        ["integer ids", "torch.bool", "preds.float()"],
    ),
    "integer scores with float grades": (
        (IDS, GRADES * 1.0),
        {},
        TypeError,
        ["integer ids", "float32", "preds.float()"],
    ),
    "something beside a ranking": (
        (tr.Ranking.from_scores(SCORES, GRADES), GRADES),
        {},
        ValueError,
        ["nothing but weights beside a Ranking", "target"],
    ),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("call", ["score", "update", "forward", "collection"])
def test_shapes_and_dtypes_raise_at_once(case, call):
    arguments, keywords, error, said = SHAPES[case]
    metric = tr.RankingCollection(["mrr"]) if call == "collection" else tr.MRR()
    with pytest.raises(error) as caught:
        getattr(metric, "update" if call == "collection" else call)(*arguments, **keywords)
    for part in said:
        assert part in str(caught.value), str(caught.value)


# (arguments, keywords, number that must be named, what it is called)
VALUES = {
    "NaN scores, dense": ((torch.tensor([[NAN, 1, NAN], [0, 1, 2.0]]), GRADES), {}, 1, "queries with NaN"),
    "NaN scores, catalogue": ((torch.tensor([[NAN, 1, 0], [NAN, 1, 2]]), torch.tensor([1, 1])), {}, 2, "with NaN"),
    "NaN scores, flat": (
        (torch.tensor([NAN, 1.0, NAN]), torch.tensor([1, 0, 1])),
        {"indexes": torch.tensor([4, 7, 7])},
        2,
        "queries with NaN",
    ),
    "NaN grades": ((SCORES, torch.tensor([[NAN, 1, 0], [0, 1, INF]])), {}, 2, "relevance grades"),
    "NaN scores, excluded": (
        (torch.tensor([[NAN, 1, 0], [0, 1, 2.0]]), GRADES),
        {"exclude": (torch.tensor([0]), torch.tensor([0]))},
        1,
        "queries with NaN",
    ),
    "NaN tie breaks": ((SCORES, torch.tensor([1, 0])), {"tie_break": torch.tensor([0, NAN, 1])}, 2, "tie breaks"),
    "label out of range": ((SCORES, torch.tensor([3, 1])), {}, 1, "indices outside"),
    "pair out of range": (
        (SCORES, (torch.tensor([0, 2, -1]), torch.tensor([0, 0, 0]))),
        {},
        2,
        "indices outside",
    ),
    "excluded pair out of range": (
        (SCORES, torch.tensor([0, 1])),
        {"exclude": (torch.tensor([0, 5]), torch.tensor([9, 0]))},
        2,
        "indices outside",
    ),
    "the same target twice": ((SCORES, [torch.tensor([1, 1]), torch.tensor([0])]), {}, 1, "more than once"),
    "the same id twice": ((torch.tensor([[4, 4, 1], [1, 2, 3]]), torch.tensor([4, 1])), {}, 1, "ids that occur"),
    "integer scores, integer grades": ((IDS, GRADES), {}, 2, "pass preds.float()"),
    "negative weight": ((SCORES, GRADES), {"weights": torch.tensor([-1.0, 1])}, 1, "query weights"),
    "weights that are not finite": ((SCORES, GRADES), {"weights": torch.tensor([NAN, INF])}, 2, "query weights"),
}


@pytest.mark.parametrize("case", VALUES)
def test_bad_values_are_counted_and_raise_in_compute(case):
    arguments, keywords, number, kind = VALUES[case]
    metric = tr.NDCG(top_k=2)
    metric.update(SCORES, GRADES)
    metric.update(*arguments, **keywords)
    for _ in range(2):  # not only the first time
        with pytest.raises(ValueError, match=r"^ndcg@2: ") as caught:
            metric.compute()
        assert f"{number} " in str(caught.value)
        assert kind in str(caught.value)
    with pytest.raises(ValueError, match=f"{number} "):
        metric.score(*arguments, **keywords)
    metric.reset()
    metric.update(SCORES, GRADES)
    assert metric.compute() == 1


@pytest.mark.parametrize("case", VALUES)
def test_without_validation_bad_values_are_not_counted(case):
    arguments, keywords, _, _ = VALUES[case]
    metric = tr.NDCG(top_k=2, validate_args=False)
    metric.update(*arguments, **keywords)
    assert metric.compute().dim() == 0  # and does not raise


def test_a_gain_that_overflows_is_counted():
    metric = tr.NDCG(gain="exponential")
    metric.update(SCORES, torch.tensor([[1, 0, 2000], [1023, 1023, 1023]]))
    with pytest.raises(ValueError, match="2 relevance grades, or gains"):
        metric.compute()


def test_bad_values_add_up_over_batches_and_kinds():
    metric = tr.MRR()
    for _ in range(3):
        metric.update(SCORES, torch.tensor([7, 7]), weights=torch.tensor([-1.0, 1]))
    with pytest.raises(ValueError, match=r"6 .*indices outside.*; 3 query weights"):
        metric.compute()


def test_empty_queries_are_an_error_where_they_are_forbidden():
    metric = tr.Recall(empty_target_action="error")
    metric.update(SCORES, torch.zeros_like(GRADES))
    with pytest.raises(ValueError, match=r"recall\(empty_target_action=error\): 2 queries with nothing to measure"):
        metric.compute()


CONSTRUCTORS = {
    "top_k zero": (lambda: tr.NDCG(0), ["integer >= 1", "got 0"]),
    "top_k negative": (lambda: tr.MAP(top_k=-5), ["integer >= 1", "-5"]),
    "top_k bool": (lambda: tr.MAP(top_k=True), ["integer >= 1", "True"]),
    "top_k float": (lambda: tr.MAP(top_k=1.5), ["integer >= 1", "1.5"]),
    "top_k where the field has none": (lambda: tr.MR(top_k=3), ["no top_k for MR", "3"]),
    "ties": (lambda: tr.NDCG(ties="random"), ["'expected'", "'random'"]),
    "realistic ties of lists": (lambda: tr.NDCG(ties="realistic"), ["'pessimistic'", "'realistic'"]),
    "empty_target_action": (lambda: tr.NDCG(empty_target_action="zero"), ["'skip'", "'zero'"]),
    "aggregation": (lambda: tr.NDCG(aggregation="sum"), ["'median'", "'sum'"]),
    "aggregation by a lambda": (lambda: tr.NDCG(aggregation=lambda x: x.mean()), ["name of its own", "lambda"]),
    "validate_args": (lambda: tr.NDCG(validate_args="yes"), ["validate_args", "'yes'"]),
    "relevance_level": (lambda: tr.MAP(relevance_level=0), ["number > 0", "got 0"]),
    "normalize": (lambda: tr.MAP(normalize="max"), ["'relevant'", "'max'"]),
    "beta": (lambda: tr.FBeta(beta=-1), ["number > 0", "-1"]),
    "gain": (lambda: tr.DCG(gain="quadratic"), ["'exponential'", "'quadratic'"]),
    "a gain named as a known one": (lambda: tr.DCG(gain=exponential), ["name of its own", "exponential"]),
    "an aggregation named as a known one": (lambda: tr.DCG(aggregation=torch.median), ["name of its own", "median"]),
    "gain by a lambda": (lambda: tr.DCG(gain=lambda g: g), ["name of its own", "lambda"]),
    "discount": (lambda: tr.NDCG(discount="log3"), ["'log2'", "'log3'"]),
    "log_base": (lambda: tr.NDCG(log_base=1), ["number > 1", "got 1"]),
    "log_base without a logarithm": (lambda: tr.NDCG(discount="reciprocal", log_base=3), ["only with", "log_base=3"]),
    "average": (lambda: tr.MR(average="micro"), ["'positive'", "'micro'"]),
    "average of one value": (lambda: tr.MRR(average="positive"), ["filtered=True", "got filtered=False"]),
    "an unknown argument": (lambda: tr.NDCG(k=3), ["NDCG to have arguments top_k,", "got 'k'", "did you mean 'top_k'"]),
    "a misspelt argument": (lambda: tr.MAP(normalise="min"), ["got 'normalise'", "did you mean 'normalize'"]),
    "an argument of no one": (lambda: tr.Coverage(num_items=3, ties="expected"), ["Coverage", "got 'ties'"]),
    "a name without its catalogue": (lambda: tr.parse("coverage@10"), ["num_items", "tr.Coverage(num_items=...)"]),
    "unknown name": (lambda: tr.parse("ndgc@10"), ["'ndgc@10'", "did you mean 'ndcg'"]),
    "unknown parameter": (lambda: tr.parse("map(norms=min)"), ["'norms'", "normalize"]),
    "several cut-offs": (lambda: tr.parse("ndcg@5,10"), ["one cut-off", "RankingCollection"]),
    "a cut-off where there is none": (lambda: tr.parse("mr@10"), ["no cut-off for mr"]),
    "no label": (lambda: tr.parse("ndcg@"), ["'ndcg@10'", "'ndcg@'"]),
    "a bad parameter list": (lambda: tr.parse("ndcg(gain)"), ["parameters like", "'gain'"]),
    "one key for two metrics": (lambda: tr.RankingCollection({"n": "ndcg@5,10"}), ["one metric for key 'n'", "got 2"]),
    "a name that is taken": (
        lambda: type("Mine", (tr.MRR,), {"name": "rbp"}),
        ["Mine to have a name of its own", "'rbp'"],
    ),
    "a subclass without a name": (lambda: type("Mine", (tr.MRR,), {})(), ["Mine to have a name of its own", "'mrr'"]),
    "a name in capitals": (
        lambda: type("Mine", (tr.MRR,), {"name": "RR!"}),
        ["lower-case letters and digits", "'RR!'"],
    ),
    "a key twice": (lambda: tr.RankingCollection(["mrr", "RR"]), ["once", "'mrr' twice"]),
    "no metric": (lambda: tr.RankingCollection([3]), ["name of a measure", "3"]),
}


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructors_say_what_they_expect(case):
    make, said = CONSTRUCTORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    for part in said:
        assert part in str(caught.value), str(caught.value)


RANKINGS = {
    "equal ranks in a list": (
        lambda: tr.Ranking.from_ranks(torch.tensor([[3, 3, 1]]), 10),
        ["1 rank ", "equal to another"],
    ),
    "ranks below one": (lambda: tr.Ranking.from_ranks(torch.tensor([0.5, 2.0])), ["1 rank below 1"]),
    "ranks beyond the list": (
        lambda: tr.Ranking.from_ranks(torch.tensor([4, 2]), 3),
        ["1 rank ", "beyond num_candidates"],
    ),
    "ranks of three dimensions": (lambda: tr.Ranking.from_ranks(torch.ones(1, 1, 1)), ["[query, entry]", "[1, 1, 1]"]),
    "scores as ids": (lambda: tr.Ranking.from_ids(SCORES, torch.tensor([1, 2])), ["ids to be integer", "float32"]),
    "a label per candidate": (lambda: tr.Ranking.from_label(SCORES, GRADES), ["label of shape [2]", "[2, 3]"]),
    "negatives of other queries": (lambda: tr.Ranking.from_negatives(ROWS, SCORES[:1]), ["as many queries", "[1, 3]"]),
    "embeddings of two dimensions": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 2), torch.tensor([0, 1])),
        ["one dimension", "[2, 3] and [4, 2]"],
    ),
    "embeddings of two dtypes": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3).double(), torch.tensor([0, 1])),
        ["one dtype", "torch.float64"],
    ),
    "similarity": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 1]), similarity="l2"),
        ["'cosine'", "'l2'"],
    ),
    "item outside the catalogue": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 4])),
        ["1 label, id or (query, item) index outside"],
    ),
}


@pytest.mark.parametrize("case", RANKINGS)
def test_rankings_say_what_they_expect(case):
    make, said = RANKINGS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        tr.MRR().score(make())
    for part in said:
        assert part in str(caught.value), str(caught.value)


def test_a_foreign_metric_cannot_take_a_ranking():
    suite = tr.RankingCollection([tr.MRR(), MeanAbsoluteError()])
    with pytest.raises(TypeError, match=r"preds and target for MeanAbsoluteError.*got a Ranking"):
        suite.update(tr.Ranking.from_scores(SCORES, GRADES))
