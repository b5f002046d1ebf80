"""Optuna: a pruner that ends a trial when it is known to be worse than the best one, query by query."""

from __future__ import annotations

import math

from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from torchrank.state.sums import check
from torchrank.statistics.paired import paired_statistics


class AnytimePruner(BasePruner):
    """A pruner that ends a trial when the interval of its difference to the best trial excludes "as good".

    A step is a query, or a batch or fold of queries, **the same one in all trials**, in random order; report its own
    value once, not a mean of all so far. The pruner pairs the values of the trial with those of the best complete
    trial, step by step. The interval is one-sided and holds at all looks together, see
    :class:`torchrank.Compared` with ``anytime=True``. So a trial whose mean over all these steps equals that of the
    best one is pruned with a probability of about 1 - ``level`` at most, however often it is looked at; and a number
    that jitters prunes nothing. The best one of many trials is partly luck on these steps.

    .. code-block:: python

        def objective(trial):
            model, values = build(trial), []
            for step, batch in enumerate(batches):           # shuffled once, for all trials
                values.append(ndcg.score(model(batch.x), batch.target).mean().item())
                trial.report(values[-1], step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return sum(values) / len(values)

        study = optuna.create_study(direction="maximize", pruner=tr.integrations.optuna.AnytimePruner(0.8))

    Values that are not finite, and steps that the best trial lacks, are left out. With fewer than 20 steps the interval
    depends on the shape of the differences.

    Args:
        level: the probability with which a trial as good as the best one is not pruned.
        margin: prune only trials that are worse by more than this.

    Source:
        Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic confidence
        sequences, Annals of Statistics 2024.

    Raises:
        ValueError: ``level`` is not between 0 and 1, or ``margin`` is negative.

    Example:
        >>> import optuna, torchrank as tr
        >>> study = optuna.create_study(pruner=tr.integrations.optuna.AnytimePruner(), direction="maximize")
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> def objective(trial):
        ...     for step in range(200):
        ...         trial.report(0.5 + step % 5 / 10 - 0.3 * trial.number * (step % 3 > 0), step)
        ...         if trial.should_prune():
        ...             raise optuna.TrialPruned
        ...     return 0.7 - 0.2 * trial.number
        >>> study.optimize(objective, n_trials=2)
        >>> [(trial.state.name, len(trial.intermediate_values)) for trial in study.trials]
        [('COMPLETE', 200), ('PRUNED', 15)]
    """

    def __init__(self, level: float = 0.95, margin: float = 0.0) -> None:
        check(level, "auto")
        if not margin >= 0:
            raise ValueError(f"Expected margin to be a number >= 0, got {margin!r}")
        self.level, self.margin = level, margin

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial is worse than the best one by more than the margin; Optuna calls it."""
        try:
            best = study.best_trial.intermediate_values
        except ValueError:  # no trial is complete
            return False
        mine = trial.intermediate_values
        steps = [step for step, value in mine.items() if math.isfinite(value - best.get(step, math.nan))]
        if len(steps) < 2:
            return False
        before, after = ([values[step] for step in steps] for values in (best, mine))
        higher = study.direction == StudyDirection.MAXIMIZE
        pair = paired_statistics(before, after, higher_is_better=higher).anytime()
        beyond = -pair.gain - self.margin
        return beyond > 0 and pair.p_beyond(beyond) < 1 - self.level
