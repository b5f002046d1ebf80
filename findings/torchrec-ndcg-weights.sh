#!/usr/bin/env bash
# torchrec 1.9.2: NDCGMetric multiplies the NDCG of each session by the session's largest weight, and divides by the
# number of sessions, not by the weights. A perfect ranking with a weight of 3 has an NDCG of 3.
# Seen: one session of two items in the right order, weights 3 and 1: ndcg 3.0; weights 1 and 1: ndcg 1.0.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 torchmetrics==1.0.3 tensordict==0.15.3 \
  pyre-extensions==0.0.32 tqdm==4.70.1 fbgemm-gpu-cpu==1.8.0
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps torchrec==1.9.2  # asks for the build for GPUs
"$work/venv/bin/python" -W ignore - 2>"$work/log" <<'PYTHON' || { cat "$work/log"; exit 1; }
import torch
from torchrec.metrics.metrics_config import DefaultTaskInfo, RecComputeMode
from torchrec.metrics.ndcg import NDCGMetric

task = DefaultTaskInfo.name


def ndcg(weights):
    metric = NDCGMetric(
        world_size=1,
        my_rank=0,
        batch_size=2,
        tasks=[DefaultTaskInfo],
        compute_mode=RecComputeMode.UNFUSED_TASKS_COMPUTATION,
        window_size=100,
        report_ndcg_as_decreasing_curve=False,
        session_key="session",
    )
    metric.update(
        predictions={task: torch.tensor([0.9, 0.1])},
        labels={task: torch.tensor([1.0, 0.0])},
        weights={task: torch.tensor(weights)},
        required_inputs={"session": torch.tensor([0, 0])},
    )
    (value,) = {round(value.item(), 6) for value in metric.compute().values()}
    return value


found = [ndcg([1.0, 1.0]), ndcg([3.0, 1.0])]
print("ndcg of a perfect ranking with weights 1, 1 and 3, 1:", found)
assert found == [1.0, 3.0], found
PYTHON
