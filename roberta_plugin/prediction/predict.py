"""Records through a model: read in windows, sorted by length within a window, written in order.

Example:
    from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions

    settings = PredictSettings(model=Path("runs/RTE"))
    for answer in iterate_predictions(settings, [{"text": "A man sleeps.", "text_pair": "A man is awake."}]):
        print(answer["label"], answer["probability"])
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roberta_plugin.prediction.kinds.base import Kind
from roberta_plugin.prediction.opening import open_kind
from roberta_plugin.prediction.records import Line, check_characters, read_lines, read_records
from roberta_plugin.prediction.settings import PredictSettings as PredictSettings
from roberta_plugin.prediction.writing import NPY, check_output, open_output, partial_path
from roberta_plugin.progress import Progress

PACKED = (".gz", ".zst", ".xz", ".bz2", ".parquet", ".pq")
MOST_CHARACTERS = 4_000_000  # of a window, so that a file of long texts does not fill the memory
Record = Mapping[str, Any] | str


class BadLineError(ValueError):
    """A line that cannot be used, with --on-error stop."""


@dataclass(frozen=True, kw_only=True)
class PredictResult:
    """The result of `predict`."""

    task_kind: str
    num_answers: int
    """Answers written, entries about bad lines included."""
    num_errors: int
    """Bad lines that were skipped."""
    num_truncated: int
    """Records whose texts were cut to the model's length."""
    seconds: float
    """Seconds of reading, computing and writing, without opening the model."""
    output: Path | None


def predict(settings: PredictSettings) -> PredictResult:
    """Answer every record of the input, and write the answers.

    Raises:
        FileNotFoundError: if the input, the model or a file of it is not there.
        ValueError: if the model cannot give such answers; or at a bad line, unless they are skipped: then the
            answers before it are in OUTPUT.partial.
    """
    if settings.input is not None and not settings.input.is_file():
        raise FileNotFoundError(f"--input {settings.input} does not exist: name a file, or - for standard input.")
    if settings.input is not None and settings.input.suffix.lower() in PACKED:
        raise ValueError(
            f"--input {settings.input}: only plain files are read. Unpack it, or write it as JSON Lines; standard "
            f"input is read too, such as `zcat {settings.input} | roberta predict ... --format csv`."
        )
    if settings.output is not None:
        check_output(settings.output)
    kind = open_kind(settings)
    is_array = settings.output is not None and settings.output.suffix == NPY
    if is_array and kind.name != "embedding":
        raise ValueError(f"--output {settings.output}: only embeddings are written as .npy. Name a .jsonl file.")
    started = time.monotonic()
    counts = dict.fromkeys(("answers", "error", "truncated"), 0)
    with ExitStack() as stack:
        file: IO[bytes] = sys.stdin.buffer
        total = None
        if settings.input is not None:
            file = stack.enter_context(open(settings.input, "rb"))
            total = settings.input.stat().st_size
        bar = stack.enter_context(Progress("predict", total, is_shown=settings.show_progress))
        lines = read_lines(file, path=settings.input, format=settings.format, delimiter=delimiter_of(kind))
        try:
            with open_output(settings.output, dim=kind.hub.dim) as writer:
                for answer, num_bytes in _answers(kind, settings, lines):
                    writer.write(answer)
                    bar.show(num_bytes)
                    counts["answers"] += 1
                    for name in ("error", "truncated"):
                        counts[name] += name in answer
        except BadLineError as error:
            kept = "" if settings.output is None else f" The answers before it are in {partial_path(settings.output)}."
            raise ValueError(f"{settings.input or 'standard input'}, {error}{kept}") from None
    return PredictResult(
        task_kind=kind.name,
        num_answers=counts["answers"],
        num_errors=counts["error"],
        num_truncated=counts["truncated"],
        seconds=time.monotonic() - started,
        output=settings.output,
    )


def iterate_predictions(settings: PredictSettings, records: Iterable[Record] | None = None) -> Iterator[dict[str, Any]]:
    """The answers as they are computed, in order; nothing is written.

    Args:
        settings: of the prediction.
        records: dictionaries, or texts; None: those of `settings.input`.

    Raises:
        ValueError: as `predict`.
    """
    kind = open_kind(settings)
    if records is not None:
        for answer, _ in _answers(kind, settings, read_records(records), names_lines=False):
            yield answer
        return
    with ExitStack() as stack:
        file = sys.stdin.buffer if settings.input is None else stack.enter_context(open(settings.input, "rb"))
        lines = read_lines(file, path=settings.input, format=settings.format, delimiter=delimiter_of(kind))
        for answer, _ in _answers(kind, settings, lines):
            yield answer


def delimiter_of(kind: Kind) -> str:
    """The separator of CSV's columns: as in the tables that the model was trained on."""
    return str(kind.trained.get("delimiter") or ",")


def _answers(
    kind: Kind, settings: PredictSettings, lines: Iterable[tuple[Line, int]], *, names_lines: bool = True
) -> Iterator[tuple[dict[str, Any], int]]:
    """Every answer, and the bytes of input that were read up to its window's end.

    An answer without an id has the number of its line, if `names_lines`.
    """
    window: list[Line] = []
    stops = settings.on_error == "stop"
    num_characters = num_bytes = 0
    for line, num_bytes in lines:
        window.append(line)
        num_characters += sum(len(value) for value in (line.record or {}).values() if isinstance(value, str))
        if len(window) == settings.window or num_characters >= MOST_CHARACTERS or (line.record is None and stops):
            yield from ((answer, num_bytes) for answer in _answer_window(kind, settings, window, names_lines))
            window, num_characters = [], 0
    yield from ((answer, num_bytes) for answer in _answer_window(kind, settings, window, names_lines))


def _answer_window(
    kind: Kind, settings: PredictSettings, window: list[Line], names_lines: bool
) -> Iterator[dict[str, Any]]:
    """The answers to some lines; with --on-error stop, those before the first bad one, and then the error."""
    questions: list[Any] = []
    errors: dict[int, str] = {}
    ids: dict[int, dict[str, Any]] = {}
    for line in window:
        try:
            if line.record is None:
                raise ValueError(line.error)
            record = kind.with_columns(line.record)
            own = {"line": line.number} if names_lines else {}
            ids[line.number] = {"id": record["id"]} if "id" in record else own
            check_characters(record)
            questions.append(kind.question(line.record))
        except ValueError as error:
            errors[line.number] = str(error)
            if settings.on_error == "stop":
                break
    found = iter(kind.answer(questions) if questions else ())
    for line in window:
        answer = ValueError(errors[line.number]) if line.number in errors else next(found)
        identity = ids.get(line.number, {})
        if not isinstance(answer, ValueError):
            yield {**identity, **answer}
        elif settings.on_error == "stop":
            raise BadLineError(f"line {line.number}: {answer} Or give --on-error skip.")
        else:
            yield {**identity, "line": line.number, "error": str(answer)}
