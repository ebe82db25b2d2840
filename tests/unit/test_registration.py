"""Every name in fairseq's registries leads to our class, however the plugin is imported; imports stay light."""

import importlib.metadata
import re
import subprocess
import sys

import pytest

from roberta_plugin.extras import require
from tests.conftest import REPOSITORY
from tests.forked_training import run_python
from tests.refusals import refused
from tests.tiny_corpus import environment

CHECK = """
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from roberta_plugin.registry import OURS, TRAININGS

names = [name for name in TRAININGS if TRAININGS.owner(name).package == OURS]
assert "roberta_sentence_prediction" in names
found = {
    "task roberta_masked_lm": TASK_REGISTRY["roberta_masked_lm"],
    "criterion roberta_masked_lm": CRITERION_REGISTRY["roberta_masked_lm"],
    **{
        f"{kind} {name}": registry[name]
        for name in names
        for kind, registry in (("task", TASK_REGISTRY), ("criterion", CRITERION_REGISTRY))
    },
    "model fast_roberta": MODEL_REGISTRY["fast_roberta"],
    **{f"arch {size}": ARCH_MODEL_REGISTRY[f"fast_roberta_{size}"] for size in ("tiny", "mini", "small", "base", "large")},
}
for name, cls in found.items():
    print(name, "->", cls.__module__)
    assert cls.__module__.startswith("roberta_plugin."), f"{name} is {cls}"
assert len(found) == 8 + 2 * len(names)
print("all ours")
"""

USER_DIR = f"""
import argparse
from fairseq import utils
utils.import_user_module(argparse.Namespace(user_dir={str(REPOSITORY / "roberta_plugin")!r}))
"""

LINK = f"""
import os, tempfile
folder = tempfile.mkdtemp()
os.symlink({str(REPOSITORY / "roberta_plugin")!r}, os.path.join(folder, "other_name"))
""" + USER_DIR.replace(repr(str(REPOSITORY / "roberta_plugin")), 'os.path.join(folder, "other_name")')

REGISTER = "\nimport roberta_plugin\nroberta_plugin.register()\n"
FAIRSEQ_FIRST = {  # also `from fairseq import utils` imports all of it
    "fairseq first": "import fairseq.tasks, fairseq.models, fairseq.criterions\nimport roberta_plugin",
    "user-dir alone": USER_DIR,
    "user-dir, then plain import": USER_DIR + "\nimport roberta_plugin",
    "user-dir, then register twice": USER_DIR + 2 * REGISTER,
    "user-dir, a link of another name": LINK,
}
PLUGIN_FIRST = {
    "plain import and register": REGISTER,
    "plugin first": "import roberta_plugin\nimport fairseq.tasks, fairseq.models, fairseq.criterions" + REGISTER,
    "plain import, then user-dir, then register": "import roberta_plugin\n" + USER_DIR + REGISTER,
    "plain import, then such a link": "import roberta_plugin\n" + LINK,
    "the hub's module": "import roberta_plugin.hub" + REGISTER,
}
ORDERS = {**FAIRSEQ_FIRST, **PLUGIN_FIRST}


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=200
    )


@pytest.mark.parametrize("order", ORDERS)
def test_every_name_is_ours(order):
    fork_of = "fairseq" if order in FAIRSEQ_FIRST else "packages"
    done = run_python(ORDERS[order] + CHECK, cwd=REPOSITORY, environment=environment(), fork_of=fork_of)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("all ours")


def test_the_name_of_a_script_does_not_matter(tmp_path):
    (tmp_path / "roberta.py").write_text("import fairseq\nimport roberta_plugin\n" + CHECK)
    program = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(f'{sys.argv[1]}/roberta.py')"
    done = run_python(program, str(tmp_path), cwd=tmp_path, environment=environment())
    assert done.stdout.rstrip().endswith("all ours"), done.stderr


def test_a_plain_import_registers_nothing_and_prints_nothing():
    done = run("-c", "import sys, roberta_plugin\nassert 'fairseq' not in sys.modules and 'torch' not in sys.modules")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "module", ["roberta_plugin.launch.rendezvous", "roberta_plugin.data.binarize.workers", "roberta_plugin.cli"]
)
def test_light_modules_stay_light(module):
    """A thousand processes import the first, and every worker of `roberta binarize` the second."""
    done = run("-c", f"import sys, {module}\nprint(*sys.modules)")
    loaded = done.stdout.split()
    assert module in loaded, done.stderr
    heavy = {"torch", "fairseq", "hydra", "omegaconf", "matplotlib", "transformers", "tensorboard"}
    assert not heavy & set(loaded)
    assert len(loaded) < 500, f"{module} loads {len(loaded)} modules"


LATE = """
import sys
import roberta_plugin
roberta_plugin.register()
heavy = ("sklearn", "sklearn.metrics", "scipy.stats")
assert not set(heavy) & set(sys.modules), "imported, or a stand-in is left"

from fairseq.criterions import sentence_prediction as criterion
from fairseq.tasks.audio_classification import sklearn_metrics
assert criterion.f1_score([1, 0, 1], [1, 1, 1]) == 0.8
assert criterion._matthews_corrcoef([1, 0, 1], [1, 0, 1]) == 1.0
assert sklearn_metrics.roc_auc_score([0, 1], [0.2, 0.7]) == 1.0
assert round(criterion.pearsonr([1, 2, 3], [2, 4, 6])[0], 9) == 1.0

import sklearn.metrics, sklearn.linear_model, scipy.stats
assert sklearn.__version__ and sklearn.metrics.f1_score.__module__.startswith("sklearn.")
assert all(sys.modules[name].__file__ for name in heavy)
print("late")
"""

LOADED = """
import sys, scipy.stats, sklearn.metrics
before = [sys.modules[name] for name in ("sklearn", "sklearn.metrics", "scipy.stats")]
import roberta_plugin.fairseq_import
from fairseq.criterions import sentence_prediction as criterion
assert before == [sys.modules[name] for name in ("sklearn", "sklearn.metrics", "scipy.stats")]
assert criterion.f1_score is sklearn.metrics.f1_score and criterion.pearsonr is scipy.stats.pearsonr
print("as before")
"""


def test_functions_of_packages_are_imported_when_they_are_called():
    how = {"cwd": REPOSITORY, "environment": environment()}
    late, loaded = run_python(LATE, **how, fork_of="torch"), run_python(LOADED, **how)
    assert late.stdout.endswith("late\n"), late.stderr
    assert loaded.stdout.endswith("as before\n"), loaded.stderr


def test_a_missing_package_is_named_with_its_extra():
    require("numpy", extra="test", purpose="--to toys")
    message = r"--to toys needs no_such_package, .*pip install no_such_package .*roberta_plugin\[test\]"
    refused(message, require, "numpy", "no_such_package", extra="test", purpose="--to toys")


def test_every_extra_that_an_error_names_exists():
    named = set()
    for path in (REPOSITORY / "roberta_plugin").rglob("*.py"):
        named |= set(re.findall(r'require\([^)]*extra="([a-z-]+)"', path.read_text()))
    assert named
    assert named <= set(importlib.metadata.metadata("roberta_plugin").get_all("Provides-Extra"))
