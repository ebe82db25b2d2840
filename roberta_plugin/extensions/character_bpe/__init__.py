"""Character-level BPE on words, like BERT's vocabulary of 30K (paper, section 4.4).

tokenizer   text <-> ids
training    a sample of text -> a tokenizer
new_words   its merges, to which new words add some
"""

from roberta_plugin.registry import Extension, TokenizerEntry

EXTENSION = Extension(
    "character_bpe",
    __name__,
    position=150,
    moved={"data.tokenizers.character_bpe": ".tokenizer"},
    tokenizers={
        "character_bpe": TokenizerEntry(
            ".tokenizer:CharacterBpe",
            ("character_bpe.json",),
            "on words, as in BERT",
            ".training:train_character_bpe",
            fairseq_bpe="fastbpe",
            new_words=".new_words",
        )
    },
)
