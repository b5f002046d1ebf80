"""The kernels that count scores of a matrix, and products of embeddings: interpreted, and compiled for devices."""

import functools
import json
import logging
import math
import mmap
import multiprocessing
import os
import warnings

import pytest
import torch

import torchrank as tr
from tests.support import workers
from tests.support.guarded import guarded
from torchrank.engine import rank
from torchrank.engine.judged import ScoreCounts, compared_dtype, count_equal, why_no_kernel
from torchrank.engine.streams import _scores, fused_precision
from torchrank.layouts.arrange import embedded
from torchrank.layouts.checks import Problem

pytestmark = pytest.mark.needs("triton")

CPU = torch.device("cpu")
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]

# Triton reads this variable when it is imported, which may have happened in this process. So the tests of the
# interpreter run in a process of their own.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that the first test starts")


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(INTERPRETED, reason="starts the process in which the interpreter runs")
def test_the_interpreter_counts_right(tmp_path):
    arguments = (__file__, tmp_path / "output", {"TRITON_INTERPRET": "1"})
    process = workers.CONTEXT.Process(target=workers.run_tests, args=arguments)  # which has not imported Triton
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "output").read_text()


@pytest.fixture(scope="module", autouse=True)
def one_patch():
    """Let the interpreter patch Triton's language at the first call of a device function, not at each of them.

    Every call wraps all functions of the language once more, which takes longer than what the kernels do.
    """
    if not INTERPRETED:
        yield
        return
    from triton.runtime import interpreter

    patched = set()

    def call(self, *args, **kwargs):
        if self.fn.__module__ not in patched:
            patched.add(self.fn.__module__)
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "__call__", call)
        yield


@pytest.fixture(scope="module")
def fused():
    from torchrank.engine import kernels

    return kernels


def embeddings(queries, items, dimension, dtype, special=False):
    """Integers, whose products and sums have no rounding, in which many scores are equal."""
    generator = torch.Generator().manual_seed(queries * items)
    left, right = (torch.randint(-3, 4, (n, dimension), generator=generator).to(dtype) for n in (queries, items))
    if special:
        right[3], right[4, 0], right[5, 0] = float("nan"), float("inf"), float("-inf")
        left[0, 0] = 1
        left[1:2] = float("inf")
    return left, right


@interpreted
@pytest.mark.parametrize(  # the interpreter has no products of bfloat16
    ("dtype", "special"), [(torch.float16, False), (torch.float32, True)], ids=["finite", "NaN and infinities"]
)
@pytest.mark.parametrize(
    ("precision", "sizes"),
    [
        ("ieee", (3, 129, 7, 8)),
        ("ieee", (2, 7, 130, 2)),  # more dimensions than are multiplied at a time
        ("tf32", (130, 300, 70, 1)),
        ("tf32x3", (1, 6, 40, 2)),
    ],
)
def test_counts_are_those_of_the_whole_matrix(fused, sizes, precision, special, dtype):
    queries, items, dimension, entries = sizes
    left, right = embeddings(queries, items, dimension, dtype, special)
    judged = torch.randint(0, items, (queries, entries), generator=torch.Generator().manual_seed(1))
    judged[0, 0], judged[0, -1] = 5, 4  # scores of -inf and inf
    query = torch.arange(queries).repeat_interleave(entries)
    scores = (left.double() @ right.double().T).float()
    own = fused.score_pairs(left, right, query, judged.flatten(), precision).view(queries, entries)
    assert torch.equal(own.nan_to_num(7e7), scores.gather(1, judged).nan_to_num(7e7))
    counts = ScoreCounts.nothing((queries, entries), CPU)
    fused.count_products(left, right, own, precision, counts)
    above, same = scores[:, None] > own[..., None], scores[:, None] == own[..., None]
    assert torch.equal(counts.greater, above.sum(-1))
    assert torch.equal(counts.equal, same.sum(-1) * (own > float("-inf")))
    assert torch.equal(counts.retrieved, (scores > float("-inf")).sum(-1))
    assert torch.equal(counts.has_nan, scores.isnan().any(-1))


@interpreted
@pytest.mark.parametrize(
    ("candidates", "entries", "masked", "dtype"),
    [
        *[(7, 1, False, dtype) for dtype in DTYPES],
        *[(3000, 3, True, dtype) for dtype in DTYPES],
        (700, 17, False, torch.bfloat16),  # several segments of a row
        (7, 0, False, torch.float32),  # no judged items: how many are retrieved
        (7, 2049, False, torch.float32),  # one candidate at a time
    ],
)
def test_the_scores_of_a_matrix_are_counted(fused, monkeypatch, candidates, entries, masked, dtype):
    generator = torch.Generator().manual_seed(candidates)
    scores = torch.randint(-9, 9, (3, 2 * candidates), generator=generator).to(dtype)
    scores[0, 8], scores[1, 10], scores[2, 12] = float("nan"), float("inf"), float("-inf")
    scores = scores[:, ::2]  # whose columns are not contiguous
    mask = torch.rand(candidates, generator=generator).gt(0.3).expand(3, -1) if masked else None
    judged = scores[:, torch.arange(entries) % candidates]
    monkeypatch.setattr(fused, "SEGMENT", 400 if candidates == 700 else fused.SEGMENT)
    monkeypatch.setattr(fused, "MOST_COLUMNS", {7: 5, 3000: 2999}.get(candidates, 2**30))  # several launches
    counts = ScoreCounts(*(x + 2 for x in ScoreCounts.nothing((3, entries), CPU)[:3]), torch.zeros(3) > 0)
    fused.count_scores(scores, judged.to(compared_dtype(dtype)), mask, counts)
    for query in range(3):
        listed = [x for n, x in enumerate(scores[query].tolist()) if mask is None or mask[query, n]]
        assert counts.has_nan[query] == any(math.isnan(x) for x in listed)
        assert counts.retrieved[query] == 2 + sum(x > -math.inf for x in listed)
        for entry, score in enumerate(judged[query].tolist()):
            assert counts.greater[query, entry] == 2 + sum(x > score for x in listed)
            assert counts.equal[query, entry] == 2 + sum(x == score > -math.inf for x in listed)


@interpreted
def test_scores_that_equal_one_of_each_query_are_counted():
    assert not why_no_kernel(CPU)
    scores = torch.tensor([[1.0, -math.inf, 1.0], [2.0, 3.0, 2.0]])
    assert count_equal(scores, scores[:, :1]).tolist() == [2, 2]
    assert count_equal(scores, scores[:, 1:2]).tolist() == [0, 1]


@interpreted
@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="needs memory that cannot be read")
@pytest.mark.parametrize("before", [False, True])
def test_kernels_read_and_write_nothing_but_their_arguments(fused, before):
    """A kernel that did would end this process."""
    own = functools.partial(guarded, before=before)
    for queries, items, size, entries in ((130, 33, 16, 1), (3, 129, 130, 3)):
        left, right = map(own, embeddings(queries, items, size, torch.float32))
        query = own(torch.arange(queries).repeat_interleave(entries))
        item = own(torch.arange(queries * entries) % items)
        judged = own(fused.score_pairs(left, right, query, item, "tf32").view(queries, entries))
        scores = own(left @ right.T)
        assert torch.equal(judged, scores.gather(1, item.view(queries, entries)))
        counts = [ScoreCounts(*map(own, ScoreCounts.nothing(judged.shape, CPU))) for _ in range(3)]
        fused.count_products(left, right, judged, "tf32", counts[0])
    fused.count_scores(scores, judged, None, counts[1])
    fused.count_scores(scores, judged, own(torch.ones(3, 129, dtype=torch.bool)), counts[2])
    for found in counts:
        assert torch.equal(found.greater, (scores[:, None] > judged[..., None]).sum(-1))
        assert found.retrieved.tolist() == [129] * 3


@interpreted
def test_programs_may_run_in_any_order(fused, monkeypatch):
    from triton.runtime.interpreter import interpreter_builder as builder

    left, right = embeddings(130, 150, 16, torch.float32)  # more than a tile of each
    row = torch.arange(130)

    def found():
        judged = fused.score_pairs(left, right, row, row, "tf32").view(130, 1)
        counts = ScoreCounts.nothing(judged.shape, CPU)
        fused.count_products(left, right, judged, "tf32", counts)
        return judged, *counts

    forwards, move = found(), builder.set_grid_idx
    monkeypatch.setattr(builder, "set_grid_idx", lambda x, y, z: move(builder.grid_dim[0] - 1 - x, y, z))
    assert all(map(torch.equal, found(), forwards))


@interpreted
def test_nothing_is_counted_among_no_items_or_for_no_queries(fused):
    for queries, items in ((2, 0), (0, 2)):
        left, right = embeddings(queries, items, 4, torch.float32)
        counts = ScoreCounts.nothing((queries, 1), CPU)
        fused.count_products(left, right, torch.zeros(queries, 1), "tf32", counts)
        fused.count_scores(torch.zeros(queries, items), torch.zeros(queries, 1), None, counts)
        assert not any(x.any() for x in counts)
    assert fused.score_pairs(left, right, torch.tensor([]), torch.tensor([]), "tf32").shape == (0,)


RELEVANT = {
    "labels": torch.tensor([3, -1, 250, -100, 7]),
    "padded ids": torch.tensor([[3, 4], [5, -1], [-1, -1], [0, 255], [9, 1]]),
    "lists": [torch.tensor(ids, dtype=torch.int64) for ids in ([1, 2, 3, 4, 5, 6, 7, 8], [], [255], [0, 9], [17])],
    "grades": (torch.tensor([0, 0, 2, 3]), torch.tensor([1, 30, 200, 0]), torch.tensor([1, 3, 2, -1])),
}
EXCLUDED = {
    "none": None,
    "pairs": (torch.tensor([0, 0, 2, 4, 4]), torch.tensor([3, 8, 100, 7, 0])),
    "lists": [torch.tensor(ids, dtype=torch.int64) for ids in ([5, 2], [1], [], list(range(128)), [255])],
}


#: each form of relevant items and of excluded ones, with infinities and without
FORMS = [("labels", "none", True), ("padded ids", "pairs", False), ("lists", "lists", True), ("grades", "none", False)]


@interpreted
@pytest.mark.parametrize(("relevant", "exclude", "special"), FORMS)
def test_rankings_of_embeddings_are_those_of_their_scores(relevant, exclude, special):
    relevant, exclude = RELEVANT[relevant], EXCLUDED[exclude]
    queries, items = embeddings(5, 256, 16, torch.float32)
    if special:
        queries, items = queries.abs() + 1, items.clone()
        items[::7], items[3::7] = -float("inf"), float("inf")
    suite = tr.RankingCollection(["mrr", "mr", "ndcg@10", "recall@50", "map", "numret"])
    lists = [row[row >= 0] for row in relevant] if getattr(relevant, "ndim", 0) == 2 else relevant
    want = suite.score(queries @ items.T, lists, exclude=exclude)
    options = {"exclude": exclude, "precision": "tf32"}
    got = suite.score(tr.Ranking.from_embeddings(queries, items, relevant, **options))
    assert all(torch.equal(got[name].nan_to_num(9.0), want[name].nan_to_num(9.0)) for name in want)
    if exclude is None:
        half = suite.score(tr.Ranking.from_embeddings(queries.half(), items.half(), relevant))
        assert all(torch.equal(half[name].nan_to_num(9.0), want[name].nan_to_num(9.0)) for name in want)


@interpreted
def test_a_nan_among_the_scores_is_an_error():
    queries, items = embeddings(5, 256, 16, torch.float32, special=True)
    with pytest.raises(ValueError, match="NaN among the scores"):
        tr.MRR().score(tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="tf32"))


@interpreted
def test_the_progress_of_a_kernel_is_one_step(fused):
    queries, items = embeddings(5, 256, 16, torch.float32)
    steps = []
    layout = embedded(queries, items, RELEVANT["labels"], None, "dot", None, None, steps.append, "tf32")
    assert len(list(rank(layout))) == 1
    assert steps == [1, -1]


@interpreted
def test_a_score_that_differs_from_itself_is_an_error(fused, monkeypatch):
    queries, items = embeddings(5, 256, 16, torch.float32)
    assert not why_no_kernel(queries.device, queries.dtype, "tf32", 16)
    exact = fused.score_pairs
    monkeypatch.setattr(fused, "score_pairs", lambda *given: exact(*given) + 0.5)  # as a device with two ways would
    ranking = tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="tf32")
    assert ranking.errors[Problem.UNEQUAL_SCORES] == 3
    with pytest.raises(ValueError, match=r"computed twice with different results.*queries\.float"):
        tr.MRR().score(ranking)


@pytest.fixture
def said():
    """What the logger of torchrank says."""
    records, logger = [], logging.getLogger("torchrank")
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def broken(*given):
    raise RuntimeError("no such instruction")


def counting_one_too_many(name):
    """A function that adds nothing but a wrong count of one kind, for one query, to the right counts."""

    def count(queries, items, judged, precision, counts):
        counts = ScoreCounts(*counts)
        scores = queries.double() @ items.double().T
        right = (scores > judged).sum(-1), (scores == judged).sum(-1), (scores > -math.inf).sum(-1)
        for kind, x in zip(("greater", "equal", "retrieved"), right):
            getattr(counts, kind).add_(x.view(getattr(counts, kind).shape))
            getattr(counts, kind)[-1] += kind == name
        counts.has_nan.copy_(scores.isnan().any(-1))

    return count


@interpreted
@pytest.mark.parametrize(
    ("name", "function", "reason"),
    [
        ("multiply_right", broken, "the kernel fails on this device: no such instruction"),
        ("score_pairs", lambda *given: torch.full((len(given[2]),), 0.5), "the kernel counts wrong on this device"),
    ],
)
def test_a_kernel_that_does_not_work_is_not_used(fused, monkeypatch, said, name, function, reason):
    queries, items = embeddings(5, 256, 16, torch.float32)
    want = tr.MRR().score(tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"]))
    why_no_kernel.cache_clear()
    monkeypatch.setattr(fused, name, function)
    with pytest.warns(UserWarning, match=f"Counts of scores on cpu take several times as long, because {reason}"):
        got = tr.MRR().score(tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="tf32"))
    why_no_kernel.cache_clear()
    assert torch.equal(got.nan_to_num(9.0), want.nan_to_num(9.0))
    assert said[1].endswith(f"among products of embeddings; not in one kernel: {reason}")


@interpreted
@pytest.mark.parametrize("kind", ["greater", "equal", "retrieved", ""])
def test_a_kernel_that_counts_one_too_many_of_one_kind_counts_wrong(fused, monkeypatch, kind):
    monkeypatch.setattr(fused, "count_products", counting_one_too_many(kind))
    assert fused.multiply_right(CPU, torch.float32, "tf32", 16) == (not kind)


TINY = torch.finfo(torch.float32).tiny
#: scores and mask as a faulty kernel would see them
FAULTS = {
    "none": lambda x, mask: (x, mask),
    "denormal numbers are 0": lambda x, mask: (x.masked_fill(x.abs() < TINY, 0), mask),
    "infinities are numbers": lambda x, mask: (x.clamp(-3e38, 3e38), mask),
    "NaN is not retrieved": lambda x, mask: (x.masked_fill(x.isnan(), -math.inf), mask),
    "everything is a candidate": lambda x, mask: (x, None),
    "every second column": lambda x, mask: (x[:, ::2], mask[:, ::2]),
}


@interpreted
@pytest.mark.parametrize("fault", [*FAULTS, *ScoreCounts._fields])
def test_a_kernel_with_a_fault_or_one_score_too_many_counts_wrong(fused, monkeypatch, fault):
    count_scores, seen = fused.count_scores, FAULTS.get(fault, FAULTS["none"])

    def faulty(scores, judged, mask, counts):
        scores, mask = seen(scores, mask)
        count_scores(scores, seen(judged, judged)[0] if "denormal" in fault else judged, mask, counts)
        if fault in ScoreCounts._fields:
            count = getattr(ScoreCounts(*counts), fault)
            count[-1] = count[-1] + 1

    monkeypatch.setattr(fused, "count_scores", faulty)
    assert fused.count_right(CPU) == (fault == "none")


@interpreted
@pytest.mark.parametrize("apart", [0, 1e-6])
def test_products_that_do_not_equal_themselves_are_found(fused, monkeypatch, apart):
    def score_pairs(queries, items, query, item, precision):
        return (queries @ items.T)[query, item] + apart

    def count_products(queries, items, judged, precision, counts):
        counts = ScoreCounts(*counts)
        counts.equal.add_((queries @ items.T == judged).sum(-1, keepdim=True))

    monkeypatch.setattr(fused, "score_pairs", score_pairs)
    monkeypatch.setattr(fused, "count_products", count_products)
    assert fused.equal_themselves(torch.rand(300, 16), "tf32") == (not apart)


def test_products_of_16_bits_are_exact_and_those_of_32_need_a_precision():
    for dtype, precision, used in (
        (torch.bfloat16, None, "ieee"),
        (torch.float16, None, "ieee"),
        (torch.float32, None, None),
        (torch.float32, "tf32", "tf32"),
        (torch.float32, "highest", None),
        (torch.float64, "tf32", None),
    ):
        left, right = embeddings(2, 5, 4, dtype)
        layout = embedded(left, right, torch.tensor([1, 2]), None, "dot", None, None, None, precision)
        assert fused_precision(layout) == used


def test_a_pair_of_an_empty_part_of_a_catalogue_adds_nothing_to_the_score_of_another_worker():
    nowhere = torch.zeros(2, 1, dtype=torch.bool)
    scores = _scores(torch.ones(2, 3), torch.ones(0, 3), "tf32", nowhere.long(), nowhere.long(), nowhere)
    assert scores.tolist() == [[0.0], [0.0]]


@interpreted
def test_why_the_kernel_is_not_used_is_said_on_request(said):
    queries, items = embeddings(5, 256, 16, torch.float32)
    tr.Ranking.from_embeddings(queries, items, [torch.arange(9)] * 5, precision="tf32")
    tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="highest")
    tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="tf32", atol=0.5)
    ranking = tr.Ranking.from_embeddings(queries, items, RELEVANT["labels"], precision="tf32", top_k=3)
    assert ranking.reach == 3
    assert "9 judged items, more than 8" in said[0]
    assert "got 'highest'" in said[1]
    assert "does not support atol and rtol" in said[2]
    assert "in one kernel, among" in said[3]
    assert "not in one kernel" not in said[3]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter needs no device")
def test_embeddings_on_a_cpu_are_not_ranked_by_the_kernel(said):
    tr.Ranking.from_embeddings(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), precision="tf32")
    assert "not in one kernel: the scores are not on a CUDA device" in said[0]


def spread(group, part):
    """Values of queries whose relevant and excluded items are in both parts, also where the second one begins."""
    queries, items = embeddings(5, 256, 16, torch.float32)
    exclude = torch.tensor([0, 0, 2, 4, 4]), torch.tensor([3, 208, 100, 7, 200])
    options = {"exclude": exclude, "precision": "tf32", "group": group}
    return tr.NDCG().score(tr.Ranking.from_embeddings(queries, items[part], RELEVANT["grades"], **options))


def work(folder, rank):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    values = spread(None, slice(0, 200) if rank == 0 else slice(200, None))
    torch.distributed.destroy_process_group()
    (folder / str(rank)).write_text(json.dumps(values.tolist()))


@interpreted
def test_each_of_two_workers_subtracts_the_excluded_items_of_its_part(tmp_path):
    context = multiprocessing.get_context("fork")  # of this process, in which the interpreter is
    processes = [context.Process(target=work, args=(tmp_path, rank)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert found == [spread(False, slice(None)).tolist()] * 2


def compile_all(output):
    from benchmarks import kernels

    warnings.simplefilter("ignore")
    output.write_text(json.dumps([*kernels.compiled()]))


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(INTERPRETED, reason="compiles")
def test_kernels_compile_for_devices_without_spills(tmp_path):
    from benchmarks.kernels import SHARED, Kernel

    process = workers.CONTEXT.Process(target=compile_all, args=(tmp_path / "kernels",))
    process.start()
    process.join()
    assert not process.exitcode
    kernels = [Kernel(*row) for row in json.loads((tmp_path / "kernels").read_text())]
    assert len(kernels) == 6
    for kernel in kernels:
        assert kernel.spilled == 0 or (kernel.capability, kernel.precision) == (80, "tf32x3")
        assert kernel.shared <= SHARED[kernel.capability]
        assert (kernel.wgmma > 0) == (kernel.capability == 90)
        assert (kernel.mma > 0) == (kernel.capability == 80)
