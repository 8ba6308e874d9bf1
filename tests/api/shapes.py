"""Whether two types are the same to whoever reads their JSON."""

from __future__ import annotations

from typing import Any

import msgspec

LOOSER = ("title", "description", "pattern", "additionalProperties")
"""What a client does not hold an answer to: a newer server may say more."""


def shape(kind: Any) -> Any:
    """The JSON of a type, without what its parts are called."""

    def hook(one: type) -> dict[str, Any]:
        return {"type": "string"}

    (schema,), parts = msgspec.json.schema_components([kind], schema_hook=hook)

    def bare(one: Any) -> Any:
        if isinstance(one, dict):
            if "$ref" in one:
                return bare(parts[one["$ref"].rpartition("/")[2]])
            kept = {key: value for key, value in one.items() if key not in LOOSER}
            return {key: bare(value) for key, value in kept.items()}
        return [bare(each) for each in one] if isinstance(one, list) else one

    return bare(schema)
