"""Real engines: one at a time, bounded in time, and nothing left of them."""

from collections.abc import Iterator

import pytest

from tests.e2e.engines import Engines, left_after
from tests.e2e.rows import Row

# A test may have to run an engine and its control first.
_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines of the session; at its end no process of any is left."""
    engines = Engines(tmp_path_factory.mktemp("engines"), Row.save)
    yield engines
    engines.close()
    assert left_after(engines.sessions) == []
