"""The real GLUE files, unpacked once."""

import pytest

from tests.tiny_glue import unpack_glue


@pytest.fixture(scope="session")
def glue(shared_data, tmp_path_factory):
    return unpack_glue(shared_data, tmp_path_factory.mktemp("glue"))
