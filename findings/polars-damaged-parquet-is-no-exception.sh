#!/usr/bin/env bash
# polars 2.1.0: one damaged byte in the metadata of a Parquet column makes scan_parquet().collect() raise PanicException,
# which is a BaseException and no Exception, so that `except Exception` around a reader does not catch it.
# pyarrow 26.0.1 raises OSError for the same bytes.
# Seen: polars PanicException, an Exception: False; pyarrow OSError.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import io

import polars
import pyarrow
from pyarrow import parquet

whole = io.BytesIO()
table = pyarrow.table({"q": ["a"], "d": ["b"], "s": [0.5]})
parquet.write_table(table, whole, compression=None, use_dictionary=False, write_statistics=False, store_schema=False)
damaged = bytearray(whole.getvalue())
damaged[220] = 1


def raised(read):
    try:
        read(io.BytesIO(damaged))
    except BaseException as error:
        return error


of_polars, of_pyarrow = raised(lambda file: polars.scan_parquet(file).collect()), raised(parquet.read_table)
print("polars", type(of_polars).__name__, "an Exception:", isinstance(of_polars, Exception))
print("pyarrow", type(of_pyarrow).__name__)
assert type(of_polars).__name__ == "PanicException"
assert not isinstance(of_polars, Exception)
assert type(of_pyarrow) is OSError
PYTHON
