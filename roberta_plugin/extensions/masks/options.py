"""Options of the scores of texts."""

from __future__ import annotations

from dataclasses import dataclass

from roberta_plugin.finetuning.kinds import ScoreMethod
from roberta_plugin.settings import Checked, setting


@dataclass(frozen=True, kw_only=True)
class MaskPredictOptions(Checked):
    """Options of `roberta predict`."""

    score: ScoreMethod | None = setting(
        None,
        "score texts: pll (--score alone), the sum of the tokens' log-probabilities, each masked in turn; "
        "pll-word-l2r, with the later tokens of its word; unmasked, minus the mean cross-entropy",
        nargs="?",
        const="pll",
    )
    per_token: bool = setting(False, "score: with the tokens and their log-probabilities")
