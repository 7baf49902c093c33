"""Commands with choices in braces."""

from __future__ import annotations

import pytest

from xladoctor.errors import UsageError
from xladoctor.planning.choices import MOST, expand


def values(*words):
    return [choice.values for choice in expand(words)]


def test_a_choice_makes_one_command_for_each_value():
    made = expand(["python", "train.py", "--batch-size", "{32,64}", "--lr", "0.1"])
    assert [choice.command for choice in made] == [
        ("python", "train.py", "--batch-size", "32", "--lr", "0.1"),
        ("python", "train.py", "--batch-size", "64", "--lr", "0.1"),
    ]
    assert [choice.values for choice in made] == [{"--batch-size": "32"}, {"--batch-size": "64"}]


def test_several_choices_make_all_combinations_in_order():
    assert values("train.py", "--depth={18,50}", "-b", "{8, 16}") == [
        {"--depth": "18", "-b": "8"},
        {"--depth": "18", "-b": "16"},
        {"--depth": "50", "-b": "8"},
        {"--depth": "50", "-b": "16"},
    ]


def test_a_choice_without_an_option_is_named_by_its_place():
    assert values("train.py", "{8,16}") == [{"argument 1": "8"}, {"argument 1": "16"}]
    assert values("train.py", "--size", "8", "{a,b}")[0] == {"argument 3": "a"}


def test_a_choice_inside_a_word():
    made = expand(["train.py", "--config", "configs/{small,large}.yaml"])
    assert [choice.command[2] for choice in made] == ["configs/small.yaml", "configs/large.yaml"]
    assert made[1].values == {"--config": "large"}


@pytest.mark.parametrize(
    "word", ['{"lr":0.1,"size":8}', "{}", "run-{epoch}.pt", "a,b", "{lr: 1, b: 2}"]
)
def test_braces_that_are_the_programs_own_stay(word):
    assert [choice.command for choice in expand(["train.py", word])] == [("train.py", word)]


def test_no_choice_is_one_command_without_values():
    assert values("python", "train.py") == [{}]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("{32,64", "not closed"),
        ("32,64}", "not opened"),
        ("{32,,64}", "empty value"),
        ("{32,}", "empty value"),
        ("{32}", "only one value; write 32"),
        ("{32,32}", "twice"),
        ("{1,{2,3}}", "inside braces"),
    ],
)
def test_braces_that_cannot_be_read_are_one_sentence(word, says):
    with pytest.raises(UsageError, match=says) as error:
        expand(["train.py", "--batch-size", word])
    assert word in str(error.value)


def test_too_many_commands():
    many = "{" + ",".join(str(number) for number in range(9)) + "}"
    with pytest.raises(UsageError, match=f"81 commands, and one plan may have {MOST}"):
        expand(["train.py", "-a", many, "-b", many])
