"""Records through a model, answered as it was trained to: read in windows, sorted by length, written in order.

Example:
    from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions

    settings = PredictSettings(model=Path("runs/RTE"))
    for answer in iterate_predictions(settings, [{"text": "A man sleeps.", "text_pair": "A man is awake."}]):
        print(answer["label"], answer["probability"])
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_plugin.conversion.portable import usual_kind
from roberta_plugin.data.text_inputs_ahead import read_when_ready
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of, kind_of_task
from roberta_plugin.finetuning.kinds import KINDS, kind_class, task_kinds
from roberta_plugin.finetuning.kinds.base import Kind
from roberta_plugin.finetuning.kinds.tables import TableKind
from roberta_plugin.hub import RobertaHub
from roberta_plugin.hub.running import usable_device
from roberta_plugin.prediction import settings as _settings
from roberta_plugin.prediction.settings import CommonPredictSettings
from roberta_plugin.prediction.writing import check_output, open_output, partial_path
from roberta_plugin.progress import Progress
from roberta_plugin.tables import (
    IN_MEMORY,
    BadLineError,
    Row,
    check_text,
    files_of,
    format_of,
    is_live,
    named_format,
    scan_table,
    short,
)

PATIENCE = 0.05  # seconds until what a pipe has written is answered
MOST_CHARACTERS = 4_000_000  # of a window, so that a file of long texts does not fill the memory
Record = Mapping[str, Any] | str


def __getattr__(name: str) -> Any:
    """`PredictSettings`, which is composed when it is used."""
    if name == "PredictSettings":
        return _settings.PredictSettings
    raise AttributeError(f"{__name__} has no {name}")


class StoppedError(ValueError):
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


def predict(settings: CommonPredictSettings) -> PredictResult:
    """Answer every record of the input, and write the answers.

    Raises:
        ValueError: if the model cannot give such answers; or at a bad line, unless they are skipped: then the
            answers before it are in OUTPUT.partial.
    """
    if settings.input is not None and not files_of(settings.input)[0].exists():
        raise FileNotFoundError(f"--input {settings.input} does not exist: name a file, or - for standard input.")
    if settings.output is not None:
        check_output(settings.output)
    kind = open_kind(settings)
    started = time.monotonic()
    counts = dict.fromkeys(("answers", "error", "truncated"), 0)
    total = None if settings.input is None else sum(file.stat().st_size for file in files_of(settings.input))
    with Progress("predict", total, is_shown=settings.show_progress) as bar:
        rows = _Rows(kind, settings)
        try:
            with open_output(settings.output) as writer:
                for answer in _answers(kind, settings, rows):
                    writer.write(answer)
                    if rows.are_live:
                        writer.flush()
                    bar.show(rows.num_bytes)
                    counts["answers"] += 1
                    for name in ("error", "truncated"):
                        counts[name] += name in answer
        except StoppedError as error:
            kept = ""
            if settings.output is not None:
                kept = f" The answers before it are in {partial_path(settings.output)}, as JSON Lines."
            source = settings.input or ("the command line" if settings.texts else "standard input")
            raise ValueError(f"{source}, {error}{kept}") from None
    return PredictResult(
        task_kind=KINDS[kind.name].task_kind or kind.name,
        num_answers=counts["answers"],
        num_errors=counts["error"],
        num_truncated=counts["truncated"],
        seconds=time.monotonic() - started,
        output=settings.output,
    )


def iterate_predictions(
    settings: CommonPredictSettings, records: Iterable[Record] | None = None
) -> Iterator[dict[str, Any]]:
    """The answers as they are computed, in order; nothing is written.

    Records are dictionaries or texts. Without any, the records of `settings.input` are read.
    """
    kind = open_kind(settings)
    if records is None:
        yield from _answers(kind, settings, _Rows(kind, settings))
        return
    contents = ({"text": record} if isinstance(record, str) else record for record in records)
    rows = (Row(IN_MEMORY, number, content) for number, content in enumerate(contents, start=1))
    yield from _answers(kind, settings, rows, names_lines=False)


def open_kind(settings: CommonPredictSettings) -> Kind:
    """The model of the settings, ready to answer."""
    device = usable_device(settings.device)
    kind = None if (wanted := wanted_kind(settings)) is None else kind_class(wanted)  # imported before the model
    hub = RobertaHub.from_pretrained(
        settings.model,
        data=settings.data,
        tokenizer=settings.tokenizer,
        precision=settings.precision,
        device=device,
    )
    kind = kind or kind_class(kind_of_model(hub))
    is_own = kind.name == kind_of_training(hub.trained_on)  # else its numbers would decide about something else
    decisions = kind.numbers_of(hub.trained_on.get(identity.DECISIONS, {})) if is_own else {}
    task = str(hub.trained_on.get("task"))
    return kind.answering(hub, settings, benchmark_of(task).rules if task in all_tasks() else None, decisions)


def wanted_kind(settings: CommonPredictSettings) -> str | None:
    """The kind that --task-kind names, or an option that chooses one; None: neither is given."""
    if settings.task_kind is not None:
        return task_kinds()[settings.task_kind]
    choosing = ((name, entry.chosen_by) for name, entry in KINDS.items() if entry.chosen_by)
    return next((name for name, option in choosing if getattr(settings, option, None)), None)


def kind_of_model(hub: RobertaHub) -> str:
    """The kind of task that a model was fine-tuned for, else the kind that its head or settings describe, or fill_mask.

    Raises:
        ValueError: if the checkpoint does not say it and its heads leave it open.
    """
    trained = kind_of_training(hub.trained_on)
    if trained is not None:
        return trained
    classes = {name: kind_class(name) for name in KINDS}
    shared = ("", "masked_lm", "classification")  # by several kinds, or by models of any
    for name, kind in classes.items():
        if kind.head not in shared and hub.heads_of(kind.head):
            return name
    heads = hub.heads_of("classification")
    if not heads:
        settings = hub.trained_on.get("settings", {})
        return next((name for name, kind in classes.items() if kind.is_described_by(settings)), "fill_mask")
    usual = usual_kind(min(hub.num_classes(head) for head in heads))
    if usual is not None and kind_class(usual).has_labels:
        return usual
    raise ValueError(
        f"The checkpoint does not say what its head {heads[0]} with one output was trained for: give --task-kind, one "
        f"of {', '.join(task_kinds())}."
    )


def kind_of_training(trained_on: Mapping[str, Any]) -> str | None:
    """The kind that answers for a fine-tuned checkpoint (`finetuning/identity.py`); None if it does not record it."""
    settings = trained_on.get("settings", {})
    name = kind_of_task(str(trained_on.get("task"))) or settings.get("kind")
    if name not in KINDS:
        return None
    return task_kinds()[KINDS[name].task_kind or name]


class _Rows:
    """The rows of the input, in the format of --format or of its name; `num_bytes` of it have been read.

    For a pipe or terminal, which are live, None means that the next row has not been written yet.
    """

    def __init__(self, kind: Kind, settings: CommonPredictSettings) -> None:
        path, form = settings.input, settings.format
        if path is not None and form is None:
            form = "text" if named_format(path) is None else format_of(path)
        # As in the tables that the model was trained on:
        if settings.delimiter is not None and form not in (None, "csv", "tsv"):
            raise ValueError(
                f"--delimiter has no effect with {path}, which is read as {form}: leave it out, or give --format csv."
            )
        delimiter = settings.delimiter or kind.settings.get("delimiter")
        self.num_bytes = 0
        texts = (Row(IN_MEMORY, number, {"text": text}) for number, text in enumerate(settings.texts, start=1))
        table = scan_table(path, format=form, delimiter=delimiter, on_read=self._count)
        if path is not None and settings.format is None and isinstance(kind, TableKind) and kind.reads_alone(path):
            table, form = kind.rows(path), None
            self._count(sum(file.stat().st_size for file in files_of(path)))
        self.are_live = not settings.texts and is_live(path)
        self._rows: Iterable[Row | BadLineError | None] = texts if settings.texts else table
        if self.are_live:
            self._rows = read_when_ready(table, most=settings.window, patience=PATIENCE)
        self._kind, self._delimiter = kind, delimiter or ","
        self._may_be_table = settings.format is None and form in (None, "text") and not settings.texts

    def __iter__(self) -> Iterator[Row | BadLineError | None]:
        is_first = True
        for row in self._rows:
            if is_first and self._may_be_table and isinstance(row, Row) and row.values.keys() == {"text"}:
                self._check_header(row)
            is_first = is_first and row is None
            yield row

    def _check_header(self, row: Row) -> None:
        """Refuse a table that would be read as texts, by its first line."""
        line = str(row.values["text"])
        columns = {name for place in range(len(self._kind.fields)) for name in self._kind.names_of(place)}
        for mark in dict.fromkeys((self._delimiter, ";", "|", "\t")):
            cells = [cell.strip('"') for cell in line.split(mark)]
            names = columns.intersection(cells)
            is_one_column = len(cells) == 1 and line != self._kind.settings.get("text_column")
            if not names or is_one_column or any(cell != cell.strip() for cell in cells):
                continue
            form = "tsv" if mark == "\t" else "csv"
            option = f" --delimiter '{mark}'" if form == "csv" and mark != self._delimiter else ""
            raise ValueError(
                f"{row.where}: {short(line)} names the column {min(names)!r}, as the first line of a table does, and "
                f"each line would be read as a text. Give --format {form}{option}, or --format text if it is one."
            )

    def _count(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes


def _answers(
    kind: Kind, settings: CommonPredictSettings, rows: Iterable[Row | BadLineError | None], *, names_lines: bool = True
) -> Iterator[dict[str, Any]]:
    """Every answer; one without an id has the number of its line, if `names_lines`. None among the rows lets no answer
    wait for further ones."""
    window: list[Row | BadLineError] = []
    stops = settings.on_error == "stop"
    num_characters = 0
    for row in rows:
        if row is not None:
            window.append(row)
        if isinstance(row, Row):
            num_characters += sum(len(value) for value in row.values.values() if isinstance(value, str))
        is_last = row is None or (isinstance(row, BadLineError) and stops)
        if len(window) == settings.window or num_characters >= MOST_CHARACTERS or is_last:
            yield from _answer_window(kind, settings, window, names_lines)
            window, num_characters = [], 0
    yield from _answer_window(kind, settings, window, names_lines)


def _answer_window(
    kind: Kind, settings: CommonPredictSettings, window: list[Row | BadLineError], names_lines: bool
) -> Iterator[dict[str, Any]]:
    """The answers to some rows; with --on-error stop, those before the first bad one, and then the error."""
    questions: list[Any] = []
    errors: dict[int, str] = {}
    ids: dict[int, dict[str, Any]] = {}
    for row in window:
        try:
            if isinstance(row, BadLineError):
                raise ValueError(f"{row.reason}. {row.remedy}")
            line = {"line": row.line} if names_lines else {}
            ids[row.line] = kind.id_of(row.values) or line
            _check_characters(row.values)
            questions.append(kind.question(row.values))
        except ValueError as error:
            errors[row.line] = str(error)
            if settings.on_error == "stop":
                break
    answers = iter(kind.answer(questions) if questions else ())
    for row in window:
        answer = ValueError(errors[row.line]) if row.line in errors else next(answers)
        row_id = ids.get(row.line, {})
        if not isinstance(answer, ValueError):
            yield {**row_id, **answer}
        elif settings.on_error == "stop":
            raise StoppedError(f"line {row.line}: {answer} Or give --on-error skip.")
        else:
            yield {**row_id, "line": row.line, "error": str(answer)}


def _check_characters(record: Mapping[str, Any]) -> None:
    """Refuse texts that cannot be written as UTF-8, which JSON's escapes can make."""
    for name, value in record.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                check_text(text, repr(name), "the record", may_be_empty=True)
