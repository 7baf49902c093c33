"""What all tests share."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _user(tmp_path_factory):
    """A user's folder of settings of their own: tests neither read nor write the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("user")))
        yield
