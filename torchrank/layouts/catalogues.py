"""Catalogues whose scores are never a whole matrix: embeddings, also of several workers, and blocks of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import autocast_off
from torchrank.layouts.canonical import EmbeddedLayout, StreamedLayout, signs
from torchrank.layouts.checks import UNKNOWN, check_floating, check_tensor, excluded_pairs, judged_items, tensor_of
from torchrank.names.arguments import imported, integer


@dataclass(frozen=True, eq=False)
class Shard:
    """This worker's part of a catalogue."""

    #: process group of the workers; None = the default group
    group: Any
    #: number of this worker's first item in the whole catalogue
    offset: int
    #: number of items of all workers
    total: int
    #: largest number of items of one worker; all workers choose their chunk size by it, so that it is the same
    longest: int

    @classmethod
    def of(cls, items: int, queries: int, group: Any, device: torch.device) -> Shard:
        """Number the items of all workers in the order of the workers, with one collective.

        Raises:
            ValueError: the workers have different numbers of queries; raised on all workers.
        """
        sizes = torch.zeros((dist.get_world_size(group), 2), dtype=torch.int64, device=device)
        rank = dist.get_rank(group)
        sizes[rank] = torch.tensor([items, queries], device=device)  # the sum of one-row tables is the whole table
        dist.all_reduce(sizes, group=group)
        counts, seen = ([int(x) for x in column] for column in sizes.T.tolist())
        if len(set(seen)) > 1:
            raise ValueError(
                f"Expected the same queries on every worker of a sharded catalogue, got {seen} queries;"
                " pass all queries on every worker"
            )
        return cls(group, sum(counts[:rank]), sum(counts), max(counts))

    def sum(self, *parts: Tensor) -> list[Tensor]:
        """Sums of tensors over the workers, in one collective; each has the shape and dtype of its part."""
        # In float64, scores of every dtype and counts below 2 ** 53 are exact.
        flat = torch.cat([part.reshape(-1).to(torch.float64) for part in parts])
        dist.all_reduce(flat, group=self.group)
        split = flat.split([part.numel() for part in parts])
        return [total.reshape(part.shape).to(part.dtype) for total, part in zip(split, parts)]

    def gather(self, part: Tensor) -> list[Tensor]:
        """The tensors of all workers, which have one shape, in the order of the workers."""
        wide = part.to(torch.float64)
        gathered = [torch.empty_like(wide) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(gathered, wide, group=self.group)
        return [other.to(part.dtype) for other in gathered]


@contextmanager
def progress_bar(
    show: bool, doing: str = "ranking", unit: str = "product", delay: float = 0
) -> Iterator[Callable[[int], None]]:
    """Context with a progress bar; yields the function that moves it, which does nothing if ``show`` is False.

    The bar appears after ``delay`` seconds. Call the function with a number of steps to come, and with -n after n
    steps.

    Raises:
        ImportError: tqdm is not installed.
    """
    if not show:
        yield lambda change: None
        return
    with imported("tqdm.auto", instead="pass progress=False").tqdm(total=0, desc=doing, unit=unit, delay=delay) as bar:

        def step(change: int) -> None:
            if change < 0:
                bar.update(-change)
            else:
                bar.total += change
                bar.refresh()

        yield step


def embedded(
    queries: Tensor,
    catalogue: Tensor,
    relevant: object,
    exclude: object,
    similarity: str,
    chunk_size: int | None,
    shard: Callable[[int, int], Any] | None,
    progress: Callable[[int], None],
    precision: str | None,
) -> EmbeddedLayout:
    """Check embeddings [query, dimension] and [item, dimension], and convert them to a canonical layout.

    The arguments are as in :meth:`torchrank.Ranking.from_embeddings`. ``shard`` is a function from the numbers of items
    and of queries to this worker's part of the catalogue; None = this process has the whole catalogue.
    """
    if similarity not in ("dot", "cosine", "hamming"):
        raise ValueError(
            f"Expected similarity to be 'dot', 'cosine' or 'hamming', got {similarity!r}; for a distance, pass"
            " Ranking.from_score_blocks(lambda: (-torch.cdist(queries, part) for part in items.split(4096)), relevant)"
        )
    for name, x in (("queries", queries), ("items", catalogue)):
        if similarity == "hamming" and x.dtype not in (torch.uint8, torch.int8):
            raise TypeError(
                f"Expected {name} to be packed bits in uint8, got {x.dtype}; pass numpy.packbits({name} > 0, axis=-1)"
            )
        if similarity == "cosine":
            check_floating(x, name, "embeddings for similarity='cosine'")
        elif similarity == "dot" and x.dtype != torch.int8:
            check_floating(x, name, "or int8 embeddings, or packed bits with similarity='hamming'")
    if queries.dim() != 2 or catalogue.dim() != 2 or queries.shape[1] != catalogue.shape[1]:
        raise ValueError(
            "Expected queries [query, dimension] and items [item, dimension] of one dimension, got shapes"
            f" {list(queries.shape)} and {list(catalogue.shape)}"
        )
    if queries.dtype != catalogue.dtype or queries.device != catalogue.device:
        common = torch.promote_types(queries.dtype, catalogue.dtype)
        way_out = "pack both alike" if similarity == "hamming" else f"pass both as .to({common})"
        raise ValueError(
            "Expected queries and items of one dtype on one device, got"
            f" {queries.dtype} on {queries.device} and {catalogue.dtype} on {catalogue.device}"
            + (f"; {way_out}" if queries.dtype != catalogue.dtype else "")
        )
    if precision not in (None, "highest", "tf32", "tf32x3", "bf16"):
        raise ValueError(f"Expected precision to be None, 'highest', 'tf32', 'tf32x3' or 'bf16', got {precision!r}")
    if precision is not None and not queries.is_floating_point():
        raise ValueError(
            f"Expected no precision for {queries.dtype}, whose products are exact, got {precision!r}; leave it out"
        )
    chunk_size = integer("chunk_size", chunk_size, least=1)
    queries, catalogue = queries.detach(), catalogue.detach()
    if similarity == "cosine":
        with autocast_off(queries.device):
            queries, catalogue = (torch.nn.functional.normalize(x, dim=-1) for x in (queries, catalogue))
    elif similarity == "hamming":
        # Half of the sum of the signs' products is half of the number of bits, minus the number of differing ones.
        precision, catalogue = "highest", catalogue.view(torch.uint8)
        queries = signs(queries.view(torch.uint8)).to(torch.float32) / 2
    elif queries.dtype == torch.int8:
        # Products are at most 2 ** 14, and float32 has all integers up to 2 ** 24.
        precision, queries = "highest", queries.to(torch.float32 if queries.shape[1] <= 2**10 else torch.float64)
    if precision == "bf16":
        queries, catalogue = queries.bfloat16(), catalogue.bfloat16()
    part = None if shard is None else shard(len(catalogue), len(queries))
    offset, total, longest = (0, *[len(catalogue)] * 2) if part is None else (part.offset, part.total, part.longest)
    # An expanded tensor has the shape that the checks compare with, and takes no memory.
    grid = queries.new_empty(1).expand(len(queries), max(1, total))
    judged, errors = judged_items(relevant, grid, "queries [Q, dimension]", limit=total)
    pairs, bad = excluded_pairs(exclude, grid)
    chunk = max(1, min(chunk_size or _chunk(longest, queries), longest))
    return EmbeddedLayout(
        errors + bad, True, queries, catalogue, judged, chunk, pairs, offset, max(1, total), part, progress, precision
    )


def _chunk(items: int, queries: Tensor) -> int:
    """Number of items to score at a time.

    On a CPU so few that the scores stay in its cache. On other devices the scores are as wide as high, if there are so
    many queries: so the embeddings are read least often. And a copy of so many items, in the dtype of the products, is
    no larger than the scores.
    """
    if queries.is_cpu:
        most = min(items, costs.now.product // max(16, queries.shape[1]))
        return min(most, costs.now.cached_items) if items > 4 * costs.now.cached_items else most
    room, step = EmbeddedLayout.room(queries), 2**8  # rows of the scores are aligned
    width = max(1, room // max(1, min(len(queries), math.isqrt(room)), queries.shape[1]) // step) * step
    products = max(1, -(-items // width))
    return min(items, -(-items // products // step * step))


def streamed(blocks: object, relevant: object, exclude: object, top_k: int | None) -> StreamedLayout:
    """Check score blocks [query, item], and convert them to a canonical layout.

    ``blocks`` is an iterable of tensors or a function that returns one; the rest is as in
    :meth:`torchrank.Ranking.from_score_blocks`.
    """
    if not callable(blocks) and not isinstance(blocks, Iterable):
        raise TypeError(f"Expected blocks to be an iterable of score blocks or a function, got {type(blocks).__name__}")
    source = blocks if callable(blocks) else lambda: blocks
    again = callable(blocks) or iter(blocks) is not blocks  # an iterator is its own iterator, and can be read once
    # Counting needs the scores of the relevant items first, so it reads the blocks twice. A top k needs one reading.
    if not again and top_k is None:
        raise ValueError(
            "Expected blocks that can be read twice, or top_k, got an iterator that can be read only once:"
            f" {type(blocks).__name__}; pass a list or a function that returns an iterator, or set top_k"
        )
    ahead = iter(source())
    first = next(ahead, None)
    if first is None:
        raise ValueError("Expected at least one block of scores [query, item], got none")
    first = _checked_block(first, tensor_of(first))
    begun = [chain([first], ahead)]  # the first reading goes on after the block that was read for its shape

    def read() -> Iterator[Tensor]:
        for block in begun.pop() if begun else source():
            yield _checked_block(block, first)

    # The number of columns is unknown before the reading. The engine counts the items beyond it then.
    grid = first.new_empty(1).expand(len(first), UNKNOWN)
    judged, errors = judged_items(relevant, grid, "blocks [Q, item] of scores", limit=UNKNOWN)
    pairs, bad = excluded_pairs(exclude, grid)
    return StreamedLayout(errors + bad, True, read, judged, first.dtype, again, pairs)


def _checked_block(block: object, first: Tensor) -> Tensor:
    block = check_tensor(block, "each of blocks")
    check_floating(block, "block", "scores")
    if block.dim() != 2 or first.dim() != 2 or len(block) != len(first) or block.dtype != first.dtype:
        raise ValueError(
            "Expected blocks of scores [query, item] of the same queries and one dtype, got"
            f" {list(block.shape)} {block.dtype} after {list(first.shape)} {first.dtype}"
        )
    return block.detach()
