"""Files that other readers get wrong are read as they are meant, or refused with the exact place."""

import math
import os

import pytest
from hostile import CASES, outcome, read

import torchrank as tr


@pytest.mark.parametrize(("title", "content", "want"), CASES, ids=[title for title, _, _ in CASES])
def test_a_hostile_file_has_this_result(title, content, want, tmp_path):
    found = outcome(read(title, content, tmp_path))
    assert (found.replace(str(tmp_path) + os.sep, "") if isinstance(found, str) else found) == want
    if isinstance(found, dict):
        signs = [[math.copysign(1, value) for docs in one.values() for value in docs.values()] for one in (found, want)]
        assert sorted(signs[0]) == sorted(signs[1])  # of -0.0, too


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_an_os_error(tmp_path):
    path = tmp_path / "secret"
    path.touch(mode=0)
    with pytest.raises(PermissionError, match="secret"):
        tr.read_run(path)


def test_a_cut_last_line_is_refused_if_a_field_is_missing_and_read_if_none_is(tmp_path):
    path = tmp_path / "run"
    line = "q1 Q0 d1 2 0.75"
    for end in range(len("q1 Q0 d1 2 ") + 1):
        path.write_text(f"{line}\nq2{line[2 : max(2, end)]}")
        with pytest.raises(tr.ReadingError, match=r"line 2: Expected 5 fields between white space, .* got [1-4]"):
            tr.read_run(path)
    path.write_text(f"{line}\nq2 Q0 d1 2 0.7")  # 0.75 without its last digit: no reader can tell
    assert tr.read_run(path).to_dict()["q2"] == {"d1": 0.7}
