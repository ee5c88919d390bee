"""Plans of these tests are for a CPU of known speed."""

from tests.known_cpu_speed import _known_cpu_speed  # noqa: F401 - a fixture
