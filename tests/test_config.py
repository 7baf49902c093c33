"""Settings from pyproject.toml and xladoctor.toml."""

import pytest

from xladoctor import config
from xladoctor.errors import UsageError


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_closest_file_wins_and_a_pyproject_without_the_table_is_passed_over(tmp_path):
    outer = write(tmp_path, "pyproject.toml", "[tool.xladoctor]\nexclude = ['a']\n")
    write(tmp_path, "sub/pyproject.toml", "[tool.other]\nx = 1\n")
    inner = write(tmp_path, "sub/deep/xladoctor.toml", "exclude = ['b']\n")
    write(tmp_path, "sub/deep/pyproject.toml", "[tool.xladoctor]\n")
    assert config.find(tmp_path / "sub") == outer.resolve()
    assert config.find(tmp_path / "sub" / "deep") == inner.resolve()


def test_a_pyproject_that_is_no_toml_belongs_to_somebody_else(tmp_path):
    write(tmp_path, "sub/pyproject.toml", "this is [not toml")
    outer = write(tmp_path, "xladoctor.toml", "")
    assert config.find(tmp_path / "sub") == outer.resolve()


def test_all_keys_of_lint(tmp_path):
    path = write(
        tmp_path,
        "pyproject.toml",
        """
        [tool.xladoctor]
        exclude = ["old"]
        extend-exclude = ["older"]
        force-exclude = true
        respect-gitignore = false
        output-format = "json"
        target-torch-xla = "2.5"
        [tool.xladoctor.lint]
        select = ["xla1", "ALL"]
        ignore = ["XLA203"]
        extend-ignore = ["XLA204"]
        extend-select = ["XLA9"]
        baseline = "known.json"
        per-file-ignores = { "tests/**" = ["XLA1", "XLA2"] }
        [tool.xladoctor.profile.budget]
        anything = 1
        """,
    )
    found = config.read(path)
    assert found.select == ("XLA1", "XLA")
    assert found.ignore == ("XLA203", "XLA204")
    assert found.extend_select == ("XLA9",)
    assert found.per_file_ignores == (("tests/**", ("XLA1", "XLA2")),)
    assert (found.exclude, found.extend_exclude) == (("old",), ("older",))
    assert (found.force_exclude, found.respect_gitignore) == (True, False)
    assert (found.output_format, found.target_torch_xla) == ("json", "2.5")
    assert found.profile == {"budget": {"anything": 1}}
    assert found.root == tmp_path.resolve()
    assert found.baseline == "known.json"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("selcet = ['XLA1']", "unknown key selcet: did you mean 'select'?"),
        (
            "[lint]\nextend-selct = []",
            "unknown key lint.extend-selct: did you mean 'extend-select'?",
        ),
        ("zzz = 1", "unknown key zzz: known are"),
        ("select = 'XLA1'", "select must be a list of strings"),
        ("select = ['E501']", "'E501' is an unknown code: write ALL"),
        ("select = ['host-sync-in-step']", "is a rule's name: write its code, XLA101"),
        ("ignore = ['XLA1O1']", "did you mean XLA101 (host-sync-in-step)?"),
        ("force-exclude = 'yes'", "force-exclude must be true or false"),
        ("output-format = 'xml'", "choose from full, concise"),
        ("target-torch-xla = 2.9", "target-torch-xla must be a string"),
        ("target-torch-xla = 'new'", "is no torch_xla version"),
        ("per-file-ignores = ['x']", "must be a table"),
        ("lint = 3", "lint must be a table"),
        ("a = [", "is not TOML"),
    ],
)
def test_what_means_nothing_is_one_sentence_that_names_the_file(tmp_path, text, says):
    path = write(tmp_path, "xladoctor.toml", text + "\n")
    with pytest.raises(UsageError) as caught:
        config.read(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
