"""``python -m benchmarks --trace``: the calls of torchrank's functions by one small batch of NDCG, in order."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

import torchrank as tr

ROOT = Path(tr.__file__).parent

#: expressions that have frames of their own, some of them in older versions of Python alone; they call no function
INLINE = {f"<{kind}>" for kind in ("listcomp", "setcomp", "dictcomp", "genexpr")}


class Call(NamedTuple):
    """A call of a function of torchrank. A generator is called once more for each value that it yields."""

    depth: int
    file: str
    function: str


def calls(work: Callable[[], Any]) -> list[Call]:
    """The calls during ``work()``. Comprehensions and generator expressions are parts of their functions."""
    found: list[Call] = []
    depth = 0

    def see(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        path = Path(frame.f_code.co_filename)
        inline = frame.f_code.co_name in INLINE
        if event not in ("call", "return") or inline or not path.is_relative_to(ROOT):
            return
        if event == "call":
            found.append(Call(depth, str(path.relative_to(ROOT)), frame.f_code.co_qualname))
        depth += 1 if event == "call" else -1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def of_update() -> list[Call]:
    """The calls of an update of NDCG with a cutoff, scores [8, 10] and grades from 0 to 2, after the first ones."""
    generator = torch.Generator().manual_seed(0)
    scores, grades = torch.randn(8, 10, generator=generator), torch.randint(0, 3, (8, 10), generator=generator)
    metric = tr.NDCG(top_k=5)
    metric.waits = False
    for _ in range(2):  # the first batches make constants
        metric.update(scores, grades)
    return calls(lambda: metric.update(scores, grades))


def of_evaluate() -> list[Call]:
    """The calls of an evaluation of two files with 8 queries of 10 documents, after the first ones."""
    pairs = [(query, item) for query in range(8) for item in range(10)]
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "qrels"), Path(folder, "run")
        paths[0].write_text("".join(f"q{query} 0 d{item} {item % 3}\n" for query, item in pairs))
        paths[1].write_text(
            "".join(f"q{query} Q0 d{item} 0 {(7 * item + query) % 11 / 16} t\n" for query, item in pairs)
        )
        for _ in range(2):
            tr.evaluate(*paths, "ndcg@10 map mrr")
        return calls(lambda: tr.evaluate(*paths, "ndcg@10 map mrr"))


def counted(found: list[Call]) -> str:
    """Numbers of calls, files and changes of file."""
    files = [call.file for call in found]
    changes = sum(one != other for one, other in pairwise(files))
    return f"{len(files)} calls, {len(set(files))} files, {changes} changes of file"


def table() -> str:
    """The calls, indented by their depth, and their numbers: of all, and without the wrappers that remember results."""
    found = of_update()
    inner = [call for call in found if not call.function.endswith(".once")]
    lines = [f"{'  ' * call.depth}{call.function}  {call.file}" for call in found]
    ends = f"without caches: {counted(inner)}", f"evaluation of two files: {counted(of_evaluate())}"
    return "\n".join([*lines, counted(found), *ends])
