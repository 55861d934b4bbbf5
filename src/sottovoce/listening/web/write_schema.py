"""Writes protocol.schema.json, from which `npm run types` makes the page's types.

python src/sottovoce/listening/web/write_schema.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from sottovoce.listening.session import protocol


class _Filled(GenerateJsonSchema):
    """The server sends every field, those with defaults too."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return self.mode == "serialization" or super().field_is_required(field, total)


def schema() -> str:
    """The messages as JSON schema."""
    _, content = models_json_schema(
        [
            (protocol.Join, "validation"),
            (protocol.Joined, "serialization"),
            (protocol.Answer, "validation"),
            (protocol.Next, "serialization"),
            (protocol.Standing, "serialization"),
            (protocol.Problem, "serialization"),
        ],
        title="Protocol",
        schema_generator=_Filled,
    )
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("protocol.schema.json").write_text(schema(), encoding="utf-8")
