"""The user's request to `roberta pretrain`, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roberta_plugin.data.mixture import data_folders
from roberta_plugin.data.text_inputs_files import ENDINGS
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import check_texts
from roberta_plugin.settings import check_roads

if TYPE_CHECKING:
    from roberta_plugin.pretraining.start import Start  # imports torch, which plans and help do without


@dataclass(frozen=True)
class Request:
    """The options of a pretraining, and what follows from them."""

    settings: PretrainSettings
    data: str  # the data-bin, which may not be made yet
    further: Sequence[str] = ()  # options of fairseq-train
    start: Start | None = None  # the model that it goes on from
    torchrun: int = 0  # number of ranks that torchrun has started
    takes_words: bool = False  # True if the text is cut into the symbols of `start`, by a tokenizer in the run's folder
    tokenizer: Path | None = None  # of the user, for `start`

    @property
    def has_data(self) -> bool:
        """True if there is a data-bin."""
        splits = ("train", "valid")
        return not self.settings.is_text or all(Path(self.data, f"{split}.idx").is_file() for split in splits)


def read_request(settings: PretrainSettings, further: Sequence[str], *, torchrun: int) -> Request:
    """The request of these options.

    Raises:
        ValueError: for options that do not go together, and a tokenizer or a model that does not fit the data.
        FileNotFoundError: for text, a data-bin or a model that is not there.
    """
    if torchrun and settings.slurm is not None:
        raise ValueError("--slurm is not for ranks of torchrun: SLURM starts the ranks itself. Leave out one of them.")
    check_data(settings, has_further=bool(further))
    request = Request(settings, _data_bin(settings), further, torchrun=torchrun, tokenizer=settings.tokenizer)
    request = _with_start(request)
    check_words(request)
    return request


def _data_bin(settings: PretrainSettings) -> str:
    return str(settings.folder / "data-bin") if settings.is_text else settings.data[0]


def _with_start(request: Request) -> Request:
    """The request with the model of --finetune-from-model, and its tokenizer where the user names no other."""
    from roberta_plugin.pretraining.start import FOLDER, find_start, with_start

    settings = request.settings
    start = find_start(request.further, settings.folder)
    if start is None:
        return request
    takes_words = settings.is_text and settings.makes_tokenizer and settings.vocab_size is None
    if takes_words:
        settings = replace(settings, tokenizer=settings.folder / FOLDER)
    further = with_start(request.further, start)
    return replace(request, settings=settings, further=further, start=start, takes_words=takes_words)


def with_words_of_data(request: Request) -> Request:
    """The request for data that were made of text, with the vocabulary of the model to start from changed to theirs."""
    from roberta_plugin.pretraining.start import with_start

    settings, start = request.settings, request.start
    if start is None or not settings.is_text:
        return request
    start = start.in_words_of(Path(request.data), settings.folder, may_change=not request.takes_words)
    return replace(request, start=start, further=with_start(request.further, start))


def check_data(settings: PretrainSettings, *, has_further: bool) -> None:
    """Refuse text that does not exist, folders that are not a data-bin, and options of text with a data-bin."""
    if settings.is_text:
        return _check_text(settings, has_further=has_further)
    data = settings.data[0]
    for each in (settings, settings.reading, settings.reading.rules):
        check_roads(each, {"text": f"with {data}, which is not text but a data-bin"})
    for folder in (folder for folder in data_folders(data) if not (folder / "dict.txt").is_file()):
        if (inner := folder / "data-bin").is_dir():
            raise FileNotFoundError(f"{folder} is not a data-bin. Did you mean {inner}?")
        raise FileNotFoundError(
            f"{folder} holds no dict.txt, so it is not a data-bin: make one by `roberta binarize`, or name text files, "
            f"as '{folder}/*.txt'."
        )


def _check_text(settings: PretrainSettings, *, has_further: bool) -> None:
    try:
        settings.reading.sources(settings.data)
    except FileNotFoundError as error:
        said = [str(error)]
        if len(settings.data) == 1 and not any(map(settings.data[0].endswith, ENDINGS)):
            said.append(
                "Nor is there a data-bin of that name, a folder with dict.txt and train.bin: `roberta binarize` makes "
                "one of text, and so does `roberta pretrain TEXT`."
            )
        said += ["Options of fairseq-train come after the data."] if has_further else []
        raise FileNotFoundError(" ".join(said)) from None


def check_words(request: Request) -> None:
    """Refuse text that has changed, and a tokenizer or a data-bin with other symbols than the model to start from."""
    from roberta_plugin.pretraining.start import FOLDER

    settings, start = request.settings, request.start
    if settings.is_text:
        check_texts(settings)
    if start is not None and request.takes_words:
        start.write_tokenizer(settings.folder / FOLDER, tokenizer=request.tokenizer, is_written=False)
    elif settings.tokenizer and not settings.makes_tokenizer:
        load_tokenizer(settings.tokenizer)
    if start is not None and settings.is_text and not request.takes_words:
        start.check_tokenizer(request.tokenizer, settings.folder)
    if start is not None and not settings.is_text:
        for data_bin in data_folders(request.data):
            start.in_words_of(data_bin, settings.folder, may_change=False)
