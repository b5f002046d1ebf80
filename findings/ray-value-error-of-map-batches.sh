#!/usr/bin/env bash
# ray 2.60.0: a ValueError raised in a function of Dataset.map_batches reaches the driver as RayTaskError, which
# "except ValueError" does not catch; the same error raised in AggregateFnV2.aggregate_block reaches it as an exception
# that is a ValueError, too. Code that tells wrong rows from a broken cluster must read the text of the first one.
# Seen: map_batches RayTaskError(UserCodeException), no ValueError; aggregate RayTaskError(ValueError), a ValueError.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check "ray[data]==2.60.0" pyarrow==26.0.1 pandas==3.0.5
cat > program.py <<'PROGRAM'
import ray
from ray.data.aggregate import AggregateFnV2

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
ray.data.DataContext.get_current().enable_progress_bars = False


class Refuses(AggregateFnV2):
    def __init__(self):
        super().__init__("refuses", lambda: 0, on=None, ignore_nulls=False)

    def aggregate_block(self, block):
        raise ValueError("wrong rows")

    def combine(self, a, b):
        return a + b

    def finalize(self, total):
        return total


def refuses(batch):
    raise ValueError("wrong rows")


def seen(name, run):
    try:
        run()
    except Exception as error:
        return f"{name} {type(error).__name__}, {'a' if isinstance(error, ValueError) else 'no'} ValueError"


rows = ray.data.range(10)
mapped = seen("map_batches", lambda: rows.map_batches(refuses).take_all())
print(mapped, seen("aggregate", lambda: rows.aggregate(Refuses())), sep="; ")
PROGRAM
output=$(venv/bin/python program.py 2>/dev/null)
echo "$output"
[ "$output" = "map_batches RayTaskError(UserCodeException), no ValueError; aggregate RayTaskError(ValueError), a ValueError" ]
