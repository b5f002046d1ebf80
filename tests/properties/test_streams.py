"""Catalogues that come in pieces, lie with several workers or are written as rows stand as they do in one matrix."""

import itertools
import math
import pickle
import re
import sys
import time
from dataclasses import replace

import numpy
import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support import memory_growth, sharded_catalogues, workers
from tests.support.brute_force_ranks import (
    DTYPES,
    FORCED,
    assert_same,
    assert_stands,
    no_places,
    pairs_of,
    places,
    some_scores,
)
from tests.support.cases import cases
from tests.support.sharded_catalogues import CATALOGUES, shared
from tests.support.unread import Elsewhere, leave_values_unread
from torchrank.engine import streams
from torchrank.engine.judged import Counting
from torchrank.hardware import costs
from torchrank.layouts.arrange import _chunk
from torchrank.layouts.canonical import EmbeddedLayout

INF, NAN = math.inf, math.nan


def products(queries, items, chunk):
    """The scores, made as a ranking in chunks makes them."""
    return [queries @ items[start : start + chunk].T for start in range(0, len(items), chunk)]


def relevant_items(kind, queries, items, seed=0):
    g = torch.Generator().manual_seed(seed)
    lists = [torch.randperm(items, generator=g)[: number % 6] for number in range(queries)]
    query = torch.arange(queries).repeat_interleave(tensor([len(x) for x in lists]))
    padded = torch.randint(items, (queries, 1), generator=g) + torch.arange(3) * 7
    return {
        "label": torch.randint(-1, items, (queries,), generator=g),
        "padded": torch.where(padded < items, padded, -1),
        "list": lists,
        "pairs": (query, torch.cat(lists)),
        "triples": (query, torch.cat(lists), torch.randint(-1, 4, query.shape, generator=g)),
    }[kind]


KINDS = ["label", "padded", "list", "pairs", "triples"]


def from_scores(scores, relevant, **more):
    """A ranking of the whole matrix, which takes padded items as a list of their rows."""
    grid = isinstance(relevant, torch.Tensor) and relevant.dim() == 2
    return tr.Ranking.from_scores(scores, list(relevant) if grid else relevant, **more)


ENGINES = [None, *Counting]


@pytest.fixture(params=ENGINES, ids=str)
def engine(request, assume):
    if request.param is not None:
        assume(**FORCED[request.param])
    return request.param


def with_engines(name, values):
    """Each value with one engine in turn; every engine meets all in `test_costs.py`."""
    pairs = [(value, ENGINES[number % len(ENGINES)]) for number, value in enumerate(values)]
    return pytest.mark.parametrize((name, "engine"), pairs, ids=str, indirect=["engine"])


# ---- embeddings, some items at a time ----------------------------------------------------------------------------


# Dimensions, or bytes, and the numbers between which embeddings are drawn. Up to 1,024 dimensions of -128 are float32.
EXACT = {
    "int8, massive ties": (torch.int8, 3, -2, 3),
    "int8, float32": (torch.int8, 1024, -128, -125),
    "int8, float64": (torch.int8, 1025, -128, -125),
    "packed bits": (torch.uint8, 2, 0, 256),
    "packed bits, int8": (torch.int8, 2, -128, 128),
}


def exact_batch(name, number=0):
    """Embeddings of integers, options, and their scores by numpy, in int64: products, or numbers of equal bits."""
    (dtype, dimension, low, high), g = EXACT[name], torch.Generator().manual_seed(number)
    queries, items = (torch.randint(low, high, (n, dimension), generator=g).to(dtype) for n in (20, 110))
    if not name.startswith("packed"):
        return queries, items, {}, torch.from_numpy(queries.numpy().astype("int64") @ items.numpy().astype("int64").T)
    left, right = (x.numpy().view("uint8") for x in (queries, items))
    differing = numpy.unpackbits(left[:, None] ^ right, axis=-1).sum(-1, dtype="int64")
    return queries, items, {"similarity": "hamming"}, torch.from_numpy(8 * dimension - differing)


@with_engines("name", EXACT)
def test_embeddings_of_integers_have_the_ranks_of_exact_products(engine, name):
    turn = [*EXACT].index(name)
    kind, chunk = KINDS[turn], (50, 7, 33, 1, 110)[turn]
    queries, items, more, scores = exact_batch(name, turn)
    relevant, groups = relevant_items(kind, 20, 110), torch.arange(110) // 3 * 7
    for given in ({}, {"exclude": pairs_of((20, 110), 450, seed=2)}, {"groups": groups}):
        want = places(from_scores(scores.double(), relevant, **given))
        options = {**more, **given, "chunk_size": chunk}
        assert_stands(tr.Ranking.from_embeddings(queries, items, relevant, **options), want)
        assert_stands(tr.Ranking.from_embeddings(queries, items, relevant, top_k=4, **options), want, 4)
        if kind == "label" and "groups" not in given:  # as on an accelerator
            moved = (x.as_subclass(Elsewhere) for x in (queries, items))
            assert_stands(tr.Ranking.from_embeddings(*moved, relevant, **options), want)


def test_the_largest_products_of_int8_are_exact():
    for dimension in (1024, 1025, 4096):  # float32 has no odd numbers above 1024 * 128**2
        queries, items = torch.full((2, 4, dimension), -128, dtype=torch.int8)
        queries[:, 0], items[:, 0] = -1, tensor([-128, -127, -126, -127])
        ranking = tr.Ranking.from_embeddings(queries, items, torch.arange(4))
        assert ranking.first.flatten().tolist() == [1, 2, 4, 2]
        assert ranking.tied.flatten().tolist() == [1, 2, 1, 2]


def test_a_copy_of_integer_items_is_no_larger_than_their_scores_may_be(monkeypatch, assume):
    sizes, real = [], EmbeddedLayout.factors
    assume(product=2**10)
    monkeypatch.setattr(EmbeddedLayout, "factors", lambda *x: sizes.append(real(*x).numel()) or real(*x))
    whole = torch.ones(9, 64, dtype=torch.int8)
    for queries, more in (whole, {}), (whole[:, :8].byte(), {"similarity": "hamming"}):
        tr.Ranking.from_embeddings(queries, queries[:1].expand(100, -1), torch.arange(9), **more)
    assert 2**9 < max(sizes) <= 2**10


GUESSES = {
    "a bit more": lambda own: torch.nextafter(own, tensor(INF)),
    "a bit less, for some": lambda own: torch.where(torch.arange(len(own))[:, None] % 3 == 0, own - 1e-6, own),
    "nothing": torch.zeros_like,
    "NaN": lambda own: torch.full_like(own, NAN),
    "too good": lambda own: torch.full_like(own, INF),
    "too bad": lambda own: torch.full_like(own, -INF),
    "that of another": lambda own: own.flip(0),
}


@with_engines("guess", GUESSES)
def test_a_wrong_guess_changes_nothing(monkeypatch, guess, engine):
    asked = []
    monkeypatch.setattr(streams, "_guess", lambda lists, *of: asked.append(lists) or GUESSES[guess](right).flatten())
    g = torch.Generator().manual_seed(6)
    queries, items = torch.randn(30, 8, generator=g), torch.randn(200, 8, generator=g)
    for kind in ("label", "padded"):
        relevant = relevant_items(kind, 30, 200)
        exclude = pairs_of((30, 200), 500, seed=7)
        scores = torch.cat(products(queries, items, 33), dim=-1)
        column = relevant.reshape(30, -1)
        right = torch.where(column >= 0, scores.gather(1, column.clamp_min(0)), 0)
        for given in ({}, {"exclude": exclude}):
            ranking = tr.Ranking.from_embeddings(queries, items, relevant, chunk_size=33, **given)
            assert_same(ranking, from_scores(scores, relevant, **given))
    assert len(asked) == 4


@pytest.mark.parametrize(("wrong", "readings"), [(False, 1), (True, 3)])
def test_a_right_guess_saves_a_reading(monkeypatch, wrong, readings):
    real, made = streams._guess, []
    monkeypatch.setattr(streams, "_guess", lambda *of: real(*of) + wrong)
    monkeypatch.setattr(torch, "mm", lambda *args, mm=torch.mm, **kwargs: made.append(args) or mm(*args, **kwargs))
    g = torch.Generator().manual_seed(8)
    queries, items = (torch.randint(-3, 4, (n, 4), generator=g).float() for n in (300, 5000))
    label = relevant_items("label", 300, 5000)
    ranking = tr.Ranking.from_embeddings(queries, items, label, chunk_size=1024)
    assert len(made) == 5 * readings
    assert_same(ranking, tr.Ranking.from_label(queries @ items.T, label))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_positive_never_outranks_itself(dtype):
    g = torch.Generator().manual_seed(9)
    queries, items = torch.randn(150, 64, generator=g).to(dtype), torch.randn(20_000, 64, generator=g).to(dtype)
    label = torch.randint(20_000, (150,), generator=g)
    label[::2] = (queries @ items[:10_000].T).argmax(-1)[::2]
    ranking = tr.Ranking.from_embeddings(queries, items, label, chunk_size=4096)
    scores = torch.cat(products(queries, items, 4096), dim=-1)
    own = scores.gather(1, label.unsqueeze(-1))
    assert ((queries * items[label]).sum(-1, keepdim=True) != own).any()
    assert torch.equal(ranking.first, (scores > own).sum(-1, keepdim=True) + 1.0)
    assert torch.equal(ranking.tied, (scores == own).sum(-1, keepdim=True).double())
    assert (ranking.first == 1).any()
    default = tr.Ranking.from_embeddings(queries, items, label)
    assert (default.tied >= 1).all()
    assert ((default.first - ranking.first).abs() <= ranking.tied + 5).all()


@pytest.mark.parametrize(("dtype", "similarity"), zip(DTYPES, ["dot", "cosine", "cosine", "dot"]), ids=str)
def test_under_autocast_scores_stay_as_precise_as_the_embeddings(dtype, similarity):
    autocast = torch.float16 if dtype in (torch.bfloat16, torch.float64) else torch.bfloat16
    g = torch.Generator().manual_seed(10)
    queries, items = torch.randn(30, 16, generator=g).to(dtype), torch.randn(3000, 16, generator=g).to(dtype)
    label = torch.randint(3000, (30,), generator=g)
    for given in ({}, {"chunk_size": 700}, {"chunk_size": 700, "top_k": 3}):
        want = tr.Ranking.from_embeddings(queries, items, label, similarity=similarity, **given)
        with torch.autocast("cpu", dtype=autocast):
            assert_same(tr.Ranking.from_embeddings(queries, items, label, similarity=similarity, **given), want)


@cases("bad", [NAN, INF, -INF, 1e30])
@cases("of", ["queries", "items"])
def test_embeddings_whose_products_may_not_be_finite(engine, bad, of):
    g = torch.Generator().manual_seed(3)
    embeddings = {name: torch.randn(n, 8, generator=g) for name, n in (("queries", 20), ("items", 90))}
    relevant = torch.randint(90, (20,), generator=g)
    for number in (1.0, bad):
        embeddings[of][5] = number
        if number == 1e30:
            embeddings = {name: x * 1e30 for name, x in embeddings.items()}
        queries, items = embeddings["queries"], embeddings["items"]
        chunked = tr.Ranking.from_embeddings(queries, items, relevant, chunk_size=16)
        scores = torch.cat(products(queries, items, 16), dim=-1)
        want = tr.Ranking.from_label(scores, relevant)
        numbers = (~scores.isnan().any(-1)).nonzero().squeeze(-1)  # NaN is counted, and has no rank
        assert_stands(chunked.take(numbers), places(want.take(numbers)))
        assert torch.equal(chunked.num_candidates, want.num_candidates)
        assert torch.equal(chunked.errors, want.errors)


@pytest.mark.needs("tqdm")
def test_progress_is_shown_on_request(capsys):
    queries, items, label = torch.randn(5, 3), torch.randn(40, 3), torch.arange(5)
    want = tr.Ranking.from_embeddings(queries, items, label, chunk_size=10, top_k=5)
    assert capsys.readouterr().err == ""
    for given, steps in (({}, (4, 8)), ({"top_k": 5}, (4, 8)), ({"chunk_size": 100}, (1,))):
        ranking = tr.Ranking.from_embeddings(queries, items, label, **{"chunk_size": 10, **given}, progress=True)
        done = re.findall(r"(\d+)/(\d+)", capsys.readouterr().err)
        assert done
        assert int(done[-1][0]) == int(done[-1][1])
        assert int(done[-1][0]) in steps
        assert_stands(ranking, places(want), 5)


@pytest.mark.parametrize(("queries", "items"), [(1, 700), (40, 5000), (300, 100_000), (5000, 100), (0, 0)])
def test_a_chunk_on_a_device_is_aligned_and_not_larger_than_so_few_products_need(assume, queries, items):
    assume(cached_bytes=4 * 2**16)  # float32, so 2 ** 16 scores at a time, or 256 * 256
    chunk = _chunk(items, torch.zeros(queries, 8).as_subclass(Elsewhere))
    aligned = range(256, 2**17, 256)
    widest = max(width for width in aligned if width == 256 or width * max(8, min(queries, 256)) <= 2**16)
    products = max(1, math.ceil(items / widest))
    assert chunk == min(items, next(width for width in aligned if products * width >= items))


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
def test_the_matrix_of_scores_never_exists():
    with workers.CONTEXT.Pool(1) as pool:
        by_default, in_whole_rows, as_a_matrix = pool.apply_async(memory_growth.memory_of_embeddings).get(300)
    assert by_default <= in_whole_rows < 128 < 200 < as_a_matrix
    assert by_default < 64


# ---- blocks of scores --------------------------------------------------------------------------------------------


def cut(scores, widths):
    return list(scores.split([*widths, scores.shape[1] - sum(widths)], dim=-1))


def test_pairs_are_excluded_from_the_best_of_a_few_queries_at_a_time(assume):
    assume(**FORCED[Counting.TOP], rectangle_counted=-10, copied=100)
    scores, relevant = some_scores(20, 50, seed=13), relevant_items("list", 20, 50)
    exclude = pairs_of((20, 50), 200, seed=14)
    ranking = tr.Ranking.from_score_blocks(cut(scores, (20,)), relevant, exclude=exclude, top_k=4)
    assert_stands(ranking, places(from_scores(scores, relevant, exclude=exclude)), 4)


def test_a_function_is_called_twice_and_a_reading_is_saved_where_one_is_enough():
    calls = []

    def blocks():
        calls.append(0)
        for start in range(0, 3000, 1000):
            calls[-1] += 1
            yield scores[:, start : start + 1000]

    scores = torch.randn(4, 3000)
    for number, top_k in ((1, None), (200, 5)):
        calls.clear()
        relevant = [torch.randperm(3000)[:number] for _ in range(4)]
        ranking = tr.Ranking.from_score_blocks(blocks, relevant, top_k=top_k)
        assert_stands(ranking, places(tr.Ranking.from_scores(scores, relevant)), top_k)
        assert len(calls) <= 2, calls
        assert sum(calls) <= 3 * 2 + 1


GOOD, LABELS = torch.rand(2, 3), tensor([0, 1])


@cases(
    ("blocks", "error", "match"),
    [
        ([], ValueError, "at least one block"),
        (lambda: iter(()), ValueError, "at least one block"),
        ([GOOD, torch.rand(3, 3)], ValueError, r"\[3, 3\].*after \[2, 3\]"),
        ([GOOD, GOOD.double()], ValueError, r"float64 after .*float32"),
        ([GOOD, GOOD[0]], ValueError, r"\[3\]"),
        (GOOD, ValueError, r"\[3\]"),
        ([GOOD, GOOD.long()], TypeError, "int64"),
        ([GOOD.long()], TypeError, "int64"),
        (["scores"], TypeError, "str"),
        (7, TypeError, "int"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(blocks, error, match):
    for top_k in (None, 2):
        with pytest.raises(error, match=match):
            tr.Ranking.from_score_blocks(blocks, LABELS, top_k=top_k)


def test_a_one_shot_iterator_needs_a_top_k_which_is_a_rank():
    with pytest.raises(ValueError, match=r"twice.*top_k.*generator"):
        tr.Ranking.from_score_blocks((block for block in [GOOD, GOOD]), LABELS)
    for top_k in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"top_k.*{top_k}"):
            tr.Ranking.from_score_blocks([GOOD], LABELS, top_k=top_k)
        with pytest.raises(ValueError, match=f"top_k.*{top_k}"):
            tr.Ranking.from_embeddings(GOOD, GOOD, LABELS, top_k=top_k)


@pytest.mark.parametrize("read", [True, False], ids=["", "no value is read"])
def test_catalogues_without_queries_or_items(monkeypatch, read):
    if not read:
        leave_values_unread(monkeypatch)
    for queries, items in ((3, 0), (0, 5), (0, 0)):
        label, embeddings = torch.full((queries,), -1), (torch.rand(queries, 4), torch.rand(items, 4))
        for given in ({}, {"top_k": 2}):
            ranking = tr.Ranking.from_embeddings(*embeddings, label, chunk_size=2, **given)
            assert_stands(ranking, no_places(queries, items))
            ranking = tr.Ranking.from_score_blocks([torch.rand(queries, items)] * 2, label, **given)
            assert_stands(ranking, no_places(queries, 2 * items))
    none = tensor([], dtype=torch.int64)
    ranking = tr.Ranking.from_embeddings(torch.rand(3, 4), torch.rand(0, 4), torch.full((3,), -1), groups=none)
    assert_stands(ranking, no_places(3, 0))
    with pytest.raises(ValueError, match="3 labels"):
        tr.MRR().score(tr.Ranking.from_embeddings(torch.rand(3, 4), torch.rand(0, 4), torch.arange(3)))


def test_bad_values_in_blocks_are_counted_as_in_one_matrix(engine):
    scores = some_scores(12, 30, seed=15)
    scores[3:6, 10:15] = NAN  # in two of the blocks, not in the last one
    relevant = (tensor([0, 0, 1, 2, 2, 12, 3]), tensor([29, 30, 2**31, 4, 4, 0, 1]))
    exclude = (tensor([0, 3, 5, 99]), tensor([30, 12, 2**31, 0]))
    want = tr.Ranking.from_scores(scores, relevant, exclude=exclude)
    assert (want.errors > 0).sum() == 3
    for blocks, padding in itertools.product(([scores], cut(scores, (11, 0, 7))), (10**9, -100)):  # one group, several
        for form, top_k in ((list, None), (list, 4), (iter, 4)):
            with costs.assumed(rectangle_counted=padding):
                ranking = tr.Ranking.from_score_blocks(form(blocks), relevant, exclude=exclude, top_k=top_k)
            assert torch.equal(ranking.errors, want.errors)
            with pytest.raises(ValueError, match="3 queries with NaN"):
                tr.Recall(top_k=4).score(ranking)


# ---- a catalogue spread over workers -----------------------------------------------------------------------------


@pytest.mark.xdist_group("processes")
def test_a_sharded_catalogue_is_ranked_as_a_whole_one(tmp_path):
    arguments = [(rank, str(tmp_path)) for rank in range(3)]
    processes = [workers.CONTEXT.Process(target=sharded_catalogues.work, args=args, daemon=True) for args in arguments]
    for process in processes:
        process.start()
    end = time.monotonic() + 300
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        process.kill()
    results = [pickle.loads((tmp_path / f"{rank}.result").read_bytes()) for rank in range(3)]
    assert not [result["error"] for result in results if "error" in result]
    wrong = []
    for name, case in CATALOGUES.items():
        want, blocks = sharded_catalogues.ranked(case)[0], 1 if case.product is None else 3
        among_best = "top_k" in case.more and case.relevant > 50
        assert want.reach == case.more.get("top_k"), name
        times = {"all_reduce": 1 + blocks, "all_gather": 2 * blocks} if among_best else {"all_reduce": 1 + 2 * blocks}
        for world, how, place in ((w, how, place) for w in (2, 3) for how in shared(name) for place in range(w)):
            ranking, count = results[3 - world + place][world, name, how]
            if case.elsewhere:  # the largest rank is not read on a device
                ranking = replace(ranking, depth=want.depth)
            try:
                assert_same(ranking, want)
                assert count == times
            except AssertionError as error:
                wrong.append(f"{name}, {how}, worker {place} of {world}: {error}")
    assert not wrong, "\n".join(wrong)
    for world, numbers in ((2, "[11, 10]"), (3, "[11, 10, 11]")):
        for result in results[-world:]:
            assert numbers in result[world, "different"]
            assert "Expected no groups for items spread over workers" in result[world, "groups"]
