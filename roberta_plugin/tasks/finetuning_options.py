"""Options of every fine-tuning task; an extension adds its own in a subclass."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

from dataclasses import dataclass

from fairseq.dataclass import FairseqDataclass
from omegaconf import II, MISSING

from roberta_plugin.models.adapters import TARGETS
from roberta_plugin.settings import setting


@dataclass
class FineTuningConfig(FairseqDataclass):
    """Options of a fine-tuning task."""

    data: str = setting(MISSING, "folder made by `roberta prepare`")
    max_positions: int = setting(512, "number of positions of the pretrained model", smallest=1)
    classification_head_name: str = setting("sentence_classification_head", "name of the new head in the checkpoint")
    pad_to_multiple: int = setting(
        1, "pad every batch to a multiple of this many tokens (8 suits tensor cores)", smallest=1
    )
    pack_sequences: bool = setting(
        False, "lay the sequences of a batch end to end instead of padding them; attention stays within a sequence"
    )
    freeze_layers: int = setting(0, "do not train the embeddings and this many of the lower layers", smallest=0)
    lora_rank: int = setting(
        0,
        "train low-rank adapters (LoRA) of this rank and the heads, instead of the encoder's weights; 8 is "
        "usual, with learning rates of 1e-4 to 1e-3. 0: no adapters",
        smallest=0,
    )
    lora_alpha: float = setting(8.0, "what the adapters add is multiplied by this, and divided by the rank", above=0)
    lora_targets: str = setting(
        "q_proj,v_proj", f"linear layers with adapters, separated by commas: {', '.join(TARGETS)}"
    )
    seed: int = II("common.seed")
    update_freq: list[int] = II("optimization.update_freq")
    ddp_backend: str = II("distributed_training.ddp_backend")
