"""A loss of fine-tuning on a CUDA device without values: nothing mixes devices, and the host never waits."""

import pytest

from tests.gpu_losses import LABELS, check_step, of_sequences


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_fine_tuning_step_stays_on_the_device_and_never_waits(packed):
    check_step(*of_sequences("made", label=LABELS), packed=packed)
