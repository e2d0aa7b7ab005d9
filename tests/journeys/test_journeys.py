"""What a stranger types in a journey stands on the pages that the journey names."""

import re

import pytest

from tests.docs.markdown import ROOT
from tests.journeys.__main__ import Journey, journeys

#: A command of ours or of Dask's, to the end of its line.
COMMAND = re.compile(r"^(?:\S+=\S+ )?(dask(?:-efficiency)? .*)$", re.MULTILINE)

#: Options of Dask's own, and of the shell.
NOT_OURS = {"--host", "--port", "--dashboard-address", "--nworkers", "--nthreads", "--no-dashboard"}


@pytest.mark.parametrize("journey", journeys(), ids=lambda journey: journey.name)
def test_the_pages_of_a_journey_have_its_commands_and_options(journey: Journey) -> None:
    pages = journey.head("pages").split()
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    commands = COMMAND.findall(journey.text)
    assert commands or journey.name == "notebook"
    for command in commands:
        words = command.split(" job.py")[0].split()
        subcommand = [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
        assert " ".join([words[0], *subcommand][:3]) in text or " ".join([words[0], subcommand[0]]) in text, command
        for option in re.findall(r"--[a-z-]+", " ".join(words)):
            assert option in text or option in NOT_OURS, (command, option)
    for word in re.findall(r"%{1,2}\w+", journey.text):
        assert word in text or word[1:].isdigit()


@pytest.mark.parametrize("journey", journeys(), ids=lambda journey: journey.name)
def test_a_journey_has_its_answer_and_its_page(journey: Journey) -> None:
    assert re.compile(journey.head("answer")).pattern
    assert (ROOT / journey.head("pages").split()[0]).exists() or journey.name == "notebook"


def test_there_are_nine_journeys() -> None:
    assert len(journeys()) == 9
