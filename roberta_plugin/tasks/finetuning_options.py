"""Options that all fine-tuning tasks share."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from omegaconf import II, MISSING


@dataclass
class FineTuningConfig(FairseqDataclass):
    """Options of a fine-tuning task."""

    data: str = field(default=MISSING, metadata={"help": "folder made by `roberta prepare`"})
    max_positions: int = field(default=512, metadata={"help": "number of positions of the pretrained model"})
    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "name of the new head in the checkpoint"}
    )
    pad_to_multiple: int = field(
        default=1, metadata={"help": "pad every batch to a multiple of this many tokens (8 suits tensor cores)"}
    )
    pack_sequences: bool = field(
        default=False,
        metadata={
            "help": "lay the sequences of a batch end to end instead of padding them; attention stays within a sequence"
        },
    )
    seed: int = II("common.seed")
    update_freq: list[int] = II("optimization.update_freq")
    ddp_backend: str = II("distributed_training.ddp_backend")
