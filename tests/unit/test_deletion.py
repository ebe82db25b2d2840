"""Each extension can be deleted: without its folder the rest is imported, shows its help, and does not know its name.

Nor do the tests of the trunk, which use the extension of `tests/made_extension`: those of `MOST_CONCERNED` pass in a copy
without all of the folders; `--slow` runs all unit tests there, and in a copy without each.
"""

import ast
import functools
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment

PACKAGE = REPOSITORY / "roberta_plugin"
EXTENSIONS = sorted(path.parent.name for path in PACKAGE.glob("extensions/*/__init__.py"))
WORDS = {
    "bert_pairs": r"next_sentence|pair_format|PairDataset|PairFormat|reconcile_pairs|segment-pair|sentence-pair",
    "character_bpe": r"character_bpe|CharacterBpe",
    "choices": r'"multiple_choice"|MultipleChoice|"multiple-choice"|"race"|\bRace[A-Z]|choices_columns',
    "embeddings": r'"embedding"|EmbeddingDataset|RobertaEmbedding|embedding_loss|mini_batch_size|negative_column|score_range',
    "masks": r"extensions[./]masks|FillMask|TextScore",
    "modernbert": r"""["'.]modernbert["'. ]|import modernbert|\bModernBert""",
    "onnx": r"""["']onnx["']|Onnx|ONNX_|onnxruntime|onnx_outputs|--to onnx|model\.onnx""",
    "own_tables": r'"custom"|CustomOptions',
    "peft": r"""["']peft["']|--to peft|\bPeft|adapter_config|import peft""",
    "pronouns": r"phrase_|pronoun|Phrase|SchemaInputs|schema_(inputs|examples)",
    "sentence_transformers": r"[\"']sentence-transformers[\"']|SentenceTransformer|sentence_transformers\.|import sentence_tr|modules\.json|_Pooling",
    "spans": r'"question_answering"|QuestionAnswering|"squad[12]?"|Squad[A-Z2]|SpanLogits|SpanHead|answerable|null_threshold|span_outputs',
    "studies": r"\bstud(y|ies)\b",
    "summaries": r'Summar(y|ies|ization)[A-Z]|"summary"|"summaries"|cnn_dailymail|DocumentsDataset|\bSentenceHead|sentence_(logits|features|layers)|alternating_segments|length_share|trigram|== "sentences"',
    "tagging": r'"tagging"|\bTagging|roberta_tagging|TokenHead|token_labels|"conll2003"|"wnut17"|valid_sequences',
    "texts": r'"multi_label(?!_classification)|MultiLabel|"multi-label"|label_separator|pair_ranking|PairRanking|"MNLI"|"XNLI"',
    "vocabulary_change": r"vocabulary_change|extend_vocabulary|ExtendSettings|tokenizer extend|with_vocabulary|row_sources",
}
"""What an extension's name looks like in code; others are known by their own name, in quotes or as a module."""
HEADS_OF_TRANSFORMERS = re.compile(
    r"(SequenceClassification|TokenClassification|MultipleChoice|QuestionAnswering)(ModelOutput)?\b"
)
"""Names of transformers: the code that exports bring along has a class for each of its heads, whoever uses it."""
WITH_THEIR_NAMES = ("conversion/modeling_roberta_plugin.py", "conversion/portable_code.py")
LEAKS: dict[str, int] = {}
"""How many files of the trunk still name an extension that is not listed with 0; it only ever falls."""
TEST_LEAKS = {
    "bert_pairs": 2,
    "choices": 2,
    "modernbert": 2,
    "onnx": 2,
    "own_tables": 2,
    "pronouns": 1,
    "sentence_transformers": 2,
    "spans": 2,
    "studies": 1,  # Optuna calls a search a study
    "summaries": 1,  # a recipe has a summary
    "tagging": 3,
    "texts": 2,
}
"""The same of the trunk's tests: parity of conversions, and trainings, of models with each head. Those of documents are
listed in `OF_DOCUMENTS`."""
OF_DOCUMENTS = (
    "integration/test_documents.py",
    "integration/test_guide.py",
    "unit/test_readme.py",
    "unit/test_deletion.py",
)
PROGRAM = """
import io, sys
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import roberta_plugin
import roberta_plugin.registry as registry
from roberta_plugin import cli

assert Path(roberta_plugin.__file__).is_relative_to(sys.argv[1]), roberta_plugin.__file__
roberta_plugin.register()
assert sys.argv[2] not in registry.extensions and len(registry.extensions) > 3, list(registry.extensions)
for words in ([], *([verb] for verb in cli.all_verbs())):
    try:
        with redirect_stdout(io.StringIO()):
            cli.main([*words, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, words
for sort in registry.REGISTRIES.values():
    for name in sort:
        for part in getattr(type(sort[name]), "__dataclass_fields__", ()):
            value = getattr(sort[name], part)
            if isinstance(value, str) and ":" in value and " " not in value:
                sort.load(name, part)
import roberta_plugin.experiments.finetune, roberta_plugin.hub, roberta_plugin.prediction.predict
print("whole")
"""


@pytest.fixture(scope="module", name="copy")
def copy_of_the_package(tmp_path_factory):
    """A function that returns a folder with the package but for one extension."""
    folder = tmp_path_factory.mktemp("deletion")
    shutil.copytree(PACKAGE, folder / "roberta_plugin", ignore=shutil.ignore_patterns("__pycache__"))
    away = folder / "away"
    away.mkdir()

    def without(name):
        for path in away.iterdir():
            path.rename(folder / "roberta_plugin" / "extensions" / path.name)
        (folder / "roberta_plugin" / "extensions" / name).rename(away / name)
        return folder

    return without


@pytest.mark.parametrize("name", EXTENSIONS)
def test_without_an_extension_everything_else_is_imported_and_shows_its_help(copy, name):
    done = run_python(PROGRAM, str(copy(name)), name, cwd=REPOSITORY, environment=environment(), fork_of="fairseq")
    assert done.returncode == 0 and done.stdout.endswith("whole\n"), done.stdout[-2000:] + done.stderr[-3000:]


@functools.cache
def code_of(path):
    """The lines without docstrings and comments."""
    text = path.read_text()
    described = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            described |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    kept = [line for number, line in lines if number not in described and not line.lstrip().startswith("#")]
    has_their_names = path.as_posix().endswith(WITH_THEIR_NAMES)
    return [HEADS_OF_TRANSFORMERS.sub("", line) for line in kept] if has_their_names else kept


def words_of(name):
    """What names an extension."""
    return re.compile(WORDS.get(name, rf'["./]{name}["./]|import {name}\b'))


def files_that_name(name):
    """Files of the trunk, and of other extensions, that name an extension in code."""
    words, folder = words_of(name), PACKAGE / "extensions" / name
    return sorted(
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(folder) and any(map(words.search, code_of(path)))
    )


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_trunk_does_not_name_an_extension(name):
    found = files_that_name(name)
    assert len(found) <= LEAKS.get(name, 0), found


def trunk_tests_that_name(name):
    """Files with tests of the trunk that name an extension in code."""
    tests, words = REPOSITORY / "tests", words_of(name)
    paths = [path for part in ("unit", "parity", "integration") for path in (tests / part).rglob("*.py")]
    names = {path.relative_to(tests).as_posix(): path for path in paths}
    trunk = {name: path for name, path in names.items() if "/extensions/" not in name and name not in OF_DOCUMENTS}
    return sorted(name for name, path in trunk.items() if any(map(words.search, code_of(path))))


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_tests_of_the_trunk_do_not_name_an_extension(name):
    found = trunk_tests_that_name(name)
    assert len(found) <= TEST_LEAKS.get(name, 0), found


MOST_CONCERNED = (
    "cli/test_prepare.py",
    "cli/test_roads.py",
    "conversion/test_portable.py",
    "criterions/test_finetuning.py",
    "experiments/test_finetuning_plan.py",
    "finetuning/kinds/test_kinds.py",
    "finetuning/test_prepared.py",
    "prediction/test_predict.py",
    "tasks/test_finetuning.py",
    "test_option_slices.py",
)
"""Quick files of the trunk's unit tests that go through kinds, heads, benchmarks and formats, whoever registers them."""


def check_tests_of_the_trunk(package, folder, *words):
    """Check that the unit tests of the trunk pass with a copy of the package; `words` are further arguments of pytest."""
    tests = folder / "tests"
    shutil.copytree(REPOSITORY / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("unit", "parity", "integration"):
        shutil.rmtree(tests / part / "extensions", ignore_errors=True)
    (folder / "roberta_plugin").symlink_to(package)
    for path in REPOSITORY.iterdir():
        if path.name not in ("tests", "roberta_plugin", ".git"):
            (folder / path.name).symlink_to(path)
    program = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    done = run_python(
        *(program, "-q", "-x", *words, "--ignore=tests/unit/test_deletion.py"),
        cwd=folder,
        environment={**environment(), "PYTHONPATH": str(folder)},
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("chosen", [MOST_CONCERNED, pytest.param(("",), marks=pytest.mark.slow)], ids=["most", "all"])
def test_without_all_extensions_the_tests_of_the_trunk_pass(tmp_path, chosen):
    package = tmp_path / "package" / "roberta_plugin"
    ignored = shutil.ignore_patterns("__pycache__")

    def without_extensions(folder, names):
        own = EXTENSIONS if Path(folder) == PACKAGE / "extensions" else ()
        return {*ignored(folder, names), *own}

    shutil.copytree(PACKAGE, package, ignore=without_extensions)
    assert [path.name for path in package.glob("extensions/*")] == ["__init__.py"]
    check_tests_of_the_trunk(package, tmp_path, *(f"tests/unit/{name}" for name in chosen))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTENSIONS)
def test_without_an_extension_the_tests_of_the_trunk_pass(copy, name, tmp_path):
    check_tests_of_the_trunk(copy(name) / "roberta_plugin", tmp_path, "tests/unit")


def test_an_extension_is_found_by_its_folder():
    assert len(EXTENSIONS) >= 9 and all(Path(PACKAGE, "extensions", name).is_dir() for name in EXTENSIONS)
