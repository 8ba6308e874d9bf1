"""Nothing of CornerNet's train.py is left out."""

from __future__ import annotations

from tests.messages import Messages
from tools.migration_pages.cornernet import PAGE

COMMAND_LINE = (
    "cfg_file --iter --workers --initialize --distributed --world-size --rank --dist-url --dist-backend"
)
SYSTEM = (
    "dataset sampling_function display snapshot stepsize learning_rate decay_rate max_iter val_iter "
    "batch_size prefetch_size pretrain opt_algo chunk_sizes data_dir cache_dir config_dir result_dir "
    "train_split val_split test_split data_rng nnet_rng snapshot_name"
)


def test_every_option_is_there_once() -> None:
    command_line, system = ([option.name for option in group.options] for group in PAGE.groups)
    assert command_line == COMMAND_LINE.split()
    assert sorted(system) == sorted(SYSTEM.split())


def test_an_option_without_an_equivalent_has_a_note(messages: Messages) -> None:
    options = {option.name: option for group in PAGE.groups for option in group.options}
    for name in ("--rank", "--dist-backend"):
        assert options[name].note and not options[name].keys and not options[name].commands, name
        messages.check(options[name].note)
