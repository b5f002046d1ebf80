"""10^8 rows in one process, on Spark, on Ray, and by Spark's own RankingMetrics, for a table of SCALE.md.

python -m benchmarks.engines --rows 100000000 --folder /tmp/impressions --minutes 40
python -m benchmarks.engines --rows 100000000 --folder /tmp/impressions --write

The first command keeps the result of each engine beside the rows. Started again, it goes on with the engines that have
none. The second one writes the results into SCALE.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import torchrank as tr
from benchmarks.scale import markdown

MEASURES = "ndcg@10 map"
COLUMNS: dict[str, Any] = {"query": "user", "item": "item", "grade": "grade", "by": "country", "score": ["old", "new"]}
#: files, and rows that are drawn at once
FILES, CHUNK = 16, 4_000_000
#: rows of a partition, and of a part of one process, and the threads of this process
PARTITION, THREADS = 2_000_000, 2
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
    """Users are divided among files by polars in one pass, and two parts at a time are read and evaluated."""
    import polars

    parts = max(1, rows // PARTITION)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place, ThreadPoolExecutor(THREADS) as threads:
        divided = polars.PartitionBy(place, key={"part": polars.col("user") % parts}, include_key=False)
        polars.scan_parquet(folder / "*.parquet").sink_parquet(divided, compression="lz4")

        def part(number: int) -> tr.PartialEvaluation:
            return tr.partial(polars.read_parquet(f"{place}/part={number}"), MEASURES, **COLUMNS)

        return numbers(tr.merge(threads.map(part, range(parts))))


def on_spark(folder: Path, rows: int) -> dict[str, Any]:
    """Spark with two workers."""
    return numbers(_on_spark(folder, rows, COLUMNS))


def on_spark_alone(folder: Path, rows: int) -> dict[str, Any]:
    """Spark with two workers: what RankingMetrics can do, which is one system without slices."""
    alone = {name: column for name, column in COLUMNS.items() if name != "by"}
    return {"means": _on_spark(folder, rows, {**alone, "score": ["new"]}).means}


def _on_spark(folder: Path, rows: int, columns: dict[str, Any]) -> Any:
    frame = spark_session().read.parquet(str(folder))
    return tr.integrations.spark.evaluate(frame, MEASURES, **columns, partitions=max(2, rows // PARTITION))


def on_ray(folder: Path, rows: int) -> dict[str, Any]:
    """Ray with two workers."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(str(folder))
    return numbers(tr.integrations.ray.evaluate(dataset, MEASURES, **COLUMNS, partitions=max(2, rows // PARTITION)))


def ranking_metrics(folder: Path, rows: int, systems: tuple[str, ...] = ("old", "new")) -> dict[str, Any]:
    """Spark's own RankingMetrics: binary grades, one number a pass, no slices, no intervals."""
    from pyspark.ml.evaluation import RankingEvaluator

    spark = spark_session()
    spark.conf.set("spark.sql.shuffle.partitions", max(2, rows // PARTITION))
    spark.read.parquet(str(folder)).createOrReplaceTempView("rows")
    ranked = ", ".join(
        f"transform(sort_array(collect_list(struct(-{name} as score, item))), x -> double(x.item)) as {name}"
        for name in systems
    )
    relevant = "collect_list(if(grade > 0, double(item), null)) as relevant"
    lists = spark.sql(f"select {ranked}, {relevant} from rows group by user").persist()  # grouped once
    means = {}
    for name in systems:
        ask = RankingEvaluator(predictionCol=name, labelCol="relevant", k=10)
        wanted = {"ndcg@10": "ndcgAtK", "map": "meanAveragePrecision"}
        means[name] = {label: ask.setMetricName(theirs).evaluate(lists) for label, theirs in wanted.items()}
    return {"means": means}


def ranking_metrics_alone(folder: Path, rows: int) -> dict[str, Any]:
    """The same for one system."""
    return ranking_metrics(folder, rows, ("new",))


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
    "RankingMetrics": ranking_metrics,
    "Spark, one system": on_spark_alone,
    "RankingMetrics, one system": ranking_metrics_alone,
    "Ray": on_ray,
}


def numbers(found: Any) -> dict[str, Any]:
    """What is compared to the bit: means, slices, and the test of both systems."""
    return {"means": found.means, "slices": str(found.by().rows), "verdict": str(found.compare("old").rows)}


# ---- time and memory -------------------------------------------------------------------------------------------------


def measured(engine: str, folder: Path, rows: int, deadline: float) -> dict[str, Any] | None:
    """The numbers of an engine in a process of its own, its seconds, and the largest memory of its processes.

    None = it was not ready at the deadline, and was ended.
    """
    command = [sys.executable, "-m", "benchmarks.engines", "--engine", engine]
    command += ["--folder", str(folder), "--rows", str(rows)]
    started, worker, jvm, together = time.perf_counter(), 0, 0, 0
    seconds_of: dict[int, float] = {}  # of the CPU, by process
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    while child.poll() is None:
        time.sleep(LOOK)
        looks = {process: look for process in _tree(child.pid) if (look := _look(process))}
        seconds_of |= {process: seconds for process, (_, _, seconds) in looks.items()}
        together = max(together, sum(memory for _, memory, _ in looks.values()))
        worker = max([worker, *(memory for command, memory, _ in looks.values() if "java" not in command)])
        jvm = max([jvm, *(memory for command, memory, _ in looks.values() if "java" in command)])
        if time.perf_counter() > deadline:
            for process in _tree(child.pid):
                os.kill(process, signal.SIGKILL)
            return None
    assert child.stdout is not None
    lines = child.stdout.read().splitlines()
    if child.returncode:
        raise RuntimeError(f"{engine} ended with {child.returncode}")
    seconds, cpu = time.perf_counter() - started, sum(seconds_of.values())
    return {**json.loads(lines[-1]), "seconds": seconds, "cpu": cpu, "worker": worker, "jvm": jvm, "together": together}


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


def _look(process: int) -> tuple[str, int, float] | None:
    """The command of a process, its bytes in memory, and its seconds of the CPU. None = it has ended.

    Memory that several processes share is divided among them.
    """
    place = Path(f"/proc/{process}")
    try:
        command = (place / "cmdline").read_text().partition("\0")[0]
        lines = (place / "smaps_rollup").read_text().splitlines()
        ticks = (place / "stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return None
    memory = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    return command, memory, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def lines_of(results: dict[str, dict[str, Any]], rows: int) -> list[dict[str, str]]:
    """The lines of the table, with the numbers compared."""
    reference, lines = next((one for one in results.values() if "slices" in one), None), []
    for engine, one in results.items():
        same = reference is not None and all(one.get(key) == reference[key] for key in ("means", "slices", "verdict"))
        maps = ", ".join(f"{means['map']:.6f}" for means in one["means"].values())
        lines.append(
            {
                "engine": engine,
                "rows": f"{rows:,}",
                "seconds": f"{one['seconds']:.0f}",
                "of the CPU": f"{one['cpu']:.0f}",
                "largest Python process": f"{one['worker'] / 1e9:.2f} GB",
                "JVM": f"{one['jvm'] / 1e9:.2f} GB" if one["jvm"] else "-",
                "all processes": f"{one['together'] / 1e9:.2f} GB",
                "map": maps,
                "numbers": "means alone" if "slices" not in one else "the same bits" if same else "OTHER BITS",
                "10^9 rows, computed": _hours(one["seconds"] * 1e9 / rows),
            }
        )
    return lines


def write_into_page(lines: list[dict[str, str]]) -> None:
    """Replace the lines of the same engines and numbers of rows in the table of SCALE.md, and add the others."""
    page = Path(__file__).parent / "SCALE.md"
    text = page.read_text()
    start = text.index("| engine | rows |")
    old = text[start : text.index("\n\n", start)].splitlines()
    head, rule, *new = markdown(lines).splitlines()
    made = {tuple(line.split("|")[1:3]) for line in new}
    kept = [line for line in old[2:] if tuple(line.split("|")[1:3]) not in made]
    table = "\n".join([head, rule, *kept, *new])
    page.write_text(text.replace("\n".join(old), table))


def _hours(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if math.isfinite(seconds) else "-"


def main() -> None:
    """Evaluate by all engines, or by one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="the files; written if it is not there")
    parser.add_argument("--engine", choices=ENGINES, help="evaluate by this one, and print its numbers")
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--minutes", type=float, default=math.inf, help="engines that are not ready then are ended")
    parser.add_argument("--write", action="store_true", help="write the results that are there into SCALE.md")
    asked = parser.parse_args()
    if asked.engine:
        print(json.dumps(ENGINES[asked.engine](asked.folder, asked.rows)))
        return
    deadline, results = time.perf_counter() + 60 * asked.minutes, dict[str, dict[str, Any]]()
    if not asked.folder.exists():
        begun = asked.folder.with_name(f"{asked.folder.name}.begun")
        shutil.rmtree(begun, ignore_errors=True)
        write(begun, asked.rows)
        begun.rename(asked.folder)
    for engine in asked.only:
        place = asked.folder.with_name(f"{asked.folder.name} {engine}.json")
        left = not place.exists() and not asked.write and time.perf_counter() < deadline
        if left and (found := measured(engine, asked.folder, asked.rows, deadline)):
            place.write_text(json.dumps(found))
        if place.exists():
            results[engine] = json.loads(place.read_text())
    lines = lines_of(results, asked.rows)
    print(markdown(lines))
    if asked.write:
        write_into_page(lines)


if __name__ == "__main__":
    main()
