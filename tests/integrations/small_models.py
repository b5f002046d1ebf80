"""Small models of sentence-transformers, made in code; not imported without the library."""

import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss as CrossEncoderLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import BoW, Dense
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

WORDS = [f"w{n}" for n in range(40)]
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def tokenizer():
    """A token for each word."""
    numbers = {word: number for number, word in enumerate([*SPECIAL.values(), *WORDS])}
    words = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, numbers[word]) for word in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **SPECIAL)


def folder(path, kind, **config):
    """A folder with a transformer of random weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    kind(BertConfig(vocab_size=len(WORDS) + 5, initializer_range=0.5, **sizes, **config)).save_pretrained(path)
    tokenizer().save_pretrained(path)
    return str(path)


def dense():
    """A bag of words and a random matrix."""
    torch.manual_seed(0)
    return SentenceTransformer(modules=[BoW(WORDS), Dense(len(WORDS), 8, bias=False)], device="cpu")


def sparse():
    """A weight for each word."""
    weights = torch.rand(len(WORDS) + 5, generator=torch.Generator().manual_seed(0))
    return SparseEncoder(modules=[SparseStaticEmbedding(tokenizer(), weights)], device="cpu")


def multi_vector(path):
    """A vector for each word of a text."""
    return MultiVectorEncoder(folder(path, BertModel), device="cpu")


def cross_encoder(path):
    """A score for each pair of texts."""
    return CrossEncoder(folder(path, BertForSequenceClassification, num_labels=1), device="cpu")


def to_train(kind, path):
    """A model of a class of the library, and a loss for pairs of texts."""
    if kind == "SentenceTransformer":
        return (model := dense()), MultipleNegativesRankingLoss(model)
    if kind == "SparseEncoder":
        return (model := sparse()), SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 1e-5)
    return (model := cross_encoder(path)), CrossEncoderLoss(model)
