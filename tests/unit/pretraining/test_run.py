"""From text files to the verbs that make a data-bin; the record of a training that has begun."""

import gzip
import itertools
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from roberta_plugin.data.text_inputs import FAIRSEQ_RULES, InputSettings, LineRules
from roberta_plugin.data.text_inputs_files import find_inputs
from roberta_plugin.json_files import read_json, write_json
from roberta_plugin.launch.recipe_checks import check_changes
from roberta_plugin.pretraining.plan import count_symbols, make_plan
from roberta_plugin.pretraining.record import RECORD, check_record, earlier_logs
from roberta_plugin.pretraining.request import Request
from roberta_plugin.pretraining.run import command_line, shown, train
from roberta_plugin.pretraining.settings import PretrainSettings
from roberta_plugin.pretraining.texts import check_texts, copy_text, steps_of_text
from roberta_plugin.runs import write_record


def documents(number, *, lines=2):
    return "".join(f"{'This is a line of text.' + chr(10)}" * lines + f"Document {one}.\n\n" for one in range(number))


def hold_out(text, train, valid):
    copy_text(find_inputs([str(text)]), train, valid, rules=FAIRSEQ_RULES)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(documents(120))
    return path


@pytest.fixture
def given(text, tmp_path):
    """A pretraining on 120 documents."""
    return PretrainSettings(data=[str(text)], output_dir=tmp_path / "run")


def test_every_fiftieth_document_is_held_out_and_none_is_lost(text, tmp_path):
    hold_out(text, tmp_path / "train.txt", tmp_path / "valid.txt")
    train, valid = ((tmp_path / f"{split}.txt").read_text() for split in ("train", "valid"))
    assert valid.count("Document") == 2 and "Document 49." in valid and "Document 99." in valid
    assert train.count("Document") == 118
    assert sorted((train + valid).split("\n\n")) == sorted(text.read_text().split("\n\n"))


def test_one_long_document_is_held_out_in_parts_and_a_short_one_is_refused(tmp_path):
    text = tmp_path / "text.txt.gz"
    text.write_bytes(gzip.compress(b"A line.\n" * 5000))
    hold_out(text, tmp_path / "train.txt", tmp_path / "valid.txt")
    assert (tmp_path / "valid.txt").read_text().count("A line.") == 100
    text.write_bytes(gzip.compress(b"A line.\n" * 50))
    (tmp_path / "train.txt").unlink()
    with pytest.raises(ValueError, match=r"text\.txt\.gz.*--valid"):
        hold_out(text, tmp_path / "train.txt", tmp_path / "other.txt")
    assert not (tmp_path / "train.txt").exists() and not (tmp_path / "other.txt").exists()


def test_text_is_made_into_a_tokenizer_and_a_data_bin_with_what_is_given(given, tmp_path):
    train, binarize = steps_of_text(given)
    assert train[:2] == ["tokenizer", "train"] and train[train.index("--vocab-size") + 1] == "1000"
    assert binarize[binarize.index("--valid") + 1] == str(tmp_path / "run" / "text" / "valid.txt")
    (tmp_path / "v.jsonl").write_text('{"body": "A line."}\n')
    own = replace(given, valid=[str(tmp_path / "v.jsonl")], tokenizer=tmp_path / "bpe", output_dir=tmp_path / "other")
    own = replace(own, reading=InputSettings(rules=LineRules(text_column="body")))
    (verb,) = steps_of_text(own)
    options = dict(itertools.pairwise(verb))
    assert options["--tokenizer"] == str(tmp_path / "bpe")
    assert options["--valid"].endswith("v.jsonl") and options["--text-column"] == "body"
    assert not (tmp_path / "other" / "text").exists()
    auto = replace(own, reading=InputSettings(rules=LineRules(text_column="auto")), output_dir=tmp_path / "third")
    assert "auto" in steps_of_text(auto)[0], "a column called as the default of another option is a column"


def test_rows_of_a_table_are_held_out_by_the_column_that_is_named(given, tmp_path):
    (tmp_path / "t.csv").write_text("id,body\n" + "".join(f"{row},Document {row}.\n" for row in range(60)))
    reading = InputSettings(rules=LineRules(text_column="body"))
    steps_of_text(replace(given, data=[str(tmp_path / "t.csv")], reading=reading))
    assert (tmp_path / "run" / "text" / "valid.txt").read_text() == "Document 49.\n\n"


def test_a_copy_that_was_killed_between_its_two_files_is_made_again(given, tmp_path):
    steps_of_text(given)
    train = tmp_path / "run" / "text" / "train.txt"
    train.unlink()  # valid.txt is written first
    steps_of_text(given)
    assert train.read_text().count("Document") == 118


def test_other_text_than_that_of_the_first_start_is_refused_by_what_differs(text, given):
    text.write_text(documents(20))
    with pytest.raises(ValueError, match="--valid"):
        steps_of_text(given)
    text.write_text(documents(120))  # nothing was made yet
    steps_of_text(given)
    for changes, message in (
        ({"vocab_size": 900}, r"--vocab-size was not given and is 900 now.*another --output-dir"),
        (
            {"reading": InputSettings(rules=LineRules(skip_bad_lines=True))},
            "--skip-bad-lines was not given and is True",
        ),
        ({"reading": InputSettings(text_format="text")}, "--format was auto and is text now"),
    ):
        with pytest.raises(ValueError, match=message):
            steps_of_text(replace(given, **changes))
    text.write_text(documents(121))
    with pytest.raises(ValueError, match=r"DATA was .*text\.txt of [\d,]+ bytes and is .* now"):
        steps_of_text(given)


def test_text_changed_under_its_name_and_size_is_refused_and_touched_text_is_not(text, given):
    steps_of_text(given)
    os.utime(text, (1, 1))
    steps_of_text(given)
    text.write_text(text.read_text().replace("This", "That"))
    with pytest.raises(
        ValueError, match=r"text\.txt has changed since .*run was made from it: give another --output-dir"
    ):
        steps_of_text(given)
    with pytest.raises(ValueError, match="has changed since"):  # before anything else, with --dry-run as well
        check_texts(given)


def test_an_edited_copy_is_refused(given, tmp_path):
    steps_of_text(given)
    copy = tmp_path / "run" / "text" / "train.txt"
    os.utime(copy, (1, 1))
    steps_of_text(given)
    copy.write_text(copy.read_text().replace("This", "That"))
    with pytest.raises(ValueError, match=r"train\.txt is no longer the copy .* delete .*run"):
        steps_of_text(given)


@pytest.mark.parametrize(
    "name",
    ["text/train.txt", "text/valid.txt", "tokenizer/dict.txt", "tokenizer/tokenizer.json", "data-bin/train.bin"],
)
def test_what_was_in_the_folder_before_is_neither_used_nor_overwritten(name, given, tmp_path):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text("theirs")
    for start in (steps_of_text, check_texts):
        with pytest.raises(
            FileExistsError, match=rf"{name.removesuffix('/tokenizer.json')} was there before.*another --output-dir"
        ):
            start(given)
    assert path.read_text() == "theirs" and not (tmp_path / "run" / "text.json").exists()


def test_without_its_record_a_folder_takes_no_text_and_one_of_an_earlier_version_goes_on(given, tmp_path):
    steps_of_text(given)
    record = tmp_path / "run" / "text.json"
    kept = read_json(record, keys=(), remedy="")
    write_json(record, {name: kept[name] for name in kept if name not in ("versions", "sha256", "copies", "bad_lines")})
    steps_of_text(given)
    record.unlink()
    with pytest.raises(FileExistsError, match=r"train\.txt was there before, and no text\.json says"):
        steps_of_text(given)


def test_own_text_in_the_folder_can_be_the_data(given, tmp_path):
    folder = tmp_path / "run" / "text"
    folder.mkdir(parents=True)
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text(documents(60))
    names = {"data": [str(folder / "train.txt")], "valid": [str(folder / "valid.txt")]}
    with pytest.raises(FileExistsError, match="give it as DATA, with --valid"):
        steps_of_text(replace(given, data=names["data"]))
    assert str(folder / "train.txt") in steps_of_text(replace(given, **names))[0]


def test_bad_lines_that_are_left_out_are_counted_when_a_part_is_held_out(given, text, caplog):
    text.write_bytes(text.read_bytes() + b"\xff\n\xfe\n")
    steps_of_text(replace(given, reading=InputSettings(rules=LineRules(skip_bad_lines=True))))
    assert "2 bad lines of the text left out" in caplog.text


def test_text_and_tokenizer_may_have_moved_with_the_folder(tmp_path):
    def start(root):
        texts = [str(root / name) for name in ("one.txt", "two.txt")]
        steps_of_text(PretrainSettings(data=texts, output_dir=root / "run", tokenizer=root / "tokenizer"))

    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    for name in ("one.txt", "two.txt"):
        (before / name).write_text(documents(120))
    start(before)
    before.rename(now)
    start(now)
    (now / "two.txt").write_text(documents(121))
    with pytest.raises(ValueError, match=r"DATA was .*two\.txt of [\d,]+ bytes and is .* now\. Give"):
        start(now)


def test_text_is_told_from_a_data_bin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bin", "saved", "a,b:c@d"):
        Path(name).mkdir()
    Path("saved/state.json").touch()
    Path("one,two@x.txt").touch()
    texts = ["-", "hf://datasets/a/b@main/c.parquet", "'*.txt'", "saved", "one,two@x.txt", "nowhere.txt"]
    assert all(PretrainSettings(data=[name]).is_text for name in texts)
    assert not any(PretrainSettings(data=[name]).is_text for name in ("bin", "bin/", ".", "a,b:c@d", "bin@2,saved@1"))


def test_the_folder_is_named_after_the_data():
    assert PretrainSettings(data=["data-bin/books"]).folder == Path("runs/books").absolute()
    for name in ("a/latin.txt.gz", "latin/*.txt", "a/latin,b/greek", "hf://datasets/x/latin.parquet", "latin:greek"):
        assert PretrainSettings(data=[name]).folder == Path("runs/latin").absolute()
    assert PretrainSettings(data=["my text.txt"]).folder == Path("runs/my-text").absolute()
    assert PretrainSettings(data=["."]).folder == Path("runs", Path.cwd().name.split(".")[0]).absolute()


def test_other_options_than_those_that_a_training_began_with_are_refused(tmp_path):
    folders = ["--save-dir", str(tmp_path / "checkpoints")]
    check_record(tmp_path, ["bin", "--lr", "1e-3", "--bf16", *folders])
    check_record(tmp_path, ["bin", "--lr", "1e-3", "--bf16", *folders, "--user-dir", "elsewhere"])
    with pytest.raises(ValueError, match=r"--lr was 1e-3 and is 2e-3 now.*another --output-dir"):
        check_record(tmp_path, ["bin", "--lr", "2e-3", "--bf16", *folders])


def test_what_differs_from_an_older_record_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    older = {"data": "a@2,b@1", "--lr": "1e-3", "--save-dir": str(tmp_path / "checkpoints")}  # as version 0.2 wrote it
    write_json(tmp_path / RECORD, older)
    now = PretrainSettings(data=["a@2,b@1"], recipe="demo", hours=1)
    arguments = ["a@2,b@1", "--save-dir", older["--save-dir"], "--lr"]
    check_record(tmp_path, [*arguments, "1e-3"], settings=now, cores=2)
    with pytest.raises(ValueError, match=r"options: --lr was 1e-3 and is 2e-3 now\. Give"):
        check_record(tmp_path, [*arguments, "2e-3"], settings=now, cores=2)


def test_a_training_goes_on_from_another_current_folder_and_after_its_folder_was_moved(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    check_record(tmp_path, ["bin", "--save-dir", "/before/checkpoints"])
    monkeypatch.chdir(tmp_path / "bin")
    check_record(tmp_path, ["../bin", "--save-dir", "/now/checkpoints"])
    with pytest.raises(ValueError, match="DATA was"):
        check_record(tmp_path, ["..", "--save-dir", "/now/checkpoints"])


@pytest.mark.parametrize("option", ["--restore-file", "--continue-once", "--finetune-from-model"])
def test_what_a_training_began_with_is_the_same_from_another_current_folder_and_when_it_is_gone(
    option, tmp_path, monkeypatch
):
    for name in ("old", "others", "sub"):
        (tmp_path / name).mkdir()
    words = ["bin", "--save-dir", str(tmp_path / "run" / "checkpoints"), option]
    monkeypatch.setattr("roberta_plugin.pretraining.record.whole_paths", lambda data: "/bin")
    monkeypatch.chdir(tmp_path)
    check_record(tmp_path, [*words, "old"])
    monkeypatch.chdir(tmp_path / "sub")
    check_record(tmp_path, [*words, "../old"])
    with pytest.raises(ValueError, match=rf"{option} was {tmp_path}/old and is {tmp_path}/others now"):
        check_record(tmp_path, [*words, "../others"])
    (tmp_path / "old").rmdir()
    check_record(tmp_path, [*words, "../old"])


def test_a_training_goes_on_after_its_folder_was_moved_with_its_data_bin(tmp_path):
    before, now = tmp_path / "x" / ".." / "before", tmp_path / "now"
    (tmp_path / "x").mkdir()
    (before / "data-bin").mkdir(parents=True)
    check_record(before, [str(before / "data-bin"), "--save-dir", str(before / "checkpoints")])
    before.rename(now)
    check_record(now, [str(now / "data-bin"), "--save-dir", str(now / "checkpoints")])


@pytest.fixture
def planned(tiny_data_bin, tmp_path):
    """The plan of a pretraining on a data-bin, by options of fairseq-train and settings."""

    def make(*words, torchrun=0, **given):
        settings = PretrainSettings(data=[str(tiny_data_bin)], output_dir=tmp_path, **given)
        return make_plan(Request(settings, str(tiny_data_bin), [*words], torchrun=torchrun))

    return make


@pytest.fixture
def cores(monkeypatch):
    """Set the number of cores of this machine."""
    return lambda number: monkeypatch.setattr("roberta_plugin.pretraining.choice.num_cores", lambda: number)


@pytest.mark.parametrize(("has_bf16", "named"), [(True, "about 0.5 h here"), (False, "about 0.9 h here")])
def test_the_length_is_said_for_the_processor_here_and_the_growth_fits_the_hours(
    has_bf16, named, planned, cores, monkeypatch
):
    monkeypatch.setattr("roberta_plugin.models.cpu.has_fast_bf16", lambda: has_bf16)
    cores(1)
    said = "\n".join(planned(recipe="half-hour").described())
    assert named in said and "(the recipe takes 0.5 h on one core of an AMD EPYC with AVX512-BF16)" in said
    assert ("no bf16" in said) == (not has_bf16)
    shorter = planned(recipe="two-hours", hours=0.6).parsed
    first, second = (1000, 3800) if has_bf16 else (556, 2111)  # 0.4 and 0.222 of 2,500 and 9,500 updates
    assert shorter.grow_max_tokens == f"0:1024 {first}:2048 {second}:4096"
    assert shorter.lr_stages.split()[-1] == f"{shorter.max_update}:0"
    launched = planned(recipe="half-hour", slurm={})  # of the nodes, the processor of the login machine says nothing
    assert launched.parsed.matmul_precision == "medium" and "bf16" not in "".join(launched.notes)
    assert launched.recipe.updates == 9800


@pytest.mark.parametrize(
    ("recipe", "further", "note"),
    [("base", [], ""), ("tour", ["--arch", "fast_roberta_base"], "--arch: the time of a model of another size is not")],
)
def test_no_time_here_is_said_for_gpus_that_are_not_here_nor_for_another_model(recipe, further, note, tiny_data_bin):
    given = PretrainSettings(data=[str(tiny_data_bin)], recipe=recipe, dry_run=True)
    said = "\n".join(make_plan(Request(given, str(tiny_data_bin), ["--cpu", *further])).described())
    assert "the recipe takes" in said and " here" not in said and note in said


def test_a_pipe_that_is_not_read_again_is_said_so(tmp_path, caplog):
    """Another text may come out of it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "valid.txt").write_text("A line of text.\n")
    given = PretrainSettings(
        data=[str(tmp_path / "pipe")], valid=[str(tmp_path / "valid.txt")], output_dir=tmp_path / "run"
    )
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["A line of text.\n"])
    writer.start()
    steps_of_text(given)
    writer.join()
    assert "not read again" not in caplog.text
    steps_of_text(given)
    assert f"not read again: the text is {tmp_path / 'run' / 'text' / 'train.txt'}" in caplog.text


def test_before_there_is_a_tokenizer_the_plan_is_for_the_size_of_the_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A line of text.\n" * 65_536)
    given = PretrainSettings(data=[str(text)], hours=20.0, output_dir=tmp_path / "run")
    request = Request(given, str(tmp_path / "run" / "data-bin"), ["--cpu"])
    plan = make_plan(request)
    said = "\n".join(plan.described())
    assert count_symbols(request) == 3200 == count_symbols(replace(request, settings=replace(given, vocab_size=3200)))
    size = plan.parsed.encoder_embed_dim * (50_265 - 3200) / 1e6  # parameters that the paper's vocabulary would add
    sizes = [float(plan.estimated(vocab_size=number).split()[-3]) for number in (3200, 0)]
    assert sizes[1] - sizes[0] == pytest.approx(size, rel=0.02)
    assert "about 260,000 tokens of text" in said and "40.0 passes over the text" in said
    assert "40 passes over the text will finish before 20 hours" in said


def test_a_training_keeps_its_length_on_a_machine_of_other_cores(planned, cores, tmp_path):
    cores(8)
    for updates in (20, 400, 6849):  # taken at their word on any machine
        plan = planned("--cpu", recipe="demo", updates=updates)
        assert plan.recipe.updates == plan.parsed.max_update == updates
    cores(4)
    plan = planned("--cpu", recipe="tour", hours=0.02)
    check_record(tmp_path, plan.arguments, cores=plan.machine.cores)
    cores(1)
    assert planned("--cpu", recipe="tour", hours=0.02).arguments == plan.arguments
    check_record(tmp_path, plan.arguments, cores=1)


@pytest.mark.parametrize("torchrun", [0, 2])
def test_a_launched_training_keeps_its_length_on_nodes_of_other_cores(torchrun, planned, cores, tmp_path):
    def begin(number, hours=0.1):
        cores(number)
        slurm = None if torchrun else {"cpus_per_gpu": str(number)}
        plan = planned("--cpu", recipe="half-hour", hours=hours, slurm=slurm, torchrun=torchrun)
        changes = check_changes(plan.ranks, tuple(plan.arguments), accepted_by="")
        write_record(tmp_path, plan.ranks.record(tuple(plan.arguments), changes=changes, snapshot=""))
        return plan

    first = begin(2)
    assert begin(4).arguments == first.arguments
    with pytest.raises(ValueError, match=r"with other settings: --hours was 0\.1 and is 0\.2 now\. Keep"):
        begin(2, hours=0.2)
    record = read_json(tmp_path / "run.json", keys=["asked"], remedy="none")
    for damaged in (None, {}, {**record["asked"]["machine"], "cores": "x"}, {**record["asked"]["machine"], "disks": 2}):
        write_json(tmp_path / "run.json", {**record, "asked": {**record["asked"], "machine": damaged}})
        with pytest.raises(ValueError, match=r"run\.json: 'machine' is .* describes no machine: delete it"):
            begin(2)
    (tmp_path / "run.json").unlink()
    assert begin(4).recipe.updates > first.recipe.updates


def test_other_hours_are_told_as_such_and_not_as_the_options_that_follow_from_them(tiny_data_bin, tmp_path):
    def begin(*further, **given):
        settings = PretrainSettings(data=[str(tiny_data_bin)], output_dir=tmp_path, **{"recipe": "tour", **given})
        plan = make_plan(Request(settings, str(tiny_data_bin), ["--cpu", *further]))
        check_record(tmp_path, plan.arguments, settings=settings, cores=plan.machine.cores)

    begin(hours=0.01)
    with pytest.raises(ValueError, match=r"other options: --hours was 0\.01 and is 0\.02 now\. Give"):
        begin(hours=0.02)
    said = r"other options: --recipe was tour and is demo now; --hours .*not given now\. "
    with pytest.raises(ValueError, match=said):
        begin(recipe="demo", hours=None)
    with pytest.raises(ValueError, match=r"other options: --lr was 1\.5e-3 and is 1 now\. .*--without leaves out"):
        begin("--lr", "1", hours=0.01)
    record = read_json(tmp_path / RECORD, keys=(), remedy="")
    write_json(tmp_path / RECORD, {name: value for name, value in record.items() if name != "--hours"})
    begin(hours=0.01)  # a record of an earlier version


def plan_of(*command, **further):
    machine, recipe = SimpleNamespace(gpus=1), SimpleNamespace(updates=3)
    return SimpleNamespace(command=[*command], machine=machine, recipe=recipe, is_timed=False, **further)


def test_warnings_of_the_training_are_shown(tmp_path, monkeypatch, capsys):
    said = "2026-11-26 02:15:32 | WARNING | roberta_plugin.tasks.block_task | --lr is never reached\n"
    monkeypatch.setattr("roberta_plugin.launch.process.lines_of", lambda command, **options: (one for one in [said]))
    train(plan_of("x"), log=tmp_path / "train.log", lock=0)
    assert "WARNING: --lr is never reached\n" in capsys.readouterr().err


def test_trackers_call_a_training_by_its_folder_and_its_command_can_be_copied(tmp_path, monkeypatch):
    started = []

    def lines_of(command, **options):
        started.append(options["environment"])
        yield from ()

    monkeypatch.setattr("roberta_plugin.launch.process.lines_of", lines_of)
    monkeypatch.setenv("WANDB_RESUME", "never")
    plan = plan_of("fairseq-train", "data", "--wandb-project", "x", arguments=["data", "--max-update", "3"])
    train(plan, log=tmp_path / "mine" / "train.log", lock=0)
    (variables,) = started
    assert variables.keys() == {"WANDB_NAME", "WANDB_RUN_ID"}
    named = f"WANDB_NAME=mine WANDB_RUN_ID={variables['WANDB_RUN_ID']} fairseq-train"
    assert command_line(tmp_path / "mine", plan).startswith(named)
    plan.command.remove("--wandb-project")
    assert command_line(tmp_path / "mine", plan).startswith("fairseq-train")
    assert shown(["fairseq-train", "a b", "--lr", "1", "--x"]) == "fairseq-train 'a b' \\\n  --lr 1 \\\n  --x"


@pytest.mark.parametrize("slurm", [None, {"gpus_per_node": "1"}])
def test_options_of_the_recipe_that_an_architecture_lacks_are_named_as_the_recipes(slurm, planned):
    given, other = {"recipe": "tour", "slurm": slurm}, ["--cpu", "--arch", "roberta_base"]
    with pytest.raises(ValueError, match=r"^Recipe tour has .*--init-std, .* give --without .* fast_roberta") as told:
        planned(*other, **given)
    names = str(told.value).partition("--without ")[2].partition(",")[0].split()
    assert "--init-std" not in planned(*other, without=names, **given).arguments
    with pytest.raises(ValueError, match="--zero-init-residuals is unknown"):
        planned("--cpu", "--zero-init-residuals", **given)


def test_the_logs_of_a_training_that_another_continues_are_found(tmp_path):
    """--restore-file names a checkpoint or a folder of a run; that run may have continued a third one."""
    runs = [tmp_path / name for name in ("first", "second")]
    for run, restored in zip(runs, ("checkpoint_last.pt", runs[0] / "checkpoints" / "checkpoint_1_20.pt"), strict=True):
        (run / "checkpoints").mkdir(parents=True)
        record = {"data": "d", "--save-dir": str(run / "checkpoints"), "--restore-file": str(restored)}
        (run / "pretrain.json").write_text(json.dumps(record))
        (run / "train.log").write_text("")
    logs = [run / "train.log" for run in runs]
    assert earlier_logs(str(runs[1] / "checkpoints" / "checkpoint_last.pt")) == logs
    assert earlier_logs(str(runs[1])) == logs and earlier_logs(str(runs[0] / "checkpoints")) == logs[:1]
    assert earlier_logs("checkpoint_last.pt") == earlier_logs(str(tmp_path / "elsewhere.pt")) == []
