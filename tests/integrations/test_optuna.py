"""The pruner in studies of Optuna, and beside its own pruners on simulated trials."""

import math

import numpy as np
import pytest

from tests.support.optional import OptionalModule, examples_of
from torchrank.statistics.paired import paired_statistics

optuna = OptionalModule("optuna")
integration = OptionalModule("torchrank.integrations.optuna")
simulated_trials = OptionalModule("tests.support.simulated_trials")
pytestmark = pytest.mark.xdist_group("processes")  # whose process imports all that takes long


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def studied(values, direction="maximize", **options):
    """The number of steps after which each trial was pruned; None = it was complete."""
    study = optuna.create_study(direction=direction, pruner=integration.AnytimePruner(**options))
    ends = []
    for row in values:
        trial, end = study.ask(), None
        for step, value in enumerate(row):
            trial.report(value, step)
            if trial.should_prune():
                end = step + 1
                break
        study.tell(trial, None if end else np.nanmean(row), state=optuna.trial.TrialState.PRUNED if end else None)
        ends.append(end)
    return ends


def values(*shifts, steps=150, seed=0):
    draw = np.random.default_rng(seed)
    return draw.random(steps) + np.array(shifts)[:, None] + draw.normal(0, 0.1, (len(shifts), steps))


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_trial_ends_at_the_first_step_whose_one_sided_p_value_is_small(direction):
    rows = values(0, -0.05, 0.05, 0.02) * (1 if direction == "maximize" else -1)
    ends = studied(rows, direction)
    for row, best, end in zip(rows[1:], (rows[0], rows[0], rows[2]), ends[1:]):
        sign = 1 if direction == "maximize" else -1
        first = None
        for n in range(2, len(row) + 1):
            pair = paired_statistics(sign * best[:n], sign * row[:n]).anytime()
            # As the test of non-inferiority of compare(test="anytime"): b is worse than a.
            if pair.difference < 0 and pair.p_above(-pair.difference) < 0.05:
                first = n
                break
        assert end == first
    assert [end is None for end in ends] == [True, False, True, False]


def test_a_trial_as_good_as_the_best_one_is_pruned_in_few_studies():
    ends = [studied(values(0, 0, steps=40, seed=seed))[1] for seed in range(20)]
    assert sum(end is not None for end in ends) <= 1


def test_a_margin_keeps_trials_that_are_worse_by_less():
    rows = values(0, -0.05, -0.3)
    assert [end is None for end in studied(rows)] == [True, False, False]
    assert [end is None for end in studied(rows, margin=0.1)] == [True, True, False]


def test_a_loss_on_all_steps_alike_is_found_by_their_number_and_equality_is_none():
    one = np.ones(40)
    assert studied([one, one, one - 1]) == [None, None, 8]  # (n + 1) / 2^n < 0.05
    assert studied([one, one - 1], margin=1.0) == [None, None]


def test_steps_without_a_number_and_steps_of_one_trial_are_left_out():
    rows = values(0, -0.2)
    (end,) = studied(rows)[1:]
    gaps = rows.copy()
    gaps[1, :20] = math.nan
    assert studied(gaps)[1] == 20 + studied(rows[:, 20:])[1]
    study = optuna.create_study(direction="maximize", pruner=integration.AnytimePruner())
    trial = study.ask()
    assert not trial.should_prune()  # without a report, and without a complete trial
    study.tell(trial, 10.0)
    other = study.ask()
    for step in range(30):
        other.report(-1.0, step)
        assert not other.should_prune()  # the best trial has no steps
    assert 2 < end < 20


def test_several_objectives_and_wrong_arguments_are_refused():
    study = optuna.create_study(directions=["maximize", "minimize"], pruner=integration.AnytimePruner())
    with pytest.raises(NotImplementedError):
        study.ask().should_prune()
    with pytest.raises(ValueError, match="Expected level to be a number between 0 and 1"):
        integration.AnytimePruner(level=95)
    with pytest.raises(ValueError, match="Expected margin to be a number >= 0"):
        integration.AnytimePruner(margin=-0.1)


def test_simulated_studies_keep_the_best_trial_more_often_than_with_the_median_pruner_at_the_same_cost():
    ours, median = (
        simulated_trials.simulated(name, 0.1, 12) for name in ("AnytimePruner(0.8)", "MedianPruner(n_warmup_steps=0)")
    )
    assert ours["evaluated"] <= median["evaluated"]
    assert ours["best is kept"] == 1 > median["best is kept"]
    assert ours["better ones pruned"] < median["better ones pruned"] / 3


test_examples_print_the_output_shown = examples_of("torchrank.integrations.optuna")
