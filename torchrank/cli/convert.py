"""``torchrank convert``: a run from one format to another."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchrank.cli.files import check_readable, refused, write
from torchrank.tables.errors import ReadingError
from torchrank.tables.ids import encode
from torchrank.tables.sources import read_run

#: the format of a file by its ending
ENDINGS = {".run": "trec", ".trec": "trec", ".txt": "trec", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl"}


def converted(options: argparse.Namespace) -> int:
    """Read a run and write it; the score alone decides the order and the ranks."""
    endings = [ending for ending in Path(options.out).suffixes if ending != ".gz"]
    kind = ENDINGS.get(endings[-1] if endings else "")
    try:
        if kind is None:
            raise ValueError(f"Expected OUT to end in {', '.join(ENDINGS)}, or this and .gz, got {options.out}")
        check_readable(options.source, folder=True)
        if Path(options.out).exists() and Path(options.source).exists():
            _refuse_same(options.source, options.out)
        write(options.out, "".join(_lines(read_run(options.source, duplicates=options.duplicates).to_dict(), kind)))
    except (ReadingError, OSError, ImportError, ValueError) as error:
        return refused("convert", error, 3 if isinstance(error, ReadingError) else 2)
    return 0


def _refuse_same(source: str, out: str) -> None:
    if Path(source).samefile(out):
        raise ValueError(f"Expected OUT to be another file than IN, got {out} for both; write a new file")


def _lines(run: Mapping[Any, Mapping[Any, float]], kind: str) -> Iterator[str]:
    # Equal scores by document id, the larger first, as trec_eval ranks them.
    ordered = {
        query: sorted(scores.items(), key=lambda pair: (pair[1], encode(str(pair[0]))), reverse=True)
        for query, scores in run.items()
    }
    if kind == "json":
        yield json.dumps({str(query): {str(item): score for item, score in x} for query, x in ordered.items()}) + "\n"
        return
    if kind == "tsv":
        yield "query-id\tcorpus-id\tscore\n"
    for query, pairs in ordered.items():
        for rank, (item, score) in enumerate(pairs, 1):
            if kind == "trec":
                yield f"{_field(query)} Q0 {_field(item)} {rank} {score!r} torchrank\n"
            elif kind == "tsv":
                yield f"{_field(query)}\t{_field(item)}\t{score!r}\n"
            else:
                yield json.dumps({"query-id": query, "corpus-id": item, "score": score}) + "\n"


def _field(name: Any) -> str:
    """An id as a field between white space."""
    text = str(name)
    if not text or any(character <= " " for character in text):
        raise ReadingError(f"Expected ids without white space, got {text!r}; write .json or .jsonl")
    return text
