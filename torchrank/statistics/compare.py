"""Are the differences between systems real: paired tests on the values of queries; and the best of checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

import numpy as np

from torchrank.display import Table
from torchrank.names.arguments import one_of, with_hints
from torchrank.statistics.comparison import FEW_CLUSTERS, Comparison, check_settings, comparison_of
from torchrank.statistics.intervals import check_share
from torchrank.statistics.paired import (
    FAMILY_TESTS,
    PAIR_TESTS,
    Drawing,
    PairStatistics,
    correct,
    differences_of,
    family_p,
    paired_p,
    paired_statistics,
    statistics_of_runs,
    unknown_test,
)

Array = np.ndarray

#: the measure of values that come without a label
UNNAMED = "value"


@dataclass(frozen=True)
class Matched:
    """Values of systems on the same queries.

    Args:
        values: float64 [query, run] for each system, by measure and system; NaN where a query has no value. A system
            that was given as one run has one column.
        ids: the query ids in the order of the rows; None if the systems were matched by position.
        missing: number of queries that some system lacks.
        higher_is_better: directions that the systems give, by measure.
    """

    values: dict[str, dict[str, Array]]
    ids: list[Hashable] | None
    missing: int
    higher_is_better: dict[str, bool]


@dataclass(frozen=True)
class _Run:
    """One evaluation of one system: its ids, if it has any, and its columns."""

    name: str
    ids: list[Hashable] | None
    columns: dict[str, Array]
    higher_is_better: dict[str, bool]


def match(systems: Mapping[str, Any], missing: str = "error") -> Matched:
    """Match the queries of systems by id, or by position if they have no ids.

    Args:
        systems: values of each system by its name, in a form that :func:`compare` documents.
        missing: ``"error"`` refuses queries that some system lacks, ``"drop"`` leaves them unpaired, ``"zero"`` counts
            them as 0.

    Returns:
        The queries sorted by id, so that nothing depends on the order in which they came.

    Raises:
        ValueError: systems have different measures, numbers of queries or ids.
        TypeError: a system has none of the forms.

    Example:
        >>> match({"a": {"q2": 0.2, "q1": 0.1}, "b": {"q1": 0.5, "q2": 0.6}}).values["value"]["a"].tolist()
        [[0.1], [0.2]]
    """
    one_of("missing", missing, ("error", "drop", "zero"))
    if not isinstance(systems, Mapping):
        raise ValueError(f'Expected a dictionary of systems, got {type(systems).__name__}; pass {{"a": ..., "b": ...}}')
    if len(systems) < 2:
        raise ValueError(f"Expected at least two systems, got {', '.join(map(str, systems)) or 'none'}; name each")
    runs: dict[str, list[_Run]] = {}
    for name, system in systems.items():
        several = isinstance(system, list | tuple) and not all(map(_is_number, system))
        if several and len(system) < 2:
            got = "got one; give the run itself, without a list"
            raise ValueError(f"Expected at least two runs of {str(name)!r}, {got}")
        named = {f"{name}[{i}]": x for i, x in enumerate(system)} if several else {str(name): system}
        runs[str(name)] = [_run(key, x) for key, x in named.items()]
    every = [run for system in runs.values() for run in system]
    first = every[0]
    for run in every:
        if different := set(first.columns) ^ set(run.columns):
            raise ValueError(
                f"Expected the same measures of every system, got {_three(sorted(different))} in only one of "
                f"{first.name!r} and {run.name!r}; evaluate both with one collection"
            )
        if (first.ids is None) != (run.ids is None):
            raise ValueError(
                f"Expected ids in all systems or in none, got them in only one of {first.name!r} and {run.name!r};"
                " give all systems as {id: value}"
            )
    if not first.columns:
        raise ValueError(f"Expected values of at least one measure, got none in {first.name!r}; add a column")
    ids, lacking = None, 0
    if first.ids is not None:
        ids, rows, lacking = _by_id(every, missing)
    else:
        lengths = {run.name: len(next(iter(run.columns.values()))) for run in every}
        if len(set(lengths.values())) > 1:
            way_out = "give {id: value} to match by id"
            raise ValueError(f"Expected as many queries in every system, got {lengths}; {way_out}")
        rows = [np.arange(length) for length in lengths.values()]
    filler, values = 0.0 if missing == "zero" else np.nan, {}
    for measure in first.columns:
        columns = iter([np.where(row < 0, filler, run.columns[measure][row]) for run, row in zip(every, rows)])
        values[measure] = {name: np.stack([next(columns) for _ in system], axis=1) for name, system in runs.items()}
    directions = {label: known for run in reversed(every) for label, known in run.higher_is_better.items()}
    return Matched(values, ids, lacking, directions)


def cluster_numbers(clusters: Any, ids: list[Hashable] | None, queries: int) -> Array:
    """The cluster of each query as int64 [query], from ``{id: cluster}`` or a sequence by position.

    Raises:
        ValueError: a query has no cluster, or a sequence is given for queries with ids.

    Example:
        >>> cluster_numbers({"q1": "ann", "q2": "bob", "q3": "ann"}, ["q1", "q2", "q3"], 3).tolist()
        [0, 1, 0]
    """
    if isinstance(clusters, Mapping) != (ids is not None):
        if ids is not None:
            raise ValueError(
                f"Expected clusters to be a dictionary {{id: cluster}}, got {type(clusters).__name__}, but the"
                " systems are matched by id; pass dict(zip(ids, clusters)), of lists"
            )
        raise ValueError(
            f"Expected clusters to be a sequence with the cluster of each query, got {_short(clusters)}, but the"
            " systems have no ids; pass its values in the order of the queries"
        )
    if ids is not None:
        if lacking := [query for query in ids if query not in clusters]:
            raise ValueError(f"Expected a cluster for every query, got none for {_three(lacking)}; add them")
        values = [clusters[query] for query in ids]
    else:
        values = _listed(clusters)
        if len(values) != queries:
            raise ValueError(f"Expected clusters of {queries} queries, got {len(values)}; give one for each query")
    return numbered_clusters(values, range(queries) if ids is None else ids)


def numbered_clusters(clusters: Sequence[Any], queries: Sequence[Any]) -> Array:
    """The number of the cluster of each query, int64 [query]: clusters are equal as keys of a dictionary are.

    Raises:
        ValueError: a cluster is missing, None or NaN, or cannot be a key.

    Example:
        >>> numbered_clusters([1, "1", ("ann", 2), ("ann", 2)], [0, 1, 2, 3]).tolist()
        [0, 1, 2, 2]
    """
    numbers: dict[Hashable, int] = {}
    cluster_numbers = np.empty(len(clusters), dtype=np.int64)
    for row, (cluster, query) in enumerate(zip(clusters, queries)):
        if cluster is None or not isinstance(cluster, Hashable) or cluster != cluster:
            raise ValueError(
                f"Expected the cluster of each query to be a text, a number or a tuple, got {cluster!r} for query"
                f" {query!r}; leave the query out, or give it a separate cluster"
            )
        cluster_numbers[row] = numbers.setdefault(cluster, len(numbers))
    return cluster_numbers


def _run(name: str, values: Any) -> _Run:
    ids, columns, directions = None, values, {}
    if hasattr(values, "ids") and hasattr(values, "columns"):
        ids, columns = _listed(values.ids), {label: values.columns[label] for label in values.columns}
        directions = dict(getattr(values, "higher_is_better", None) or {})
    elif hasattr(values, "compute") and not hasattr(values, "__array__"):
        raise TypeError(f"Expected {name!r} to be values, got {type(values).__name__}; pass its compute()")
    elif isinstance(values, Mapping):
        columns = {UNNAMED: values} if all(map(_is_number, values.values())) else values
        if all(isinstance(column, Mapping) for column in columns.values()):
            ids = list(dict.fromkeys(query for column in columns.values() for query in column))
            columns = {label: [column.get(query, np.nan) for query in ids] for label, column in columns.items()}
    else:
        return _Run(name, None, {UNNAMED: _vector(f"{name!r}", values)}, {})
    vectors = {str(label): _vector(f"{name!r}, {label!r}", column) for label, column in columns.items()}
    lengths = {label: len(column) for label, column in vectors.items()}
    if ids is not None:
        lengths["ids"] = len(ids)
        if len(set(ids)) < len(ids):
            seen: set[Hashable] = set()
            twice = [query for query in ids if query in seen or seen.add(query)]  # type: ignore[func-returns-value]
            raise ValueError(f"Expected each id of {name!r} once, got {_three(twice)} twice; keep one value of each")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected columns of {name!r} of equal length, got {lengths}; give every query a value")
    return _Run(name, ids, vectors, directions)


def _by_id(runs: Sequence[_Run], missing: str) -> tuple[list[Hashable], list[Array], int]:
    """The ids; for each run the row of each id in its columns, -1 for none; and how many ids some run lacks."""
    places = [{query: row for row, query in enumerate(run.ids or ())} for run in runs]
    ids = sorted(set().union(*places), key=lambda query: (type(query).__name__, query))
    rows = [np.array([place.get(query, -1) for query in ids], dtype=np.int64) for place in places]
    lacks = [row < 0 for row in rows]
    if missing == "error":
        for run, lack in zip(runs, lacks):
            if lack.any():
                queries = _three([ids[i] for i in np.flatnonzero(lack)])
                raise ValueError(
                    f"Expected the same queries in every system, got none of {queries} in {run.name!r}; pass"
                    " missing='zero' to count them as 0, or missing='drop' to leave them out"
                )
    if missing == "drop" and np.any(lacks, axis=0).all():
        ids_of = "; ".join(f"{run.name}: {_three(list(run.ids or ()))}" for run in runs)
        way_out = "use the same ids in all systems"
        raise ValueError(f"Expected queries that all systems have, got none ({ids_of}); {way_out}")
    return ids, rows, int(np.any(lacks, axis=0).sum())


def _vector(name: str, values: Any) -> Array:
    values = values.detach().cpu() if hasattr(values, "detach") else values
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected {name} to be values per query, a dictionary {{id: value}} or a table with ids and columns, "
            f"got {_short(values)}; pass the result of PerQuery or of score(), or of evaluate() one run, results['run']"
        ) from error
    if column.ndim != 1:
        way_out = "give one value for each query"
        raise ValueError(f"Expected {name} to be [query], got shape {list(column.shape)}; {way_out}")
    if np.isinf(column).any():
        raise ValueError(f"Expected {name} to be finite or NaN, got an infinite value; mark a missing value by NaN")
    return column


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or getattr(value, "ndim", None) == 0


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _three(names: Iterable[Any]) -> str:
    named = [repr(name) for name in names]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}..."


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
    every = list(map(str, systems))
    names = list(itertools.combinations(every, 2))
    if baseline is not None:
        names = [(baseline, name) for name in every if name != baseline]
    given = {} if higher_is_better is None else higher_is_better
    given = dict.fromkeys(matched.values, given) if isinstance(given, bool) else given
    for label in given:
        one_of("each label of higher_is_better", label, matched.values)
    directions = dict.fromkeys(matched.values, True) | matched.higher_is_better | dict(given)
    columns = next(iter(matched.values.values()))
    runs, notes, warnings, groups = {name: x.shape[1] for name, x in columns.items()}, [], [], None
    if matched.missing:
        how = "count as 0" if missing == "zero" else "are left out"
        notes.append(f"{matched.missing} queries that some system lacks {how}")
    if clusters is not None:
        if test not in _CLUSTERED or max(runs.values()) > 1:
            raise ValueError(
                f"Expected one run of each system and test={' or '.join(map(repr, _CLUSTERED))} with clusters, got "
                f"test={test!r}; leave the clusters out, or change the test"
            )
        groups = cluster_numbers(clusters, matched.ids, len(next(iter(columns.values()))))
        count = len(np.unique(groups))
        notes.append(f"standard errors of {count} clusters of {len(groups) / max(1, count):.3g} queries on average")
        if count < FEW_CLUSTERS:
            warnings.append(f"{count} clusters: their standard errors are too small below about {FEW_CLUSTERS}")
    tables = (x if isinstance(x, list | tuple) else [x] for x in systems.values())
    warnings += of_plain_means(itertools.chain.from_iterable(tables))
    if max(runs.values()) > 1:
        if min(runs.values()) == 1:
            raise ValueError(f"Expected several runs of every system or of none, got {runs}; give at least two of each")
        if test != "t":
            raise ValueError(f"Expected test='t' with several runs of a system, got {test!r}; leave the test out")
        counted = ", ".join(f"{name} {number}" for name, number in runs.items())
        notes.append(f"Welch's t over runs ({counted}): it speaks of methods; tests over queries speak of one run each")
    pairs: list[PairStatistics] = []
    p_values: list[float] = []
    for measure, values in matched.values.items():
        about: dict[str, Any] = {"measure": measure, "higher_is_better": bool(directions[measure])}
        if max(runs.values()) > 1:
            found = [statistics_of_runs(values[a], values[b], names=(a, b), **about) for a, b in names]
            pairs += found
            p_values += [pair.p for pair in found]
            continue
        single = {name: column[:, 0] for name, column in values.items()}
        if test in FAMILY_TESTS:
            lacking = np.isnan(list(single.values()))
            incomplete = lacking.any(axis=0)
            dropped = int((incomplete & ~lacking.all(axis=0)).sum())
            single = {name: np.where(incomplete, np.nan, column) for name, column in single.items()}
            family_table = family_p(np.stack(list(single.values()), axis=1)[~incomplete], test, drawing)
            place = {name: i for i, name in enumerate(single)}
        for a, b in names:
            pair = paired_statistics(single[a], single[b], groups, names=(a, b), **about)
            if test in FAMILY_TESTS:
                pair, p = replace(pair, unpaired=dropped), float(family_table[place[a], place[b]])
            elif test in ("t", "anytime") or pair.identical or pair.n < 2:
                pair = pair.anytime() if test == "anytime" else pair
                p = pair.p
            else:
                both = ~(np.isnan(single[a]) | np.isnan(single[b]))
                differences = differences_of(single[a][both], single[b][both])
                if groups is not None:
                    differences = np.bincount(groups[both], weights=differences)
                p = paired_p(differences, test, drawing)
            pairs.append(pair)
            p_values.append(p)
    return comparison_of(
        pairs, p_values, test=test, correction=correction, family=family, alpha=alpha, level=level, power=power,
        margin=margin, baseline=baseline, notes=notes, warnings=warnings,
    )  # fmt: skip


def of_plain_means(tables: Iterable[Any]) -> list[str]:
    """Warnings of tables whose results are others than the plain means of their values."""
    tables, warnings = list(tables), []
    if other := dict.fromkeys(label for table in tables for label in getattr(table, "other_results", ())):
        warnings.append(f"compared are plain means of the values of queries, not the results of {', '.join(other)}")
    if any(getattr(table, "weights", None) is not None for table in tables):
        warnings.append("weights of the tables are not used: every query counts alike")
    return warnings


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


def best_of(checkpoints: Mapping[Any, Any], level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Table:
    r"""The value of the best checkpoint without the luck of having been chosen, for each measure.

    The best of E checkpoints on a set of queries looks better than it is on other queries, because the luck of these
    queries helped to choose it. A paired bootstrap draws queries, the same for all checkpoints, and chooses again: the
    bias is the mean of how far the value of the chosen one is above its expectation. Values of the checkpoints differ
    by this luck, too, so their expectations are nearer to each other than their values :math:`m_e`. With v the mean
    variance of the luck and s the variance of the values over checkpoints, the bootstrap takes expectations of variance
    s - v:

    .. math:: \bar m + \sqrt{\max(0, 1 - v / s)} \; (m_e - \bar m).

    Args:
        checkpoints: the values of each checkpoint by its epoch or name, as a :class:`torchrank.QueryTable` or another
            form that :func:`torchrank.compare` takes. Queries that one of them lacks are left out.
        level: share of such intervals that contain the expected value of the chosen checkpoint.
        replicates: number of replicates.
        seed: their seed.

    Returns:
        A :class:`torchrank.Table` with a row for each measure: ``best``, the chosen checkpoint; ``value``, its mean;
        ``bias``; ``corrected`` = value - bias; ``low`` and ``high``, the interval around the corrected value;
        ``queries``, the number of queries that all checkpoints have scored. Fewer than two queries have no bias.

    Raises:
        ValueError: there are fewer than two checkpoints, they have different measures, or an argument is out of range.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> generator = np.random.default_rng(0)
        >>> query = generator.uniform(0.2, 0.8, 100)  # the expected value of each query is the same at every epoch
        >>> values = query + generator.uniform(-0.2, 0.2, (20, 100))
        >>> epochs = {epoch: tr.QueryTable(range(100), {"mrr": values[epoch]}) for epoch in range(20)}
        >>> tr.best_of(epochs)
        measure  best   value    bias  corrected     low    high  queries
        mrr         1  0.5456  0.0207     0.5249  0.4851  0.5629      100
        value: mean of the best of 20 checkpoints, on the queries that chose it
        bias: the luck of this choice, by 1000 bootstrap replicates (seed 0)
        corrected: value - bias; low and high: its 95 % interval
    """
    check_share("level", level)
    if len(checkpoints) < 2:
        raise ValueError(f"Expected two or more checkpoints, got {len(checkpoints)}; a single one was not chosen")
    drawing = Drawing(replicates, seed)
    matched = match({str(name): table for name, table in checkpoints.items()}, missing="drop")
    names, rows = list(checkpoints), []
    for measure, columns in matched.values.items():
        sign = 1 if matched.higher_is_better.get(measure, True) else -1
        values = sign * np.stack([column.mean(axis=1) for column in columns.values()])
        values = values[:, ~np.isnan(values).any(axis=0)]
        means = values.mean(axis=1) if values.size else np.full(len(values), np.nan)
        best = int(means.argmax())
        luck = _luck(values, means, drawing) if values.shape[1] > 1 else np.full(1, np.nan)
        bias, ends = luck.mean(), np.quantile(luck, [(1 + level) / 2, (1 - level) / 2])
        low, high = sorted(sign * (means[best] - ends))
        row = {"best": names[best], "value": sign * means[best], "bias": sign * bias}
        row |= {"corrected": row["value"] - row["bias"], "low": low, "high": high, "queries": values.shape[1]}
        rows.append({"measure": measure, **row})
    notes = [
        f"value: mean of the best of {len(names)} checkpoints, on the queries that chose it",
        f"bias: the luck of this choice, by {replicates} bootstrap replicates (seed {seed})",
        f"corrected: value - bias; low and high: its {100 * level:g} % interval",
        *(f"Warning: {warning}" for warning in of_plain_means(checkpoints.values())),
    ]
    return Table.of_rows(rows, notes=notes)


def _luck(values: Array, means: Array, drawing: Drawing) -> Array:
    """How far the chosen checkpoint of each replicate is above its expectation, from values [checkpoint, query]."""
    n = values.shape[1]
    parts = []
    for generator, count in drawing.chunks(n):
        drawn = generator.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n)
        parts.append(times @ values.T / n - means)
    luck = np.concatenate(parts)  # [replicate, checkpoint]
    of_luck = luck.var(axis=1, ddof=1).mean()
    spread = means.var(ddof=1)
    shrunk = math.sqrt(max(0.0, 1 - of_luck / spread) if spread > 0 else 0.0) * means
    chosen = (shrunk + luck).argmax(axis=1)  # a common mean would choose the same
    return luck[np.arange(len(luck)), chosen]
