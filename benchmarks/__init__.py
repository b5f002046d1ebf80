"""How long torchrank takes, against floors and peers, in one interleaved run: ``python -m benchmarks``."""
