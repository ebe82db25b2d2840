"""Every fault of fairseq that this plugin works around; `install()` runs when the plugin registers.

Each fault has a number and the file that works around it:

1. **Resuming fails under torch >= 2.6** (`checkpoint_loading`). fairseq calls `torch.load` without `weights_only`. The
   default is now True and refuses `argparse.Namespace`, the only class beyond plain types and tensors in its
   checkpoints. We allow-list that class; checkpoints with any other class are still refused.
2. **Resuming on several ranks fails under torch >= 2.6** (`checkpoint_loading`). Rank 0 reads the checkpoint and sends
   it to the others by `torch.save`; they read it with the new default of `weights_only`, which refuses the omegaconf
   options in it. We trust what our own rank 0 sends.
3. **`checkpoint_last.pt` can be cut off** (`checkpoint_writing`). `checkpoint_utils.save_checkpoint` writes its first
   file under a temporary name, but makes `checkpoint_last.pt` and `checkpoint_best.pt` by `PathManager.copy`, straight
   onto the old file. A kill in the middle leaves a truncated checkpoint that the next start cannot read. We make that
   copy atomic for local files: temporary name, fsync, rename. Paths that iopath manages keep fairseq's copy.
4. **`--bf16` selects a TPU** (`tpu_option`). `options.parse_args_and_arch` sets `tpu` whenever `bf16` is set, so
   `fairseq-train --bf16` looks for torch_xla on a machine with GPUs. We unset it, unless --tpu was given. (Configs of
   fairseq-hydra-train are not affected.)
5. **A mixture is taken for one folder** (`validation_folders`). Before training, fairseq searches the data folders for
   validation splits that --valid-subset does not name. It understands `A:B`, but takes `A,B` and `A@3,B@1` for the
   name of one folder, and a folder with `:` in its path for several. We search the folders that the task reads.
6. **--help leaves out the options of --task, --arch, --optimizer, ...** (`help_text`). `parse_args_and_arch` adds them
   after a first parse, which sees --help and exits. We print the help at the second parse.
7. **TensorBoard's files are those of the first run in a process** (`tensorboard_writers`). fairseq keeps one writer for
   "train" and one for "valid", whatever --tensorboard-logdir is: job 2 of `fairseq-hydra-train -m` writes into the
   folder of job 1, or fails if that path is relative. We keep one writer per folder.
8. **A finished training that is started again trains on** (`finished_training`). `fairseq_cli.train` checks
   --max-update and --stop-time-hours only after an update: every further start makes one more update and overwrites
   the checkpoints. We check before the first update too; then nothing is done or saved, and the exit code is 0.
   fairseq does not save the count of --patience either; we do, so that an early stop stays one.
9. **Ctrl-C, SIGTERM and a closed terminal lose all work since the last checkpoint** (`interruption`). fairseq does not
   handle signals. Now the first one finishes the current update on all ranks, writes checkpoint_last.pt and exits with
   130, 143 or 129; a second Ctrl-C stops at once. This works with our tasks, and with any task on one rank.
10. **Two trainings at once use one save folder** (`save_dir_lock`) and overwrite each other's checkpoints. Rank 0 locks
   a file in --save-dir until it ends; a second training is refused.
11. **A briefly full disk ruins checkpoints** (`checkpoint_writing`). `checkpoint_utils` repeats a failed `torch.save`
   up to three times into the same open file, after the bytes already in it; the unreadable result is copied over the
   good `checkpoint_last.pt`, and training continues. We write each attempt to a fresh temporary file and rename it
   only after comparing its checksums. Temporary errors are retried for a minute; then training ends with an error that
   names the file. Unfinished files of killed runs are removed when a run starts in that folder.
12. **Damaged checkpoints are loaded, or end in an error without a file name** (`checkpoint_loading`). torch does not
   compare checksums, so flipped bits become weights. We compare them before every load.
13. **`--bf16` and `--fp16` do not resume exactly** (`master_weights`). `FP16Optimizer.state_dict` omits the fp32 master
   weights, so a resumed training starts from weights rounded to 8 or 11 bits; of the loss scaler it keeps the scale
   only, not the counters for its next change. We save both: 16 bytes per parameter instead of 12. Checkpoints without
   them still load, with a warning.
14. **`--amp` divides gradients by the loss scale twice** (`amp_scaling`). `AMPOptimizer` lets the scaler unscale
   torch's optimizer, then lets it step its own wrapper, which the scaler does not recognize and unscales again. We pass
   the same object. We also save the loss scale, which fairseq does not.
15. **A matching state is refused for the name of its class** (`state_names`). `Trainer.load_checkpoint` compares the
   class names of criterion and optimizer with those in the checkpoint, so a run of fairseq's `masked_lm` or `adam`
   cannot continue with ours, although ours take over their state. For those pairs we replace the name.
16. **Importing fairseq sets up logging** (`logging_setup`). `models/wav2vec/wav2vec2_classification.py` and two of its
   tasks call `logging.basicConfig` at import, the first with level DEBUG: a program without a logging set-up then
   prints the debug messages of every library. `fairseq_import` imports fairseq so that these calls do nothing. In
   fairseq-validate and other programs of fairseq, which import it before us, we take the level back.
17. **Warnings that a user cannot act on** (`foreign_warnings`). fairseq calls deprecated functions of hydra and torch,
   and requests pinned memory on machines without a GPU: eight warnings per training. We filter exactly these. (The line
   "Please install tensorboardX" comes before fairseq loads any plugin: setup.py therefore requires that package.)
18. **A stop skips the validation of its update for good** (`update_end`), which changes `checkpoint_best.pt` and
   --patience. The checkpoint of 9 notes it, and the next start validates first.
19. **A lost rank leaves the others waiting** (`lost_ranks`): gloo for half an hour, and for ever if rank 0 is stopped.
   No error names the rank. Each rank now writes heartbeats; after five minutes without one, or ten without an
   update, the others write their stacks, end and name the missing rank.
20. **--bf16 and --fp16 add up gradients in half precision** (`gradient_sums`). With --update-freq, small additions to
   a large sum are rounded away: 1.2 % of the gradient is lost at 128 batches in bf16. We add up in fp32.
21. **Logging waits for the GPU number by number** (`log_transfers`). After each update, fairseq reads the loss, the
   perplexity and the norm of the gradient from the GPU, and with several ranks every sum that is logged: 4 waits, or
   25. All of them are read at once here.
22. **Checkpoints stop all GPUs until they are written** (`background_checkpoints`). fairseq's
   --write-checkpoints-asynchronously (with iopath) writes to the final name at once, makes no `checkpoint_last.pt` when
   another file is due, and a write that fails does not end the training. --background-checkpoints copies the state to
   host memory (`host_copy.py`); a thread then runs fairseq's own save, with 3 and 11.
23. **Importing fairseq imports scikit-learn and `scipy.stats`** (`fairseq_import`) for a few metrics of its own: 800
   modules of 3,000, 30 % of the time, 70 MB per process. In programs of ours (jobs of `roberta launch`, `roberta`,
   `RobertaHub`) the first call of such a metric imports them.
24. **Training resumes with different data or a different head** (`resumed_training`). A second start in one --save-dir
   takes the checkpoint over if the shapes fit, regardless of its data and dict.txt; heads of other shapes are left
   out, and the optimizer's state then no longer fits. We compare both and name the differences; for fine-tuning data
   also the hash of the examples.
25. **A mistyped option or data folder ends in a page of log and a traceback** (`refusals`). Our tasks and models check
   options and data before fairseq-train logs anything; a refusal is one line, and the exit code is 1.

In a job of `roberta launch`, `launch/update_hook.py` and `launch/preemption.py` handle signals instead of 9. Functions
of fairseq's training loop are wrapped with `training_loop.wrap`.
"""

from roberta_plugin.fairseq_workarounds import logging_setup  # isort: skip  -- before anything else of fairseq is imported
from roberta_plugin.fairseq_workarounds import (
    amp_scaling,
    background_checkpoints,
    checkpoint_loading,
    checkpoint_writing,
    finished_training,
    foreign_warnings,
    gradient_sums,
    help_text,
    interruption,
    log_transfers,
    lost_ranks,
    master_weights,
    refusals,
    resumed_training,
    save_dir_lock,
    state_names,
    tensorboard_writers,
    tpu_option,
    update_end,
    validation_folders,
)

_WORKAROUNDS = (
    logging_setup,
    checkpoint_loading,
    checkpoint_writing,
    background_checkpoints,
    tpu_option,
    validation_folders,
    help_text,
    tensorboard_writers,
    interruption,
    save_dir_lock,
    master_weights,
    gradient_sums,
    amp_scaling,
    state_names,
    resumed_training,
    foreign_warnings,
    update_end,
    log_transfers,
    finished_training,
    lost_ranks,
    refusals,
)


def install() -> None:
    """Apply the workarounds listed above; calling it again changes nothing."""
    for workaround in _WORKAROUNDS:
        workaround.install()
