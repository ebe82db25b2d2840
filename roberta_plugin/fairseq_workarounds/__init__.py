"""Every fairseq fault that this plugin works around, in one place; `install()` runs once, when the plugin registers.

A fault has a number here and a file that mends it:

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
5. **Importing fairseq sets up logging** (`logging_setup`). `models/wav2vec/wav2vec2_classification.py` and two of its
   tasks call `logging.basicConfig` at import, the first with level DEBUG: a program that had no set-up of its own then
   prints every library's debugging. We import fairseq where these calls change nothing.

fairseq's lack of a hook after each update, and of handlers for signals, is dealt with in `cluster/update_hook.py` and
`cluster/preemption.py`, while a job of `roberta launch` runs and at no other time.
"""

from . import logging_setup  # isort: skip  -- before anything else of fairseq is imported
from . import checkpoint_loading, checkpoint_writing, tpu_option


def install() -> None:
    """Apply the workarounds listed above; calling it again changes nothing."""
    for workaround in (logging_setup, checkpoint_loading, checkpoint_writing, tpu_option):
        workaround.install()
