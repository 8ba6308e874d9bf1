"""Nothing of SpeeChain's runner is left out."""

from __future__ import annotations

from tests.messages import Messages
from tools.migration_pages.speechain import PAGE

RUNNER = (
    "config seed cudnn_enabled cudnn_benchmark cudnn_deterministic train_num_workers valid_num_workers "
    "test_num_workers pin_memory non_blocking use_amp grad_clip grad_norm_type accum_grad ft_factor "
    "dist_backend dist_url world_size rank ngpu gpus same_proc_seed ignore_train_exception "
    "ignore_test_exception enable_syncbatchnorm train_result_path attach_config_folder_to_path train "
    "dry_run no_optim resume start_epoch num_epochs valid_per_epochs report_per_steps "
    "best_model_selection early_stopping_patience early_stopping_threshold last_model_number "
    "monitor_snapshot_conf visual_snapshot_number visual_snapshot_interval test_result_path test "
    "test_model attach_model_folder_when_test bad_cases_selection saving_proc_num data_cfg train_cfg "
    "infer_cfg"
)
INSIDE = {
    "`model` in train_cfg": "model_type model_conf module_conf criterion_conf pretrained_model "
    "frozen_modules",
    "`optim_sches` in train_cfg": "type conf optim_type optim_conf optim_loss updated_modules "
    "step_per_update",
    "Iterators in data_cfg": "type conf dataset_type dataset_conf batch_size batch_len batches_per_epoch "
    "is_descending shuffle data_len data_selection group_info",
    "infer_cfg": "shared_args exclu_args",
}


def test_all_51_options_are_there_once() -> None:
    found = [option.name for group in PAGE.groups if group.heading not in INSIDE for option in group.options]
    assert found == RUNNER.split() and len(found) == 51


def test_the_keys_of_its_configs_are_there() -> None:
    groups = {group.heading: {option.name for option in group.options} for group in PAGE.groups}
    for heading, names in INSIDE.items():
        assert set(names.split()) <= groups[heading], heading


def test_what_is_missing_here_is_said(messages: Messages) -> None:
    options = {option.name: option for group in PAGE.groups for option in group.options}
    for name in ("infer_cfg", "test_model", "bad_cases_selection"):
        assert options[name].note, name
        messages.check(options[name].note)
