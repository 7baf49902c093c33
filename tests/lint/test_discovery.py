"""Which files the paths of the command line mean."""

import pytest

from xladoctor.errors import UsageError
from xladoctor.lint import discovery


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in [
        "train.py", "lib/model.py", "lib/notes.txt", ".venv/x.py", "build/gen.py", "old/legacy.py",
        "data/made.py", "data/kept.py", "book.ipynb", "node_modules/a.py",
    ]:  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("old/\n")
    (tmp_path / "data" / ".gitignore").write_text("*.py\n!kept.py\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(paths):
    return [path.as_posix() for path in paths]


def test_a_folder_gives_its_python_files_in_order(project):
    del project
    found = discovery.discover(["."], discovery.Search())
    assert names(found) == ["book.ipynb", "data/kept.py", "lib/model.py", "train.py"]


def test_gitignore_counts_from_a_subfolder_too(project):
    del project
    assert names(discovery.discover(["data"], discovery.Search())) == ["data/kept.py"]
    assert names(discovery.discover(["old"], discovery.Search(respect_gitignore=False))) == [
        "old/legacy.py"
    ]


def test_a_file_given_by_name_is_linted_even_if_excluded(project):
    del project
    search = discovery.Search(exclude=("lib/",))
    assert names(discovery.discover(["lib/model.py"], search)) == ["lib/model.py"]
    forced = discovery.Search(exclude=("lib/",), force_exclude=True)
    assert discovery.discover(["lib/model.py"], forced) == []


def test_a_file_is_found_once(project):
    found = discovery.discover(["train.py", ".", str(project / "train.py")], discovery.Search())
    assert names(found).count("train.py") == 1
    assert len(found) == 4


def test_a_path_that_does_not_exist_is_an_error(project):
    del project
    with pytest.raises(UsageError, match=r"nope\.py: no such file or folder"):
        discovery.discover(["nope.py"], discovery.Search())
