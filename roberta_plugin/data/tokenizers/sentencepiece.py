"""SentencePiece as in XLM-R: raw text of any language, no rules for words (sentencepiece.bpe.model).

SentencePiece begins with <unk> <s> </s>, which are special symbols in fairseq. dict.txt lists the other pieces in the
order of their SentencePiece ids, so the model id of a piece is its SentencePiece id plus one.

Example: SentencePiece ids 0 <unk>, 1 <s>, 2 </s>, 3 "_the" -> model ids 0 <s>, 1 <pad>, 2 </s>, 3 <unk>, 4 "_the".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_plugin.data.tokenizers.base import LocatedTokens, check_known, join_ids
from roberta_plugin.files import atomic_write

FILES = ("sentencepiece.bpe.model",)
WORD_START = "\u2581"
CONTROLS = ("<unk>", "<s>", "</s>")  # ids 0, 1, 2 of the models that `training` makes and of XLM-R's


class SentencePiece:
    """SentencePiece with the model in `model`, the content of its file.

    Attributes:
        symbols: symbol in dict.txt of each id, the piece itself.
    """

    name = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        """Make a tokenizer."""
        self.model = model
        processor = self._processor
        self.symbols: list[str] = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
        if tuple(self.symbols[:3]) != CONTROLS:
            raise ValueError(f"A SentencePiece model must begin with {' '.join(CONTROLS)}, got {self.symbols[:3]}.")

    @cached_property
    def charsmap(self) -> bytes:
        """The table by which the text is normalized first; empty if it is not."""
        return bytes(self.proto().normalizer_spec.precompiled_charsmap)

    def proto(self) -> Any:
        """Its pieces and settings, as a message of protobuf."""
        return messages().ModelProto.FromString(self.model)

    @classmethod
    def load(cls, folder: Path) -> SentencePiece:
        """Read sentencepiece.bpe.model."""
        path = folder / FILES[0]
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, folder: Path) -> None:
        """Write sentencepiece.bpe.model."""
        with atomic_write(folder / FILES[0]) as file:
            file.write(self.model)

    def description(self) -> dict[str, Any]:
        """Kind, number of ids, and SHA-256 of the file."""
        digest = hashlib.sha256(self.model).hexdigest()
        return {"kind": self.name, "num_ids": len(self.symbols), "sha256": {FILES[0]: digest}}

    def encode(self, text: str) -> list[int]:
        """Ids of a text, which SentencePiece normalizes first."""
        return list(self._processor.encode(text, out_type=int))

    def encode_lines(self, lines: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids of all lines back to back, and the number of ids of each line."""
        return join_ids(self._processor.encode(list(lines), out_type=int, num_threads=1) if lines else [])

    def locate(self, text: str) -> LocatedTokens:
        """Ids of a text and their positions in the text before normalization.

        If a character becomes several ("\u00bd" is 1, \u2044, 2), SentencePiece gives its position to the last of
        them; here the others cover it too.
        """
        encoded = self._processor.encode(text, return_type="offset_mapping")
        ids = np.array(encoded["ids"], dtype=np.int32)
        starts, ends = np.array(encoded["offsets"], dtype=np.int32).reshape(-1, 2).T
        is_part = (starts == ends) & np.array([piece != WORD_START for piece in encoded["pieces"]], dtype=np.bool_)
        return LocatedTokens(ids, starts, np.where(is_part, np.minimum(starts + 1, len(text)), ends).astype(np.int32))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        check_known(ids, len(self.symbols))
        return str(self._processor.decode([int(index) for index in ids]))

    def word_starts(self) -> NDArray[np.bool_]:
        """True for ids that begin a word: their pieces begin with the mark for a space (number of ids,)."""
        starts = [symbol.startswith(WORD_START) or symbol in CONTROLS for symbol in self.symbols]
        return np.array(starts, dtype=np.bool_)

    def begins_word(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """True for tokens of a text (N,) that begin a word: their pieces begin with the mark (N,)."""
        begins: NDArray[np.bool_] = self._word_starts[ids]
        return begins

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePiece, (self.model,)

    @cached_property
    def _word_starts(self) -> NDArray[np.bool_]:
        return self.word_starts()

    @cached_property
    def _processor(self) -> Any:
        import sentencepiece

        try:
            processor = sentencepiece.SentencePieceProcessor()
            processor.load_from_serialized_proto(self.model)
        except RuntimeError as error:
            raise ValueError(f"not a SentencePiece model ({error}).") from error
        return processor


def messages() -> Any:
    """The module with the messages of protobuf that SentencePiece models are made of.

    Raises:
        ValueError: if the installed protobuf is older than the one that sentencepiece was built for.
    """
    try:
        from sentencepiece import sentencepiece_model_pb2
    except (
        Exception
    ) as error:  # protobuf's own, for its version; ImportError, for parts that an older version does not have
        reason = str(error).partition(" See ")[0]
        raise ValueError(
            f"The installed protobuf does not fit the installed sentencepiece ({reason}): pip install --upgrade "
            "protobuf (in a clone, with -c .constraints.txt)."
        ) from error
    return sentencepiece_model_pb2
