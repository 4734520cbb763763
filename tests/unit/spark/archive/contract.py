"""The behaviour that every implementation of `Files` must have."""

import pytest

from bolide.spark.archive.files import FileEntry, Files


def check_files(files: Files) -> None:
    """Run against an empty or missing directory."""
    assert files.names("a") == files.names("") == []
    assert list(files.walk("a")) == []
    assert not files.exists("a/one")

    files.write_new("a/one", b"1")
    with pytest.raises(FileExistsError):
        files.write_new("a/one", b"other")
    assert files.read("a/one") == b"1"
    files.overwrite("a/two", b"2")
    files.overwrite("a/two", b"22")
    assert files.names("a") == ["one", "two"]

    files.move("a/two", "b/topic=x%25y/two")
    assert list(files.walk("b")) == [FileEntry("b/topic=x%25y/two", 2)]
    with pytest.raises(FileNotFoundError):
        files.move("a/two", "b/two")
    with pytest.raises(FileNotFoundError):
        files.read("a/two")

    files.delete("a/two")  # is not there
    files.delete("a")
    assert files.names("") == ["b"]
    assert files.exists("b/topic=x%25y")
