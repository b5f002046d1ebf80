"""Results depend on no cost: drawn costs lead to other plans, chunks and rectangles, with the same places."""

import dataclasses
import random

import pytest
import torch

import torchrank as tr
from tests.support import workers
from tests.support.brute_force_ranks import DTYPES, FORCED, INF, NAN, assert_stands, some_scores, standing
from tests.support.cases import cases
from tests.support.unread import leave_values_unread
from torchrank.engine import rank
from torchrank.hardware import costs
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Need
from torchrank.layouts.checks import Problem

INTEGERS, FLOATS = (1, 2, 5, 40, 10**9), (0.0, 0.1, 3.0, 1e9)
INDEXES = [torch.uint8, torch.int16, torch.int32, torch.int64]


def drawn_costs(draw):
    """Half of all costs, each of another size; often those of one strategy, or of one way to count, are the least."""

    def another(usual):
        if isinstance(usual, tuple):
            return tuple(map(another, usual))
        return draw.choice(INTEGERS if isinstance(usual, int) else FLOATS)

    fields = [field.name for field in dataclasses.fields(costs.Costs)]
    drawn = {name: another(getattr(costs.Costs(), name)) for name in fields if draw.random() < 0.5}
    alone = {"long": 0, "rare": 0, "padding": draw.choice([0, 9])}
    return drawn | draw.choice([{}, alone]) | draw.choice([{}, *FORCED.values()])


def drawn_lists(draw, generator):
    """Scores with ties, and grades from -1 to 3 of few or many candidates, some of them not judged (-2)."""
    shape = draw.choice([(1, 30), (2, 1), (7, 12), (20, 9), (12, 40)])
    scores = some_scores(*shape, draw.choice(DTYPES), draw.randrange(9))
    grade = torch.randint(-1, 4, shape, generator=generator)
    share = torch.tensor(draw.choice([[0.1], [0.0, 0.1, 0.9], [1.0]]))
    kept = torch.rand(shape, generator=generator) < share[torch.randint(len(share), (shape[0], 1), generator=generator)]
    return scores, torch.where(kept, grade, -2)


def drawn_options(draw, shape, names, generator):
    """No options of lists, or some of them."""
    options = {
        "mask": torch.rand(shape, generator=generator) < 0.7,
        "tie_break": torch.randint(3, shape, generator=generator),
        "exclude": tuple(torch.randint(size, (2 * shape[0],), generator=generator) for size in shape),
    }
    return {name: options[name] for name in names if draw.random() < 0.5} if draw.random() < 0.5 else {}


def judged(grade):
    return [{item: worth for item, worth in enumerate(row) if worth > -2} for row in grade.tolist()]


def of_relevant(grade):
    return [{item: 1 for item, worth in enumerate(row) if worth > 0} for row in grade.tolist()]


# ---- layouts: drawn lists as a batch, and its places -----------------------------------------------------------------


def matrix(draw, generator):
    scores, grade = drawn_lists(draw, generator)
    grade = grade.clamp_min(-1)
    given = drawn_options(draw, grade.shape, ("mask", "tie_break", "exclude"), generator)
    return arrange(scores, grade, **given), standing(scores, judged(grade), **given)


def triples(draw, generator):
    scores, grade = drawn_lists(draw, generator)
    given = drawn_options(draw, grade.shape, ("mask", "tie_break", "exclude"), generator)
    query, item = (grade > -2).nonzero(as_tuple=True)
    return arrange(scores, (query, item, grade[query, item]), **given), standing(scores, judged(grade), **given)


def labels(draw, generator):
    scores, _ = drawn_lists(draw, generator)
    label = torch.randint(-1, scores.shape[1], (len(scores),), generator=generator)
    given = drawn_options(draw, scores.shape, ("mask", "tie_break", "exclude"), generator)
    one_each = [{item: 1} if item >= 0 else {} for item in label.tolist()]
    return arrange(scores, label, **given), standing(scores, one_each, **given)


def flat(draw, generator):
    """Rows of the lists one after the other, or in no order, of queries far apart or close together."""
    scores, grade = drawn_lists(draw, generator)
    grade = grade.clamp_min(-1)
    given = drawn_options(draw, grade.shape, ("mask", "tie_break"), generator)
    queries, candidates = grade.shape
    dtype = draw.choice(INDEXES)
    gap = 2**31 if dtype == torch.int64 and queries == 2 else draw.choice([1, 3])
    number = (torch.arange(queries) * gap + draw.choice([0, 9])).to(dtype).repeat_interleave(candidates)
    order = torch.randperm(len(number), generator=generator) if draw.random() < 0.5 else torch.arange(len(number))
    rows = {name: x.flatten()[order] for name, x in given.items()}
    batch = arrange(scores.flatten()[order], grade.flatten()[order], indexes=number[order], **rows)
    return batch, standing(scores, judged(grade), **given)


def ids(draw, generator):
    """Lists of items, best first, some of them short."""
    _, grade = drawn_lists(draw, generator)
    queries, items = grade.shape
    length = torch.randint(items + 1, (queries, 1), generator=generator)
    order = torch.rand(queries, items, generator=generator).argsort(-1)
    place = order.argsort(-1)
    scores = torch.where(place < length, -place.double(), -INF)
    given = drawn_options(draw, grade.shape, ("exclude",), generator)
    relevant = [(row > 0).nonzero().flatten() for row in grade]
    listed = torch.where(torch.arange(items) < length, order, -1)
    return arrange(listed, relevant, **given), standing(scores, of_relevant(grade), **given)


LAYOUTS = {make.__name__: make for make in (matrix, triples, labels, flat, ids)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("read", [True, False], ids=["", "no value is read"])
@cases("seed", range(40))
def test_places_do_not_depend_on_costs(monkeypatch, layout, read, seed):
    if not read:
        leave_values_unread(monkeypatch)
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, want = LAYOUTS[layout](draw, generator)
    need = Need(draw.choice([None, 1, 4, 100]), relevant=draw.random() < 0.7)
    with costs.assumed(**drawn_costs(draw)):
        rankings = list(rank(batch, need))
    if all(part.pool is None for part in rankings):
        assert_stands(tr.Ranking.join(rankings), want, need.reach, need.relevant)
        return
    end = 0
    for part in rankings:
        start, end = end, end + part.num_queries
        assert_stands(part, want.rows(start, end), need.reach, need.relevant)


# ---- catalogues that come in pieces ----------------------------------------------------------------------------------


def targets_of(grade, draw):
    """The relevant items as every kind of target, and the grades that each gives."""
    relevant, pairs = of_relevant(grade), (grade > -2).nonzero(as_tuple=True)
    lists = [torch.tensor([*items], dtype=torch.int64) for items in relevant]
    label = [draw.choice([*items]) if items else -1 for items in relevant]
    return [
        (torch.tensor(label), [{item: 1} if item >= 0 else {} for item in label]),
        (torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=-1), relevant),
        (lists, relevant),
        ((grade > 0).nonzero(as_tuple=True), relevant),
        ((*pairs, grade[pairs]), judged(grade)),
    ]


class Readable:
    """Neither a list nor a function, and can be read as often as one likes."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __iter__(self):
        return iter(self.blocks)


FORMS = [list, tuple, Readable, lambda blocks: lambda: blocks, lambda blocks: lambda: (block for block in blocks)]
ONCE = [iter, lambda blocks: (block for block in blocks)]  # with a top_k only


@pytest.fixture
def alone(tmp_path):
    with workers.group_of_one(tmp_path):
        yield


@pytest.mark.parametrize("read", [True, False], ids=["", "no value is read"])
@pytest.mark.parametrize("pieces", ["embeddings", "blocks"])
@cases("seed", range(25))
def test_catalogues_that_come_in_pieces_do_not_depend_on_costs(monkeypatch, alone, pieces, read, seed):
    if not read:
        leave_values_unread(monkeypatch)
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    scores, grade = drawn_lists(draw, generator)
    queries, items = scores.shape
    target, grades = targets_of(grade, draw)[seed % 5]
    given = {**drawn_options(draw, scores.shape, ("exclude",), generator), "top_k": draw.choice([None, 1, 4])}
    with costs.assumed(**drawn_costs(draw)):
        if pieces == "embeddings":
            # Products of whole numbers are exact.
            dimension = draw.choice([0, 1, 3])
            left, right = (torch.randint(-2, 3, (n, dimension), generator=generator) for n in (queries, items))
            factors, scores = [x.to(scores.dtype) for x in (left, right)], left @ right.T
            group = draw.choice([False, None])  # this process without others, or the group of all, which are one
            more = {"group": group, "chunk_size": draw.choice([None, 1, 7, 33])}
            ranking = tr.Ranking.from_embeddings(*factors, target, **more, **given)
        else:
            ends = sorted(draw.randint(0, items) for _ in range(draw.choice([0, 1, 5])))  # some blocks are empty
            blocks = [*scores.tensor_split(ends, dim=1)]
            form = draw.choice(FORMS + ONCE * (given["top_k"] is not None))
            ranking = tr.Ranking.from_score_blocks(form(blocks), target, **given)
    assert_stands(ranking, standing(scores, grades, exclude=given.get("exclude")), given["top_k"])
    assert not ranking.errors.any()


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "ids"])
@cases("seed", range(30))
def test_nan_is_counted_once_for_each_query_whatever_the_costs(layout, seed):
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    batch, _ = LAYOUTS[layout](draw, generator)
    scores = batch.scores.clone().flatten()
    scores[:: draw.choice([1, 7, 30])] = NAN
    batch = dataclasses.replace(batch, scores=scores.view_as(batch.scores))
    real = torch.ones_like(batch.scores, dtype=torch.bool) if batch.mask is None else batch.mask
    bad = batch.scores.isnan() & real
    number = bad.any(-1).sum() if bad.dim() == 2 else len(batch.indexes[bad].unique())
    with costs.assumed(**drawn_costs(draw)):
        errors = sum(ranking.errors for ranking in rank(batch, Need(draw.choice([None, 2]), relevant=True)))
    assert errors[Problem.NAN_SCORES] == number
