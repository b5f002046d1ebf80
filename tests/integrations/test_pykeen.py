"""The evaluator for PyKEEN: with its models, its pipelines and its early stopper."""

import inspect

import pytest
import torch

import torchrank as tr
from tests.support.optional import OptionalModule, examples_of

datasets, evaluation, models = (OptionalModule(f"pykeen.{name}") for name in ("datasets", "evaluation", "models"))
integration = OptionalModule("torchrank.integrations.pykeen")
pytestmark = pytest.mark.xdist_group("processes")  # whose process imports all that takes long


def rounded(nations):
    """A model with ties."""

    class Rounded(models.TransE):
        def predict(self, *args, **kwargs):
            return super().predict(*args, **kwargs).mul(2).round()

    return Rounded(triples_factory=nations.training, random_seed=0, embedding_dim=8)


@pytest.fixture(scope="module")
def nations():
    return datasets.Nations()


def evaluated(evaluator, nations, model=None, **options):
    model = model or rounded(nations)
    known = [nations.training.mapped_triples, nations.validation.mapped_triples]
    options = {"batch_size": 64, "use_tqdm": False, "additional_filter_triples": known, **options}
    return evaluator.evaluate(model, nations.testing.mapped_triples, **options)


def test_scores_are_processed_by_the_arguments_of_their_evaluator():
    ours, theirs = (
        inspect.signature(one.process_scores_).parameters
        for one in (integration.RankingEvaluator, evaluation.RankBasedEvaluator)
    )
    assert {key: one.default for key, one in ours.items()} == {key: one.default for key, one in theirs.items()}


@pytest.mark.parametrize("targets", [("head", "tail"), ("tail",)])
def test_all_keys_and_numbers_are_those_of_their_evaluator(nations, targets):
    theirs = evaluated(evaluation.RankBasedEvaluator(), nations, targets=targets)
    evaluator = integration.RankingEvaluator()
    for _ in range(2):  # nothing is left of the first evaluation
        ours = evaluated(evaluator, nations, targets=targets)
        shared = ours.data.keys() & theirs.data.keys()
        assert not evaluator.sides
        assert {k: ours.data[k] for k in shared} == pytest.approx({k: theirs.data[k] for k in shared}, rel=1e-5)
        assert {key.side for key in shared} == {*targets, "both"}
        # Their key of adjusted hits has no cutoff.
        assert {key.metric for key in ours.data.keys() - shared} == {
            f"{kind}_hits_at_{k}" for kind in ("adjusted", "z") for k in (1, 3, 5, 10)
        }
        assert len(shared) == 15 * (1 + len(targets))
    for name in (None, "mrr", "hits@10", "hits_at_k", "tail.mean_rank", "both.realistic.hits_at_3"):
        assert ours.get_metric(name) == pytest.approx(theirs.get_metric(name), rel=1e-5)


def test_numbers_are_theirs_if_entities_are_restricted(nations):
    entities = torch.tensor([12, 3, 0, 7, 5, 9, 1])
    inside = torch.isin(nations.testing.mapped_triples[:, [0, 2]], entities).all(-1)
    triples = nations.testing.mapped_triples[inside]
    model = rounded(nations)
    options = {"restrict_entities_to": entities.tolist(), "batch_size": 16, "use_tqdm": False}
    known = {"additional_filter_triples": nations.training.mapped_triples}
    theirs, ours = (
        one.evaluate(model, triples, **options, **known)
        for one in (evaluation.RankBasedEvaluator(), integration.RankingEvaluator())
    )
    for name in ("mrr", "hits@3", "head.mean_rank", "amri"):
        assert ours.get_metric(name) == pytest.approx(theirs.get_metric(name), rel=1e-5)


def test_measures_that_they_lack_have_keys_with_side_and_tie_policy(nations):
    suite = tr.RankingCollection({"mrr": "mrr", "worst": "mrr(ties=pessimistic)", "ndcg@3": "ndcg@3"})
    ours = evaluated(integration.RankingEvaluator(suite), nations)
    theirs = evaluated(evaluation.RankBasedEvaluator(), nations)
    assert {k.split(".", 1)[1] for k in ours.to_flat_dict()} == {"expected.mrr", "pessimistic.worst", "expected.ndcg@3"}
    assert ours.get_metric("pessimistic.worst") == pytest.approx(theirs.get_metric("pessimistic.mrr"))
    assert ours.get_metric("mrr") == ours.get_metric("both.expected.mrr") != theirs.get_metric("mrr")
    head, tail = (ours.get_metric(f"{side}.ndcg@3") for side in ("head", "tail"))
    assert ours.get_metric("ndcg@3") == pytest.approx((head + tail) / 2)
    assert suite["mrr"].num_queries == 0
    with pytest.raises(KeyError, match=r"Expected one of .*both.expected.ndcg@3.*, got 'hits@10'"):
        ours.get_metric("hits@10")


def test_scores_that_are_nan_raise(nations):
    class Broken(models.TransE):
        def predict(self, *args, **kwargs):
            return super().predict(*args, **kwargs) * torch.nan

    with pytest.raises(ValueError, match="NaN"):
        evaluated(integration.RankingEvaluator(), nations, Broken(triples_factory=nations.training))


def test_no_triples_raise():
    with pytest.raises(ValueError, match="Expected triples, got none; call evaluate with mapped_triples"):
        integration.RankingEvaluator().finalize()


#: a training of "nations" without output
TRAINED = {"dataset": "nations", "model": "TransE", "evaluation_kwargs": {"use_tqdm": False}}


def test_a_pipeline_stops_early_by_a_measure(tmp_path):
    stopper = {"metric": "ndcg@10", "frequency": 1, "patience": 1, "relative_delta": 9.0}
    result = OptionalModule("pykeen.pipeline").pipeline(
        **TRAINED,
        random_seed=0,
        training_kwargs={"num_epochs": 9, "use_tqdm": False},
        evaluator=integration.RankingEvaluator("mrr, ndcg@10"),
        stopper="early",
        stopper_kwargs={**stopper, "best_model_path": tmp_path / "best.pt"},
        use_testing_data=False,
    )
    assert len(result.losses) == 2  # the second evaluation is not ten times better
    assert result.stopper.results[0] == pytest.approx(result.get_metric("ndcg@10"))
    result.save_to_directory(tmp_path / "saved", save_replicates=False, save_training=False)


def test_an_optimisation_takes_the_class():
    training = {"num_epochs": 1, "use_tqdm": False}
    asked = {"evaluator": integration.RankingEvaluator, "evaluator_kwargs": {"suite": "ndcg@10"}, "metric": "ndcg@10"}
    result = OptionalModule("pykeen.hpo").hpo_pipeline(**TRAINED, **asked, n_trials=1, training_kwargs=training)
    assert 0 < result.study.best_value < 1
    assert result.study.user_attrs["metric"] == "both.expected.ndcg@10"


test_examples_print_the_output_shown = examples_of("torchrank.integrations.pykeen")
