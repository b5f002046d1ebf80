"""From files and dictionaries to numbers: contenders within a process, and whole commands."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import torchrank as tr
from benchmarks.measure import interleaved, repetitions, short, summary, timed
from benchmarks.plan import OURS, Contender, Data, Numbers, Prepared, Shape

MEASURES = "ndcg@10 map mrr"
#: the names of these measures in trec_eval
TREC = {"ndcg@10": "ndcg_cut_10", "map": "map", "mrr": "recip_rank"}
#: the names in ir_measures
IR_MEASURES = {"ndcg@10": "nDCG@10", "map": "AP", "mrr": "RR"}
TREC_EVAL = "trec_eval"


# ---- inputs --------------------------------------------------------------------------------------------------------


def written(shape: Shape, device: str) -> Data:
    """Paths of judgments and a run in TREC's format, written once in this process."""
    folder = _folder(shape["queries"], shape["documents"], shape["judged"])
    return Data(device=device, qrels=str(folder / "qrels.txt"), run=str(folder / "bm25.run"))


def tables(shape: Shape, device: str) -> Data:
    """The same as dictionaries."""
    data = written(shape, device)
    data.qrels = {query: {item: int(grade) for item, grade in x.items()} for query, x in _dictionary(data.qrels, 3)}
    data.run = dict(_dictionary(data.run, 4))
    return data


@functools.cache
def _folder(queries: int, documents: int, judged: int) -> Path:
    """A folder with judgments and a run. Half of the judged documents are relevant, the others mostly retrieved."""
    kept = tempfile.TemporaryDirectory()
    _FOLDERS.append(kept)  # until the process ends
    generator = np.random.default_rng(0)
    with open(Path(kept.name) / "qrels.txt", "w") as qrels, open(Path(kept.name) / "bm25.run", "w") as run:
        for query in range(1_000_000, 1_000_000 + queries):
            items = generator.choice(8_800_000, documents, replace=False)
            scores = np.sort(generator.normal(10, 3, documents).round(6))[::-1]
            rows = zip(items.tolist(), scores.tolist())
            run.writelines(f"{query} Q0 {item} {rank} {score} bm25\n" for rank, (item, score) in enumerate(rows, 1))
            known = generator.choice(items, judged, replace=False).tolist()
            qrels.writelines(f"{query} 0 {item} {int(place % 2)}\n" for place, item in enumerate(known))
    return Path(kept.name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _dictionary(path: str, number: int) -> Any:
    found: dict[str, dict[str, float]] = {}
    with open(path) as file:
        for fields in map(str.split, file):
            found.setdefault(fields[0], {})[fields[2]] = float(fields[number])
    return found.items()


# ---- within a process ----------------------------------------------------------------------------------------------


def evaluate(data: Data) -> Prepared:
    """Read and evaluate, with intervals and coverage."""
    return Prepared(lambda: tr.evaluate(data.qrels, {"run": data.run}, MEASURES), lambda found: found.means["run"])


def three_columns(data: Data) -> Prepared:
    """numpy reads three columns of the run, and nothing is computed."""
    columns = [("query", "S8"), ("document", "S8"), ("score", "f8")]
    return Prepared(lambda: np.loadtxt(data.run, dtype=columns, usecols=(0, 2, 4), comments=None))


def pytrec_eval(data: Data) -> Prepared:
    """pytrec_eval, with its own readers for files."""
    import pytrec_eval as peer

    asked = {"ndcg_cut.10", "map", "recip_rank"}

    def run() -> Any:
        if isinstance(data.run, dict):
            return peer.RelevanceEvaluator(data.qrels, asked).evaluate(data.run)
        with open(data.qrels) as qrels, open(data.run) as file:
            return peer.RelevanceEvaluator(peer.parse_qrel(qrels), asked).evaluate(peer.parse_run(file))

    return Prepared(run, lambda found: {ours: _mean(found, theirs) for ours, theirs in TREC.items()})


def ranx(data: Data) -> Prepared:
    """ranx after its compilation, with its own readers for files."""
    import ranx as peer

    def run() -> Any:
        if isinstance(data.run, dict):
            qrels, retrieved = peer.Qrels(data.qrels), peer.Run(data.run)
        else:
            qrels, retrieved = peer.Qrels.from_file(data.qrels, "trec"), peer.Run.from_file(data.run, "trec")
        return peer.evaluate(qrels, retrieved, MEASURES.split())

    return Prepared(run, lambda found: found)


def ir_measures(data: Data) -> Prepared:
    """ir_measures, with its own readers for files."""
    import ir_measures as peer

    asked = {ours: peer.parse_measure(theirs) for ours, theirs in IR_MEASURES.items()}

    def run() -> Any:
        qrels, retrieved = data.qrels, data.run
        if not isinstance(retrieved, dict):
            qrels, retrieved = peer.read_trec_qrels(qrels), peer.read_trec_run(retrieved)
        return peer.calc_aggregate(list(asked.values()), qrels, retrieved)

    return Prepared(run, lambda found: {ours: found[theirs] for ours, theirs in asked.items()})


def _mean(found: Mapping[str, Mapping[str, float]], name: str) -> float:
    return sum(row[name] for row in found.values()) / len(found)


# ---- data frames ---------------------------------------------------------------------------------------------------


def columns(shape: Shape, device: str) -> Data:
    """The run as columns: text ids, and the same as integers."""
    data = written(shape, device)
    fields = np.loadtxt(data.run, dtype=[("query", "U8"), ("document", "U8"), ("score", "f8")], usecols=(0, 2, 4))
    data.text = {name: fields[name] for name in ("query", "document", "score")}
    data.integers = {**data.text, **{name: fields[name].astype(np.int64) for name in ("query", "document")}}
    return data


def frame(library: str, kind: str) -> Contender:
    """``read_run`` of a data frame, whose ids have a type."""

    def prepare(data: Data) -> Prepared:
        made = _frames(library, kind, data)
        return Prepared(lambda: tr.read_run(made), lambda run: {"rows": len(run), "scores": run.scores.sum()})

    return prepare


def _frames(library: str, kind: str, data: Data) -> Any:
    if library == "arrays":
        return data.integers
    names = ("query", "document")
    if library == "pandas":
        import pandas

        return pandas.DataFrame(data.text).astype(dict.fromkeys(names, kind))
    if library == "polars":
        import polars

        return polars.DataFrame(data.text).with_columns(polars.col(names).cast(getattr(polars, kind)))
    import pyarrow

    table = pyarrow.table(data.text)
    if kind == "dictionary":
        return pyarrow.table({name: table[name].dictionary_encode() for name in names} | {"score": table["score"]})
    return table


#: kinds of frames: library, type of ids
FRAMES = (
    ("polars", "String"),
    ("polars", "Categorical"),
    ("pyarrow", "string"),
    ("pyarrow", "dictionary"),
    ("pandas", "str"),
    ("pandas", "category"),
    ("pandas", "object"),
)


# ---- whole commands ------------------------------------------------------------------------------------------------

RANX = (
    "import sys, ranx; print(ranx.evaluate(ranx.Qrels.from_file(sys.argv[1], 'trec'),"
    f" ranx.Run.from_file(sys.argv[2], 'trec'), {MEASURES.split()}))"
)
PYTREC_EVAL = (
    "import sys, pytrec_eval as p; found = p.RelevanceEvaluator(p.parse_qrel(open(sys.argv[1])),"
    " {'ndcg_cut.10', 'map', 'recip_rank'}).evaluate(p.parse_run(open(sys.argv[2])));"
    f" print([sum(x[n] for x in found.values()) / len(found) for n in {list(TREC.values())}])"
)
# A small process that starts a command, waits for it and prints its largest memory in kilobytes. The figure of a child
# begins with the size of its parent.
LAUNCHER = (
    "import os, sys; pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ,"
    " file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]); print(os.wait4(pid, 0)[2].ru_maxrss)"
)


def program() -> str | None:
    """The path of trec_eval: ``$TREC_EVAL/trec_eval``, or on the PATH."""
    return shutil.which(TREC_EVAL, path=os.environ.get("TREC_EVAL")) or shutil.which(TREC_EVAL)


def commands(data: Data) -> dict[str, Sequence[str]]:
    """The command lines of all contenders that are installed."""
    python, files = sys.executable, [data.qrels, data.run]
    found: dict[str, Sequence[str]] = {
        OURS: [python, "-m", "torchrank", "eval", *files, "-m", MEASURES, "--format", "json"],
        "pytrec_eval": [python, "-c", PYTREC_EVAL, *files],
        "ranx": [python, "-c", RANX, *files],
        "ir_measures": [python, "-m", "ir_measures", *files, *IR_MEASURES.values()],
        "import of torch and torchmetrics": [python, "-c", "import torchmetrics"],
    }
    if trec_eval := program():
        asked = [part for name in ("ndcg_cut.10", "map", "recip_rank") for part in ("-m", name)]
        found[TREC_EVAL] = [trec_eval, *asked, *files]
    return found


def whole(shape: Shape, device: str) -> dict[str, dict[str, Any]]:
    """The time and the memory of whole commands, from two files to printed numbers."""
    data = written(shape, device)
    chosen = {name: line for name, line in commands(data).items() if name in shape["commands"]}
    skipped = {name: "not installed" for name in shape["commands"] if name not in chosen}
    ready: dict[str, Prepared] = {}
    wanted: dict[str, int] = {}
    printed: dict[str, str] = {}
    for name, line in chosen.items():
        one = Prepared(_runner(line))
        try:
            seconds, printed[name] = timed(one, device)
        except subprocess.CalledProcessError as error:
            skipped[name] = (error.stderr.strip() or "failed").splitlines()[-1].removeprefix(f"{sys.executable}: ")
            continue
        ready[name], wanted[name] = one, repetitions(seconds, shape["seconds"], (1 if not shape["seconds"] else 3, 10))
    times = interleaved(ready, wanted, device, lambda name: None)
    results = {name: {**summary(runs), "peak_mb": _peak(chosen[name])} for name, runs in times.items()}
    return {"contenders": results, "skipped": skipped, "checks": _checks(printed)}


def _runner(line: Sequence[str]) -> Callable[[], str]:
    return lambda: subprocess.run(line, check=True, capture_output=True, text=True).stdout


def _peak(line: Sequence[str]) -> float:
    """The largest memory of a command in megabytes."""
    done = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *line], check=True, capture_output=True, text=True)
    return short(int(done.stdout) * 1024 / 1e6)


def _checks(printed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Compare the numbers of the command with those of trec_eval, which has four decimals."""
    if TREC_EVAL not in printed:
        return []
    columns = json.loads(printed[OURS])["summary"]
    ours: Numbers = dict(zip(columns["measure"], columns["value"]))
    fields = [line.split() for line in printed[TREC_EVAL].splitlines()]
    theirs = {name: float(value) for name, _, value in fields if name in TREC.values()}
    apart = max(abs(ours[label] - theirs[name]) for label, name in TREC.items())
    return [{"against": TREC_EVAL, "labels": list(TREC), "difference": short(apart), "agree": apart <= 0.5001e-4}]
