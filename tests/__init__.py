"""The tests. They are a package, so that ``tests.support`` is found from the root of the repository."""
