"""The ``torchrank`` command."""
