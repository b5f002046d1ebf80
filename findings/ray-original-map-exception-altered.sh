#!/usr/bin/env bash
# ray 2.60.0: with DataContext.raise_original_map_exception, an exception of a function of Dataset.map_batches has its
# type on the driver, as RayTaskError.cause, but not its arguments: lines of advice are written into its message, so the
# key of a KeyError is no longer the key that was missing. Whoever compares the message must ask how it begins.
# Seen: KeyError, its key begins with "price", is not "price"; lines about retries in it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check "ray[data]==2.60.0" pyarrow==26.0.1 pandas==3.0.5
cat > program.py <<'PROGRAM'
import ray

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
context = ray.data.DataContext.get_current()
context.enable_progress_bars, context.raise_original_map_exception = False, True


def price(batch):
    return {"price": batch["price"]}


try:
    ray.data.range(10).map_batches(price).take_all()
except ray.exceptions.RayTaskError as error:
    (key,) = error.cause.args
    print(type(error.cause).__name__, key.startswith("price"), key == "price", "max_map_retries" in key)
PROGRAM
output=$(venv/bin/python program.py 2>/dev/null)
echo "$output"
[ "$output" = "KeyError True False True" ]
