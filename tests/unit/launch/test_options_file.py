"""YAML files of options: one reader, one way to a command line."""

import pytest

from roberta_plugin.launch.options_file import locate, named_options, read_yaml, to_arguments


def write(tmp_path, content):
    path = tmp_path / "x.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_values_are_text_as_it_is_written(tmp_path):
    path = write(tmp_path, "{a: 1e-4, b: 8:00:00, c: no, d: 010, e: [1.50], 256: x}")
    assert read_yaml(path) == {"a": "1e-4", "b": "8:00:00", "c": "no", "d": "010", "e": ["1.50"], "256": "x"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff\n", "x.yaml, line 2: this is not UTF-8 (byte 0xff)"),
        ("a: 1\nb: [\n", "x.yaml, line 3: this is not valid YAML"),
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "x.yaml, line 4: c is given twice"),
        ("? [1, 2]\n: 3\n", "x.yaml, line 1: a key must be a word"),
        ("", "must hold keys and their values, one per line"),
        ("a: " + "[" * 5000 + "]" * 5000, "x.yaml: its lists or mappings are nested too deeply: write it as those"),
        ("- a\n", "must hold keys and their values, one per line"),
    ],
)
def test_what_is_refused_names_the_file_and_the_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=r"x\.yaml") as refused:
        read_yaml(write(tmp_path, content))
    assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.yaml"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr: 1e-4", ["--lr", "1e-4"]),
        ("bf16: true", ["--bf16"]),
        ("bf16: True", ["--bf16"]),
        ("bf16: false", []),
        ("bf16: False", []),
        ("lr:", []),
        ("lr: ~", []),
        ("lr: null", []),
        ("keep: [1, 2]", ["--keep", "1", "2"]),
        ("adam_betas: (0.9,0.98)", ["--adam-betas", "(0.9,0.98)"]),
        ("sample-break-mode: none", ["--sample-break-mode", "none"]),
        ("{a: 1, data: d, b: 2}", ["d", "--a", "1", "--b", "2"]),
        ("--seed: 4", ["--seed", "4"]),
    ],
)
def test_options_become_words(tmp_path, text, words):
    options = named_options(read_yaml(write(tmp_path, text)), where="x")
    assert to_arguments(options, where="x") == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu: yes", "x: --cpu is 'yes': write true"),
        ("cpu: Off", "x: --cpu is 'Off': write false"),
        ("keep: []", "x: --keep must be a value or a list of values"),
        ("keep: [1, null]", "x: --keep must be a value or a list of values"),
        ("keep: {a: 1}", "x: --keep must be a value or a list of values"),
        ("{adam_eps: 1, adam-eps: 2}", "x: --adam-eps is given twice"),
    ],
)
def test_options_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        to_arguments(named_options(read_yaml(write(tmp_path, text)), where="x"), where="x")


def test_an_option_of_a_message_is_found_in_the_file(tmp_path):
    path = write(tmp_path, "output_dir: r\n# lr: 3\ntrain:\n  lr: 6e-\n  adam_eps: 1\naxes: {drop-out: [1]}\n")
    assert locate(path, "cannot read --lr 6e-") == f"{path}, line 4"
    assert locate(path, "unknown --adam-eps") == f"{path}, line 5"
    assert locate(path, "unknown --nope, --drop-out") == f"{path}, line 6"
    assert locate(path, "unknown --nope") == str(path)
