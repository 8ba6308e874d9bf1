from __future__ import annotations

import shlex

from roost.cli.other_tools.option_translation import translate_options
from tests.cli.other_tools.test_other_options import find


def test_a_command_line_is_translated_to_its_first_word() -> None:
    typed = shlex.split("-J big --gres=gpu:2 --mem=8G --mem 9G -p gpu --priority 3 -CPU job.sh --mem")
    found = translate_options(typed, find("submit"))
    assert found.words == ["--name", "big", "--gpus", "2", "--host-memory", "9GB", "--priority", "3", "-CPU"]
    assert found.left_out == ["-p gpu"] and found.rest == ["job.sh", "--mem"]
