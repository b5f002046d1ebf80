"""``python -m torchrank.cli``."""

from torchrank.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
