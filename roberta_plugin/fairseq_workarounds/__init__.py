"""Every fault of fairseq that this plugin works around; `install()` runs when the plugin registers.

Each fault has a number and the file that works around it:

1. **Resuming fails under torch >= 2.6** (`checkpoint_loading`). fairseq calls `torch.load` without `weights_only`,
   whose default is now True and refuses `argparse.Namespace`, the one class beyond plain types and tensors that its
   checkpoints hold. We allow-list that class alone. A checkpoint that holds anything else is still refused.
2. **Resuming on several ranks fails under torch >= 2.6** (`checkpoint_loading`). Rank 0 reads the checkpoint and
   sends it to the others by `torch.save`, which read it with the new default of `weights_only`, as in 1; the options
   in it are of omegaconf. What comes from our own rank 0 is trusted.
3. **`checkpoint_last.pt` can be cut off** (`checkpoint_writing`). `checkpoint_utils.save_checkpoint` writes its first
   file under a temporary name, but makes `checkpoint_last.pt` and `checkpoint_best.pt` by `PathManager.copy`, straight
   onto the old file; a kill in the middle leaves a truncated checkpoint that the next start cannot read. We make that
   copy atomic for local files: a temporary name, fsync, rename. Paths that iopath manages keep fairseq's own copy.
4. **`--bf16` turns to a TPU** (`tpu_option`). `options.parse_args_and_arch` sets `tpu` wherever `bf16` is set, so that
   `fairseq-train --bf16` looks for torch_xla on a machine with GPUs. We take that back, unless --tpu was asked for.
   (Configs of fairseq-hydra-train do not go that way.)
5. **A mixture is taken for one folder** (`validation_folders`). Before training, fairseq lists the data folders for
   validation splits that --valid-subset does not name, and knows `A:B` alone: `A,B` and `A@3,B@1` are no folders. We
   give it the folders of the mixture.
6. **--help leaves out the options of --task, --arch, --optimizer, ...** (`help_text`). `parse_args_and_arch` adds them
   after it has parsed once, and that first parser meets --help and exits. We let it print its help the second time.
7. **TensorBoard's files are those of the first run in a process** (`tensorboard_writers`). fairseq keeps one writer for
   "train" and one for "valid", whatever --tensorboard-logdir is: job 2 of `fairseq-hydra-train -m` writes into the
   folder of job 1, or fails where that is relative. We keep one for each folder.
8. **A finished training that is started again trains on** (`finished_training`). `fairseq_cli.train` looks at
   --max-update and --stop-time-hours after an update only: every further start makes one more and overwrites the
   checkpoints. We look before the first one, too: nothing is done, nothing is saved, and the exit code is 0. What
   --patience has counted is in no checkpoint of fairseq's: we save it, so that an early stop stays one.
9. **Ctrl-C and SIGTERM lose all since the last checkpoint** (`interruption`). fairseq has no handlers for signals. The
   first one now ends the update at hand on all ranks, writes checkpoint_last.pt and exits with 130 or 143; a second
   Ctrl-C stops at once. With our tasks, or on one rank.
10. **Two trainings at once in one save folder** (`save_dir_lock`) overwrite each other's checkpoints. Rank 0 holds a
   lock on a file in --save-dir for as long as it lives, and a second training is refused.
11. **A disk that is full for a moment ruins checkpoints** (`checkpoint_writing`). `checkpoint_utils` repeats a
   `torch.save` that failed up to three times into the same open file, behind what is already in it; the unreadable
   result is copied over the good `checkpoint_last.pt`, and training goes on. We write each attempt to a fresh
   temporary file, compare its checksums, and let it take the name only then; where the cause may pass we try again
   for a minute, then the training ends with an error that names the file. What a killed run left half-written is
   removed when a run starts in that folder.
12. **Damaged checkpoints are loaded, or end in an error without a file name** (`checkpoint_loading`). torch compares
   no checksums: flipped bits become weights. We compare them before a checkpoint is loaded, for whatever purpose.
13. **`--bf16` and `--fp16` do not resume exactly** (`master_weights`). `FP16Optimizer.state_dict` leaves out the fp32
   master weights, so that a resumed training begins at weights rounded to 8 or 11 bits, and of the loss scaler it
   has the scale alone, not when that changes next. We save both: 4 bytes more a parameter, 16 in all. Checkpoints
   without them still load, with a line in the log.
14. **`--amp` divides gradients by the loss scale twice** (`amp_scaling`). `AMPOptimizer` has the scaler unscale torch's
   optimizer, then gives it its own wrapper to step, which the scaler does not know and unscales again. We give it the
   same object. The loss scale was not saved either; now it is.
15. **A state that fits is refused for the name of its class** (`state_names`). `Trainer.load_checkpoint` compares the
   names of criterion and optimizer with those in the checkpoint, so that a run of fairseq's `masked_lm` or `adam`
   cannot go on with ours, which take over its state. For those pairs the name in the checkpoint becomes ours.
16. **Importing fairseq sets up logging** (`logging_setup`). `models/wav2vec/wav2vec2_classification.py` and two of its
   tasks call `logging.basicConfig` at import, the first with level DEBUG: a program that had no set-up of its own then
   prints every library's debugging. We import fairseq where these calls change nothing.
17. **Warnings that a user cannot act on** (`foreign_warnings`). fairseq calls deprecated functions of hydra and torch,
   and asks for pinned memory where there is no GPU: eight warnings per training. We filter exactly these. (The line
   "Please install tensorboardX" is printed before fairseq loads any plugin, so it stays.)
18. **A stop skips the validation of its update for good** (`update_end`). `checkpoint_best.pt` and --patience would
   come out otherwise than without the stop. The checkpoint of 9 notes it, and the next start validates first.
19. **--bf16 and --fp16 add up gradients in half precision** (`gradient_sums`). With --update-freq, what a batch adds to
   a sum of many is rounded away: 1.2 % of the gradient is lost at 128 batches in bf16. They add up in fp32 here.
20. **Logging waits for the GPU number by number** (`log_transfers`). After each update, fairseq reads the loss, the
   perplexity and the norm of the gradient from the GPU, and with several ranks every sum that is logged: 4 waits, or
   25. All of them are read at once here.

In a job of `roberta launch`, `launch/update_hook.py` and `launch/preemption.py` handle signals instead of 9. Files that
wrap functions of fairseq do so with `training_loop.wrap`.
"""

from roberta_plugin.fairseq_workarounds import logging_setup  # isort: skip  -- before anything else of fairseq is imported
from roberta_plugin.fairseq_workarounds import (
    amp_scaling,
    checkpoint_loading,
    checkpoint_writing,
    finished_training,
    foreign_warnings,
    gradient_sums,
    help_text,
    interruption,
    log_transfers,
    master_weights,
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
    foreign_warnings,
    update_end,
    log_transfers,
    finished_training,
)


def install() -> None:
    """Apply the workarounds listed above; calling it again changes nothing."""
    for workaround in _WORKAROUNDS:
        workaround.install()
