"""Scenarios of workers for evaluators of other libraries' trainers: a corpus that processes share."""

import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from tests.support.workers import errors_of, exactly, scenario
from torchrank.integrations.sentence_transformers import RankingEvaluator

QUERIES = {n: "abc"[n % 3] * (1 + n % 2) + "d" * (n % 4) for n in range(7)}
CORPUS = {n: "a" * (n % 5) + "b" * (n * n % 7) + "c" * (n % 3) + "d" * (n % 2) for n in range(32)}
RELEVANT = {query: {(5 * query + step) % 32: 1 + step % 3 for step in range(0, 3 * query, 2)} for query in QUERIES}


class Letters:
    """A model with the methods of SentenceTransformer: the number of each letter, so that products are exact."""

    similarity_fn_name = "dot"

    def __init__(self, failing=False):
        self.failing, self.documents = failing, []

    def similarity(self, queries, documents):
        return queries @ documents.T

    def encode_query(self, texts, **options):
        return torch.tensor([[float(text.count(letter)) for letter in "abcd"] for text in texts])

    def encode_document(self, texts, **options):
        if self.failing:
            raise MemoryError("no room")
        self.documents.append(len(texts))
        return self.encode_query(texts)


def evaluator(corpus=CORPUS, relevant=RELEVANT, **options):
    return RankingEvaluator(QUERIES, corpus, relevant, "ndcg@5 map mrr mr", share=True, **options)


@scenario
def a_corpus_that_processes_share(rank, world):
    model, shared = Letters(), evaluator(corpus_chunk_size=6)
    with tempfile.TemporaryDirectory() as folder:
        with exactly(world, all_gather_object=1, all_gather=1, all_reduce=3):
            values = shared(model, folder)
        assert len(list(Path(folder).iterdir())) == (rank == 0)  # the first process writes the file
    assert sum(model.documents) == -(-len(CORPUS) // world)
    return [values, shared(model), evaluator()(model)]


@scenario
def a_corpus_of_fewer_documents_than_processes(rank, world):
    one = {next(iter(CORPUS)): CORPUS[0]}
    return evaluator(one, {query: one.keys() for query in QUERIES})(Letters())


@scenario(alone=False)
def a_shared_corpus_fails_in_all_processes_at_once(rank, world):
    last = world - 1
    found = [
        errors_of(lambda: evaluator()(Letters(failing=rank == last)), RuntimeError),
        errors_of(lambda: evaluator({**CORPUS, **({99: "a"} if rank else {})})(Letters()), RuntimeError),
    ]
    assert f"encode their slices, got process {last}: MemoryError: no room" in found[0]
    assert "Expected the same queries and corpus in all processes, got [(6, 32), (6, 33)" in found[1]
    other = SimpleNamespace(similarity=None, similarity_fn_name="euclidean")
    found.append(errors_of(lambda: evaluator()(other)))
    assert "with share=True to be one of 'cosine', 'dot', got 'euclidean'" in found[2]
    if rank == 0:  # the others do not call it
        served = Letters()
        served._distributed_inference = print
        error = errors_of(lambda: evaluator()(served), RuntimeError)
        assert "class Trainer(SharedEvaluation, SentenceTransformerTrainer)" in error
        assert not served.documents
    dist.barrier()
    return found
