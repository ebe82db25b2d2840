"""What may change when a run resumes, as each option declares.

    same    another value is another training: it is refused, unless --accept-changes is given
    free    may change: how the same updates are computed, logged, validated and saved, and when the run ends
    batch   sets the batch of an update together with the number of GPUs: that batch is compared, and not the option

Our own options and extensions' options declare it in their definitions: `setting(..., on_resume="free")`. fairseq's
own are listed here, each once and by its whole name in fairseq's namespace; a test compares the list with fairseq's
parser. Options of fairseq's tasks, models, criterions, optimizers and schedules are `same`, all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from roberta_plugin.settings import OnResume

SAME: Final = "same"
FREE: Final = "free"
BATCH: Final = "batch"

FAIRSEQ: Mapping[str, OnResume] = {
    # how the computation is spread over processes and devices
    "cpu": FREE,
    "tpu": FREE,
    "cpu_offload": FREE,
    "distributed_world_size": FREE,
    "distributed_num_procs": FREE,
    "distributed_rank": FREE,
    "distributed_backend": FREE,
    "distributed_init_method": FREE,
    "distributed_port": FREE,
    "device_id": FREE,
    "distributed_no_spawn": FREE,
    "nprocs_per_node": FREE,
    "ddp_backend": FREE,
    "ddp_comm_hook": FREE,
    "bucket_cap_mb": FREE,
    "fix_batches_to_gpus": FREE,
    "find_unused_parameters": FREE,
    "gradient_as_bucket_view": FREE,
    "broadcast_buffers": FREE,
    "heartbeat_timeout": FREE,
    "all_gather_list_size": FREE,
    "zero_sharding": FREE,
    "no_reshard_after_forward": FREE,
    "use_sharded_state": FREE,
    "load_checkpoint_on_all_dp_ranks": FREE,
    "pipeline_model_parallel": FREE,
    "pipeline_balance": FREE,
    "pipeline_devices": FREE,
    "pipeline_chunks": FREE,
    "pipeline_encoder_balance": FREE,
    "pipeline_encoder_devices": FREE,
    "pipeline_decoder_balance": FREE,
    "pipeline_decoder_devices": FREE,
    "pipeline_checkpoint": FREE,
    # the same updates in less memory, or with another way to keep a loss scale, which checkpoints hold
    "memory_efficient_bf16": FREE,
    "memory_efficient_fp16": FREE,
    "fp16_no_flatten_grads": FREE,
    "fp16_init_scale": FREE,
    "fp16_scale_window": FREE,
    "fp16_scale_tolerance": FREE,
    "min_loss_scale": FREE,
    "threshold_loss_scale": FREE,
    "on_cpu_convert_precision": FREE,
    "empty_cache_freq": FREE,
    # how the data are read
    "num_workers": FREE,
    "data_buffer_size": FREE,
    "dataset_impl": FREE,
    "use_plasma_view": FREE,
    "plasma_path": FREE,
    "required_batch_size_multiple": FREE,
    "skip_invalid_size_inputs_valid_test": FREE,
    # the batch of an update, and how it is shared out
    "batch_size": BATCH,
    "max_tokens": BATCH,
    "update_freq": BATCH,
    # logging
    "no_progress_bar": FREE,
    "log_interval": FREE,
    "log_format": FREE,
    "log_file": FREE,
    "aim_repo": FREE,
    "aim_run_hash": FREE,
    "tensorboard_logdir": FREE,
    "wandb_project": FREE,
    "azureml_logging": FREE,
    "reset_logging": FREE,
    "suppress_crashes": FREE,
    "profile": FREE,
    # saving
    "save_dir": FREE,
    "save_interval": FREE,
    "save_interval_updates": FREE,
    "keep_interval_updates": FREE,
    "keep_interval_updates_pattern": FREE,
    "keep_last_epochs": FREE,
    "keep_best_checkpoints": FREE,
    "no_save": FREE,
    "no_epoch_checkpoints": FREE,
    "no_last_checkpoints": FREE,
    "no_save_optimizer_state": FREE,
    "write_checkpoints_asynchronously": FREE,
    # validation, and what is chosen by it
    "valid_subset": FREE,
    "combine_valid_subsets": FREE,
    "ignore_unused_valid_subsets": FREE,
    "validate_interval": FREE,
    "validate_interval_updates": FREE,
    "validate_after_updates": FREE,
    "fixed_validation_seed": FREE,
    "disable_validation": FREE,
    "max_tokens_valid": FREE,
    "batch_size_valid": FREE,
    "max_valid_steps": FREE,
    "best_checkpoint_metric": FREE,
    "maximize_best_checkpoint_metric": FREE,
    # the end of the run
    "max_epoch": FREE,
    "max_update": FREE,
    "stop_time_hours": FREE,
    "stop_min_lr": FREE,
    "patience": FREE,
    # where the first start begins, and whose code runs
    "continue_once": FREE,
    "finetune_from_model": FREE,
    "user_dir": FREE,
    # seeds and order
    "seed": SAME,
    "curriculum": SAME,
    "grouped_shuffling": SAME,
    "update_epoch_batch_itr": SAME,
    "update_ordered_indices_seed": SAME,
    "skip_remainder_batch": SAME,
    "required_seq_len_multiple": SAME,
    "train_subset": SAME,
    "gen_subset": SAME,
    "num_shards": SAME,
    "shard_id": SAME,
    # numbers
    "bf16": SAME,
    "fp16": SAME,
    "amp": SAME,
    "amp_batch_retries": SAME,
    "amp_init_scale": SAME,
    "amp_scale_window": SAME,
    "fp32_reduce_scatter": SAME,
    "fast_stat_sync": SAME,
    "not_fsdp_flatten_parameters": SAME,
    "debug_param_names": SAME,
    # other updates than one step on the sum of all gradients
    "use_bmuf": SAME,
    "slowmo_momentum": SAME,
    "slowmo_base_algorithm": SAME,
    "localsgd_frequency": SAME,
    "quantization_config_path": SAME,
    # what is trained, and how
    "task": SAME,
    "arch": SAME,
    "criterion": SAME,
    "optimizer": SAME,
    "lr_scheduler": SAME,
    "lr": SAME,
    "clip_norm": SAME,
    "sentence_avg": SAME,
    "tokenizer": SAME,
    "bpe": SAME,
    "scoring": SAME,
    # averages of the weights
    "store_ema": SAME,
    "ema_decay": SAME,
    "ema_start_update": SAME,
    "ema_seed_model": SAME,
    "ema_update_freq": SAME,
    "ema_fp32": SAME,
    # which checkpoint a start reads, and what of it; with another suffix or number of shards, none is found
    "restore_file": SAME,
    "reset_dataloader": SAME,
    "reset_lr_scheduler": SAME,
    "reset_meters": SAME,
    "reset_optimizer": SAME,
    "optimizer_overrides": SAME,
    "checkpoint_suffix": SAME,
    "checkpoint_shard_count": SAME,
    "model_parallel_size": SAME,
}
_DERIVED = ("no_seed_provided",)  # fairseq's parser notes them; they are not options


def policies(parsed: argparse.Namespace) -> dict[str, OnResume]:
    """What may change of all options, by their names in fairseq's namespace.

    The classes that --task, --arch, --criterion, --optimizer and --lr-scheduler name say it of their own options.
    """
    from roberta_plugin.fairseq_workarounds.command_line import chosen_classes

    said: dict[str, OnResume] = {}
    for chosen in chosen_classes(parsed).values():
        options = getattr(chosen, "__dataclass", None)
        for item in fields(options) if options else ():
            if "on_resume" in item.metadata:
                said[item.name] = item.metadata["on_resume"]
    return {**dict.fromkeys(vars(parsed), SAME), **FAIRSEQ, **dict.fromkeys(_DERIVED, FREE), **said}
