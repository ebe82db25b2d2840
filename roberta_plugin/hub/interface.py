"""A trained model in a few lines: text in; token ids, features or filled masks out.

    hub = RobertaHub.from_pretrained("runs/demo/checkpoints")
    hub.fill_mask("The method returns a <mask> of strings.")

The calls follow fairseq's own RoBERTa hub interface; `fill_mask` also takes several masks. Works with checkpoints of
our models and of fairseq's `roberta`.

Shapes: B sequences, T tokens in a sequence, D model dimension, V vocabulary, C classes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from roberta_plugin import register
from roberta_plugin.conversion.run_folders import find_checkpoint, find_dictionary, find_tokenizer
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.hub.fill_mask import MASK, Filling
from roberta_plugin.models.checkpoints.building import build_model
from roberta_plugin.models.checkpoints.loading import load_state


class RobertaHub(nn.Module):
    """A model with its tokenizer and vocabulary; a module, so `.to(device)`, `.half()` and `.eval()` work."""

    def __init__(self, model: nn.Module, *, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self._to_model_id = np.asarray(vocabulary.tokenizer_to_model(tokenizer), dtype=np.int64)
        self._never_filled = torch.from_numpy(vocabulary.never_masked())  # special tokens are not answers
        self._to_tokenizer_id = np.asarray(vocabulary.model_to_tokenizer(tokenizer), dtype=np.int64)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        checkpoint_file: str | None = None,
        data: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
    ) -> RobertaHub:
        """Load a checkpoint for use, in evaluation mode, on the CPU, with all of its classification heads.

        No code of the file runs: see `models/checkpoints/building.py`.

        Args:
            folder: the folder of the checkpoint.
            checkpoint_file: its name; by default the first of checkpoint_best.pt, checkpoint_last.pt and model.pt.
            data: folder with dict.txt, or with input0/dict.txt as in fairseq's sentence_prediction; by default `folder`
                itself if it has one, else the folder that the checkpoint was trained on.
            tokenizer: folder with the tokenizer's files; by default that of dict.txt, or `folder`.

        Raises:
            FileNotFoundError: if the checkpoint, dict.txt or the tokenizer's files are not there.
            ValueError: if the checkpoint is damaged, or its model is not one of ours or of fairseq's roberta.
        """
        register()
        path = find_checkpoint(Path(folder), checkpoint_file)
        state = load_state(path)
        dictionary_path = find_dictionary(path, state, data)
        vocabulary = Vocabulary.load(dictionary_path)
        dictionary = Dictionary.load(str(dictionary_path))
        dictionary.add_symbol(MASK)
        model = build_model(state, path, dictionary=dictionary)
        return cls(model, tokenizer=find_tokenizer(path, dictionary_path, tokenizer), vocabulary=vocabulary).eval()

    @property
    def device(self) -> torch.device:
        """The device of the parameters and of results."""
        return next(self.model.parameters()).device

    @property
    def max_positions(self) -> int:
        """The most tokens in a sequence, <s> and </s> included."""
        return int(self.model.max_positions())  # type: ignore[operator]

    def encode(self, sentence: str, *more_sentences: str, no_separator: bool = False) -> Tensor:
        """Text -> (T,) int64 ids: `<s> a </s>`, or `<s> a </s> </s> b </s>` for a pair (one </s> with `no_separator`).

        `<mask>` in the text becomes the mask token; the space before it belongs to the token to be found.
        """
        ids = [self.vocabulary.bos_id, *self._encode_with_masks(sentence), self.vocabulary.eos_id]
        for other in more_sentences:
            ids += [] if no_separator else [self.vocabulary.eos_id]
            ids += [*self._encode_with_masks(other), self.vocabulary.eos_id]
        return torch.tensor(ids, dtype=torch.int64)

    def decode(self, tokens: Tensor | Sequence[int]) -> str | list[str]:
        """(T,) ids -> text; a list of texts where the sequence holds several sentences separated by `</s> </s>`."""
        ids = tokens.tolist() if isinstance(tokens, Tensor) else list(tokens)
        if ids and ids[0] == self.vocabulary.bos_id:
            ids = ids[1:]
        eos_id = self.vocabulary.eos_id
        sentences: list[list[int]] = [[]]
        for position, token in enumerate(ids):
            if token == eos_id and position and ids[position - 1] == eos_id:
                sentences.append([])
            elif token not in (eos_id, self.vocabulary.pad_id):
                sentences[-1].append(token)
        texts = [self._decode_with_masks(sentence) for sentence in sentences]
        return texts[0] if len(texts) == 1 else texts

    @torch.no_grad()
    def extract_features(self, tokens: Tensor, return_all_hiddens: bool = False) -> Tensor | list[Tensor]:
        """(T,) or (B, T) ids -> (B, T, D) features of the last layer.

        With `return_all_hiddens`, a list of (B, T, D): the embeddings, then each layer's output.
        """
        tokens = self._as_batch(tokens)
        features, extra = self.model(tokens, features_only=True, return_all_hiddens=return_all_hiddens)
        if not return_all_hiddens:
            return features  # type: ignore[no-any-return]
        return [hidden.transpose(0, 1) for hidden in extra["inner_states"]]  # (T, B, D) -> (B, T, D)

    @torch.no_grad()
    def fill_mask(self, text: str, topk: int = 5) -> list[Filling] | list[list[Filling]]:
        """The `topk` most probable tokens for each `<mask>` of the text, most probable first.

        One mask: a list of fillings. Several: a list of such lists, one per mask. Each answer fills its own mask and
        leaves the other masks in the text; its probability does not depend on the other answers.

        Raises:
            ValueError: if the text has no mask, or too many tokens for the model.
        """
        num_masks = text.count(MASK)
        if num_masks == 0:
            raise ValueError(f"fill_mask needs at least one {MASK} in the text, got {text!r}.")
        if topk < 1:
            raise ValueError(f"topk must be 1 or more, got {topk}.")
        tokens = self._as_batch(self.encode(text))
        is_mask = tokens.eq(self.vocabulary.mask_id)  # (1, T)
        logits = self.model(tokens, masked_tokens=is_mask)[0]  # (masks, V)
        probabilities = logits.float().softmax(dim=-1).masked_fill(self._never_filled.to(logits.device), 0.0)
        probabilities, ids = probabilities.topk(min(topk, logits.size(-1)), dim=-1)
        fillings = [
            [
                self._fill(text, which, int(token), float(probability))
                for token, probability in zip(ids[which], probabilities[which], strict=True)
            ]
            for which in range(num_masks)
        ]
        return fillings[0] if num_masks == 1 else fillings

    @torch.no_grad()
    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """(T,) or (B, T) ids -> (B, C) log-probabilities of the classification head named `head`, or its logits."""
        logits, _ = self.model(self._as_batch(tokens), features_only=True, classification_head_name=head)
        result: Tensor = logits if return_logits else logits.float().log_softmax(dim=-1)
        return result

    def _encode_with_masks(self, text: str) -> list[int]:
        spans = text.split(MASK)
        ids: list[int] = []
        for number, span in enumerate(spans):
            if number:
                ids.append(self.vocabulary.mask_id)
            is_before_mask = number < len(spans) - 1
            ids += self._to_model_id[self.tokenizer.encode(span.rstrip() if is_before_mask else span)].tolist()
        return ids

    def _decode_with_masks(self, ids: Sequence[int]) -> str:
        texts: list[str] = []
        span: list[int] = []
        for token in [*ids, None]:
            if token is None or token == self.vocabulary.mask_id:
                texts.append(self._decode_tokens(span))
                span = []
            else:
                span.append(token)
        return f" {MASK}".join(texts)

    def _decode_tokens(self, ids: Sequence[int]) -> str:
        tokenizer_ids = self._to_tokenizer_id[np.asarray(ids, dtype=np.int64)]
        return self.tokenizer.decode([int(token) for token in tokenizer_ids if token >= 0])

    def _fill(self, text: str, which: int, token: int, probability: float) -> Filling:
        spans = text.split(MASK)
        answer = self._decode_tokens([token])
        before, after = MASK.join(spans[: which + 1]), MASK.join(spans[which + 1 :])
        # The model did not see the space before the mask: it is part of the answer, or there is none.
        return Filling(text=before.rstrip() + answer + after, probability=probability, token=answer)

    def _as_batch(self, tokens: Tensor) -> Tensor:
        tokens = tokens.unsqueeze(0) if tokens.dim() == 1 else tokens  # (T,) -> (1, T)
        if tokens.size(-1) > self.max_positions:
            raise ValueError(
                f"The text has {tokens.size(-1)} tokens, and this model reads at most {self.max_positions}: shorten it."
            )
        return tokens.to(self.device)
