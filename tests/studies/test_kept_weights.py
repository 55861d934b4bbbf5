from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.errors import InputError
from sottovoce.studies import kept_weights


def test_the_files_of_a_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").touch()
    (tmp_path / "b.safetensors").touch()
    found = kept_weights.find_weights("O9", str(tmp_path), ("b", "a"))
    assert found == {"b": tmp_path / "b.safetensors", "a": tmp_path / "a.safetensors"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").touch()
    with pytest.raises(InputError) as problem:
        kept_weights.find_weights("O9", str(tmp_path), ("a", "b"))
    assert str(problem.value) == f"study O9: expected b.safetensors in {tmp_path}, which --model names."


def test_outside_a_checkout_it_says_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_weights, "KEPT", tmp_path)
    with pytest.raises(InputError, match=r"studies/weights/O9 .* --model, or train"):
        kept_weights.find_weights("O9", None, ("a",))
