"""What extensions register is found, by whichever way; a fault of one is a sentence, and stops nothing else."""

import json
import re
import subprocess
import sys

import pytest

from roberta_plugin import registry
from roberta_plugin.registry import API, KINDS, MASKINGS, BenchmarkFamily, Extension, MaskingEntry, VerbEntry, register
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.tiny_corpus import environment

HEAD = "from roberta_plugin.registry import Extension, MaskingEntry, register\n"
RARE = "EXTENSION = Extension({name!r}, __name__, maskings={{'rare': MaskingEntry('.masker:M')}})\n"
FAULTY = {
    "breaks": "import not_installed_at_all\n",
    "exits": "import sys\nsys.exit(3)\n",
    "future": HEAD + f"EXTENSION = Extension('future', __name__, api={API + 1})\n",
    "other": "EXTENSION = {'maskings': {}}\n",
    "rare_one": HEAD + RARE.format(name="rare_one") + "register(EXTENSION)\n",
    "rare_two": HEAD + RARE.format(name="rare_two") + "register(EXTENSION)\n",
    "taker": HEAD + "EXTENSION = Extension('taker', __name__, maskings={'uniform': MaskingEntry('.masker:M')})\n",
}
REASONS = {
    "breaks": "No module named 'not_installed_at_all'",
    "exits": "3",
    "future": f"it was made for version {API + 1} of the extension interface, and this is {API}",
    "other": "other:EXTENSION is not a roberta_plugin.registry.Extension",
    "rare_two": "the masking 'rare' is registered by rare-one 1.0",
    "taker": "the masking 'uniform' is registered by roberta_plugin",
}


def install(folder, modules):
    """Write packages as pip installs them: NAME.py, and their names and entry points."""
    for name, text in modules.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[roberta_plugin.extensions]\n{name} = {name}:EXTENSION\n")
    return folder


def in_fork(code, folder):
    """Run a program for which the packages in `folder` are installed, in a fork: one that imports fairseq takes seconds."""
    return run_python(code, cwd=folder, environment={**environment(), "PYTHONPATH": f"{folder}:{REPOSITORY}"})


def in_new_process(code, folder):
    path = f"{folder}:{REPOSITORY}"
    return subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False
    )


def test_each_faulty_package_is_one_sentence_with_its_name_and_a_remedy_and_the_others_work(tmp_path):
    install(tmp_path, FAULTY)
    code = (
        "import json\nfrom roberta_plugin import registry as r\n"
        "print(json.dumps([list(r.MASKINGS), 'byte_level_bpe' in r.TOKENIZERS, r.MASKINGS.owner('rare').package,"
        " r.problems, r.MASKINGS.unknown('other')]))"
    )
    done = in_new_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    names, has_ours, owner, problems, unknown = json.loads(done.stdout)
    assert names == ["uniform", "rare"] and has_ours and owner == "rare-one 1.0"
    remedy = "Install a version that suits, or remove it: pip uninstall {}."
    assert sorted(problems) == sorted(
        f"The extension of {name.replace('_', '-')} 1.0 is not used: {reason}. {remedy.format(name.replace('_', '-'))}"
        for name, reason in REASONS.items()
    )
    assert sorted(done.stderr.splitlines()) == sorted(problems)
    assert unknown.startswith("There is no masking 'other'; there are uniform, rare. ")
    assert all(problem in unknown for problem in problems)


def test_a_package_that_imports_the_plugin_before_its_own_extension_is_there_is_registered_later(tmp_path):
    looks = "from roberta_plugin import registry\nassert list(registry.MASKINGS) == ['uniform']\n"
    install(tmp_path, {"rare_one": looks + HEAD + RARE.format(name="rare_one")})
    code = "import rare_one\nfrom roberta_plugin.registry import MASKINGS, problems\nprint(MASKINGS.owner('rare').package, problems)"
    done = in_new_process(code, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rare-one 1.0 []\n", "")


def test_a_part_that_cannot_be_imported_is_refused_when_it_is_used(tmp_path):
    module = HEAD + RARE.format(name="rare_one")
    install(tmp_path, {"rare_one": module})
    (tmp_path / "rare_one" / "masker.py").write_text("1 / 0\n")
    code = "from roberta_plugin.registry import MASKINGS\nMASKINGS['rare']\nMASKINGS.load('rare', 'masker')"
    done = in_new_process(code, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: .masker:M of the extension rare_one (rare-one 1.0) cannot be imported: division by zero. Install a "
        "version of rare-one that suits, or remove it."
    )


@pytest.fixture
def one(monkeypatch):
    """An extension that is registered in this process, and forgotten after the test."""
    registry.find_extensions()
    monkeypatch.setattr(registry, "extensions", dict(registry.extensions))
    monkeypatch.setattr(registry, "on_registration", [])
    for each in registry.REGISTRIES.values():
        monkeypatch.setattr(each, "_entries", dict(each._entries))
        monkeypatch.setattr(each, "_owners", dict(each._owners))
    extension = Extension("one", "own_folder", maskings={"own": MaskingEntry(".masker:M")})
    register(extension)
    return extension


def test_registering_the_same_extension_again_changes_nothing(one):
    assert MASKINGS["own"] is one.maskings["own"] and MASKINGS.owner("own") is one
    register(one)
    assert list(MASKINGS).count("own") == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "one"}, "own_folder (own_folder) has an extension 'one' already"),
        ({"maskings": {"own": MaskingEntry("a:B")}}, "the masking 'own' is registered by own_folder"),
        ({"heads": {"classification": None}}, "the kind of head 'classification' is registered by roberta_plugin"),
        (
            {"benchmarks": {"mine": BenchmarkFamily(("made",), "a:B")}},
            "the task 'made' is registered by tests.made_extension",
        ),
        (
            {"actions": {"tokenizer show": VerbEntry("a", "a:B")}},
            "the action 'tokenizer show' is registered by roberta_plugin",
        ),
        ({"start_changes": {"layers": None}}, "there is no change of a start model 'layers', only vocabulary"),
        ({"api": API + 1}, f"it was made for version {API + 1} of the extension interface, and this is {API}"),
    ],
)
def test_a_module_that_registers_what_is_taken_is_refused_and_adds_nothing(one, changes, reason):
    entries = {sort: list(each) for sort, each in registry.REGISTRIES.items()}
    extension = Extension(**{"name": "two", "module": "other_folder", **changes})
    with pytest.raises(ValueError, match="cannot be registered") as caught:
        register(extension)
    name = extension.name
    assert str(caught.value) == f"The extension {name} of other_folder cannot be registered: {reason}."
    assert {sort: list(each) for sort, each in registry.REGISTRIES.items()} == entries


def test_late_extensions_are_announced(one, monkeypatch):
    seen = []
    monkeypatch.setattr(registry, "on_registration", [seen.append])
    two = Extension("two", "other_folder")
    register(two)
    register(two)
    assert seen == [two]


@pytest.mark.parametrize(
    ("make", "now", "value"),
    [
        (lambda value: Extension("one", __name__, own_options=value), "table_options", {"one": ".options:Options"}),
        (lambda value: registry.KindEntry("m:K", "text", own_options=value), "shared_options", ("labels",)),
    ],
)
def test_a_manifest_with_a_former_name_goes_on_working_with_a_warning_that_names_the_new_one(make, now, value):
    with pytest.warns(DeprecationWarning, match=rf"own_options is {now} now; .* rename it") as warned:
        made = make(value)
    assert warned[0].filename == __file__, "the line of the manifest is named"
    assert getattr(made, now) == value
    with pytest.warns(DeprecationWarning, match=now):
        assert made.own_options == value


def test_our_own_extensions_come_before_others(one):
    assert next(iter(MASKINGS)) == "uniform"
    ours = [KINDS.owner(name).package == registry.OURS for name in KINDS]
    assert ours == sorted(ours, reverse=True) and not ours[-1]


def test_a_faulty_training_of_a_package_does_not_stop_fairseq(tmp_path):
    imports = "from roberta_plugin.registry import CriterionOptions, Extension, TrainingEntry\n"
    options = {"label_smoothing": "0.5", "extra_weight": "1.0"}
    modules = {
        "lost_task": imports + "EXTENSION = Extension('a', __name__, trainings={'lost': TrainingEntry('.gone:T')})\n",
        **{
            f"adds_{field}": imports
            + "from dataclasses import dataclass\nfrom fairseq.dataclass import FairseqDataclass\n"
            f"@dataclass\nclass Options(FairseqDataclass):\n    {field}: float = {value}\n"
            f"entry = CriterionOptions('roberta_sentence_prediction', __name__ + ':Options')\n"
            f"EXTENSION = Extension('{field}', __name__, criterion_options={{'{field}': entry}})\n"
            for field, value in options.items()
        },
        "lost_options": imports + "entry = CriterionOptions('roberta_sentence_prediction', '.gone:O')\n"
        "EXTENSION = Extension('b', __name__, criterion_options={'lost': entry})\n",
    }
    install(tmp_path, modules)
    code = (
        "import json, dataclasses\nimport roberta_plugin\nroberta_plugin.register()\n"
        "from fairseq.criterions import CRITERION_DATACLASS_REGISTRY as kinds\nfrom roberta_plugin.registry import problems\n"
        "names = [each.name for each in dataclasses.fields(kinds['roberta_sentence_prediction'])]\n"
        "print(json.dumps([names, 'lost' in kinds, kinds['roberta_sentence_prediction']().label_smoothing, problems]))"
    )
    done = in_fork(code, tmp_path)
    assert done.returncode == 0, done.stderr
    names, is_registered, smoothing, problems = json.loads(done.stdout.splitlines()[-1])
    assert {"label_smoothing", "extra_weight"} <= {*names}
    assert not is_registered and smoothing == 0.0
    assert len(problems) == 3
    for package in ("lost-task", "adds-label-smoothing", "lost-options"):
        (problem,) = (each for each in problems if re.search(f" of {package} 1.0 (is|are) not used: ", each))
        assert problem.endswith(f"Install a version of {package} that suits, or remove it.")


def test_actions_of_packages_are_offered_and_a_faulty_one_stops_no_other(tmp_path):
    head = "from roberta_plugin.registry import Extension, VerbEntry\nEXTENSION = Extension('{0}', __name__, actions={1})\n"
    entries = {"counts": ("tokenizer count", "count tokens"), "lost": ("tokenizer lose", "x"), "odd": ("export x", "x")}
    texts = {name: f"{{'{key}': VerbEntry('{text}', '.code:action')}}" for name, (key, text) in entries.items()}
    install(tmp_path, {name: head.format(name, text) for name, text in texts.items()})
    (tmp_path / "counts" / "code.py").write_text(
        "from dataclasses import dataclass\nfrom roberta_plugin.cli.command import command\n"
        "@dataclass(frozen=True)\nclass Settings:\n    pass\n"
        "@command(Settings)\ndef action(settings):\n    print('counted')\n    return 0\n"
    )
    code = "from roberta_plugin.cli import main\nmain(['tokenizer', 'count'])\nmain(['tokenizer', '--help'])"
    done = in_new_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("counted\n") and "count tokens" in done.stdout and "lose" not in done.stdout
    assert (
        "The action 'export x' of odd 1.0 is not used: export is not a verb with actions, as tokenizer" in done.stderr
    )
    assert "The action 'tokenizer lose' of lost 1.0 is not used: " in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("remove it.") == 2


def test_a_plain_import_finds_no_extensions(tmp_path):
    done = in_new_process("import roberta_plugin, sys\nprint('roberta_plugin.registry' in sys.modules)", tmp_path)
    assert done.stdout == "False\n", done.stderr
