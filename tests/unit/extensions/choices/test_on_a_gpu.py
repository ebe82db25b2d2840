"""The loss on a CUDA device without values: nothing mixes devices, and the host never waits."""

import pytest

from tests.gpu_losses import LABELS, check_step, of_sequences


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(packed):
    options = {"num_outputs": 1, "offsets": (0, 2, 4), "criterion": "race"}
    check_step(*of_sequences("multiple_choice", label=LABELS[:2] % 2, **options), packed=packed)
