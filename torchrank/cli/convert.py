"""``torchrank convert``: a run from one format to another."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchrank.cli.files import check_readable, refused, write
from torchrank.tables.files import WRITERS
from torchrank.tables.id_columns import encode
from torchrank.tables.pair_tables import ReadingError
from torchrank.tables.sources import read_run


def converted(options: argparse.Namespace) -> int:
    """Read a run and write it; the score alone decides the order and the ranks."""
    endings = [ending for ending in Path(options.out).suffixes if ending != ".gz"]
    try:
        if not endings or endings[-1] not in WRITERS:
            raise ValueError(f"Expected OUT to end in {', '.join(WRITERS)}, or this and .gz, got {options.out}")
        check_readable(options.source, folder=True)
        source, out = Path(options.source), Path(options.out)
        if source.exists() and out.exists() and source.samefile(out):
            raise ValueError(f"Expected OUT to be another file than IN, got {options.out} for both; write a new file")
        run = read_run(options.source, duplicates=options.duplicates, expansion=options.expansion).to_dict()
        # Equal scores by document id, the larger first, as trec_eval ranks them.
        ranked = {
            query: sorted(scores.items(), key=lambda pair: (pair[1], encode(str(pair[0]))), reverse=True)
            for query, scores in run.items()
        }
        write(options.out, "".join(WRITERS[endings[-1]](ranked)))
    except (ReadingError, OSError, ImportError, ValueError) as error:
        return refused("convert", error, 3 if isinstance(error, ReadingError) else 2)
    return 0
