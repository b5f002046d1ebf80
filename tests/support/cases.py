"""Many cases in one test: pytest spends some milliseconds on every test, and most cases take less."""

import functools
import inspect

import pytest


def cases(names, values, ids=None):
    """``pytest.mark.parametrize`` of one test, which runs all cases and names the one that fails.

    Its fixtures are those of the test, not of each case. A case that is skipped skips no other.
    """
    names, values = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names), list(values)
    assert values, "no cases"

    def decorate(test):
        @functools.wraps(test)
        def every(**fixtures):
            skipped = []
            for number, value in enumerate(values):
                case = dict(zip(names, value if len(names) > 1 else [value], strict=True))
                try:
                    test(**fixtures, **case)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:
                    shown = ids(value) if callable(ids) else ids[number] if ids else case
                    error.add_note(f"in the case {shown}")
                    raise
            if len(skipped) == len(values):
                raise skipped[0]

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in names]
        every.__signature__ = signature.replace(parameters=fixtures)
        return every

    return decorate
