#!/usr/bin/env bash
# torch 2.13.0: on CUDA, torch.topk has a fast kernel for wide rows of float32, but only if k is 64, 128, 256, 512 or
# 1,024 and the width is a multiple of 4. The k of rankings (10, 50, 100, and one more to see a tie) have none, and
# neither has any k in rows of 100,001 scores. The choice is made in Python, so it can be read without a GPU.
# Seen: {64: 'radix', 128: 'radix'} among k of 10, 16, 50, 64, 100, 101, 128 for 100,000 columns; {} for 100,001.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy
"$work/venv/bin/python" -W ignore - 2>"$work/log" <<'PYTHON' || { cat "$work/log"; exit 1; }
from torch._native.ops.topk.cutedsl_impl import _kernel_for as kernel


def fast(width):
    return {k: kernel(k, width) for k in (10, 16, 50, 64, 100, 101, 128) if kernel(k, width)}


found = {width: fast(width) for width in (100_000, 100_001)}
print("kernels of torch.topk by width and k, others are the usual ones:", found)
assert found == {100_000: {64: "radix", 128: "radix"}, 100_001: {}}, found
PYTHON
