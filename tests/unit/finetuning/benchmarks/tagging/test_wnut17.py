"""The official files of WNUT-17, which have invisible characters and end sentences with a tab: nothing is lost."""

import numpy as np

from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning.benchmarks import benchmark_of
from roberta_plugin.finetuning.benchmarks.tagging import shown
from roberta_plugin.finetuning.kinds.entities import entities_of
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.options import TaggingOptions
from roberta_plugin.finetuning.prepared import Prepared
from tests.real_data import unpack


def official(path):
    """Words and tags of each sentence, read line by line."""
    sentences = [[]]
    for line in path.read_bytes().decode().split("\n"):
        if line.strip():
            sentences[-1].append(tuple(line.split("\t")))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def test_all_entities_survive_words_tokens_and_windows(shared_data, tmp_path):
    raw = unpack(shared_data, "ner", tmp_path) / "ner" / "wnut17"
    bpe = shared_data / "gpt2_bpe"
    tools = {"tokenizer": load_tokenizer(bpe), "vocabulary": Vocabulary.load(bpe / "dict.txt"), "max_length": 48}
    options = TaggingOptions(doc_stride=16, strict=True)
    benchmark_of("wnut17").prepare(raw, tmp_path / "prepared", **tools, options=options)
    prepared = Prepared.open(tmp_path / "prepared")
    assert prepared.splits == ("train", "valid")
    for name, file, num_entities in (("train", "wnut17train.conll", 1975), ("valid", "emerging.dev.conll", 836)):
        split = prepared.split(name)
        sentences = official(raw / file)
        assert len(split) > len(sentences), "no sentence was cut"
        labels = np.asarray(split.array("token_labels"))
        certain = np.where(labels[:, None] == np.arange(13), 9.0, 0.0).astype(np.float32)
        outputs = RawOutputs(token_logits=np.split(certain, np.cumsum(split.sequences.sizes)[:-1]))
        found = benchmark_of("wnut17").score(prepared, name, [outputs], folder=tmp_path, options=TaggingOptions())
        assert (found["f1"], found["accuracy"]) == (100.0, 100.0)
        blocks = (tmp_path / f"{name}.predictions.conll").read_text().split("\n\n")[:-1]
        assert len(blocks) == len(sentences)
        count = 0
        for block, sentence in zip(blocks, sentences, strict=True):
            rows = [line.split(" ") for line in block.split("\n")]
            assert [row[0] for row in rows] == [shown(word) for word, _ in sentence]
            right = entities_of([tag for _, tag in sentence])
            assert entities_of([row[2] for row in rows]) == right
            count += len(right)
        assert count == num_entities
