"""Vectors of texts for sentence-transformers: `roberta export --to sentence-transformers`, and reading such folders.

model     a model -> a folder; comparison of imported models with that program
reading   the files of a folder -> pooling, length of vectors and of texts

The examples are in README.md.
"""

from roberta_plugin.registry import Extension, FormatEntry

EXTENSION = Extension(
    "sentence_transformers",
    __name__,
    position=130,
    formats={
        "sentence-transformers": FormatEntry(
            ".model:SentenceTransformersFormat",
            marks=("modules.json",),
            is_hugging_face=True,
            files=(
                *("modules.json", "*_Pooling/config.json", "sentence_*_config.json"),
                "config_sentence_transformers.json",
            ),
            named_files=".reading:named_files",
        )
    },
)
