"""Are the differences between systems real: paired tests on the values of queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torchrank.names.arguments import one_of, with_hints
from torchrank.statistics.comparison import Comparison, check_settings, comparison_of
from torchrank.statistics.corrections import correct
from torchrank.statistics.matching import Matched, cluster_numbers, match
from torchrank.statistics.pair_statistics import PairStatistics, differences_of, paired_statistics, statistics_of_runs
from torchrank.statistics.paired_tests import FAMILY_TESTS, PAIR_TESTS, Drawing, family_p, paired_p, unknown_test
from torchrank.statistics.reading import FEW_CLUSTERS

Array = np.ndarray

# Tests that can treat the queries of a cluster as one.
_CLUSTERED = ("t", "randomization", "anytime")


@with_hints
def compare(
    systems: Mapping[str, Any],
    baseline: str | None = None,
    *,
    test: str = "t",
    correction: str | None = None,
    family: str = "measure",
    alpha: float = 0.05,
    level: float | None = None,
    margin: float | Mapping[str, float] | None = None,
    missing: str = "error",
    clusters: Any = None,
    higher_is_better: bool | Mapping[str, bool] | None = None,
    zeros: str = "pratt",
    replicates: int = 10_000,
    seed: int = 0,
    power: float = 0.8,
) -> Comparison:
    r"""Compare systems on the same queries: differences with intervals, p-values and verdicts.

    A system is given in one of these forms, all systems in the same one:

    | form | meaning |
    |---|---|
    | tensor, array or list, float [query] | values of one measure, matched by position |
    | ``{id: value}`` | values of one measure, matched by id |
    | ``{label: [query]}`` or ``{label: {id: value}}`` | values of several measures |
    | :class:`torchrank.QueryTable`, or an object with ``ids`` and ``columns`` | several measures, matched by id |
    | list of at least two of these | several runs of a method, such as training seeds |

    A value of NaN is not a value: its query is not paired, and counted in the column ``unpaired``. Queries are sorted
    by id, so that the result does not depend on their order.

    Tests of one query set speak of these systems as they are. Training again gives another system: give several runs
    to compare methods. Their means are compared by Welch's t test over the runs.

    | test | null hypothesis | needs |
    |---|---|---|
    | ``"t"`` | equal means | |
    | ``"randomization"`` | labels of the systems can be swapped on every query | |
    | ``"bootstrap"`` | equal means | |
    | ``"tukey"`` | equal means of all systems, two-way; valid over all pairs | scipy |
    | ``"randomized-tukey"`` | systems can be permuted on every query; valid over all pairs | |
    | ``"wilcoxon"`` | differences are symmetric about 0, which is not equality of means | scipy |
    | ``"sign"`` | wins and losses are equally likely; ties are dropped | scipy |
    | ``"anytime"`` | equal means; the error rate holds however often one looks, see :class:`torchrank.Compared` | |

    Source:
        Smucker, Allan and Carterette, A comparison of statistical significance tests for information retrieval
        evaluation, CIKM 2007. Carterette, Multiple testing in statistical analysis of systems-based information
        retrieval experiments, ACM TOIS 2012.

    Args:
        systems: the values of each system, by its name.
        baseline: name of the system with which each other one is compared; None compares all pairs.
        test: name of the test.
        correction: ``"holm"`` (the default), ``"bh"`` or ``"none"``. The tests of Tukey need none and accept no other.
        family: ``"measure"`` corrects over the pairs of each measure, ``"all"`` over pairs and measures.
        alpha: a corrected p-value of at most this is a verdict.
        level: level of the intervals, which are not corrected; 1 - alpha if None.
        margin: difference that does not matter, of all measures or of each by its label, in their units. It adds the
            tests of equivalence (TOST) and of non-inferiority, "b is not worse than a by the margin", by Student's t
            and corrected like the others.
        missing: queries that some system lacks: ``"error"``, ``"drop"`` or ``"zero"``.
        clusters: cluster of each query, whose queries may depend on each other: ``{id: cluster}``, or [query] by
            position. For ``"t"``, ``"randomization"`` and ``"anytime"``.
        higher_is_better: direction of all measures, or of each by its label. None takes the directions that the
            systems have in an attribute of that name, and True elsewhere.
        zeros: ``"pratt"`` or ``"zsplit"``, the treatment of differences of 0 in Wilcoxon's test.
        replicates: number of random replicates of the tests that draw.
        seed: seed of these tests. The same seed gives the same p-values.
        power: power of the smallest detectable difference.

    Returns:
        A :class:`Comparison`. Identical systems have p = 1. Fewer than two queries, or differences without a spread,
        have NaN where a spread would be needed.

    Raises:
        ValueError: the systems do not match, or an argument has no such value.
        TypeError: a system has none of the forms.
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> bm25 = {"q1": 0.21, "q2": 0.50, "q3": 0.33, "q4": 0.40, "q5": 0.10}
        >>> dense = {"q5": 0.22, "q4": 0.61, "q3": 0.40, "q2": 0.72, "q1": 0.41}
        >>> compared = compare({"bm25": bm25, "dense": dense}, baseline="bm25")
        >>> row = compared.table.rows[0]
        >>> round(row["difference"], 3), round(row["p"], 4), row["winner"], row["n"]
        (0.164, 0.0051, 'dense', 5)
    """
    correction = _check(test, correction, family)
    drawing = Drawing(replicates, seed, zeros)
    matched = match(systems, missing)
    check_settings(matched.values, alpha, level, power, margin)
    if baseline is not None:
        one_of("baseline", baseline, map(str, systems))
    names = _pairs(list(map(str, systems)), baseline)
    directions = _directions(matched, higher_is_better)
    groups, warnings = _clusters(matched, clusters, test)
    tables = [table for runs in systems.values() for table in (runs if isinstance(runs, list | tuple) else [runs])]
    warnings = [*warnings, *of_plain_means(tables)]
    pairs: list[PairStatistics] = []
    p_values: list[float] = []
    for measure, values in matched.values.items():
        for pair, p in _of_measure(measure, values, names, test, drawing, groups, directions[measure]):
            pairs.append(pair)
            p_values.append(p)
    return comparison_of(
        pairs, p_values, test=test, correction=correction, family=family, alpha=alpha, level=level, power=power,
        margin=margin, baseline=baseline, notes=_notes(matched, missing, groups), warnings=warnings,
    )  # fmt: skip


def of_plain_means(tables: Iterable[Any]) -> list[str]:
    """Warnings of tables whose results are others than the plain means of their values."""
    tables, warnings = list(tables), []
    if other := dict.fromkeys(label for table in tables for label in getattr(table, "other_results", ())):
        warnings.append(f"compared are plain means of the values of queries, not the results of {', '.join(other)}")
    if any(getattr(table, "weights", None) is not None for table in tables):
        warnings.append("weights of the tables are not used: every query counts alike")
    return warnings


def _of_measure(
    measure: str,
    values: dict[str, Array],
    names: Sequence[tuple[str, str]],
    test: str,
    drawing: Drawing,
    groups: Array | None,
    higher: bool,
) -> list[tuple[PairStatistics, float]]:
    if _several_runs(values, test):
        pairs = [
            statistics_of_runs(values[a], values[b], measure=measure, names=(a, b), higher_is_better=higher)
            for a, b in names
        ]
        return [(pair, pair.p) for pair in pairs]
    single = {name: column[:, 0] for name, column in values.items()}
    incomplete = np.isnan(list(single.values())).any(axis=0)
    if test in FAMILY_TESTS:
        dropped = int((incomplete & ~np.isnan(list(single.values())).all(axis=0)).sum())
        single = {name: np.where(incomplete, np.nan, column) for name, column in single.items()}
        p = family_p(np.stack(list(single.values()), axis=1)[~incomplete], test, drawing)
    pairs = [
        paired_statistics(single[a], single[b], groups, measure=measure, names=(a, b), higher_is_better=higher)
        for a, b in names
    ]
    if test == "anytime":
        pairs = [pair.anytime() for pair in pairs]
    if test in FAMILY_TESTS:
        place = {name: i for i, name in enumerate(single)}
        return [(replace(pair, unpaired=dropped), float(p[place[pair.a], place[pair.b]])) for pair in pairs]
    return [(pair, _p(pair, single, test, drawing, groups)) for pair in pairs]


def _p(pair: PairStatistics, values: dict[str, Array], test: str, drawing: Drawing, groups: Array | None) -> float:
    if test in ("t", "anytime") or pair.identical or pair.n < 2:
        return pair.p
    a, b = values[pair.a], values[pair.b]
    both = ~(np.isnan(a) | np.isnan(b))
    differences = differences_of(a[both], b[both])
    if groups is not None:
        differences = np.bincount(groups[both], weights=differences)
    return paired_p(differences, test, drawing)


def _several_runs(values: dict[str, Array], test: str) -> bool:
    runs = {name: column.shape[1] for name, column in values.items()}
    if max(runs.values()) == 1:
        return False
    if min(runs.values()) == 1:
        raise ValueError(f"Expected several runs of every system or of none, got {runs}; give at least two of each")
    if test != "t":
        raise ValueError(f"Expected test='t' with several runs of a system, got {test!r}; leave the test out")
    return True


def _check(test: str, correction: str | None, family: str) -> str:
    """The correction. Raises ValueError for names that are unknown or exclude each other."""
    if test not in {**PAIR_TESTS, **FAMILY_TESTS}:
        raise ValueError(unknown_test(test, [*PAIR_TESTS, *FAMILY_TESTS]))
    one_of("family", family, ("measure", "all"))
    if correction is not None:
        correct([], correction)
    if test not in FAMILY_TESTS:
        return correction or "holm"
    if correction not in (None, "none") or family == "all":
        raise ValueError(
            f"Expected no correction and family='measure' with test={test!r}, whose p-values cover all pairs, got "
            f"correction={correction!r} and family={family!r}; leave both out"
        )
    return "none"


def _pairs(names: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    if baseline is None:
        return list(itertools.combinations(names, 2))
    return [(baseline, name) for name in names if name != baseline]


def _directions(matched: Matched, directions: bool | Mapping[str, bool] | None) -> dict[str, bool]:
    if isinstance(directions, bool):
        return dict.fromkeys(matched.values, directions)
    for label in directions or ():
        one_of("each label of higher_is_better", label, matched.values)
    known = {**matched.higher_is_better, **(directions or {})}
    return {measure: bool(known.get(measure, True)) for measure in matched.values}


def _clusters(matched: Matched, clusters: Any, test: str) -> tuple[Array | None, list[str]]:
    if clusters is None:
        return None, []
    columns = next(iter(matched.values.values()))
    if test not in _CLUSTERED or max(column.shape[1] for column in columns.values()) > 1:
        raise ValueError(
            f"Expected one run of each system and test={' or '.join(map(repr, _CLUSTERED))} with clusters, got "
            f"test={test!r}; leave the clusters out, or change the test"
        )
    groups = cluster_numbers(clusters, matched.ids, len(next(iter(columns.values()))))
    count = len(np.unique(groups))
    few = f"{count} clusters: their standard errors are too small below about {FEW_CLUSTERS}"
    return groups, [few] if count < FEW_CLUSTERS else []


def _notes(matched: Matched, missing: str, groups: Array | None) -> list[str]:
    notes = []
    if matched.missing:
        how = "count as 0" if missing == "zero" else "are left out"
        notes.append(f"{matched.missing} queries that some system lacks {how}")
    if groups is not None:
        size = len(groups) / max(1, len(np.unique(groups)))
        notes.append(f"standard errors of {len(np.unique(groups))} clusters of {size:.3g} queries on average")
    runs = {name: column.shape[1] for name, column in next(iter(matched.values.values())).items()}
    if max(runs.values()) > 1:
        counted = ", ".join(f"{name} {count}" for name, count in runs.items())
        notes.append(f"Welch's t over runs ({counted}): it speaks of methods; tests over queries speak of one run each")
    return notes
