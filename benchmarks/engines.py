"""10^8 rows in one process, on Spark, on Ray, and by Spark's own RankingMetrics. Prints a table of SCALE.md.

python -m benchmarks.engines --rows 100000000 --folder /tmp/impressions
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import torchrank as tr
from benchmarks.scale import markdown

MEASURES = "ndcg@10 map"
COLUMNS: dict[str, Any] = {"query": "user", "item": "item", "grade": "grade", "by": "country", "score": ["old", "new"]}
#: files, and rows that are drawn at once
FILES, CHUNK = 16, 4_000_000
#: rows of a partition, and of a part of one process
PARTITION = 2_000_000
#: seconds between two looks at the memory
LOOK = 0.5


# ---- the rows --------------------------------------------------------------------------------------------------------


def write(folder: Path, rows: int) -> None:
    """Rows of users with 10 to 1,000 candidates, 1 to 20 of them relevant, in random order in 16 files."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True)
    draw, writers, first, left = np.random.default_rng(0), list[Any](), 0, rows
    while left > 0:
        chunk = _users(draw, first, min(left, CHUNK))
        first += len(np.unique(chunk["user"]))
        left -= len(chunk["user"])
        order = draw.permutation(len(chunk["user"]))
        table = pyarrow.table({name: column[order] for name, column in chunk.items()})
        table = table.set_column(5, "country", pyarrow.array(["de", "fr", "it"]).take(table["country"]))
        writers = writers or [parquet.ParquetWriter(folder / f"{n:02}.parquet", table.schema) for n in range(FILES)]
        for number, writer in enumerate(writers):
            writer.write_table(table[len(table) * number // FILES : len(table) * (number + 1) // FILES])
    for writer in writers:
        writer.close()


def _users(draw: np.random.Generator, first: int, rows: int) -> dict[str, np.ndarray]:
    """Columns of about so many rows of whole users, whose numbers begin with ``first``."""
    candidates = draw.integers(10, 1001, max(1, rows // 505))
    user = np.repeat(np.arange(len(candidates)), candidates)
    place = np.arange(len(user)) - np.repeat(np.cumsum(candidates) - candidates, candidates)
    relevant = np.minimum(draw.integers(1, 21, len(candidates)), candidates)[user]
    grade = np.where(place < relevant, draw.integers(1, 4, len(user)), 0).astype(np.int32)
    start = draw.integers(0, 2**20, len(candidates))[user]
    item = (start + place * 2_654_435_761) % 2**20  # an odd step: no item comes twice
    old, new = ((draw.standard_normal(len(user)) + step * grade).round(3) for step in (0.5, 0.6))
    return {"user": first + user, "item": item, "old": old, "new": new, "grade": grade, "country": user % 3}


# ---- who evaluates them ----------------------------------------------------------------------------------------------


def one_process(folder: Path, rows: int) -> dict[str, Any]:
    """Parts of the users, one after the other, read by polars."""
    import polars

    parts = max(1, rows // PARTITION)

    def part(number: int) -> tr.PartialEvaluation:
        chosen = polars.scan_parquet(folder / "*.parquet").filter(polars.col("user") % parts == number)
        return tr.partial(chosen.collect().sort("user", "item"), MEASURES, **COLUMNS)

    return numbers(tr.merge(map(part, range(parts))))


def on_spark(folder: Path, rows: int) -> dict[str, Any]:
    """Spark with two workers."""
    frame = spark_session().read.parquet(str(folder))
    partitions = max(2, rows // PARTITION)
    return numbers(tr.integrations.spark.evaluate(frame, MEASURES, **COLUMNS, partitions=partitions))


def on_ray(folder: Path, rows: int) -> dict[str, Any]:
    """Ray with two workers."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(str(folder))
    return numbers(tr.integrations.ray.evaluate(dataset, MEASURES, **COLUMNS, partitions=max(2, rows // PARTITION)))


def ranking_metrics(folder: Path, rows: int) -> dict[str, Any]:
    """Spark's own RankingMetrics: binary grades, one number a pass, no slices, no intervals."""
    from pyspark.ml.evaluation import RankingEvaluator

    spark = spark_session()
    spark.conf.set("spark.sql.shuffle.partitions", max(2, rows // PARTITION))
    spark.read.parquet(str(folder)).createOrReplaceTempView("rows")
    ranked = ", ".join(
        f"transform(sort_array(collect_list(struct(-{name} as score, item))), x -> double(x.item)) as {name}"
        for name in COLUMNS["score"]
    )
    relevant = "collect_list(if(grade > 0, double(item), null)) as relevant"
    lists = spark.sql(f"select {ranked}, {relevant} from rows group by user").persist()  # grouped once
    means = {}
    for name in COLUMNS["score"]:
        ask = RankingEvaluator(predictionCol=name, labelCol="relevant", k=10)
        wanted = {"ndcg@10": "ndcgAtK", "map": "meanAveragePrecision"}
        means[name] = {label: ask.setMetricName(theirs).evaluate(lists) for label, theirs in wanted.items()}
    return {"means": means}


def spark_session() -> Any:
    """Spark on two cores, with 4 GB for the JVM."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    quiet = {"spark.log.level": "OFF", "spark.ui.enabled": False, "spark.ui.showConsoleProgress": False}
    for name, value in {**quiet, "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


ENGINES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "one process": one_process,
    "Spark": on_spark,
    "Ray": on_ray,
    "RankingMetrics": ranking_metrics,
}


def numbers(found: Any) -> dict[str, Any]:
    """What is compared to the bit: means, slices, and the test of both systems."""
    return {"means": found.means, "slices": str(found.by().rows), "verdict": str(found.compare("old").rows)}


# ---- time and memory -------------------------------------------------------------------------------------------------


def measured(engine: str, folder: Path, rows: int) -> dict[str, Any]:
    """The numbers of an engine in a process of its own, its seconds, and the largest memory of its processes."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.engines",
        "--engine",
        engine,
        "--folder",
        str(folder),
        "--rows",
        str(rows),
    ]
    started, worker, jvm, together = time.perf_counter(), 0, 0, 0
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while child.poll() is None:
        time.sleep(LOOK)
        looks = [look for process in _tree(child.pid) if (look := _memory(process))]
        together = max(together, sum(memory for _, memory in looks))
        worker = max([worker, *(memory for command, memory in looks if "java" not in command)])
        jvm = max([jvm, *(memory for command, memory in looks if "java" in command)])
    assert child.stdout is not None
    lines = child.stdout.read().splitlines()
    if child.returncode:
        raise RuntimeError(f"{engine} ended with {child.returncode}")
    seconds = time.perf_counter() - started
    return {**json.loads(lines[-1]), "seconds": seconds, "worker": worker, "jvm": jvm, "together": together}


def _tree(root: int) -> list[int]:
    """A process and all that it has started."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _memory(process: int) -> tuple[str, int] | None:
    """The command of a process, and its bytes in memory; its share of those that several have. None = it has ended."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_text().partition("\0")[0]
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return command, next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def table(folder: Path, rows: int, engines: list[str]) -> str:
    """Evaluate by all engines, and compare their numbers."""
    found, lines = {engine: measured(engine, folder, rows) for engine in engines}, []
    reference = next(iter(found.values()))
    for engine, one in found.items():
        own = "slices" in one
        same = all(one[key] == reference[key] for key in ("means", "slices", "verdict")) if own else None
        lines.append(
            {
                "engine": engine,
                "rows": f"{rows:,}",
                "seconds": f"{one['seconds']:.0f}",
                "largest Python process": f"{one['worker'] / 1e9:.2f} GB",
                "JVM": f"{one['jvm'] / 1e9:.2f} GB" if one["jvm"] else "-",
                "all processes": f"{one['together'] / 1e9:.2f} GB",
                "map of old, new": ", ".join(f"{one['means'][name]['map']:.6f}" for name in COLUMNS["score"]),
                "numbers": "no slices, no test" if same is None else "the same bits" if same else "OTHER BITS",
                "10^9 rows, computed": _hours(one["seconds"] * 1e9 / rows),
            }
        )
    return markdown(lines)


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if math.isfinite(seconds) else "-"


def main() -> None:
    """Evaluate by all engines, or by one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="the files; written if it is not there")
    parser.add_argument("--engine", choices=ENGINES, help="evaluate by this one, and print its numbers")
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=list(ENGINES))
    asked = parser.parse_args()
    if not asked.folder.exists():
        write(asked.folder, asked.rows)
    if asked.engine:
        print(json.dumps(ENGINES[asked.engine](asked.folder, asked.rows)))
    else:
        print(table(asked.folder, asked.rows, asked.only))


if __name__ == "__main__":
    main()
