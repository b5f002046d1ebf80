"""Measures of what a model of users gains: rank-biased precision, and the C/W/L framework of them all."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.formulas.gains import UNDISCOUNTED, AtLeast, Geometric, Scaled
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, integer, number, one_of
from torchrank.names.types import EmptyAction
from torchrank.ranking.arithmetic import ratio, running_sum
from torchrank.ranking.ranking import Ranking

__all__ = ["CWL", "RBP", "RBPResidual"]

# The last rank that users of C/W/L can see, unless it is said: that of cwl_eval.
DEEPEST = 1000


# The last rank that may be said: users have a chance to go on from each, whether or not a list is as long.
SEEN = 2**18


# What is reached but for less than this is reached: sums of gains are rounded.
ROUNDING = 1e-9


class UserMetric(RankingMetric):
    """A measure of gains from 0 to 1.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        relevance_level: a grade at or above it gains 1, any other 0; > 0.
        max_grade: gains are graded, the share that a grade is of this one, 1 for larger grades; None = they are not.
        kwargs: as :class:`RankingMetric`.

    Raises:
        ValueError: a level or grade is not a number > 0, or both are given.
    """

    relevance_level: float = number(default=1, above=0)
    max_grade: float | None = number(default=None, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_grade is not None and self.relevance_level != 1:
            raise ValueError(
                f"Expected either relevance_level or max_grade, got {self.relevance_level} and {self.max_grade}: gains"
                " are binary or graded"
            )

    @property
    def gain_function(self) -> Callable[[Tensor], Tensor]:
        """From grades to gains."""
        return AtLeast(self.relevance_level) if self.max_grade is None else Scaled(self.max_grade)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.ideal(self.gain_function, UNDISCOUNTED, self.top_k) == 0


class RBP(UserMetric):
    r"""Rank-biased precision: :math:`(1 - p) \sum_{i \le k} gain_i \, p^{i - 1}`.

    What users gain per candidate who go on to the next one with chance p. Gains are binary, or with ``max_grade``
    graded, :math:`grade / max\_grade` and at most 1.

    Source:
        Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, ACM TOIS 27(1), 2008.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        p: chance to go on, > 0 and < 1.
        normalize: divide by the RBP of the best order of all judged candidates cut at k, as LensKit's argument of that
            name does.
        relevance_level: a grade at or above it is relevant; > 0.
        max_grade: graded gains, of this grade 1; see :class:`UserMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``p`` is not between 0 and 1, ``normalize`` is not a bool, or as :class:`UserMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBP(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # (1 + 1/4) / 2
        tensor([0.6250], dtype=torch.float64)
    """

    known_as = {
        "parse": {"rank_biased_precision": "", "rbp{x}": "(p={x})", "rbp_p={p}": "(p={p})", "rbp_{p}": "(p={p})"},
        "trec_eval": {"rbp": "~ of the same p, with the largest grade of a query as `max_grade` if that exceeds 1"},
        "trec_eval9": {},
        "ir_measures": {"RBP": "(p=0.8)"},
        "ranx": {"rbp{x}": "(p={x}) whose gains are the grades, so `max_grade` times as much"},
        "lenskit": {"RBP": "(p=0.85)"},
    }
    name = "rbp"

    p: float = number(default=0.9, above=0, below=1)
    normalize: bool = flag(default=False)

    def measure(self, ranking: Ranking) -> Tensor:
        discount = Geometric(self.p)
        gained = (ranking.gains(self.gain_function) * ranking.mean_discount(discount, self.top_k)).sum(-1)
        if not self.normalize:
            return (1 - self.p) * gained
        return ratio(gained, ranking.ideal(self.gain_function, discount, self.top_k))


class RBPResidual(RankingMetric):
    r"""Residual of rank-biased precision: :math:`p^n + (1 - p) \sum_{i \le n, unjudged} p^{i - 1}`.

    How much larger :class:`RBP` could be if all that is unjudged in a list of n candidates, and all behind it, were
    relevant: 1 less the weight of the judged ones. With ``top_k``, n is at most that. What a layout does not name is
    unjudged. Lower is better: less is unknown. A query of which nothing was retrieved is empty, by default its
    residual is 1. (trec_eval leaves the first term out where nothing in the list is unjudged.)

    Source:
        Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, ACM TOIS 27(1), 2008.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        p: chance to go on, > 0 and < 1.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: ``p`` is not between 0 and 1.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RBPResidual(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, -1, 0]]))  # 1/8 + 1/4
        tensor([0.3750], dtype=torch.float64)
    """

    known_as = {
        "parse": {"rbp_resid": "", "rbp_resid_p={p}": "(p={p})", "rbp_resid_{p}": "(p={p})"},
        "trec_eval": {"rbp_resid": "~ drops the tail where all is judged"},
        "trec_eval9": {},
        "cwl_eval": {"": "its residuals"},
    }
    name = "rbpresidual"
    higher_is_better = False
    takes_unjudged_for = ("irrelevant",)

    p: float = number(default=0.9, above=0, below=1)
    empty_target_action: EmptyAction = "pos"

    def need(self) -> Need:
        return Need(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_candidates == 0

    def measure(self, ranking: Ranking) -> Tensor:
        judged = ranking.valid & (ranking.grade >= 0)
        weight = torch.where(judged, ranking.mean_discount(Geometric(self.p), self.top_k), 0.0).sum(-1)
        return (1 - (1 - self.p) * weight).clamp_min(0)


class CWL(UserMetric):
    r"""What a user gains per candidate in the C/W/L framework: :math:`\sum_i W_i \, gain_i`.

    A user who sees rank i goes on to the next with chance :math:`C_i`, so that the share of the attention that a rank
    gets is :math:`W_i = \prod_{j < i} C_j \,/\, \sum_{i \le n} \prod_{j < i} C_j`. There are n = ``top_k`` ranks, or
    1000; a list that is shorter goes on with gains of 0. With T = ``target`` and G the gains up to and with rank i:

    ======================  ============================================================================================
    ``user``                chance to go on from rank i
    ======================  ============================================================================================
    "precision"             1
    "rbp"                   p (Moffat and Zobel, TOIS 2008)
    "rr"                    1 while G is 0, then 0
    "ap"                    :math:`\sum_{j>i} (gain_j / j) \,/\, \sum_{j \ge i} (gain_j / j)`
    "sdcg"                  log(i + 1) / log(i + 2), the scaled DCG
    "insq"                  :math:`((i + 2T - 1) / (i + 2T))^2` (Moffat, Scholer and Thomas, ADCS 2012)
    "inst"                  the same with 2T - G in place of 2T (Moffat, Bailey, Scholer and Thomas, ADCS 2015)
    "bpm"                   1 while G < T and i < ``top_k``, then 0 (Zhang et al., SIGIR 2017). Dynamic with ``benefit``
                            and ``cost``: times the gains up to rank i - 1, each less ``middle``, these are added to T
                            and to ``top_k``
    "nerr8"                 1 - gain (this and the following: Azzopardi, Mackenzie and Moffat, ICTIR 2021)
    "nerr9"                 (1 - gain) i / (i + 1)
    "nerr10"                (1 - gain) p
    "nerr11"                (1 - gain) times that of "insq"
    ======================  ============================================================================================

    Parameters that a user does not look at change nothing. Under ``ties="expected"`` every one of tied candidates gains
    the mean of them. That is the exact mean over their orders for users who go on whatever they gained ("precision",
    "rbp", "sdcg", "insq"), and the user's view of a list of mean gains for the others.

    Source:
        Moffat, Bailey, Scholer and Thomas, Incorporating user expectations and behavior into the measurement of search
        effectiveness, ACM TOIS 35(3), 2017; Azzopardi, Thomas and Moffat, cwl_eval, SIGIR 2019.

    Args:
        top_k: count only the first ``top_k`` ranks, up to 262,144, which a user sees one by one; None = 1000 of them.
        user: one of the above, or a callable with a name, from gains float64 [query, rank] and ranks float64 [rank] to
            the chances to go on.
        p: chance to go on of "rbp" and "nerr10", > 0 and < 1.
        target: what "insq", "inst", "bpm" and "nerr11" want to gain altogether, > 0.
        benefit, cost, middle: how the target and the patience of "bpm" change with what it gains.
        relevance_level: a grade at or above it is relevant; > 0.
        max_grade: graded gains, of this grade 1; see :class:`UserMetric`.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Raises:
        ValueError: an unknown user, or a parameter, or ``top_k``, outside its range.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 1, 1]])
        >>> tr.CWL(top_k=3, user="sdcg").score(scores, grades)  # DCG of the list over that of three relevant ones
        tensor([0.5307], dtype=torch.float64)
    """

    known_as = {
        "cwl_eval": {"": "where `top_k` is k or K"},
        "ir_measures": {
            "": "whose `max_rel` is `max_grade`",
            "INST": "(user=inst)",
            "INSQ": "(user=insq)",
            "BPM": "(user=bpm)",
            "SDCG": "(user=sdcg)",
            "NERR8": "(user=nerr8)",
            "NERR9": "(user=nerr9)",
            "NERR10": "(user=nerr10)",
            "NERR11": "(user=nerr11)",
        },
    }
    name = "cwl"

    top_k: int | None = integer(default=None, least=1, most=SEEN, kw_only=False)
    user: str | Callable[[Tensor, Tensor], Tensor] = one_of(default="rbp", among=lambda _: USERS)
    p: float = number(default=0.8, above=0, below=1)
    target: float = number(default=1, above=0)
    benefit: float = number(default=0)
    cost: float = number(default=0)
    middle: float = number(default=0.5)

    @property
    def ranks(self) -> int:
        """The last rank that a user can see."""
        patience_grows = self.user == "bpm" and self.cost != 0
        return max(self.top_k or DEEPEST, DEEPEST) if patience_grows else self.top_k or DEEPEST

    def need(self) -> Need:
        return Need(self.ranks, relevant=True)

    def measure(self, ranking: Ranking) -> Tensor:
        go_on = self.user if callable(self.user) else functools.partial(USERS[self.user], self)
        ranks = torch.arange(1, self.ranks + 1, dtype=ranking.first.dtype, device=ranking.first.device)
        rows = torch.arange(ranking.num_queries, device=ranks.device)
        values = [torch.zeros_like(ranking.num_candidates[:0])]
        for part in rows.split(max(1, BLOCK // 4 // self.ranks)):  # a table of gains at ranks is long
            gain = ranking.take(part).gains_by_rank(self.gain_function, self.ranks).clamp(0, 1)
            seen = go_on(gain, ranks).clamp(0, 1).expand_as(gain)[:, :-1].cumprod(-1)
            seen = torch.nn.functional.pad(seen, (1, 0), value=1.0)
            values.append((seen * gain).sum(-1) / seen.sum(-1))
        return torch.cat(values)


# ---- users: chance to go on from each rank, of gains [query, rank] and ranks [rank]; beyond 0 and 1 it is cut --------


def _precision(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return torch.ones_like(rank)


def _rbp(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return torch.full_like(rank, metric.p)


def _rr(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (gain.cummax(-1).values == 0).to(gain.dtype)


def _ap(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    from_here = running_sum((gain / rank).flip(-1)).flip(-1)
    return ratio(torch.nn.functional.pad(from_here[:, 1:], (0, 1)), from_here)


def _sdcg(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return torch.log(rank + 1) / torch.log(rank + 2)


def _insq(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - 1 / (rank + 2 * metric.target)) ** 2


def _inst(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - 1 / (rank + 2 * metric.target - running_sum(gain))) ** 2


def _bpm(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    gained = running_sum(gain)
    above_the_middle = gained - gain - metric.middle * (rank - 1)
    target = metric.target + metric.benefit * above_the_middle
    patience = (metric.top_k or metric.ranks) + metric.cost * above_the_middle
    return ((gained < target - ROUNDING) & (rank < patience - ROUNDING)).to(gain.dtype)


def _nerr8(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return 1 - gain


def _nerr9(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - gain) * rank / (rank + 1)


def _nerr10(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - gain) * metric.p


def _nerr11(metric: CWL, gain: Tensor, rank: Tensor) -> Tensor:
    return (1 - gain) * _insq(metric, gain, rank)


USERS: dict[str, Callable[[CWL, Tensor, Tensor], Tensor]] = {
    "precision": _precision,
    "rbp": _rbp,
    "rr": _rr,
    "ap": _ap,
    "sdcg": _sdcg,
    "insq": _insq,
    "inst": _inst,
    "bpm": _bpm,
    "nerr8": _nerr8,
    "nerr9": _nerr9,
    "nerr10": _nerr10,
    "nerr11": _nerr11,
}
