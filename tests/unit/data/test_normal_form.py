"""Texts in another normal form than the model's are named once."""

import logging
import unicodedata

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.layouts.texts import Encoder

TEXT = "Ààrẹ àgbà Nàìjíríà"


class Words:
    """A tokenizer that knows the words of a text in one form, and splits all others into characters."""

    def __init__(self, form):
        self.known = set(unicodedata.normalize(form, TEXT).split())
        self.symbols = ["a"]

    def encode(self, text):
        return [0 for word in text.split() for _ in ([word] if word in self.known else word)]

    def encode_lines(self, lines):
        import numpy as np

        ids = [self.encode(line) for line in lines]
        return np.concatenate(ids).astype(np.int32), np.array([len(each) for each in ids], dtype=np.int32)


def warnings_of(form_of_model, texts, caplog):
    caplog.clear()
    encoder = Encoder(Words(form_of_model), Vocabulary.from_symbols(["a"]))
    with caplog.at_level(logging.WARNING):
        encoder.ids_of_all(texts)
        for text in texts:
            encoder.ids(text)
    return caplog.messages


def test_a_text_in_the_other_form_is_named_once_with_the_remedy(caplog):
    forms = {form: unicodedata.normalize(form, TEXT) for form in ("NFC", "NFD")}
    for model, other in (("NFC", "NFD"), ("NFD", "NFC")):
        (warning,) = warnings_of(model, ["plain", forms[other], forms[other]], caplog)
        assert f"and 3 in {model}" in warning and f"unicodedata.normalize('{model}', text)" in warning
        assert not warnings_of(model, ["plain", forms[model], "two words"], caplog)
