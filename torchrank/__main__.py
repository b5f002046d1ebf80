"""``python -m torchrank``."""

from torchrank.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
