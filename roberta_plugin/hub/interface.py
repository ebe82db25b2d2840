"""`RobertaHub`: a trained model in a few lines, with the calls of fairseq's RoBERTa hub interface.

    hub = RobertaHub.from_pretrained("runs/demo/checkpoints")
    hub.fill_mask("The method returns a <mask> of strings.")

A call takes ids as in fairseq: then gradients flow, and a model in training mode uses dropout. Or it takes a list of
texts: then they run in batches of similar length, in evaluation mode and without gradients, and the results are in the
order of the texts. Works with checkpoints of our models and of fairseq's `roberta`.

Shapes: N texts, B sequences, T tokens in a sequence, D model dimension, V vocabulary, C classes, L layers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, overload

import numpy as np
import torch
from fairseq.data import Dictionary
from numpy.typing import NDArray
from torch import Tensor

from roberta_plugin import register
from roberta_plugin.conversion.fairseq_format import read_files, training_facts
from roberta_plugin.conversion.model_files import check_bpe, format_of, training_data
from roberta_plugin.conversion.named_models import local_path
from roberta_plugin.conversion.pretrained import build, fairseq_dictionary, read_any
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import SPECIALS, Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import kind_of_task, white_space_of
from roberta_plugin.finetuning.benchmarks.base import SMALLEST_LENGTH
from roberta_plugin.finetuning.kinds import KINDS, ScoreMethod, kind_class
from roberta_plugin.finetuning.layouts.texts import TextLayout, inputs_of
from roberta_plugin.finetuning.layouts.words import word_spans
from roberta_plugin.finetuning.records import WhiteSpace, as_read
from roberta_plugin.hub import running, scoring
from roberta_plugin.hub.core import HubCore
from roberta_plugin.hub.graphs import GraphModel
from roberta_plugin.hub.scoring import Score
from roberta_plugin.hub.texts import AlignedWord, Text, align, features_of_words, texts_in
from roberta_plugin.machine import Precision
from roberta_plugin.models.checkpoints import ModelOnlyTask, build_model
from roberta_plugin.models.precision import check_precision, set_precision
from roberta_plugin.registry import FORMATS, HEADS

logger = logging.getLogger(__name__)
Path_ = str | os.PathLike[str]


class RobertaHub(HubCore):
    """A model with its tokenizer and vocabulary. It is a module, so `.to(device)`, `.half()` and `.eval()` work.

    Attributes:
        num_updates: updates that the checkpoint was trained for; 0 if it is not known.
    """

    num_updates = 0

    @classmethod
    def from_pretrained(
        cls,
        folder: Path_,
        checkpoint_file: str | None = None,
        data: Path_ | None = None,
        tokenizer: Path_ | None = None,
        *,
        data_name_or_path: Path_ | None = None,
        bpe: str | None = None,
        precision: Precision = "fp32",
        device: str | torch.device = "cpu",
    ) -> RobertaHub:
        """Load a checkpoint for use, in evaluation mode, with all of its heads.

        No code of the file runs: see `models/checkpoints.py`.

        Args:
            folder: the folder of the checkpoint, the output folder of `roberta finetune`, or the checkpoint itself; a
                folder of Hugging Face, an archive of fairseq (.tar.gz), or an export to ONNX, which only has its own
                head, on the CPU; or a model's name (`conversion/named_models.py`), such as "FacebookAI/roberta-base".
            checkpoint_file: name of the checkpoint in `folder`; by default the result of the run in it (`runs.py`), or
                the first of checkpoint_best.pt, checkpoint_last.pt and model.pt.
            data: folder with dict.txt, or with input0/dict.txt as in fairseq's sentence_prediction; by default the
                checkpoint's folder if it has one of them, else the folder that the checkpoint was trained on.
            tokenizer: folder with the tokenizer's files; by default the folder of dict.txt, or of the checkpoint. Or
                "whitespace": the symbols of dict.txt are the words of the text.
            data_name_or_path: fairseq's name of `data`; relative to `folder` if it begins with ".".
            bpe: fairseq's name of the kind of tokenizer, such as "gpt2"; only compared with the tokenizer in the files.
            precision: precision of the matrix products. With any but fp32, the model only computes outputs on this
                device, and no gradients (`models/precision.py`).
            device: where to compute.

        Raises:
            ValueError: if the checkpoint is damaged, its model is neither ours nor fairseq's roberta, or the device
                does not support the precision.
        """
        register()
        _check_paths(folder, checkpoint_file, data, tokenizer, data_name_or_path)
        path = local_path(Path(folder))
        form = format_of(path) if checkpoint_file is None else None
        if form is not None and form in FORMATS and FORMATS[form].opener:
            if data is not None or tokenizer is not None or data_name_or_path is not None:
                raise ValueError(f"{path} has its own vocabulary and tokenizer: leave --data and --tokenizer out.")
            graph = FORMATS.load(form, "opener")(path, precision=precision)
            return cls(
                graph.model, tokenizer=graph.tokenizer, vocabulary=graph.vocabulary, trained_on=graph.trained_on
            ).eval()
        device = running.usable_device(device)
        check_precision(precision, torch.device(device))
        if data_name_or_path is not None:
            data = _by_fairseqs_name(data_name_or_path, path, data)
        if form in ("fairseq", "huggingface"):
            opened: Any = read_any(
                path,
                data=None if data is None else Path(data),
                tokenizer=None if tokenizer is None else Path(tokenizer),
            )
            for note in opened.notes:
                logger.warning(note)
            model, trained_on, num_updates = build(opened), identity.read_record(opened.state), 0
        else:
            opened = read_files(path, name=checkpoint_file, data=data, tokenizer=tokenizer)
            model = build_model(opened.state, opened.path, dictionary=fairseq_dictionary(opened.vocabulary))
            trained_on = training_data(opened.state, opened.dictionary)
            num_updates = training_facts(opened.state).get("updates", 0)
        check_bpe(bpe, opened.tokenizer)
        set_precision(model.to(device), precision, torch.device(device))
        hub = cls(model, tokenizer=opened.tokenizer, vocabulary=opened.vocabulary, trained_on=trained_on).eval()
        hub.num_updates = num_updates
        return hub

    @cached_property
    def bpe(self) -> Bpe:
        """The tokenizer with the calls of fairseq's BPE."""
        return Bpe(self.tokenizer)

    @cached_property
    def task(self) -> HubTask:
        """source_dictionary, mask_idx and label_dictionary, as in a fairseq task."""
        return HubTask(self.vocabulary, self.max_positions, self.labels)

    @overload
    def encode(  # type: ignore[overload-overlap]  # a text is a sequence of texts, to Python
        self, sentence: str, *more_sentences: str, no_separator: bool = False
    ) -> Tensor: ...
    @overload
    def encode(self, sentence: Sequence[Text], *, no_separator: bool = False) -> list[Tensor]: ...
    def encode(
        self, sentence: str | Sequence[Text], *more_sentences: str, no_separator: bool = False
    ) -> Tensor | list[Tensor]:
        """Text -> (T,) int64 ids: `<s> a </s>`, or `<s> a </s> </s> b </s>` for a pair (one </s> with `no_separator`).

        A list of texts and pairs becomes a list of ids. `<mask>` in the text becomes the mask token. The space before
        it belongs to the token that is to be found.
        """
        if more_sentences and not isinstance(sentence, str):
            raise ValueError(
                f"Give texts one by one, or one list of texts and pairs; got both: {more_sentences!r:.80}."
            )
        texts = texts_in([(sentence, *more_sentences)] if isinstance(sentence, str) else sentence)
        ids = [torch.from_numpy(each) for each in self.codec.sequences(texts, no_separator=no_separator)]
        return ids[0] if isinstance(sentence, str) else ids

    def decode(self, tokens: Tensor | Sequence[int]) -> str | list[str]:
        """(T,) ids -> text; a list of texts if the sequence holds several sentences separated by `</s> </s>`."""
        texts = self.codec.decode(self._check_ids(tokens, dims=(1,)).tolist())
        return texts[0] if len(texts) == 1 else texts

    @overload
    def extract_features(
        self, tokens: Tensor, return_all_hiddens: bool = False, *, max_tokens: int | None = None
    ) -> Any: ...
    @overload
    def extract_features(
        self, tokens: Sequence[Text], return_all_hiddens: bool = False, *, max_tokens: int | None = None
    ) -> list[Any]: ...
    def extract_features(
        self, tokens: Tensor | Sequence[Text], return_all_hiddens: bool = False, *, max_tokens: int | None = None
    ) -> Any:
        """(T,) or (B, T) ids -> (B, T, D) features of the last layer; a list of texts -> a list of (T, D).

        With `return_all_hiddens`, a list of L + 1 such tensors: the embeddings, then each layer's output.

        Args:
            tokens: ids, or texts.
            return_all_hiddens: True to return all layers.
            max_tokens: most positions of a batch of texts, padding included; None: a number that suits the device.

        Raises:
            ValueError: if a text has too many tokens for the model.
        """
        if isinstance(tokens, Tensor):
            batch = self.as_batch(tokens)
            read = running.hidden_states if return_all_hiddens else running.features
            return read(self.model, batch)
        return self.features(self.sequences(tokens), all_layers=return_all_hiddens, max_tokens=max_tokens)

    def extract_features_aligned_to_words(
        self,
        sentence: str,
        return_all_hiddens: bool = False,
        *,
        words: Sequence[str] | None = None,
        tokenizer: Callable[[str], Iterable[Any]] | None = None,
    ) -> list[AlignedWord]:
        """One vector each for <s>, every word and </s>: the sum of its tokens' features, as in fairseq.

        Args:
            sentence: a text.
            return_all_hiddens: True for vectors of all layers (L + 1, D), False for the last one (D,).
            words: the words of the sentence, in order; None: `tokenizer` finds them.
            tokenizer: text -> words, or objects whose `str` is the word, such as spaCy's; None: words and punctuation
                marks (`split_words`), and `<mask>` as one word.

        Raises:
            ValueError: if the words are not the words of the sentence, or it is too long for the model.
        """
        (sentence,) = texts_in([sentence], most=1)
        if tokenizer is not None and not callable(tokenizer):
            raise ValueError(f"tokenizer must be a function from a text to its words, got {tokenizer!r:.80}.")
        if words is None:
            words = [str(word) for word in (tokenizer or self.codec.words)(sentence)]
        words = texts_in(words, most=1, what="word")
        spans = word_spans(sentence, words)
        alignment = align(sentence, self.codec.locate(sentence), spans)
        states = self.extract_features(self.encode(sentence), return_all_hiddens=return_all_hiddens)
        layers = [states] if isinstance(states, Tensor) else states
        vectors = torch.stack([features_of_words(layer[0], alignment) for layer in layers], dim=1)
        names, places = ["<s>", *words, "</s>"], [(-1, -1), *spans, (-1, -1)]
        return [
            AlignedWord(name, vector if return_all_hiddens else vector[0], *place)
            for name, vector, place in zip(names, vectors, places, strict=True)  # (W + 2, layers, D)
        ]

    @overload
    def fill_mask(self, text: str, topk: int = 5, *, max_tokens: int | None = None) -> Any: ...
    @overload
    def fill_mask(self, text: Sequence[str], topk: int = 5, *, max_tokens: int | None = None) -> list[Any]: ...
    def fill_mask(self, text: str | Sequence[str], topk: int = 5, *, max_tokens: int | None = None) -> Any:
        """The `topk` most probable tokens for each `<mask>` of the text, most probable first.

        The result for one mask is a list of `Filling`; for several masks, a list of such lists, one per mask. Each
        answer fills its own mask and leaves the other masks in the text. Its probability does not depend on the other
        answers. A list of texts gives a list with the result of each text.

        Raises:
            ValueError: if a text has no mask, or too many tokens for the model.
        """
        texts = texts_in([text] if isinstance(text, str) else text, most=1)
        for each in texts:
            if not self.codec.has_mask(each):
                raise ValueError(f"fill_mask needs at least one {self.codec.mask_names} in the text, got {each!r}.")
        if not isinstance(topk, int | np.integer) or topk < 1:
            raise ValueError(f"topk must be 1 or more, got {topk}.")
        best_of_texts = self.fill_sequences(self.sequences(texts), topk=topk, max_tokens=max_tokens)
        answers = []
        for each, masks in zip(texts, best_of_texts, strict=True):
            fillings = [
                [self.codec.fill(each, which, token, probability) for probability, token in best]
                for which, best in enumerate(masks)
            ]
            answers.append(fillings[0] if len(fillings) == 1 else fillings)
        return answers[0] if isinstance(text, str) else answers

    @overload
    def score(  # type: ignore[overload-overlap]  # a text is a sequence of texts, to Python
        self, text: str, method: ScoreMethod = "pll", *, max_tokens: int | None = None
    ) -> Score: ...
    @overload
    def score(
        self, text: Sequence[str], method: ScoreMethod = "pll", *, max_tokens: int | None = None
    ) -> list[Score]: ...
    def score(
        self, text: str | Sequence[str], method: ScoreMethod = "pll", *, max_tokens: int | None = None
    ) -> Score | list[Score]:
        """The acceptability of a text to the model: its `score` in nats, where higher is better, and the tokens' parts.

        Args:
            text: one text, or a list, which becomes a list of scores.
            method: "pll", the sum over tokens that are masked in turn; "pll-word-l2r", which also masks the later
                tokens of the word; "unmasked", minus the mean cross-entropy of the text as it is, with <s> and </s>.
                See `hub/scoring.py`.
            max_tokens: most positions of a batch, padding included; None: a number that suits the device.

        Raises:
            ValueError: if there is no such method, the model has no LM head, or a text is empty, holds a `<mask>` or
                has too many tokens for the model.
        """
        if method not in get_args(ScoreMethod):
            raise ValueError(f"method must be {' or '.join(get_args(ScoreMethod))}, got {method!r}.")
        texts = texts_in([text] if isinstance(text, str) else text, most=1)
        texts = [as_read(each, "stripped") for each in texts]
        scores = self.score_sequences(self.sequences(texts), method, max_tokens=max_tokens)
        return scores[0] if isinstance(text, str) else scores

    def score_sequences(
        self, sequences: Sequence[NDArray[Any]], method: ScoreMethod = "pll", *, max_tokens: int | None = None
    ) -> list[Score]:
        """The acceptability of each sequence `<s> a </s>` (T,) to the model; see `hub/scoring.py`."""
        return scoring.score_sequences(self, sequences, method, max_tokens=max_tokens)

    def predict(
        self,
        head: str,
        tokens: Tensor | Sequence[Text],
        return_logits: bool = False,
        *,
        max_length: int | None = None,
        max_tokens: int | None = None,
    ) -> Any:
        """Ids (T,), (B, T), or a list of texts and pairs -> the predictions of a head.

        A classification head gives log-probabilities (B, C) of its classes, or its logits. For a regression, and for
        the options of a multiple choice, ask for the logits. The head reads texts as in training and by `roberta
        predict`: without white space at the ends, and with `<mask>` as any other text. In multiple choice, any white
        space inside is one space. Texts with more tokens than in training (or `max_length`) are cut, with a warning, or
        read as by --long-texts of the training. The other heads read texts as `encode` does. A token head gives
        log-probabilities or logits of each token (B, T, C), and a span head gives `SpanLogits`. A list of texts gives a
        list with the result of each text.

        Raises:
            ValueError: if there is no such head, a text has too many tokens for one of the other heads, or ids have
                padding on the left.
        """
        if not isinstance(head, str) or head not in self.head_kinds:
            raise ValueError(f"The model has no head {head!r}; it has {', '.join(self.heads) or 'none'}.")
        kind = self.head_kinds[head]
        if HEADS[kind].predict:
            predict = HEADS.load(kind, "predict")
            options = {"return_logits": return_logits, "max_length": max_length, "max_tokens": max_tokens}
            return predict(self, head, tokens, **options)
        if isinstance(tokens, Tensor):
            self.check_no_length(max_length)
            output = self.outputs_of_ids(tokens, head)
        else:
            settings = self.trained_on.get("settings") or {}
            layout = TextLayout.from_settings(settings, max_length=self.length_of_texts(max_length))
            read = self.as_trained(tokens, self._white_space, layout)
            output = self.text_logits(read, head, pooling=layout.window_pooling, max_tokens=max_tokens)
        return output if return_logits else output.float().log_softmax(dim=-1)

    @staticmethod
    def check_no_length(max_length: int | None) -> None:
        """Refuse `max_length` for ids, and for heads that read texts as `encode` does."""
        if max_length is not None:
            raise ValueError("max_length is for texts that a classification head reads: leave it out.")

    def register_classification_head(
        self, name: str, num_classes: int | None = None, embedding_size: int | None = None, **options: Any
    ) -> None:
        """Add a head with newly initialized weights, on the model's device and in its type.

        `embedding_size` is not used.

        Raises:
            ValueError: if torch does not allow a module of this name, there is no number of classes, or the model is a
                graph.
        """
        if not isinstance(num_classes, int | np.integer) or num_classes < 1:
            raise ValueError(f"num_classes must be a whole number above 0, got {num_classes!r:.80}.")
        if isinstance(self.model, GraphModel):
            raise ValueError(f"This is {self.model.what}, to which no head can be added: open its checkpoint.")
        try:
            self.model.register_classification_head(name, num_classes=num_classes, **options)  # type: ignore[operator]
        except (TypeError, KeyError) as error:
            raise ValueError(f"A head cannot be called {name!r:.80} ({error}): give another name.") from error
        weight = next(self.model.parameters())
        self.model.classification_heads[name].to(weight.device, weight.dtype)  # type: ignore[index, union-attr]

    def length_of_texts(self, wanted: int | None) -> int:
        """The most tokens of a text that are read: as many as in training, unless another number is wanted."""
        if wanted is None:
            return self.trained_length
        if not isinstance(wanted, int | np.integer) or not SMALLEST_LENGTH <= wanted <= self.longest:
            raise ValueError(
                f"max_length must be a whole number from {SMALLEST_LENGTH} to the {self.max_positions} positions of "
                f"the model, got {wanted!r:.80}."
            )
        return int(wanted)

    @property
    def _white_space(self) -> WhiteSpace:
        """How the classification head reads white space."""
        task = str(self.trained_on.get("task"))
        name = kind_of_task(task) or (self.trained_on.get("settings") or {}).get("kind")
        return white_space_of(kind_class(str(name)), task) if name in KINDS else "stripped"

    def as_trained(
        self, texts: Sequence[Text], white_space: WhiteSpace, layout: TextLayout
    ) -> list[list[NDArray[np.int32]]]:
        """The inputs (T,) of each text or pair, as training and `roberta predict` make them."""
        sides = [
            tuple(as_read(side, white_space) for side in ((text,) if isinstance(text, str) else text))
            for text in texts_in(texts, most=2)
        ]
        inputs = inputs_of(sides, self.codec.encoder, layout)
        if num_cut := sum(each.is_cut for each in inputs):
            logger.warning(f"{num_cut:,} of {len(inputs):,} texts were cut to {layout.max_length} tokens.")
        return [each.sequences for each in inputs]

    def sequences(self, texts: Sequence[Text]) -> list[NDArray[np.int64]]:
        """The ids (T,) of texts and pairs, as `encode` makes them."""
        return self.codec.sequences(texts_in(texts))


def from_pretrained(
    model_name_or_path: Path_,
    checkpoint_file: str | None = None,
    data_name_or_path: Path_ | None = None,
    tokenizer: Path_ | None = None,
    bpe: str | None = None,
    **others: Any,
) -> RobertaHub:
    """`RobertaHub.from_pretrained`, called as fairseq's `RobertaModel.from_pretrained`.

    Raises:
        TypeError: for other options of fairseq's tokenizers.
    """
    if others:
        raise TypeError(
            f"FastRobertaModel.from_pretrained does not take {', '.join(others)}: it reads the tokenizer from the "
            "files in data_name_or_path."
        )
    return RobertaHub.from_pretrained(
        model_name_or_path, checkpoint_file, None, tokenizer, data_name_or_path=data_name_or_path, bpe=bpe
    )


class Bpe:
    """The tokenizer as fairseq's BPE: text -> symbols of dict.txt with spaces between them, and back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = {symbol: number for number, symbol in enumerate(tokenizer.symbols)}

    def encode(self, text: str) -> str:
        """Text -> symbols. Example with GPT-2's BPE: "Hello world" -> "15496 995"."""
        (text,) = texts_in([text], most=1)
        return " ".join(self._tokenizer.symbols[token] for token in self._tokenizer.encode(text))

    def decode(self, symbols: str) -> str:
        """Symbols with spaces between them -> text; special symbols stay as they are written."""
        text, span = "", []
        (symbols,) = texts_in([symbols], most=1)
        for symbol in [*symbols.split(), None]:
            if symbol in self._ids:
                span.append(self._ids[symbol])
                continue
            text += self._tokenizer.decode(span) + (symbol or "")
            span = []
        return text


class HubTask(ModelOnlyTask):
    """The attributes of a fairseq task that need no training data."""

    def __init__(self, vocabulary: Vocabulary, max_positions: int, labels: Sequence[str]) -> None:
        super().__init__(fairseq_dictionary(vocabulary), max_positions)
        self.mask_idx = vocabulary.mask_id
        self._labels = labels

    @property
    def label_dictionary(self) -> Any:
        """Names of the labels: label number i is symbol number i + nspecial.

        Raises:
            AttributeError: if the checkpoint does not have them.
        """
        if not self._labels:
            raise AttributeError("The checkpoint has no names of labels: see the folder that it was trained on.")
        dictionary = Dictionary()
        assert dictionary.nspecial == len(SPECIALS)
        for label in self._labels:
            dictionary.add_symbol(str(label))
        return dictionary


def _check_paths(folder: Path_, *others: Path_ | None) -> None:
    for given in (folder, *(each for each in others if each is not None)):
        if not isinstance(given, str | os.PathLike):
            raise ValueError(f"A file or folder is named by a str or a path, got {given!r:.80}.")


def _by_fairseqs_name(name: Path_, folder: Path, data: Path_ | None) -> Path_:
    """The folder with dict.txt that `data_name_or_path` names."""
    if data is not None:
        raise ValueError("data and data_name_or_path are two names of the same argument: give one.")
    return folder / name if str(name).startswith(".") else name
