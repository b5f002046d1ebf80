"""A :class:`Ranking` is where the judged candidates stand: all that a measure needs to know."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from torchrank.engine import Places, place
from torchrank.engine.places import behind, in_rank_order, real, runs
from torchrank.engine.progress import progress_bar
from torchrank.engine.shards import Shard
from torchrank.layouts import arrange, embedded, streamed
from torchrank.lists import Lists, Need
from torchrank.problems import Problem, count

P = ParamSpec("P")
T = TypeVar("T")


# Up to so many grades are counted level by level for the ideal order, rather than sorted.
FEW_LEVELS = 8


def shared(piece: Callable[Concatenate[Ranking, P], T]) -> Callable[Concatenate[Ranking, P], T]:
    """Compute a piece of a ranking once, however many measures ask for it."""

    @functools.wraps(piece)
    def once(self: Ranking, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece.__name__, args, tuple(kwargs.items()))
        if key not in self._pieces:
            self._pieces[key] = piece(self, *args, **kwargs)
        return self._pieces[key]

    return once


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where the whole is 0."""
    return torch.where(whole == 0, 0.0, part / whole)


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sum of floats over the last dimension, in an order that does not change from run to run."""
    if x.device.type == "cpu":
        return x.cumsum(-1)
    step = 1  # torch.cumsum is not deterministic on accelerators
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x


@dataclass(frozen=True, eq=False)
class Ranking(Places):
    """Where the judged candidates of each query stand, one row of entries per query.

    Every layout arrives here, and every measure starts from here. Ties make a rank an interval: an entry's rank is
    uniform on ``[first, first + tied - 1]``. A judged candidate that was not retrieved is an entry too, so that
    recall and the ideal order know of it. A ``Ranking`` is never changed; what it computes is kept and shared.

    Fields: ``first``, ``tied`` float64 [query, entry]; ``grade`` [query, entry]; ``valid`` bool [query, entry];
    ``num_candidates`` float64 [query]; ``errors`` int64 [kind]; ``depth``, a bound on the ranks of what is tied;
    ``reach``, the last rank that is exact, or None if all are.

    Bad values (NaN, indices out of range, duplicates) are counted in ``errors`` and raise where the ranking is used:
    ``score`` at once, ``update`` in ``compute``, on all workers alike. Arguments that do not fit together raise
    TypeError or ValueError here.

    Example:
        >>> import torch, torchrank as tr
        >>> ranking = tr.Ranking.from_label(torch.tensor([[0.1, 0.9, 0.9, 0.3]]), torch.tensor([2]))
        >>> ranking.first, ranking.tied, ranking.num_candidates
        (tensor([[1.]], dtype=torch.float64), tensor([[2.]], dtype=torch.float64), tensor([4.], dtype=torch.float64))
        >>> tr.MRR().score(ranking)  # first or second place, as likely: (1 + 1/2) / 2
        tensor([0.7500], dtype=torch.float64)
    """

    _pieces: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ---- from what the user has --------------------------------------------------------------------------------

    @classmethod
    def from_scores(
        cls,
        preds: Tensor,
        target: Any,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank scores.

        Args:
            preds: floating [query, candidate].
            target: grades [query, candidate]; or the column of the positive, int [query], negative = none; or a
                (query, item) or (query, item, grade) tuple of 1-D tensors; or a list of one id tensor per query.
            mask: bool [query, candidate], True for real candidates.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            tie_break: [query, candidate] or [candidate], the larger ranks first among equal scores.

        Raises:
            TypeError, ValueError: the arguments do not fit together.
        """
        return cls._whole(arrange(preds, target, mask=mask, exclude=exclude, tie_break=tie_break))

    @classmethod
    def from_label(
        cls,
        preds: Tensor,
        label: Tensor,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank scores [query, item] over a catalogue with one right answer: ``label`` int [query], negative = none."""
        if label.dim() != 1:
            raise ValueError(f"Expected label of shape [{len(preds)}], got {list(label.shape)}")
        return cls._whole(arrange(preds, label, mask=mask, exclude=exclude, tie_break=tie_break))

    @classmethod
    def from_flat(
        cls,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor,
        *,
        mask: Tensor | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank flat rows, all [row]: ``indexes`` names the query of each. Queries come in ascending order of index."""
        return cls._whole(arrange(preds, target, indexes=indexes, mask=mask, tie_break=tie_break))

    @classmethod
    def from_ids(
        cls,
        ids: Tensor,
        relevant: Any,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
    ) -> Ranking:
        """Rankings given as ids, best first: int [query, position], negative = padding.

        ``relevant``: ids [query]; [query, entry] padded with negatives; a list of one id tensor per query; or a
        (query, id) or (query, id, grade) tuple of 1-D tensors.
        """
        if ids.is_floating_point():
            raise TypeError(
                f"Expected ids to be integer, best first, got {ids.dtype}; scores go to Ranking.from_scores"
            )
        return cls._whole(arrange(ids, relevant, mask=mask, exclude=exclude))

    @classmethod
    def from_ranks(cls, ranks: Tensor, num_candidates: Tensor | int | None = None) -> Ranking:
        """Ranks known from elsewhere.

        Args:
            ranks: [query] or [query, entry], the rank of each relevant candidate: 1 = best, infinite = not retrieved,
                0 or negative = padding. Fractional ranks stand for themselves. Within a query they are ranks in one
                list, so no two are equal; ranks that were filtered already are lists of their own: [query], one each.
            num_candidates: length of the lists, one for all or [query]. Without it, what needs it is NaN (mean rank
                of what was not retrieved, fall-out, precision without ``top_k``).

        Ranks between 0 and 1 or beyond ``num_candidates``, or equal in one query, are bad values.

        Raises:
            ValueError: ranks have another shape.
        """
        if ranks.dim() not in (1, 2):
            raise ValueError(f"Expected ranks of shape [query] or [query, entry], got {list(ranks.shape)}")
        first = ranks.detach().to(real(ranks.device))
        first = first.unsqueeze(-1) if first.dim() == 1 else first
        first = first if first.shape[1] else first.new_zeros((len(first), 1))
        length = float("nan") if num_candidates is None else num_candidates
        length = torch.as_tensor(length, dtype=first.dtype, device=first.device).clone().expand(len(first))
        valid = ~(first <= 0)
        finite = first.isfinite()
        # Without ties there is no table over ranks, so they may be as large as they like.
        bad = (valid & (first < 1)) | (finite & (first > length.unsqueeze(-1))) | first.isnan()
        ordered = first.sort(dim=-1).values
        again = (ordered[:, 1:] == ordered[:, :-1]) & ordered[:, 1:].isfinite() & (ordered[:, 1:] > 0)
        places = in_rank_order(
            torch.where(finite, first, 1),
            (finite & valid).to(first.dtype),
            valid.to(torch.int8),
            valid,
            length,
            count(Problem.BAD_RANKS, bad) + count(Problem.BAD_RANKS, again),
            depth=1,
        )
        return cls._of(places)

    @classmethod
    def from_negatives(cls, pos: Tensor, neg: Tensor) -> Ranking:
        """Positives, [query] or [query, positive] scores, against sampled negatives, [query, negative] scores."""
        pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
        if pos.dim() != 2 or neg.dim() != 2 or len(pos) != len(neg):
            raise ValueError(
                "Expected pos [query] or [query, positive] and neg [query, negative] of as many queries, got shapes"
                f" {list(pos.shape)} and {list(neg.shape)}"
            )
        dtype = torch.promote_types(pos.dtype, neg.dtype)
        dtype = dtype if dtype.is_floating_point else torch.float64
        scores = torch.cat([pos.to(dtype), neg.to(dtype)], dim=-1)
        columns = torch.arange(pos.shape[1], device=pos.device).expand(len(pos), -1)
        return cls._whole(arrange(scores, list(columns)))

    @classmethod
    def from_embeddings(
        cls,
        queries: Tensor,
        items: Tensor,
        relevant: Any,
        *,
        exclude: tuple[Tensor, Tensor] | None = None,
        similarity: str = "dot",
        top_k: int | None = None,
        chunk_size: int | None = None,
        group: Any = False,
        progress: bool = False,
    ) -> Ranking:
        """Rank a catalogue by the similarity of embeddings. The [query, item] matrix of scores is never whole.

        Args:
            queries: floating [query, dimension].
            items: floating [item, dimension].
            relevant: items int [query], [query, entry] padded with negatives, a list of one id tensor per query, or a
                (query, item) or (query, item, grade) tuple.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            similarity: "dot" or "cosine".
            top_k: only ranks up to this one will be looked at, which is cheaper where many items are relevant. Metrics
                that look further refuse the ranking.
            chunk_size: items to score at a time; None = as suits the device. At most 64 MB of scores exist at a time.
            group: a process group (None = the default one) over whose workers the catalogue is spread, or False. Each
                worker then gives all ``queries`` and ``relevant``, the same on all, and its own slice of ``items``,
                which are numbered in the order of the workers, and gets the ranking of the whole catalogue.
            progress: show a bar; needs tqdm.

        Raises:
            TypeError, ValueError: the arguments do not fit together.

        Example:
            >>> import torch, torchrank as tr
            >>> queries, items = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 1.0], [2.0, 0.0], [1.0, 1.0]])
            >>> tr.MRR().score(tr.Ranking.from_embeddings(queries, items, torch.tensor([2]), chunk_size=2))
            tensor([0.5000], dtype=torch.float64)
        """
        shard = None if group is False else lambda here, asked: Shard.of(here, asked, group, queries.device)
        with progress_bar(progress) as step:
            lists = embedded(queries, items, relevant, exclude, similarity, chunk_size, shard, step)
            return cls._whole(lists, Need(_cut(top_k)))

    @classmethod
    def from_score_blocks(
        cls,
        blocks: Iterable[Tensor] | Callable[[], Iterable[Tensor]],
        relevant: Any,
        *,
        exclude: tuple[Tensor, Tensor] | None = None,
        top_k: int | None = None,
    ) -> Ranking:
        """Rank a catalogue whose scores come in blocks of items, for all queries each.

        Args:
            blocks: floating [query, item] blocks from left to right: a list, another iterable that can be read twice,
                a function that returns an iterator, which is called twice; or, together with ``top_k``, an iterator.
            relevant: items int [query], [query, entry] padded with negatives, a list of one id tensor per query, or a
                (query, item) or (query, item, grade) tuple. Items are numbered through all blocks.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            top_k: only ranks up to this one will be looked at. Metrics that look further refuse the ranking.

        Raises:
            TypeError, ValueError: the arguments do not fit together, or blocks differ in queries or dtype.

        Example:
            >>> import torch, torchrank as tr
            >>> blocks = [torch.tensor([[0.2, 0.9]]), torch.tensor([[0.4, 0.1]])]
            >>> tr.MRR().score(tr.Ranking.from_score_blocks(blocks, torch.tensor([2])))
            tensor([0.5000], dtype=torch.float64)
        """
        return cls._whole(streamed(blocks, relevant, exclude, top_k), Need(_cut(top_k)))

    @classmethod
    def from_run(cls, qrels: Mapping[str, Mapping[str, float]], run: Mapping[str, Mapping[str, float]]) -> Ranking:
        """Judgments {query: {document: grade}} and a run {query: {document: score}}, queries in the order of ``qrels``.

        Equal scores are ordered by document id, the larger first, as trec_eval does. A judged query that the run lacks
        has retrieved nothing; queries without judgments are left out.
        """
        rows: list[tuple[int, float, float]] = []
        for number, (query, judged) in enumerate(qrels.items()):
            scored = run.get(query, {})
            documents = sorted({*judged, *scored})  # a later row has the larger id
            rows += [(number, scored.get(d, float("-inf")), judged.get(d, 0)) for d in documents]
            rows += [(number, float("-inf"), 0.0)] * (not documents)
        query_, score, grade = (list(column) for column in zip(*rows)) if rows else ([], [], [])
        scores = torch.tensor(score, dtype=torch.float64)
        position = torch.arange(len(scores))
        grades_ = torch.tensor(grade, dtype=torch.float64)
        return cls._whole(
            arrange(scores, grades_, indexes=torch.tensor(query_, dtype=torch.int64), tie_break=position)
        )

    @classmethod
    def blocks(cls, lists: Lists, need: Need = Need()) -> Iterator[Ranking]:
        """Rank a batch block by block, so that temporaries stay small however large the batch is.

        ``need`` is what of the rankings will be looked at.
        """
        return map(cls._of, place(lists, need))

    @classmethod
    def _whole(cls, lists: Lists, need: Need = Need()) -> Ranking:
        return cls.join(cls.blocks(lists, need))

    @classmethod
    def join(cls, rankings: Iterable[Ranking]) -> Ranking:
        """One ranking of the queries of all, which know all judged candidates as entries."""
        parts = list(rankings)
        if len(parts) == 1:
            return parts[0]
        width = max(part.first.shape[1] for part in parts)
        first, tied, grade, valid = [
            torch.cat([torch.nn.functional.pad(getattr(p, name), (0, width - p.first.shape[1])) for p in parts])
            for name in ("first", "tied", "grade", "valid")
        ]
        lengths = torch.cat([part.num_candidates for part in parts])
        errors = torch.stack([part.errors for part in parts]).sum(0)
        depth = max(part.depth for part in parts)
        places = in_rank_order(first, tied, grade, valid, lengths, errors, depth, parts[0].reach)
        if (order := batch_order([part.queries for part in parts])) is not None:
            rows = {name: getattr(places, name)[order] for name in ("first", "tied", "grade", "valid", "num_candidates")}
            places = replace(places, **rows)
        return cls._of(places)

    @classmethod
    def _of(cls, places: Places) -> Ranking:
        return cls(**{f.name: getattr(places, f.name) for f in fields(Places)})

    def check(self, need: Need, label: str) -> None:
        """ValueError if this ranking does not know what a metric looks at."""
        if self.reach is not None and (need.reach is None or need.reach > self.reach):
            wanted = "at all ranks" if need.reach is None else f"at ranks up to {need.reach}"
            raise ValueError(f"Expected a Ranking for {label}, which looks {wanted}, got one with top_k={self.reach}")

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Ranking:
        """This ranking with its ties settled by a policy; "expected" leaves the intervals as they are.

        "optimistic" and "pessimistic" are real orders, which put higher or lower grades first among equal scores.
        "realistic" puts each entry in the middle of its interval.
        """
        return self if ties == "expected" else self._settled(ties)

    @shared
    def _settled(self, ties: str) -> Ranking:
        if ties == "realistic":
            middle = self.first + (self.tied - 1).clamp_min(0) / 2
            return replace(self, first=middle, tied=self.tied.clamp_max(1), depth=1, complete=False)
        best_first = ties == "optimistic"
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        first, tied, grade, valid = (x.gather(-1, order) for x in (self.first, self.tied, self.grade, self.valid))
        start, stop = self._runs()
        position = torch.arange(first.shape[1], device=first.device)
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, behind(self.num_candidates).unsqueeze(-1))
        return replace(self, first=first, tied=tied.clamp_max(1), grade=grade, valid=valid, depth=1)

    @shared
    def each_positive(self, level: float) -> Ranking:
        """Filtered ranking: every relevant entry as a query of its own, among the non-relevant candidates only.

        Rows [query * entry], one entry each.
        """
        before, beside = self.relevant_around(level)
        found = self.found(level)
        others = found.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - others).expand_as(self.first)
        return replace(
            self,
            first=torch.where(found, self.first - before, behind(length)).reshape(-1, 1),
            tied=torch.where(found, self.tied - beside + 1, 0).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=length.reshape(-1),
            complete=False,
        )

    # ---- pieces that measures share ----------------------------------------------------------------------------

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.num_candidates)

    @shared
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: graded at or above ``level``."""
        return self.valid & _at_least(self.grade, level)

    @shared
    def found(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) & (self.tied > 0)

    @shared
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: relevant candidates, retrieved or not, also those beyond ``reach``."""
        relevant = self.relevant(level) if self.pool is None else _at_least(self.pool, level)
        return relevant.sum(-1).to(self.first.dtype)

    @property
    def untied(self) -> bool:
        """Whether it is known, from ``depth``, that no two candidates are tied."""
        return self.depth <= 1

    @shared
    def share(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        if self.untied:
            return self.places(top_k)
        return self._of_interval(lambda first, tied: _places(first, tied, top_k) / tied.clamp_min(1))

    @shared
    def places(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: how many of the ranks that an entry can have are among the first ``top_k``."""
        return self.places_within(top_k)

    def places_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`places` for a cut that may differ between queries: [query, 1]."""
        if self.untied and cut is not None:
            return (self.first <= cut) * self.tied
        return _places(self.first, self.tied, cut)

    @shared
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        return torch.where(self.found(level), self.share(top_k), 0.0).sum(-1)

    @shared
    def relevant_around(self, level: float) -> tuple[Tensor, Tensor]:
        """Retrieved relevant entries strictly before, and in, each entry's block of ties: float64 [query, entry]."""
        found = self.found(level).to(self.first.dtype)
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), found
        if self.untied:
            return running_sum(found) - found, found
        so_far = torch.nn.functional.pad(self.found(level).cumsum(-1), (1, 0)).to(self.first.dtype)
        start, stop = self._runs()
        before = so_far.gather(-1, start)
        return before, so_far.gather(-1, stop) - before

    @shared
    def _runs(self) -> tuple[Tensor, Tensor]:
        """Where each entry's block starts and stops in its row: int64 [query, entry]. Blocks are adjacent entries."""
        if self.complete:
            above = torch.where(self.tied > 0, self.first - 1, 0)
            return above.long(), (above + self.tied).long()
        fresh = torch.ones_like(self.valid)
        fresh[:, 1:] = self.first[:, 1:] != self.first[:, :-1]
        return runs(fresh)

    @shared
    def discounted(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and where not retrieved."""
        if self.untied:
            return self.summed(discount, top_k)
        return self._of_interval(lambda first, tied: self._summed(first, tied, discount, top_k) / tied.clamp_min(1))

    @shared
    def summed(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks, cut at ``top_k``."""
        if self.untied:
            inside = self.tied > 0 if top_k is None else (self.tied > 0) & (self.first <= top_k)
            return torch.where(inside, self._rate(discount), 0.0)
        return self._of_interval(lambda first, tied: self._summed(first, tied, discount, top_k))

    def _summed(
        self, first: Tensor, tied: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        alone = tied == 1 if top_k is None else (tied == 1) & (first <= top_k)
        table = self._table(discount, top_k)
        last = len(table) - 1
        above = torch.where(tied > 0, first - 1, 0).long()
        several = table.take((above + tied.long()).clamp_max(last)) - table.take(above.clamp_max(last))
        return torch.where(alone, discount(first.clamp_min(1)), torch.where(tied > 1, several, 0.0))

    @shared
    def _rate(self, discount: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: the discount at the best rank of each entry."""
        return discount(self.first.clamp_min(1))

    def _of_interval(self, piece: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """``piece(first, tied)`` of each entry: computed once for each interval of ranks, where these are few."""
        grid = self._grid()
        if grid is None:
            return piece(self.first, self.tied)
        first, tied, at = grid
        return piece(first, tied).take(at)

    @shared
    def _grid(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """All intervals that entries have, float64 [interval] each, and which one each entry has, int64."""
        if self.first.device.type != "cpu" or not len(self.first):  # how many there are shows in the values
            return None
        above = torch.where(self.tied > 0, self.first - 1, 0)
        ranks, longest = int(above.max()) + 1, int(self.tied.max()) + 1
        if ranks * longest * 4 > above.numel():
            return None
        cells = torch.arange(ranks * longest)
        at = above.mul_(longest).add_(self.tied).long()
        return (cells // longest + 1).to(self.first.dtype), (cells % longest).to(self.first.dtype), at

    def _table(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """Prefix sums of a discount over the ranks 0, 1, ..., as far as they can matter to what is tied."""
        return self._prefix(discount, self.depth if top_k is None else min(top_k, self.depth))

    @shared
    def _prefix(self, discount: Callable[[Tensor], Tensor], limit: int) -> Tensor:
        """Sums of a discount over the ranks from 1 to 0, 1, ..., ``limit``: float64 [limit + 1]."""
        ranks = torch.arange(1, limit + 1, dtype=self.first.dtype, device=self.first.device)
        return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))

    @shared
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 for grades of 0 and below, unjudged and padding."""
        return _gains(self.grade, self.valid & (self.grade > 0), gain, self.first.dtype)

    @shared
    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains that an order of all judged candidates can have."""
        judged = self.grade if self.pool is None else self.pool
        levels = self._levels() if getattr(gain, "increasing", False) else None
        if levels is not None:  # each level adds its part of the gain to all ranks of those at or above it
            sums = self._prefix(discount, min(top_k or judged.shape[1], judged.shape[1]))
            worth = gain(torch.arange(levels + 1, dtype=sums.dtype, device=sums.device)).tolist()
            total = torch.zeros_like(self.num_candidates)
            for level in range(1, levels + 1):
                reached = sums.take(self.num_relevant(level).long().clamp_max_(len(sums) - 1))
                total += (worth[level] - (worth[level - 1] if level > 1 else 0)) * reached
            return total
        best = self._best(gain)[:, :top_k]
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        return (best * discount(ranks)).sum(-1)

    @shared
    def _best(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """Gains of all judged candidates in descending order, as far as ``reach``: float64 [query, rank]."""
        if self.pool is None:
            return self.gains(gain).sort(dim=-1, descending=True).values
        rank = min(self.reach or self.pool.shape[1], self.pool.shape[1])
        return _gains(self.pool, self.pool > 0, gain, self.first.dtype).topk(rank).values

    @shared
    def _levels(self) -> int | None:
        """The largest grade, where grades are small integers and finding out costs nothing; else None."""
        grade = self.grade if self.pool is None else self.pool
        if grade.device.type != "cpu" or grade.is_floating_point() or not grade.numel():
            return None
        largest = int(grade.max())
        return max(0, largest) if largest <= FEW_LEVELS else None

    @shared
    def finite(self) -> Tensor:
        """bool [query]: all grades are finite numbers."""
        grade = self.grade if self.pool is None else self.pool
        return grade.isfinite().all(-1) if grade.is_floating_point() else torch.ones_like(self.valid[:, 0])


def batch_order(queries: Sequence[Tensor | None]) -> Tensor | None:
    """Where each query of a batch stands in its parts, given their numbers in each; None if they are in order."""
    numbers = [part for part in queries if part is not None]
    return torch.cat(numbers).argsort() if numbers else None


def _places(first: Tensor, tied: Tensor, cut: Tensor | int | None) -> Tensor:
    """Ranks of the intervals up to a cut."""
    return tied if cut is None else torch.minimum((cut + 1 - first).clamp_min_(0), tied)


def _at_least(grade: Tensor, level: float) -> Tensor:
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # where the comparison would wrap around
    return grade >= level


def _gains(grade: Tensor, judged: Tensor, gain: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    grade = torch.where(judged, grade, torch.zeros_like(grade)).to(dtype)
    return torch.where(judged, gain(grade), 0.0)


def _cut(top_k: int | None) -> int | None:
    if top_k is not None and (not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1):
        raise ValueError(f"Expected top_k to be an integer >= 1 or None, got {top_k!r}")
    return top_k
