from pathlib import Path

from roberta_plugin.launch.trackers import shown, tracker_variables

FOLDER = Path("/runs/table3/lr-1e-4/seed-1")


def test_a_run_has_a_name_a_group_and_an_id_of_its_folder():
    found = tracker_variables(FOLDER, name="lr-1e-4/seed-1", group="table3", user=())
    assert found == {
        "WANDB_NAME": "lr-1e-4/seed-1",
        "WANDB_RUN_GROUP": "table3",
        "WANDB_RUN_ID": "e09ca8edfd8b0866",  # the same on every machine, and in every release
        "WANDB_RESUME": "allow",
    }
    assert tracker_variables(FOLDER.parent, user=())["WANDB_RUN_ID"] != found["WANDB_RUN_ID"]
    assert "WANDB_RUN_GROUP" not in tracker_variables(FOLDER, user=())


def test_what_the_user_has_set_stays():
    found = tracker_variables(FOLDER, user={"WANDB_NAME": "mine", "WANDB_RESUME": "must", "HOME": "/"})
    assert found.keys() == {"WANDB_RUN_ID"}


def test_they_are_shown_where_a_tracker_is_started():
    assert shown({"WANDB_NAME": "a b"}, ["data", "--wandb-project", "mine"]) == "WANDB_NAME='a b' "
    assert shown({"WANDB_NAME": "a b"}, ["data", "--wandb-project=mine"]) == "WANDB_NAME='a b' "
    assert shown({"WANDB_NAME": "a b"}, ["data", "--lr", "1"]) == ""
