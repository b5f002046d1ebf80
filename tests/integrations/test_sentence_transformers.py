"""The evaluators of sentence-transformers: with models of the same methods, and with the library itself.

``pip install sentence-transformers accelerate datasets`` runs all tests; those with the library are skipped without.
"""

import csv
import inspect
import random
from types import SimpleNamespace

import pytest
import torch

import torchrank as tr
from tests.support import sentence_transformers_runs, workers
from torchrank.integrations.sentence_transformers import RankingEvaluator, RerankingEvaluator

#: their name of each measure
THEIRS = {"accuracy": "hitrate", "precision": "precision", "recall": "recall", "ndcg": "ndcg", "mrr": "mrr"}
EVALUATORS = (RankingEvaluator, RerankingEvaluator)
SUITE = ["ndcg@3,10", "hitrate@1,3", "precision@1,3", "recall@1,3", "mrr@10", "map(normalize=min)@20"]


def texts(number, seed, words=40, prefix="d"):
    draw = random.Random(seed)
    return {f"{prefix}{n}": " ".join(f"w{draw.randrange(words)}" for _ in range(12)) for n in range(number)}


QUERIES, CORPUS = texts(20, seed=0, prefix="q"), texts(300, seed=1)
DRAW = random.Random(2)
RELEVANT = {query: set(DRAW.sample(list(CORPUS), DRAW.randrange(1, 30))) for query in QUERIES}
RELEVANT["q7"] = set()
del RELEVANT["q9"]


#: scores of queries and documents by their embeddings
SIMILARITIES = {
    "dot": lambda queries, corpus: queries @ corpus.T,
    "cosine": lambda queries, corpus: torch.nn.functional.cosine_similarity(queries[:, None], corpus, dim=-1),
    "euclidean": lambda queries, corpus: -(queries[:, None] - corpus).square().sum(-1).sqrt(),
    "manhattan": lambda queries, corpus: -(queries[:, None] - corpus).abs().sum(-1),
}


class Words:
    """A model with the methods of SentenceTransformer: a random vector for each word."""

    def __init__(self, similarity="cosine"):
        self.vectors = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        self.similarity_fn_name, self.similarity = similarity, SIMILARITIES[similarity]
        self.calls = []

    def encode(self, texts, **options):
        self.calls.append((len(texts), options))
        return torch.stack([self.vectors[[int(word[1:]) for word in text.split()]].sum(0) for text in texts])

    encode_query = encode_document = encode


def expected(similarity, suite=SUITE):
    """The values of the suite for the whole matrix of scores, in float64."""
    judged = [query for query in QUERIES if RELEVANT.get(query)]
    queries = Words().encode([QUERIES[query] for query in judged]).double()
    corpus = Words().encode(list(CORPUS.values())).double()
    grades = torch.tensor([[int(document in RELEVANT[query]) for document in CORPUS] for query in judged])
    found = tr.RankingCollection(suite)
    found.update(SIMILARITIES[similarity](queries, corpus), grades)
    return {f"{similarity}_{key}": value.item() for key, value in found.compute().items()}


@pytest.mark.parametrize("chunk", [50_000, 300, 77])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_values_are_those_of_the_matrix_of_scores_by_the_similarity_of_the_model(similarity, chunk):
    evaluator = RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, corpus_chunk_size=chunk)
    model = Words(similarity)
    assert evaluator(model) == pytest.approx(expected(similarity), abs=1e-6)
    assert [size for size, _ in model.calls] == [18, *[min(chunk, 300 - n) for n in range(0, 300, chunk)]]
    assert evaluator(model) == pytest.approx(expected(similarity), abs=1e-6)  # nothing is left of the first call


def test_each_model_has_its_own_similarity_in_keys_and_primary_metric():
    evaluator = RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, name="dev")
    assert not hasattr(evaluator, "primary_metric")
    with pytest.raises(AttributeError, match=r"pass similarity=model\.similarity_fn_name to the evaluator"):
        evaluator.primary_metric  # noqa: B018
    for similarity in ("dot", "cosine"):
        found = evaluator(Words(similarity))
        assert found == pytest.approx({f"dev_{key}": value for key, value in expected(similarity).items()}, abs=1e-6)
        assert evaluator.primary_metric == f"dev_{similarity}_ndcg@3"
    known = RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, similarity=Words("dot").similarity_fn_name)
    assert known.primary_metric == "dot_ndcg@3"


def test_keys_primary_metric_and_file(tmp_path):
    suite = tr.RankingCollection(["mr", "ndcg(log_base=2.5,gain=exponential)@10"])
    evaluator = RankingEvaluator(QUERIES, CORPUS, RELEVANT, suite, name="dev")
    key = "ndcg(log_base=2.5,gain=exponential)@10"
    other = RankingEvaluator(QUERIES, CORPUS, RELEVANT, suite, primary_metric=key, similarity="cosine")
    assert (other.primary_metric, other.greater_is_better) == (f"cosine_{key}", True)
    found = [evaluator(Words(), f"{tmp_path}/new/eval", epoch, steps) for epoch, steps in ((0.5, 10), (1.0, 20))]
    assert (evaluator.primary_metric, evaluator.greater_is_better) == ("dev_cosine_mr", False)
    with (tmp_path / "new" / "eval" / "Ranking_evaluation_dev_results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row.pop("epoch"), row.pop("steps")) for row in rows] == [("0.5", "10"), ("1.0", "20")]
    assert [{key: float(value) for key, value in row.items()} for row in rows] == found
    assert suite["mr"].num_queries == 0


def test_grades_and_options_of_the_model():
    grades = {query: {document: n % 4 for n, document in enumerate(sorted(found))} for query, found in RELEVANT.items()}
    options = {"query_prompt": "query: ", "corpus_prompt_name": "passage", "batch_size": 7, "truncate_dim": 5}
    evaluator = RankingEvaluator(QUERIES, CORPUS, grades, "ndcg(gain=exponential)", **options)
    model = Words()
    run = {
        query: dict(zip(CORPUS, row))
        for query, row in zip(
            QUERIES,
            SIMILARITIES["cosine"](*(Words().encode(list(texts.values())) for texts in (QUERIES, CORPUS))).tolist(),
        )
    }
    judged = {query: found for query, found in grades.items() if found}
    peer = tr.evaluate(judged, {"run": run}, "ndcg(gain=exponential)").means["run"]
    assert list(evaluator(model).values()) == pytest.approx(list(peer.values()), abs=1e-6)
    (_, of_queries), (_, of_corpus) = model.calls
    shared = {"batch_size": 7, "show_progress_bar": False, "convert_to_tensor": True, "truncate_dim": 5}
    assert of_queries == {"prompt": "query: ", **shared}
    assert of_corpus == {"prompt_name": "passage", **shared}
    assert evaluator.get_config_dict() == {key: x for key, x in options.items() if key != "batch_size"}


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (tr.Coverage(num_items=300), "Expected preds to be integer ids"),
        (tr.Sliced("mrr", ["a", "b"]), "pass slices="),
        (tr.PerQuery("mrr"), "pass query_ids="),
    ],
)
def test_a_suite_that_needs_more_than_scores_is_refused_before_the_model_is_called(suite, message):
    with pytest.raises((TypeError, ValueError), match=message):
        RankingEvaluator(QUERIES, CORPUS, RELEVANT, suite)
    candidates = {query: list(CORPUS)[:3] for query in QUERIES}
    with pytest.raises((TypeError, ValueError), match=f"{message}|got 'indexes'"):
        RerankingEvaluator(QUERIES, CORPUS, candidates, RELEVANT, suite)


# ---- candidates of a reranker ----------------------------------------------------------------------------------------

#: 30 documents, and for some queries a few relevant ones
CANDIDATES = {
    query: list(dict.fromkeys(DRAW.sample(list(CORPUS), 30) + sorted(RELEVANT.get(query, ()))[:3])) for query in QUERIES
}


class Pairs:
    """A model with the method of CrossEncoder: the number of words that two texts share, so with many ties."""

    def __init__(self):
        self.calls = []

    def predict(self, pairs, **options):
        self.calls.append((len(pairs), options))
        return torch.tensor([float(len(set(query.split()) & set(text.split()))) for query, text in pairs])


def test_reranked_candidates_have_the_values_of_an_evaluation_of_runs_with_ties(tmp_path):
    evaluator = RerankingEvaluator(
        QUERIES, CORPUS, CANDIDATES, RELEVANT, SUITE, name="dev", batch_size=9, prompt_name="web"
    )
    model = Pairs()
    judged = {query: dict.fromkeys(found, 1) for query, found in RELEVANT.items() if found}
    expected = tr.RankingCollection(SUITE)
    for query, grades in judged.items():
        missing = [document for document in grades if document not in CANDIDATES[query]]
        scores = Pairs().predict([(QUERIES[query], CORPUS[document]) for document in CANDIDATES[query]])
        every = torch.cat([scores, torch.full((len(missing),), -torch.inf)])
        relevant = [int(document in grades) for document in CANDIDATES[query] + missing]
        expected.update(every[None], torch.tensor([relevant]))
    assert any(set(RELEVANT[query]) - set(CANDIDATES[query]) for query in judged)
    for _ in range(2):  # nothing is left of the first call
        found = evaluator(model, str(tmp_path), 1, 2)
        assert found == pytest.approx({f"dev_{k}": value.item() for k, value in expected.compute().items()}, abs=1e-6)
    options = {"batch_size": 9, "show_progress_bar": False, "convert_to_tensor": True, "prompt_name": "web"}
    assert model.calls == [(sum(len(CANDIDATES[query]) for query in judged), options)] * 2
    assert (evaluator.primary_metric, evaluator.greater_is_better) == ("dev_ndcg@3", True)
    assert evaluator.get_config_dict() == {"prompt_name": "web"}
    with (tmp_path / "Reranking_evaluation_dev_results.csv").open(newline="") as file:
        assert [float(row["dev_mrr@10"]) for row in csv.DictReader(file)] == [found["dev_mrr@10"]] * 2


def test_candidates_may_be_a_run_and_relevant_documents_graded():
    grades = {"q1": {"d1": 3, "d2": 1, "d3": 0}, "q2": {"d2": 2}}
    run = {"q1": {"d3": 2.5, "d1": 0.5, "d9": 0.1}}
    found = RerankingEvaluator(QUERIES, CORPUS, run, grades, "ndcg@10, numret")(Pairs())
    scores = dict(zip(run["q1"], Pairs().predict([(QUERIES["q1"], CORPUS[document]) for document in run["q1"]])))
    target = torch.tensor([[3, 1, 0, 0], [2, 0, 0, 0]])
    preds = torch.full((2, 4), -torch.inf)
    preds[0, [0, 2, 3]] = torch.stack([scores["d1"], scores["d3"], scores["d9"]])
    expected = tr.RankingCollection("ndcg@10, numret")
    expected.update(preds, target)
    assert found == pytest.approx({key: value.item() for key, value in expected.compute().items()})


IN_CORPUS = "of query 'q1' in the corpus, got 'x', which"
ranking, reranking = EVALUATORS


@pytest.mark.parametrize(
    ("evaluator", "change", "message"),
    [
        (ranking, {"relevant": {"q1": {"x"}}}, f"relevant documents {IN_CORPUS}"),
        (ranking, {"similarity": "angle"}, "similarity to be one of 'cosine', 'dot', 'euclidean', 'manhattan'"),
        (ranking, {"similarity": "euclidean", "share": True}, "similarity to be one of 'cosine', 'dot', got"),
        (ranking, {"corpus_chunk_size": 0}, "Expected corpus_chunk_size to be an integer >= 1"),
        (reranking, {"candidates": {"q1": ["x"]}}, f"candidates {IN_CORPUS} is"),
        (reranking, {"candidates": {"other": ["d1"]}}, "Expected candidates of a query, got none"),
        *((one, {"relevant": {"other": {"d1"}}}, "relevant documents of a query, got none") for one in EVALUATORS),
        *((one, {"primary_metric": "mrr"}, "Expected primary_metric to be one of 'ndcg@10'") for one in EVALUATORS),
    ],
)
def test_errors_name_the_argument(evaluator, change, message):
    arguments = {"queries": QUERIES, "corpus": CORPUS, "relevant": RELEVANT, **change}
    if evaluator is RerankingEvaluator:
        arguments.setdefault("candidates", CANDIDATES)
    with pytest.raises(ValueError, match=message):
        evaluator(**arguments)


def test_a_reranker_with_several_scores_of_a_pair_is_refused():
    class Classes:
        def predict(self, pairs, **options):
            return torch.zeros(len(pairs), 3)

    with pytest.raises(ValueError, match=r"Expected one score of each pair, got shape \[\d+, 3\]; .*num_labels=1"):
        RerankingEvaluator(QUERIES, CORPUS, CANDIDATES, RELEVANT)(Classes())


def test_an_evaluator_without_options_has_the_batches_files_and_times_of_theirs(tmp_path):
    calls = {
        "Ranking": lambda **options: RankingEvaluator(QUERIES, CORPUS, RELEVANT, **options),
        "Reranking": lambda **options: RerankingEvaluator(QUERIES, CORPUS, CANDIDATES, RELEVANT, **options),
    }
    for (kind, call), model, key in zip(calls.items(), (Words(), Pairs()), ("cosine_ndcg@10", "ndcg@10")):
        told = []
        card = SimpleNamespace(set_evaluation_metrics=lambda *arguments, told=told: told.append(arguments))
        model.model_card_data = card
        evaluator = call()
        values = evaluator(model, str(tmp_path))
        assert told == [(evaluator, values, -1, -1)]
        assert list(values) == [key]
        options = {"batch_size": 32, "show_progress_bar": False, "convert_to_tensor": True}
        assert [found for _, found in model.calls] == [options] * len(model.calls)
        with (tmp_path / f"{kind}_evaluation_results.csv").open(newline="") as file:
            assert list(csv.DictReader(file)) == [{"epoch": "-1", "steps": "-1", key: str(values[key])}]
        call(write_csv=False)(model, str(tmp_path / "none"))
        call()(model)
        assert [path.name for path in tmp_path.iterdir() if kind in path.name] == [f"{kind}_evaluation_results.csv"]
    assert not (tmp_path / "none").exists()
    assert inspect.signature(RankingEvaluator).parameters["corpus_chunk_size"].default == 50_000


# ---- the library itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    """Functions that make small models."""
    pytest.importorskip("sentence_transformers", reason="pip install sentence-transformers accelerate datasets")
    from tests.support import small_sentence_transformers

    return small_sentence_transformers


def translated(theirs, similarity):
    """Their results with the names of this library."""
    names = {**THEIRS, "map": "map(normalize=min)"}
    found = {}
    for key, value in theirs.items():
        measure, *cutoff = key.removeprefix(f"dev_{similarity}_").split("@")
        if cutoff:  # the results of sparse models have sizes too
            found[f"dev_{similarity}_{names[measure]}@{cutoff[0]}"] = value
    return found


CUTOFFS = {"ndcg_at_k": [3, 10], "accuracy_at_k": [1, 3], "precision_recall_at_k": [1, 3], "map_at_k": [20]}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_numbers_of_their_evaluator(models, similarity, named, tmp_path):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    model = models.dense()
    model.similarity_fn_name = similarity
    peer = InformationRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, **CUTOFFS, name="dev", query_prompt="w1 ")
    theirs = peer(model)
    if named:
        model.similarity_fn_name = "cosine" if similarity == "dot" else "dot"
    evaluator = RankingEvaluator(
        *(QUERIES, CORPUS, RELEVANT, SUITE),
        name="dev",
        similarity=similarity if named else None,
        query_prompt="w1 ",
        corpus_chunk_size=100,
    )
    ours = evaluator(model, str(tmp_path), 1, 2)
    assert ours == pytest.approx(translated(theirs, similarity), abs=1e-6)
    assert evaluator.primary_metric == f"dev_{similarity}_ndcg@3"
    assert model.model_card_data.eval_results_dict[evaluator] == ours
    assert evaluator.description == "Ranking"


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_numbers_of_their_evaluator_of_sparse_models(models, similarity):
    from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator

    model = models.sparse()
    model.similarity_fn_name = similarity
    theirs = SparseInformationRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, **CUTOFFS, name="dev")(model)
    ours = RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, name="dev", corpus_chunk_size=77)(model)
    assert ours == pytest.approx(translated(theirs, similarity), abs=2e-4)  # some texts have equal scores


def test_numbers_of_their_evaluator_of_a_vector_for_each_word(models, tmp_path):
    from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator

    model = models.multi_vector(tmp_path)
    theirs = MultiVectorInformationRetrievalEvaluator(QUERIES, CORPUS, RELEVANT, **CUTOFFS, name="dev")(model)
    ours = RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, name="dev", corpus_chunk_size=77)(model)
    assert ours == pytest.approx(translated(theirs, "maxsim"), abs=1e-6)


def test_numbers_of_their_evaluator_of_rerankers(models, tmp_path):
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    model = models.cross_encoder(tmp_path)
    samples = [
        {
            "query": QUERIES[query],
            "positive": [CORPUS[document] for document in found if document in CANDIDATES[query]],
            "negative": [CORPUS[document] for document in CANDIDATES[query] if document not in found],
        }
        for query, found in RELEVANT.items()
        if found
    ]
    theirs = CrossEncoderRerankingEvaluator(samples, name="dev")(model)
    found = {query: found & set(CANDIDATES[query]) for query, found in RELEVANT.items()}
    evaluator = RerankingEvaluator(QUERIES, CORPUS, CANDIDATES, found, "map, mrr@10, ndcg@10", name="dev")
    ours = evaluator(model)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert model.model_card_data.eval_results_dict[evaluator] == ours
    assert evaluator.description == "Reranking"


@pytest.mark.parametrize("kind", ["SentenceTransformer", "SparseEncoder", "CrossEncoder"])
def test_their_trainers_select_the_checkpoint(models, kind, tmp_path):
    datasets = pytest.importorskip("datasets")
    import sentence_transformers as library

    model, loss = models.to_train(kind, tmp_path)
    if kind == "CrossEncoder":
        evaluator = RerankingEvaluator(QUERIES, CORPUS, CANDIDATES, RELEVANT, "mr, ndcg@10", name="dev")
    else:
        similarity = model.similarity_fn_name
        evaluator = RankingEvaluator(QUERIES, CORPUS, RELEVANT, "mr, ndcg@10", name="dev", similarity=similarity)
    key = f"eval_{evaluator.primary_metric}"
    best = {"metric_for_best_model": key, "greater_is_better": evaluator.greater_is_better}
    make = getattr(library, f"{kind}TrainingArguments")
    arguments = make(output_dir=str(tmp_path / "out"), **models.TRAINING, **best)
    pairs = [(QUERIES[query], CORPUS[document]) for query, found in RELEVANT.items() for document in sorted(found)[:2]]
    train = datasets.Dataset.from_dict(dict(zip(("anchor", "positive"), map(list, zip(*pairs)))))
    trainer = getattr(library, f"{kind}Trainer")(model, arguments, train_dataset=train, loss=loss, evaluator=evaluator)
    trainer.train()
    logged = [row[key] for row in trainer.state.log_history if key in row]
    assert len(logged) == 2
    assert trainer.state.best_metric == min(logged)
    (path,) = (tmp_path / "out" / "eval").glob("*_results.csv")
    with path.open(newline="") as file:
        assert [float(row[evaluator.primary_metric]) for row in csv.DictReader(file)] == pytest.approx(logged)


# ---- a corpus that processes share -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each of one process and of two finds."""
    names = ["sentence_transformers", "datasets", "accelerate"]
    for name in names[:2]:
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("shared")
    return workers.launched(folder, sentence_transformers_runs.work, names)


together = pytest.mark.xdist_group("processes")


@together
@pytest.mark.parametrize("world", [1, 2])
def test_processes_that_share_a_corpus_have_the_numbers_of_one(results, world):
    documents, at_once = len(sentence_transformers_runs.CORPUS), -(-len(sentence_transformers_runs.CORPUS) // world)
    for result in results[world]:
        for similarity in ("dot", "cosine"):
            shared, alone = result[similarity]
            assert shared == pytest.approx(alone, abs=1e-6)
        for kind in ("shared", "two data sets"):
            found = result[kind]
            assert found["after"] == pytest.approx(found["alone"], abs=1e-6)
            assert found["documents"] == [at_once, at_once]
            ndcg = [row["eval_dev_cosine_ndcg@10"] for row in found["logged"]]
            assert found["rows"] == ndcg
            assert found["best"] == max(ndcg)
            assert found["logged"] == pytest.approx(results[world][0]["plain"]["logged"], abs=1e-6)
        assert result["plain"]["alone"] == pytest.approx(result["shared"]["alone"], abs=1e-6)
    assert results[2][0]["plain"]["documents"] == [documents, documents]
    assert [result["shared"]["logged"] for result in results[2]] == [results[2][0]["shared"]["logged"]] * 2


@together
def test_a_shared_corpus_is_refused_where_it_would_wait_for_ever(results):
    for rank, result in enumerate(results[2]):
        errors = result["errors"]
        assert "TypeError: Expected dense embeddings with share=True, got sparse ones" in errors["sparse"]
        assert "class Trainer(SharedEvaluation, SentenceTransformerTrainer)" in errors["served"]
        assert errors["served"].startswith("RuntimeError: " + ("Distributed evaluator failed" if rank else ""))
