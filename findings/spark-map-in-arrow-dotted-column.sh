#!/usr/bin/env bash
# pyspark 4.3.0: a frame may have a column with a dot in its name, and select takes it in backticks. mapInArrow and
# mapInPandas fail on such a frame, though the function names no column: they look the columns of their input up by
# unquoted names, so that "user.id" is the field "id" of "user". Renaming the column first is the way out.
# Seen: select 2, mapInArrow UNRESOLVED_COLUMN, mapInPandas UNRESOLVED_COLUMN, renamed 1.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==3.0.5
cat > program.py <<'PROGRAM'
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def count(batches):
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def seen(name, frame):
    try:
        return f"{name} {len(frame().collect())}"
    except AnalysisException as error:
        return f"{name} {error.getCondition().split('.')[0]}"


frame = spark.createDataFrame([(1, 0.5), (2, 0.25)], ["user.id", "score"])
renamed = frame.withColumnRenamed("user.id", "user_id")
print(
    seen("select", lambda: frame.select("`user.id`")),
    seen("mapInArrow", lambda: frame.mapInArrow(count, "rows long")),
    seen("mapInPandas", lambda: frame.mapInPandas(lambda frames: frames, frame.schema)),
    seen("renamed", lambda: renamed.mapInArrow(count, "rows long")),
    sep=", ",
)
PROGRAM
output=$(venv/bin/python program.py 2>/dev/null)
echo "$output"
[ "$output" = "select 2, mapInArrow UNRESOLVED_COLUMN, mapInPandas UNRESOLVED_COLUMN, renamed 1" ]
