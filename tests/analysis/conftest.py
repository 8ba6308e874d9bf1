from __future__ import annotations

from tests.project.conftest import forgotten as forgotten  # the same projects are loaded here
