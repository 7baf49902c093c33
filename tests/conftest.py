"""What all tests share."""

import hypothesis
import pytest

# A busy machine is no fault of what is tested.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def _user(tmp_path_factory):
    """A user's folder of settings of their own: tests neither read nor write the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("user")))
        yield
