"""Binarize with Hugging Face's tokenizers and numpy, as one would without fairseq: the third side of `bench_binarize`.

    python -m tests.benchmarks.hugging_face_binarize TEXT BPE_FOLDER BIN

BPE_FOLDER has GPT-2's encoder.json and vocab.bpe and fairseq's dict.txt. BIN comes out as fairseq's train.bin: the model
ids of each line and </s>, 16 bits each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

LINES = 10_000  # of a batch, which tokenizers shares out among its threads
EOS_ID, UNKNOWN_ID, NUM_SPECIALS = 2, 3, 4


def main() -> None:
    """Read, encode, map and write."""
    text, folder, target = map(Path, sys.argv[1:])
    vocabulary = json.loads((folder / "encoder.json").read_text())
    merges = [tuple(line.split()) for line in (folder / "vocab.bpe").read_text().splitlines()[1:]]
    tokenizer = Tokenizer(BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    model_ids = np.full(len(vocabulary), UNKNOWN_ID, dtype=np.uint16)
    for number, line in enumerate((folder / "dict.txt").read_text().splitlines()):
        symbol = line.split()[0]
        if symbol.isdigit():
            model_ids[int(symbol)] = number + NUM_SPECIALS
    lines = text.read_text().split("\n")[:-1]
    with target.open("wb") as file:
        for start in range(0, len(lines), LINES):
            for encoding in tokenizer.encode_batch_fast(lines[start : start + LINES]):
                file.write(np.append(model_ids[encoding.ids], np.uint16(EOS_ID)).tobytes())


if __name__ == "__main__":
    main()
