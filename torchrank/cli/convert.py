"""``torchrank convert``: a run from one format to another."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torchrank as tr

#: the format of a file by its ending
ENDINGS = {".run": "trec", ".trec": "trec", ".txt": "trec", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl"}


def converted(options: argparse.Namespace) -> int:
    """Read a run and write it; the score alone decides the order and the ranks."""
    endings = [ending for ending in Path(options.out).suffixes if ending != ".gz"]
    kind = ENDINGS.get(endings[-1] if endings else "")
    if kind is None:
        known = ", ".join(ENDINGS)
        print(f"torchrank convert: Expected OUT to end in {known}, or this and .gz, got {options.out}", file=sys.stderr)
        return 2
    try:
        run = tr.read_run(options.source).to_dict()
        text = "".join(_lines(run, kind))
        data = text.encode()
        Path(options.out).write_bytes(gzip.compress(data) if options.out.endswith(".gz") else data)
    except tr.ReadingError as error:
        print(f"torchrank convert: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"torchrank convert: {error}", file=sys.stderr)
        return 2
    return 0


def _lines(run: dict, kind: str) -> Iterator[str]:
    if kind == "json":
        yield (
            json.dumps({str(query): {str(item): score for item, score in x.items()} for query, x in run.items()}) + "\n"
        )
        return
    if kind == "tsv":
        yield "query-id\tcorpus-id\tscore\n"
    for query, scores in run.items():
        # Equal scores by document id, the larger first, as trec_eval ranks them.
        ordered = sorted(scores.items(), key=lambda pair: (pair[1], str(pair[0]).encode()), reverse=True)
        for rank, (item, score) in enumerate(ordered, 1):
            if kind == "trec":
                yield f"{query} Q0 {item} {rank} {score!r} torchrank\n"
            elif kind == "tsv":
                yield f"{query}\t{item}\t{score!r}\n"
            else:
                yield json.dumps({"query-id": query, "corpus-id": item, "score": score}) + "\n"
