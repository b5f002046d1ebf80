"""The kernels that count among products of embeddings: in Triton's interpreter, and compiled for devices."""

import json
import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.needs("triton")

# Triton reads it when it is imported, which may have happened in this process. So the tests of the interpreter run in
# a process of their own.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that the first test starts")


@pytest.mark.skipif(INTERPRETED, reason="starts the process in which the interpreter runs")
def test_the_interpreter_counts_right():
    command = [sys.executable, "-m", "pytest", __file__, "-p", "no:cacheprovider"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TRITON_INTERPRET": "1"})
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def fused():
    from torchrank.engine import fused

    return fused


def embeddings(queries, items, dimension, dtype, special=False):
    """Integers, whose products and sums have no rounding, in which many scores are equal."""
    generator = torch.Generator().manual_seed(queries * items)
    left, right = (torch.randint(-3, 4, (n, dimension), generator=generator).to(dtype) for n in (queries, items))
    if special:
        right[3], right[4, 0], right[5, 0] = float("nan"), float("inf"), float("-inf")
    return left, right


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])  # the interpreter has no products of bfloat16
@pytest.mark.parametrize("special", [False, True], ids=["finite", "NaN and infinities"])
@pytest.mark.parametrize(
    ("precision", "sizes"), [("ieee", (3, 129, 7, 8)), ("tf32", (130, 300, 70, 1)), ("tf32x3", (1, 6, 1, 2))]
)
def test_counts_are_those_of_the_whole_matrix(fused, sizes, precision, special, dtype):
    queries, items, dimension, entries = sizes
    left, right = embeddings(queries, items, dimension, dtype, special)
    judged = torch.randint(0, items, (queries, entries), generator=torch.Generator().manual_seed(1))
    judged[0, 0] = 5  # a score of inf or -inf, or NaN
    query = torch.arange(queries).repeat_interleave(entries)
    scores = (left.double() @ right.double().T).float()
    own = fused.score_pairs(left, right, query, judged.flatten(), precision).view(queries, entries)
    assert torch.equal(own.nan_to_num(7e7), scores.gather(1, judged).nan_to_num(7e7))
    counts = fused.count_products(left, right, own, precision)
    above, same = scores[:, None] > own[..., None], scores[:, None] == own[..., None]
    assert torch.equal(counts.greater, above.sum(-1))
    assert torch.equal(counts.equal, same.sum(-1) * (own > float("-inf")))
    assert torch.equal(counts.retrieved, (scores > float("-inf")).sum(-1))
    assert torch.equal(counts.has_nan, scores.isnan().any(-1))


@interpreted
def test_nothing_is_counted_among_no_items_or_for_no_queries(fused):
    for queries, items in ((2, 0), (0, 2)):
        left, right = embeddings(queries, items, 4, torch.float32)
        counts = fused.count_products(left, right, torch.zeros(queries, 1), "tf32")
        assert counts.greater.shape == (queries, 1)
        assert not any(x.any() for x in counts)
    assert fused.score_pairs(left, right, torch.tensor([]), torch.tensor([]), "tf32").shape == (0,)


@pytest.mark.skipif(INTERPRETED, reason="compiles")
def test_kernels_compile_for_devices_without_spills():
    from benchmarks.kernels import SHARED, Kernel

    program = "import json, benchmarks.kernels as k; print(json.dumps(list(k.compiled())))"
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert not result.returncode, result.stderr
    kernels = [Kernel(*row) for row in json.loads(result.stdout)]
    assert len(kernels) == 6
    for kernel in kernels:
        assert kernel.spilled == 0
        assert kernel.shared <= SHARED[kernel.capability]
        assert (kernel.wgmma > 0) == (kernel.capability == 90)
        assert (kernel.mma > 0) == (kernel.capability == 80)
