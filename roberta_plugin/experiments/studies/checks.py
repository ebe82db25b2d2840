"""What a study is refused for before anything runs, beyond what `settings.py` and `plan.py` refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.experiments.studies.plan import VariantPlan, missing_data
from roberta_plugin.experiments.studies.settings import PerplexityProbe, Study, TuningProbe
from roberta_plugin.finetuning.benchmarks import benchmark_of, checked_options, options_for
from roberta_plugin.finetuning.options import TaskOptions
from roberta_plugin.training import arguments as train_arguments
from roberta_plugin.training.settings import convert


def check_study(study: Study, plans: Sequence[VariantPlan]) -> None:
    """Refuse data and probes that cannot work.

    Raises:
        FileNotFoundError: if data, official files or a tokenizer are missing.
        ValueError: if vocabularies or lengths do not fit each other.
    """
    missing = missing_data(plans)
    if missing:
        names = ", ".join(map(str, missing))
        raise FileNotFoundError(
            f"{study.path}: {names} is not there: make it with `roberta binarize --output-dir ...`."
        )
    vocabularies = {_dictionary(plan): plan.variant.name for plan in plans}
    if len(vocabularies) > 1:
        raise ValueError(
            f"{study.path}: the data of {' and '.join(vocabularies.values())} have different vocabularies (dict.txt): "
            "perplexities over different tokens cannot be compared. Binarize all of them with one tokenizer."
        )
    for probe in study.probes:
        if isinstance(probe, PerplexityProbe):
            check_perplexity(study, probe, plans)
        else:
            check_tuning(study, probe, plans)


def check_perplexity(study: Study, probe: PerplexityProbe, plans: Sequence[VariantPlan]) -> None:
    """Refuse a perplexity probe without its data, or with blocks that a model cannot hold."""
    folder = data_of(probe, plans)
    if not (folder / f"{probe.split}.idx").is_file():
        raise FileNotFoundError(
            f"{study.path}: probes, {probe.name}: {folder / probe.split}.idx does not exist: name other data, or a "
            "split that it has."
        )
    if Vocabulary.load(folder / "dict.txt").sha256 != _dictionary(plans[0]):
        raise ValueError(
            f"{study.path}: probes, {probe.name}: {folder} has another dict.txt than the pretraining data: binarize it "
            "with the same tokenizer and dictionary."
        )
    length = block_length(probe, plans)
    _check_length(study, probe.name, "tokens-per-sample", length, plans)


def check_tuning(study: Study, probe: TuningProbe, plans: Sequence[VariantPlan]) -> None:
    """Refuse a fine-tuning probe without its files, with another vocabulary, or with sequences that are too long."""
    where = f"{study.path}: probes, {probe.name}"
    if not probe.raw.exists():
        raise FileNotFoundError(f"{where}: raw, {probe.raw}, does not exist: give the folder of the official files.")
    benchmark_of(probe.task).raw_files(probe.task, probe.raw, task_options(probe))
    dictionary = probe.tokenizer / "dict.txt"
    if not dictionary.is_file():
        raise FileNotFoundError(f"{where}: {dictionary} does not exist: give the folder of the tokenizer and dict.txt.")
    if Vocabulary.load(dictionary).sha256 != _dictionary(plans[0]):
        raise ValueError(f"{where}: {dictionary} is not the dict.txt of the pretraining data: take its tokenizer.")
    _check_length(study, probe.name, "max-length", probe.max_length, plans)


def task_options(probe: TuningProbe) -> TaskOptions:
    """The options of the task, typed."""
    given = {name.replace("-", "_"): value for name, value in probe.options.items()}
    return checked_options(probe.task, convert(type(options_for(probe.task)), given, where=f"The probe {probe.name}"))


def data_of(probe: PerplexityProbe, plans: Sequence[VariantPlan]) -> Path:
    """The folder whose split is predicted: the same for all variants."""
    return probe.data or train_arguments.data_folders(plans[0].parsed)[0]


def block_length(probe: PerplexityProbe, plans: Sequence[VariantPlan]) -> int:
    """Tokens of a block, <s> included: the same for all variants."""
    return probe.tokens_per_sample or min(int(plan.parsed.tokens_per_sample) for plan in plans)


def _check_length(study: Study, probe: str, option: str, length: int, plans: Sequence[VariantPlan]) -> None:
    for plan in plans:
        if plan.shape.max_positions < length:
            raise ValueError(
                f"{study.path}: probes, {probe}: {option} is {length}, and the variant {plan.variant.name} has "
                f"{plan.shape.max_positions} positions: lower it, or give max-positions under base."
            )


def _dictionary(plan: VariantPlan) -> str:
    return Vocabulary.load(train_arguments.data_folders(plan.parsed)[0] / "dict.txt").sha256
