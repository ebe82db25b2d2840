"""The `roberta` command itself: verbs, errors and exit codes."""

import errno
import os
import signal
import subprocess
import sys
import types
from dataclasses import dataclass

import pytest

from roberta_plugin import __version__, cli
from roberta_plugin.cli.command import command, terminated_like_interrupted
from roberta_plugin.settings import setting
from tests.conftest import REPOSITORY


@pytest.fixture
def verb(monkeypatch):
    """Replace the command of `roberta inspect` by one whose function the test sets."""
    module = types.ModuleType("roberta_plugin.cli.inspect")

    @dataclass(frozen=True)
    class Settings:
        number: int = setting(0, "a number")
        output_dir: str | None = setting(None, "a folder")

    module.inspect = command(Settings)(lambda settings: module.act(settings))
    monkeypatch.setitem(sys.modules, "roberta_plugin.cli.inspect", module)
    return module


def raising(error):
    def act(args):
        raise error

    return act


def test_the_verb_gets_its_options_and_gives_the_exit_code(verb):
    verb.act = lambda settings: settings.number
    assert cli.main(["inspect", "--number", "7"]) == 7


@pytest.mark.parametrize(
    "error", [ValueError("--number is odd"), FileNotFoundError("x.bin is gone"), ChildProcessError("it failed")]
)
def test_a_user_error_is_one_line_without_traceback(verb, capsys, error):
    verb.act = raising(error)
    assert cli.main(["inspect"]) == 2
    assert capsys.readouterr().err == f"roberta inspect: {error}\n"


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "Free some space"), (errno.EROFS, "elsewhere"), (errno.EACCES, "permissions")]
)
@pytest.mark.parametrize(("file", "named"), [("/data/train.bin", "/data/train.bin"), (None, "runs/mine")])
def test_an_error_of_the_disk_has_its_file_and_a_remedy(verb, capsys, number, remedy, file, named):
    verb.act = raising(OSError(number, os.strerror(number), file))
    assert cli.main(["inspect", "--output-dir", "runs/mine"]) == cli.USER_ERROR
    said = capsys.readouterr().err
    assert said.startswith(f"roberta inspect: {named}: {os.strerror(number)}. ")
    assert remedy in said and "Errno" not in said


def roberta(words, **options):
    """`roberta WORDS` in a shell."""
    line = f"{sys.executable} -m roberta_plugin.cli {words}"
    return subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, **options)


def test_an_output_that_cannot_be_written_is_named():
    closed, full = (roberta("profile --help >&-"), roberta("jobs slurm >/dev/full", cwd=REPOSITORY))
    assert (closed.returncode, full.returncode) == (2, 2)
    assert closed.stderr.startswith("roberta: standard output is closed"), closed.stderr
    assert full.stderr.startswith("roberta jobs: Standard output: No space left on device. Free"), full.stderr


def test_paths_of_any_characters_in_a_locale_of_ascii(tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = roberta(f"inspect {tmp_path}/W\u00f6rter", env={**os.environ, **plain})
    assert done.returncode == 2
    assert "W\u00f6rter" in done.stderr, "Python alone shows W\\udcc3\\udcb6rter"


def test_debug_shows_the_traceback_and_our_own_mistakes_are_not_hidden(verb, capsys):
    verb.act = raising(ValueError("--number is odd"))
    assert cli.main(["--debug", "inspect"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown and "in act" in shown
    verb.act = raising(KeyError("a fault of the program"))
    with pytest.raises(KeyError):
        cli.main(["inspect"])


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), ""),
        (ImportError("x.so: failed to map segment from shared object"), " (x.so: failed to map segment from shared ob"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to\nmore"), " (DefaultCPUAllocator: can'"),
    ],
)
def test_lack_of_memory_is_a_sentence(verb, capsys, error, why):
    verb.act = raising(error)
    assert cli.main(["inspect"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"roberta inspect: memory ran out{why}") and len(said.splitlines()) == 1
    assert said.endswith(": give it more, or smaller files or batches.\n")


def test_a_missing_package_is_a_sentence_and_a_fault_of_ours_is_not(verb, capsys):
    verb.act = raising(ModuleNotFoundError("No module named 'sacremoses.util'", name="sacremoses.util"))
    assert cli.main(["inspect"]) == 2
    said = "the Python package sacremoses is missing here. `roberta doctor` finds what an installation lacks"
    assert capsys.readouterr().err.startswith(f"roberta inspect: {said}")
    verb.act = raising(ModuleNotFoundError("No module named 'roberta_plugin.x'", name="roberta_plugin.x"))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["inspect"])


def test_names_in_files_do_not_command_the_terminal(verb, capsys):
    verb.act = raising(ValueError("key \x1b[2J\x9b0m\u202ex is\twrong:\n  \u0928\u092e\u0938\u094d\u200d\u0924\u0947"))
    assert cli.main(["inspect"]) == 2
    shown = "key \\x1b[2J\\x9b0m\\u202ex is\twrong:\n  \u0928\u092e\u0938\u094d\u200d\u0924\u0947"
    assert capsys.readouterr().err == f"roberta inspect: {shown}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("error", [ValueError("model.pt is damaged"), BaseException("a panic of Rust")])
def test_an_interrupt_that_a_library_swallows_is_one(verb, capsys, number, error):
    verb.act = raising(KeyboardInterrupt)
    assert cli.main(["inspect"]) == 130
    assert "Traceback" not in capsys.readouterr().err

    def act(args):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise error from None

    verb.act = terminated_like_interrupted()(act)
    assert cli.main(["inspect"]) == 128 + number
    assert capsys.readouterr().err == "interrupted\n"
    verb.act = lambda args: int("x")  # and the next command of this process has not been interrupted
    assert cli.main(["inspect"]) == 2


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"roberta_plugin {__version__}\n")


@pytest.mark.parametrize("words", [[], ["no-such-verb"], ["inspect", "--no-such-option"]])
def test_a_wrong_command_line_exits_with_2(verb, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2 and "usage: roberta" in capsys.readouterr().err


def test_called_verb():
    assert cli.called_verb([]) is cli.called_verb(["--help"]) is None
    assert cli.called_verb(["demo"]) == "demo"
    assert cli.called_verb(["--debug", "doctor", "--json"]) == "doctor"


def test_help_lists_every_verb_and_imports_nothing_heavy():
    code = """
import sys
from roberta_plugin.cli import all_verbs, main

def show(*words, heavy):
    try:
        main([*words, "--help"])
    except SystemExit as stop:
        assert stop.code == 0
    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))

show(heavy={"torch", "fairseq", "numpy", "matplotlib", "tqdm"})
assert len(all_verbs()) >= 5
print("OF A VERB")
for verb in all_verbs():
    show(verb, heavy={"torch", "fairseq"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    of_all = done.stdout.partition("OF A VERB")[0]
    for name, verb in cli.all_verbs().items():
        assert name in of_all and verb.summary.split()[0] in of_all


def test_a_shell_completes_verbs_and_their_options(capsys, tmp_path):
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["--print-completion", shell])
        assert stop.value.code == 0
        (tmp_path / shell).write_text(capsys.readouterr().out)
    assert "--max-length" in (tmp_path / "zsh").read_text()
    asked = f"""
    . {tmp_path}/bash
    for words in "inf" "ins" "sweep --dry"; do
        COMP_WORDS=(roberta $words) COMP_CWORD=$(wc -w <<< "$words") COMPREPLY=() && _shtab_roberta; echo "${{COMPREPLY[@]}}"
    done
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:3] == ["", "inspect", "--dry-run"], done.stderr


def test_completion_without_shtab_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["--print-completion", "bash"])
    assert stop.value.code == 2
    assert "--print-completion needs shtab, not installed here: pip install shtab" in capsys.readouterr().err
