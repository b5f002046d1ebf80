"""Pruners of Optuna on simulated trials: ``python -m tests.support.simulated_trials`` prints the table.

A study has 30 trials of 400 queries in 40 batches, each a step. A query has a difficulty of its own, and each trial
more noise. A pruner may end a trial at every step. The columns are the share of all batches that were evaluated, the
share of studies whose best trial is that of a study without a pruner, and of trials that are better than all complete
ones before, in expectation, the share that was pruned.
"""

import sys
import warnings

import numpy as np
import optuna

from torchrank.display import Table
from torchrank.integrations.optuna import AnytimePruner

TRIALS, STEPS, BATCH = 30, 40, 10

#: pruners, and whether they want the mean of all steps so far
PRUNERS = {
    "AnytimePruner(0.95)": (lambda: AnytimePruner(0.95), False),
    "AnytimePruner(0.8)": (lambda: AnytimePruner(0.8), False),
    **{
        f"MedianPruner(n_warmup_steps={n})": (lambda n=n: optuna.pruners.MedianPruner(n_warmup_steps=n), True)
        for n in (0, 1, 2, 4)
    },
    "WilcoxonPruner()": (optuna.pruners.WilcoxonPruner, False),
}


def trials(seed, spread):
    """The expected values of trials [trial], and their values of each batch [trial, step]."""
    draw = np.random.default_rng(seed)
    difficulty, level = draw.normal(0, 0.25, STEPS * BATCH), draw.normal(0.5, spread, TRIALS)
    noise = draw.normal(0, 0.25, (TRIALS, STEPS * BATCH))
    values = (level[:, None] + difficulty + noise).clip(0, 1)
    return level, values.reshape(TRIALS, STEPS, BATCH).mean(-1)


def study(name, seed, spread):
    """Whether the best trial was kept, the share of batches, and numbers of better trials and of those pruned."""
    make, running = PRUNERS[name]
    level, values = trials(seed, spread)
    found = optuna.create_study(direction="maximize", pruner=make())
    steps, better, lost, best = 0, 0, 0, -np.inf
    for expected, row in zip(level, values):
        trial, pruned = found.ask(), False
        for step, value in enumerate(row):
            trial.report(row[: step + 1].mean() if running else value, step)
            steps += 1
            if pruned := trial.should_prune():
                break
        state = optuna.trial.TrialState.PRUNED if pruned else None
        found.tell(trial, None if pruned else row.mean(), state=state)
        better, lost = better + (expected > best), lost + (pruned and expected > best)
        best = best if pruned else max(best, expected)
    return found.best_trial.number == values.mean(1).argmax(), steps / values.size, better, lost


def simulated(name, spread, studies):
    """The numbers of a pruner over some studies."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        kept, share, better, lost = np.array([study(name, seed, spread) for seed in range(studies)], float).T
    return {"evaluated": share.mean(), "best is kept": kept.mean(), "better ones pruned": lost.sum() / better.sum()}


if __name__ == "__main__":
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    names = [(spread, name) for spread in (0.05, 0.1) for name in PRUNERS]
    rows = [{"spread of trials": spread, "pruner": name, **simulated(name, spread, studies)} for spread, name in names]
    formats = {"evaluated": ".0%", "best is kept": ".0%", "better ones pruned": ".0%"}
    sys.stdout.write(Table.of_rows(rows, formats).to_markdown())
