"""Small models of sentence-transformers, made in code; their functions need the library."""

import torch

WORDS = [f"w{n}" for n in range(40)]
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
#: arguments of trainers that evaluate twice and load the best model
TRAINING = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True}
TRAINING |= {"report_to": [], "use_cpu": True, "disable_tqdm": True}


def tokenizer():
    """A token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate([*SPECIAL.values(), *WORDS])}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, numbers[word]) for word in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **SPECIAL)


def folder(path, kind, **config):
    """A folder with a transformer of random weights, of a class of transformers."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(WORDS) + 5, initializer_range=0.5, **sizes, **config)
    getattr(transformers, kind)(config).save_pretrained(path)
    tokenizer().save_pretrained(path)
    return str(path)


def dense():
    """A bag of words and a random matrix."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import BoW, Dense

    torch.manual_seed(0)
    return SentenceTransformer(modules=[BoW(WORDS), Dense(len(WORDS), 8, bias=False)], device="cpu")


def sparse():
    """A weight for each word."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    weights = torch.rand(len(WORDS) + 5, generator=torch.Generator().manual_seed(0))
    return SparseEncoder(modules=[SparseStaticEmbedding(tokenizer(), weights)], device="cpu")


def multi_vector(path):
    """A vector for each word of a text."""
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(folder(path, "BertModel"), device="cpu")


def cross_encoder(path):
    """A score for each pair of texts."""
    from sentence_transformers import CrossEncoder

    return CrossEncoder(folder(path, "BertForSequenceClassification", num_labels=1), device="cpu")


def to_train(kind, path):
    """A model of a class of the library, and a loss for pairs of texts."""
    from sentence_transformers import cross_encoder as cross
    from sentence_transformers import sparse_encoder as of_sparse
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    if kind == "SentenceTransformer":
        return (model := dense()), MultipleNegativesRankingLoss(model)
    if kind == "SparseEncoder":
        inner = of_sparse.losses.SparseMultipleNegativesRankingLoss(model := sparse())
        return model, of_sparse.losses.SpladeLoss(model, inner, 1e-5)
    return (model := cross_encoder(path)), cross.losses.MultipleNegativesRankingLoss(model)
