"""Lists of generated identifiers: items are ranked as tie groups, against lists of items in plain Python."""

import random

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.layout_cases import config
from tests.support.oracle_comparison import assert_all_equal
from tests.support.tie_orders import Query

CONFIGS = [config(name, top_k=k) for name in ("hitrate", "recall", "mrr", "map", "ndcg") for k in (1, 3, None)]
CONFIGS += [config("recall", top_k=2, ties=ties) for ties in ("optimistic", "pessimistic")] + [config("err")]
LISTS = 40


def generated(seed, levels=2):
    """Identifiers of nine items, some shared; beams, some repeated, padded or of no item; relevant items."""
    rng = random.Random(seed)
    code = lambda: tuple(rng.randint(0, 1) for _ in range(levels))  # noqa: E731
    ids_of = [code() for _ in range(9)]
    beams = [[code() if rng.random() < 0.8 else (-1,) * levels for _ in range(5)] for _ in range(LISTS)]
    beams = [[(7, *beam[1:]) if beam[0] >= 0 and rng.random() < 0.2 else beam for beam in one] for one in beams]
    relevant = [sorted(rng.sample(range(9), rng.randint(0, 3))) for _ in range(LISTS)]
    return ids_of, beams, relevant


def query_of(beams, relevant, ids_of, invalid):
    listed, missing, seen = [], set(relevant), set()
    for place, beam in enumerate(beams):
        if beam[0] < 0 or beam in seen:
            continue
        seen.add(beam)
        items = [item for item, identifier in enumerate(ids_of) if identifier == beam]
        missing -= set(items)
        listed += [(-float(place), int(item in relevant)) for item in items]
        if not items and invalid == "hold":
            listed.append((-float(place), 0))
    return Query(tuple(listed), (1,) * len(missing))


@pytest.mark.parametrize("invalid", ["hold", "drop"])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_an_identifier_of_several_items_puts_them_tied_in_its_place(levels, invalid):
    ids_of, beams, relevant = generated(levels, levels)
    queries = [query_of(*pair, ids_of, invalid) for pair in zip(beams, relevant)]
    target = [torch.tensor(one, dtype=torch.int64) for one in relevant]
    forms = [(torch.tensor(beams), torch.tensor(ids_of))]
    if levels == 1:  # without the last dimension
        forms.append(tuple(x.squeeze(-1) for x in forms[0]))
    for preds, of in forms:
        ranking = tr.Ranking.from_generated(preds, target, of, invalid=invalid)
        values = [layout_cases.scoring(one).score(ranking) for one in CONFIGS]
        assert_all_equal(CONFIGS, queries, values, "generated")


@pytest.mark.parametrize("levels", [(), (2,)])
@pytest.mark.parametrize("invalid", ["hold", "drop"])
def test_lists_without_beams_have_no_candidates(levels, invalid):
    beams, ids_of = torch.zeros(2, 0, *levels, dtype=torch.int64), torch.ones(3, *levels, dtype=torch.int64)
    for target in (torch.tensor([0, 2]), [torch.tensor([0, 1]), torch.tensor([2])]):
        ranking = tr.Ranking.from_generated(beams, target, ids_of, invalid=invalid)
        assert ranking.num_candidates.tolist() == [0, 0]
        assert tr.Recall().score(ranking).tolist() == [0, 0]
    assert not tr.Ranking.from_generated(beams[:0], torch.zeros(0, dtype=torch.int64), ids_of).num_queries


def test_labels_pairs_and_padded_targets_are_the_same():
    ids_of, beams, _ = generated(4)
    label = torch.arange(LISTS) % 9
    forms = (label, [*label.unsqueeze(1)], torch.stack([label, torch.full_like(label, -1)], 1))
    pairs = torch.arange(LISTS), label

    def values(form):
        return tr.MRR().score(tr.Ranking.from_generated(torch.tensor(beams), form, torch.tensor(ids_of)))

    first, *others = map(values, (*forms, pairs))
    assert all(first.equal(other) for other in others)
    label[0] = -100
    assert values(label)[0].isnan()


@pytest.mark.parametrize("k", [None, 1, 3])
def test_shares_of_valid_shared_and_repeated_identifiers(k):
    ids_of, beams, _ = generated(6, levels=3)
    want = {tr.Validity: [], tr.Aliasing: [], tr.Duplication: []}
    for one in beams:
        first = [beam for beam in one if beam[0] >= 0][:k]
        counts = [ids_of.count(beam) for beam in first]
        valid = [count for count in counts if count]
        nothing = float("nan")
        want[tr.Validity].append(len(valid) / len(first) if first else nothing)
        aliased = sum(count > 1 for count in valid) / len(valid) if valid else 0
        want[tr.Aliasing].append(aliased if first else nothing)
        want[tr.Duplication].append(1 - len(set(first)) / len(first) if first else nothing)
    for cls, values in want.items():
        metric = cls(k, ids_of=torch.tensor(ids_of))
        got = metric.score(torch.tensor(beams))
        torch.testing.assert_close(got, torch.tensor(values, dtype=torch.float64), equal_nan=True)
        assert cls(k, ids_of=ids_of).score(beams).equal(got) or got.isnan().any()
        metric.update(torch.tensor(beams[:9]))
        metric.update(torch.tensor(beams[9:]))
        assert metric.compute().item() == pytest.approx(got.nanmean().item())


@pytest.mark.parametrize(
    ("beams", "ids_of", "error", "message"),
    [
        (torch.zeros(2, 3, 2).long(), torch.zeros(4).long(), ValueError, "of as many levels"),
        (torch.zeros(2, 3).long(), torch.zeros(4, 2).long(), ValueError, "of as many levels"),
        (torch.zeros(2, 3), torch.zeros(4).long(), TypeError, "beams.long"),
        (torch.zeros(2).long(), torch.zeros(4).long(), ValueError, r"beams \[query, beam\]"),
    ],
)
def test_wrong_beams_raise(beams, ids_of, error, message):
    for call in (
        lambda: tr.Ranking.from_generated(beams, torch.zeros(2).long(), ids_of),
        lambda: tr.Validity(ids_of=ids_of).score(beams),
    ):
        with pytest.raises(error, match=message):
            call()


def test_identifiers_in_the_place_of_items_are_refused_and_several_items_are_not():
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    ids_of = torch.cartesian_prod(*[torch.arange(4)] * 3)[order]
    item = torch.tensor([5, 9, 30])
    beams = ids_of[torch.stack([item + 1, item], 1)]
    assert tr.MRR().score(tr.Ranking.from_generated(beams, item, ids_of)).tolist() == [0.5] * 3
    for target in (ids_of[item], ids_of[item].numpy()):
        with pytest.raises(ValueError, match="target to have rows of ids_of, got identifiers; pass the items"):
            tr.Ranking.from_generated(beams, target, ids_of)
    several = torch.stack([item, item + 2, item + 3], 1)  # as wide as an identifier
    assert tr.MRR().score(tr.Ranking.from_generated(beams, several, ids_of)).tolist() == [0.5] * 3
    small = torch.tensor([[1, 2, 3]])  # items whose numbers are an identifier, too
    ranking = tr.Ranking.from_generated(ids_of[small], list(small), ids_of)
    assert tr.MAP().score(ranking).tolist() == [1]
    assert len(tr.MRR().score(tr.Ranking.from_generated(beams[:0], several[:0], ids_of))) == 0
    mixed = torch.tensor([[1, 2, 3], [9, 40, 41]])  # of which one row is an identifier
    assert tr.MRR().score(tr.Ranking.from_generated(ids_of[mixed], mixed, ids_of)).tolist() == [1, 1]
    one_code = torch.tensor([[0], [1]])
    assert tr.MRR().score(tr.Ranking.from_generated(one_code.unsqueeze(0), one_code[:1], one_code)).tolist() == [1]


def test_unknown_items_and_policies_raise():
    beams, ids_of = torch.zeros(1, 2).long(), torch.zeros(4).long()
    with pytest.raises(ValueError, match="out of range"):
        tr.MRR().score(tr.Ranking.from_generated(beams, torch.tensor([4]), ids_of))
    with pytest.raises(ValueError, match="invalid"):
        tr.Ranking.from_generated(beams, torch.tensor([0]), ids_of, invalid="skip")


def test_a_beam_that_is_padding_at_one_level_is_padding():
    beams, ids_of = torch.tensor([[[1, -1], [1, 2]]]), torch.tensor([[1, 1], [1, 2]])
    assert tr.MRR().score(tr.Ranking.from_generated(beams, torch.tensor([1]), ids_of)).item() == 1
