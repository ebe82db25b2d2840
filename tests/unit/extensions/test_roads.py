"""Each option of an extension has an effect on the road that the command takes, or is refused by name.

`ROADS` has the options with a meaning on some roads alone, and a command on another one; the others are refused once the
model says its kind, or have a meaning everywhere. A new option is in neither: decide, and add it.
"""

from dataclasses import fields

import pytest

from roberta_plugin.cli import main
from roberta_plugin.registry import EXPORT_OPTIONS, IMPORT_OPTIONS, PREDICT_OPTIONS
from roberta_plugin.settings import flag

OTHERS = {
    "predict": "--pooling --normalize --null-threshold --valid-sequences --threshold --temperature --no-trigram-blocking "
    "--score --per-token --prompt-name",
    "export": "",
    "import": "--adapter",
}
ROADS = {
    "predict": {
        "--length-share": "m TEXT --length-share 0.5 --num-sentences 2",
        "--num-sentences": "m TEXT --num-sentences 2 --length-share 0.5",
    },
    "export": {"--int8": "m --to fairseq --output-dir o --int8 text"},
    "import": {},
}
REGISTRIES = {"predict": PREDICT_OPTIONS, "export": EXPORT_OPTIONS, "import": IMPORT_OPTIONS}


@pytest.mark.parametrize("verb", REGISTRIES)
def test_the_road_of_every_option_is_known(verb):
    slices = [REGISTRIES[verb].load(name) for name in REGISTRIES[verb]]
    assert {flag(item) for each in slices for item in fields(each)} == {*OTHERS[verb].split(), *ROADS[verb]}


@pytest.mark.parametrize(("verb", "option"), [(verb, option) for verb, cases in ROADS.items() for option in cases])
def test_an_option_without_effect_on_the_road_taken_is_refused_by_name(verb, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([verb, *ROADS[verb][option].split()]) == 2
    error = capsys.readouterr().err
    assert option in error and "Traceback" not in error
    assert not (tmp_path / "o").exists()
