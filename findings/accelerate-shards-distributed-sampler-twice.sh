#!/usr/bin/env bash
# accelerate 1.15.0: a loader whose sampler is a DistributedSampler is sharded a second time by Accelerator.prepare,
# without a warning: the batches of each process's share are dealt to the processes again.
# Seen: two processes, 8 rows in batches of 2, samplers of rows 0 2 4 6 and 1 3 5 7: the prepared loaders draw
# 0 2 and 5 7, half of the rows. Lightning, for comparison, leaves a DistributedSampler alone.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 accelerate==1.15.0 numpy==2.4.6
cat >"$work/rows.py" <<'PYTHON'
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

accelerator = Accelerator(cpu=True)
sampler = DistributedSampler(range(8), 2, accelerator.process_index, shuffle=False)
loader = DataLoader(range(8), 2, sampler=sampler)
rows = [None, None]
dist.all_gather_object(rows, [[x for batch in y for x in batch.tolist()] for y in (loader, accelerator.prepare(loader))])
if accelerator.is_main_process:
    print("rows of the loaders:", [own for own, _ in rows], "prepared:", [prepared for _, prepared in rows])
    assert [own for own, _ in rows] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [prepared for _, prepared in rows] == [[0, 2], [5, 7]]
dist.destroy_process_group()
PYTHON
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 \
  "$work/rows.py" 2>"$work/log" || { cat "$work/log"; exit 1; }
