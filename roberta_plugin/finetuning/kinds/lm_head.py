"""The masked-LM head of a pretrained model, as its exports have it; the kinds that answer by it are in an extension."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from roberta_plugin.finetuning.kinds.base import HuggingFace, Kind
from roberta_plugin.finetuning.kinds.usage import Exported, pipeline_block
from roberta_plugin.finetuning.records import WhiteSpace, text_of
from roberta_plugin.tables import Row, short


class MaskedLmHead(Kind):
    """The masked-LM head at the masks of a text."""

    name = "masked_lm"
    description = "fills `<mask>` in a text"
    head = "masked_lm"
    default_head_name = "masked_lm"
    task = "roberta_masked_lm"
    white_space: ClassVar[WhiteSpace] = "kept"
    hugging_face: ClassVar[HuggingFace | None] = HuggingFace(
        suffix="ForMaskedLM",
        names={"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm", "": "lm_head.decoder"},
        pipeline="fill-mask",
        has_pooler=False,
        num_outputs=0,
    )

    @override
    def usage(self, model: Exported) -> str:
        text = f'"A text with {model.mask}.", tokenizer_kwargs={{"truncation": True}}'
        return pipeline_block('"fill-mask", "FOLDER"', f"print(pipe({text}))")

    @override
    def read_question(self, row: Row) -> str:
        text = text_of(row, self.names_of(0), option="--text-column", white_space=self.white_space)
        if not self.hub.codec.has_mask(text):
            raise ValueError(
                f"{row.where}: the text {short(text)} has no {self.hub.codec.mask_names}. Put one where a token is to "
                "be found."
            )
        return text
