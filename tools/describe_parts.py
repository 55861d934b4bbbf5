#!/usr/bin/env python3
"""Writes what every part says of itself to src/sottovoce/cli/parts.json, which `sottovoce parts` shows.

python tools/describe_parts.py            # after a part, its first paragraph or a default has changed
"""

from __future__ import annotations

import json
from pathlib import Path

from sottovoce.cli.parts import ask_all

FILE = Path(__file__).resolve().parent.parent / "src" / "sottovoce" / "cli" / "parts.json"


def main() -> None:
    FILE.write_text(json.dumps(ask_all(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
