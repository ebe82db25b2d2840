"""Options of `--masking rare`."""

from dataclasses import dataclass

from roberta_plugin.settings import setting


@dataclass
class RareMaskingOptions:
    """They become options of the pretraining task."""

    rare_power: float = setting(
        0.5, "a token that occurs c times is chosen in proportion to c to minus this power; 0: all alike", smallest=0
    )
    first_mask_prob: float = setting(
        0.3, "share of the tokens to predict at first; it falls to --mask-prob", above=0, below=1
    )
    mask_prob_updates: int = setting(100_000, "updates in which the share falls to --mask-prob", smallest=1)
