"""Every fault of fairseq that this plugin works around; `install()` runs when the plugin registers.

Each fault has a number and the file that works around it:

1. **Resuming fails under torch >= 2.6** (`checkpoints`). fairseq calls `torch.load` without `weights_only`. The
   default is now True and refuses `argparse.Namespace`, the only class beyond plain types and tensors in its
   checkpoints. We allow-list that class; checkpoints with any other class are still refused.
2. **Resuming on several ranks fails under torch >= 2.6** (`checkpoints`). Rank 0 reads the checkpoint and sends
   it to the others by `torch.save`; they read it with the new default of `weights_only`, which refuses the omegaconf
   options in it. We trust what our own rank 0 sends.
3. **`checkpoint_last.pt` can be cut off** (`checkpoints`). `checkpoint_utils.save_checkpoint` writes its first
   file under a temporary name, but makes `checkpoint_last.pt` and `checkpoint_best.pt` by `PathManager.copy`, straight
   onto the old file. A kill in the middle leaves a truncated checkpoint that the next start cannot read. We make that
   copy atomic for local files: temporary name, fsync, rename. Paths that iopath manages keep fairseq's copy.
4. **`--bf16` selects a TPU** (`command_line`). `options.parse_args_and_arch` sets `tpu` whenever `bf16` is set, so
   `fairseq-train --bf16` looks for torch_xla on a machine with GPUs. We unset it, unless --tpu was given. (Configs of
   fairseq-hydra-train are not affected.)
5. **A mixture is taken for one folder** (`command_line`). Before training, fairseq searches the data folders for
   validation splits that --valid-subset does not name. It understands `A:B`, but takes `A,B` and `A@3,B@1` for the
   name of one folder, and a folder with `:` in its path for several. We search the folders that the task reads.
6. **--help leaves out the options of --task, --arch, --optimizer, ...** (`command_line`). `parse_args_and_arch` adds
   them after a first parse, which sees --help and exits. We print the help at the second parse.
7. **TensorBoard's files belong to the first run in a process** (`log_output`). fairseq keeps one writer for
   "train" and one for "valid", whatever --tensorboard-logdir is: job 2 of `fairseq-hydra-train -m` writes into the
   folder of job 1, or fails if that path is relative. We keep one writer per folder.
8. **A finished training that is started again trains on** (`resuming`). `fairseq_cli.train` checks
   --max-update and --stop-time-hours only after an update: every further start makes one more update and overwrites
   the checkpoints. We check before the first update too; then nothing is done or saved, and the exit code is 0.
   fairseq does not save the count of --patience either; we do, so that an early stop stays one. From a checkpoint
   without the optimizer's state, fairseq trains again from update 0: we refuse that, unless the training is finished.
9. **Ctrl-C, SIGTERM and a closed terminal lose all work since the last checkpoint** (`stopping`). fairseq does not
   handle signals. Now the first one finishes the current update on all ranks, writes checkpoint_last.pt and exits with
   130, 143 or 129; a second Ctrl-C stops at once. This works with our tasks, and with any task on one rank.
10. **Two trainings at once use one save folder** (`checkpoints`) and overwrite each other's checkpoints. Rank 0 locks
   a file in --save-dir until it ends; a second training is refused.
11. **A briefly full disk ruins checkpoints** (`checkpoints`). `checkpoint_utils` repeats a failed `torch.save`
   up to three times into the same open file, after the bytes already in it; the unreadable result is copied over the
   good `checkpoint_last.pt`, and training continues. We write each attempt to a fresh temporary file and rename it
   only after comparing its checksums. Temporary errors are retried for a minute; then training ends with an error that
   names the file. Unfinished files of killed runs are removed when a run starts in that folder.
12. **Damaged checkpoints are loaded, or end in an error without a file name** (`checkpoints`). torch does not
   compare checksums, so flipped bits become weights. We compare them before every load.
13. **`--bf16` and `--fp16` do not resume exactly** (`half_precision`). `FP16Optimizer.state_dict` omits the fp32 master
   weights, so a resumed training starts from weights rounded to 8 or 11 bits; of the loss scaler it keeps the scale
   only, not the counters for its next change. We save both: 16 bytes per parameter instead of 12. Checkpoints without
   them still load, with a warning.
14. **`--amp` divides gradients by the loss scale twice** (`half_precision`). `AMPOptimizer` lets the scaler unscale
   torch's optimizer, then lets it step its own wrapper, which the scaler does not recognize and unscales again. We pass
   the same object. We also save the loss scale, which fairseq does not.
15. **A matching state is refused for the name of its class** (`resuming`). `Trainer.load_checkpoint` compares the
   class names of criterion and optimizer with those in the checkpoint, so a run of fairseq's `masked_lm` or `adam`
   cannot continue with ours, although ours take over their state. For those pairs we replace the name.
16. **Importing fairseq sets up logging** (`log_output`). `models/wav2vec/wav2vec2_classification.py` and two of its
   tasks call `logging.basicConfig` at import, the first with level DEBUG: a program without a logging set-up then
   prints the debug messages of every library. `fairseq_import` imports fairseq so that these calls do nothing. In
   fairseq-validate and other programs of fairseq, which import it before us, we take the level back.
17. **Warnings that a user cannot act on** (`log_output`). fairseq calls deprecated functions of hydra and torch,
   and requests pinned memory on machines without a GPU: eight warnings per training. We filter exactly these. (The line
   "Please install tensorboardX" comes before fairseq loads any plugin: setup.py requires that package.)
18. **A stop skips the validation of its update for good** (`stopping`), which changes `checkpoint_best.pt` and
   --patience. The checkpoint of 9 notes it, and the next start validates first.
19. **A lost rank leaves the others waiting** (`heartbeats`): gloo for half an hour, and for ever if rank 0 is stopped.
   No error names the rank. Each rank now writes heartbeats; after five minutes without one, or ten without an
   update, the others write their stacks, end and name the missing rank.
20. **--bf16 and --fp16 add up gradients in half precision** (`half_precision`). With --update-freq, small additions to
   a large sum are rounded away: 1.2 % of the gradient is lost at 128 batches in bf16. We add up in fp32.
21. **Logging waits for the GPU number by number** (`log_output`). After each update, fairseq reads the loss, the
   perplexity and the norm of the gradient from the GPU, and with several ranks every sum that is logged: 4 waits, or
   25. All of them are read at once here.
22. **An option of an earlier version is "unrecognized"** (`command_line`), after the usage of all others. One line
   says what to do instead; a checkpoint with such an option loads.
23. **Importing fairseq imports scikit-learn and `scipy.stats`** (`fairseq_import`) for a few metrics of its own: 800
   modules of 3,000, 30 % of the time, 70 MB per process. In programs of ours (jobs of `roberta launch`, `roberta`,
   `RobertaHub`) the first call of such a metric imports them.
24. **Training resumes with different data, a different head or model** (`resuming`). A second start in one --save-dir
   takes the checkpoint over if the shapes fit, regardless of its data, dict.txt, attention heads and activation; heads
   of other shapes are left out, and the optimizer's state then no longer fits. We compare these and name the
   differences; for fine-tuning data also the hash of the examples.
25. **A mistake of the user ends in a page of log or usage, and a traceback** (`command_line`). Our tasks and models
   check options and data before fairseq-train logs anything. A refusal, even a later one, is one sentence with exit
   code 2. So is a missing option; for an unknown option, model or task, the nearest names are listed. ROBERTA_DEBUG=1
   shows the traceback. Errors of other code, such as a subclass of a task, and programming errors keep theirs.
26. **W&B refuses a resumed run** (`log_output`). With WANDB_RESUME, its config comes from the first start, and
   fairseq's `update_config` does not allow changes: another port or number of GPUs is a ConfigError. We allow them.
27. **A resumed training has another learning rate** (`schedules`). A checkpoint of an epoch's end is saved before
   `reduce_lr_on_plateau` judges the epoch, and a resumed training skips the judgement; its count of epochs without
   improvement and the rate of an epoch of `polynomial_decay --force-anneal` are not saved. We judge the epoch when the
   checkpoint is loaded, and save both. The best value of another metric is forgotten (`resuming`).
28. **A start that is a folder trains new weights** (`starts`). `load_checkpoint` logs "No existing checkpoint found"
   and goes on if --restore-file, --continue-once or --finetune-from-model name a folder, and prints its whole
   configuration if two of them are given. We find the checkpoint in the folder, for --finetune-from-model by any name
   of a model, or refuse.
29. **A second start repeats the first one** (`starts`). With --restore-file or a --reset-..., the command that resumes
   loads the old checkpoint, or begins the count of updates, the moments or the data anew, and overwrites what was
   trained since. Here the training's own last checkpoint is loaded, with a note: these options are for the first start.
   With --no-save-optimizer-state the checkpoint of a stop (9) has the optimizer's state all the same, to resume from.
30. **Values that no training can use are taken** (`option_limits`). `--distributed-world-size 0`, and asynchronous
   checkpoints without iopath, train nothing with exit code 0; others end in a traceback of numpy or torch. We refuse
   them by option, and a training that has ended without any update.
31. **A training that diverges ends with a traceback and no remedy** (`divergence`), after printing all gradients. If
   only the loss of a validation is NaN, it goes on, and no later checkpoint is ever the best. We name the update, the
   likely cause and the remedy.
32. **Values that no training has written are resumed** (`saved_state`), or end in a traceback or a crash: counts,
   positions, moments, numbers in int8, and options that omegaconf replaces by variables of the environment. We refuse
   them by name.
33. **--fp16 on many GPUs divides by zero** (`half_precision`). By default the loss scale grows every int(2^14 / GPUs /
   --update-freq) updates: every 0 at 1,024 x 17, and every 16 at 1,024 x 1, so that every 16th update overflows and is
   lost. It is at least 256 here; --fp16-scale-window still overrides it.
34. **Gradients of several ranks add up in half precision** (`gradient_sums`), which loses again what 20 has gained.
   `--gradient-sum fp32` sums them in fp32.
35. **Every update waits until the GPU has finished it** (`late_reads`): for the norm of the gradient, for the log of
   21, and with several ranks for sums and a comparison of norms. Each update reads what the one before has computed.

`LISTENERS` below lists the workarounds by function of fairseq; `hooks.py` attaches them. fairseq's epoch iterator keeps
the batches of the first epoch and counts its position in them, so our tasks have an iterator of their own
(`epoch_iterator`). In a job of `roberta launch`, `launch/update_hook.py` handles signals instead of 9, as one more
listener.
"""

from roberta_plugin.fairseq_workarounds import log_output  # isort: skip  -- before anything else of fairseq is imported
from typing import Any

from fairseq import checkpoint_utils, models, options
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging.progress_bar import TensorboardProgressBarWrapper, WandBProgressBarWrapper
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer

from roberta_plugin.fairseq_workarounds import (
    checkpoints,
    command_line,
    divergence,
    gradient_sums,
    half_precision,
    heartbeats,
    hooks,
    late_reads,
    resuming,
    schedules,
    starts,
    stopping,
)

# Owner and name of each function of fairseq that is touched, and its listeners: the first is the outermost, which
# begins first and ends last; the last one calls fairseq's function, or replaces it.
LISTENERS: dict[tuple[Any, str], list[hooks.Listener]] = {
    # The options of a command.
    (options, "parse_args_and_arch"): [command_line.parse_args_and_arch],
    (hooks.PROGRAM, "convert_namespace_to_omegaconf"): [command_line.convert_namespace_to_omegaconf],
    (data_utils, "raise_if_valid_subsets_unintentionally_ignored"): [command_line.check_valid_subsets],
    # A training, epoch by epoch.
    (hooks.PROGRAM, "train"): [
        heartbeats.train,  # names the lost rank in errors of all that follows
        resuming.train,  # a finished training neither handles signals nor begins an epoch
        stopping.train,  # ends the program when the epoch has been stopped, with its checkpoint written
    ],
    (hooks.PROGRAM, "validate_and_save"): [
        late_reads.validate_and_save,  # may learn of a stop
        heartbeats.validate_and_save,  # from its end on, this rank waits for data
        stopping.validate_and_save,  # may replace the validation and the checkpoint by one checkpoint
    ],
    (hooks.PROGRAM, "validate"): [late_reads.validate, heartbeats.validate],
    (hooks.PROGRAM, "get_valid_stats"): [divergence.valid_stats],
    (Trainer, "train_step"): [heartbeats.train_step, divergence.train_step],
    (Trainer, "valid_step"): [heartbeats.valid_step],
    (Trainer, "clip_grad_norm"): [late_reads.clip_grad_norm],
    (Trainer, "_check_grad_norms"): [late_reads.check_grad_norms],
    (Trainer, "_aggregate_logging_outputs"): [late_reads.aggregate_logging_outputs],
    (Trainer, "_reduce_and_log_stats"): [late_reads.reduce_and_log_stats, log_output.reduce_and_log_stats],
    (distributed_utils, "all_reduce_dict"): [late_reads.all_reduce_dict],
    (TensorboardProgressBarWrapper, "_writer"): [log_output.writer_of_folder],
    (WandBProgressBarWrapper, "update_config"): [log_output.update_wandb_config],
    # A checkpoint is loaded: at the start of every training, whether there is one or not.
    (checkpoint_utils, "load_checkpoint"): [
        heartbeats.load_checkpoint,  # starts the watch: ranks wait for each other in all that follows
        resuming.load_checkpoint,  # looks at what was loaded
        command_line.load_checkpoint,  # refuses options that call_main has not seen
        checkpoints.lock_and_load,  # before anything in the folder is touched
        stopping.load_checkpoint,  # takes over the signals, in a spawned rank too
        checkpoints.load_checkpoint,  # removes unfinished files, under the lock
        starts.load_checkpoint,  # looks for the training's own checkpoint when nobody else writes it
    ],
    (Trainer, "load_checkpoint"): [
        resuming.load_trainer,  # checks it, and may forget the loss and the best value of another metric
        schedules.load_trainer,  # judges that loss
    ],
    # Learning rates.
    (ReduceLROnPlateauLRSchedule, "state_dict"): [schedules.plateau_state],
    (ReduceLROnPlateauLRSchedule, "load_state_dict"): [schedules.load_plateau_state],
    (ReduceLROnPlateauLRSchedule, "step"): [schedules.step_plateau],
    (PolynomialDecayLRSchedule, "state_dict"): [schedules.annealing_state],
    (PolynomialDecayLRSchedule, "load_state_dict"): [schedules.load_annealing_state],
    (PolynomialDecayLRSchedule, "step_begin_epoch"): [schedules.begin_annealed_epoch],
    (checkpoint_utils, "load_checkpoint_to_cpu"): [command_line.load_checkpoint_to_cpu, checkpoints.load_checked],
    (distributed_utils, "_broadcast_object_slow"): [checkpoints.broadcast_object],
    # A checkpoint is saved.
    (checkpoint_utils, "save_checkpoint"): [
        late_reads.save_checkpoint,  # writes no weights of an update that has diverged
        heartbeats.save_checkpoint,  # its heartbeats say so as long as the training waits
    ],
    (Trainer, "save_checkpoint"): [resuming.save_trainer],
    (checkpoint_utils, "torch_persistent_save"): [checkpoints.torch_persistent_save],
    (checkpoint_utils, "_torch_persistent_save"): [checkpoints.save_once],
    (PathManager, "copy"): [checkpoints.atomic_copy],
    # The optimizers of --fp16, --bf16 and --amp, and the sums over ranks.
    (models, "DistributedFairseqModel"): [gradient_sums.wrap_model],
    (FP16Optimizer, "__init__"): [half_precision.init_optimizer],
    (MemoryEfficientFP16Optimizer, "__init__"): [half_precision.init_optimizer],
    (half_precision.Ordinary, "state_dict"): [half_precision.state_dict],
    (half_precision.Ordinary, "load_state_dict"): [half_precision.load_state_dict],
    (half_precision.Ordinary, "backward"): [half_precision.backward],
    (half_precision.Ordinary, "zero_grad"): [half_precision.zero_grad],
    (half_precision.Ordinary, "_sync_fp16_grads_to_fp32"): [half_precision.sync_gradients],
    (half_precision.Ordinary, "_sync_fp32_params_to_fp16"): [half_precision.sync_parameters],
    (half_precision.MemoryEfficient, "state_dict"): [half_precision.state_dict_memory_efficient],
    (half_precision.MemoryEfficient, "load_state_dict"): [half_precision.load_state_dict_memory_efficient],
    (AMPOptimizer, "step"): [half_precision.amp_step],
    (AMPOptimizer, "state_dict"): [half_precision.amp_state_dict],
    (AMPOptimizer, "load_state_dict"): [half_precision.amp_load_state_dict],
}
# The start of a program on all ranks; fairseq's other programs, such as fairseq-validate, keep their own.
OF_TRAININGS: dict[tuple[Any, str], list[hooks.Listener]] = {
    (distributed_utils, "call_main"): [
        command_line.call_main,  # refuses options before anything begins
        heartbeats.call_main,  # ends with the exit code of a lost rank, past the handlers of signals
        stopping.call_main,  # handles signals, and forwards them to the ranks
    ],
}


def install() -> None:
    """Apply all of this; calling it again changes nothing, but reaches fairseq-train's module if loaded since."""
    log_output.set_level()
    log_output.filter_warnings()
    divergence.quiet_detector()
    checkpoints.allow_namespaces()
    hooks.install(LISTENERS)
    if hooks.programs():
        hooks.install(OF_TRAININGS)
