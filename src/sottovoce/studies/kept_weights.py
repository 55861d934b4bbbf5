"""The weights that published studies were made with: small, beside the pages, not in the wheel."""

from __future__ import annotations

from pathlib import Path

from sottovoce.errors import InputError

KEPT = Path(__file__).parents[3] / "docs" / "studies" / "weights"
"""Where they lie in a checkout."""


def find_weights(study: str, given: str | None, names: tuple[str, ...]) -> dict[str, Path]:
    """The files `NAME.safetensors` of a study, by name.

    given: the folder that a user named with --model; None: that of the checkout.
    """
    folder = KEPT / study if given is None else Path(given)
    files = {name: folder / f"{name}.safetensors" for name in names}
    missing = [file.name for file in files.values() if not file.is_file()]
    if not missing:
        return files
    if given is None:
        raise InputError(
            f"study {study} needs {', '.join(missing)}, which are in the source repository under "
            f"docs/studies/weights/{study} and not in the package. Name a folder that has them with --model, "
            "or train them with --scale full."
        )
    raise InputError(f"study {study}: expected {', '.join(missing)} in {given}, which --model names.")
