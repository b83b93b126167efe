"""An app in files of its own, as a user has it: the same files, one of them changed, are another deployment."""

import sys
from collections.abc import Mapping
from pathlib import Path

from snapreplay.app.app import App
from snapreplay.app.load import load_app

MAIN = "shop.py"


def program_in(folder: Path) -> Path:
    """The file of the app. Its name is that of the folder: two deployments are two modules."""
    return folder / f"{folder.name.replace('-', '_')}.py"


def app_in(folder: Path, files: Mapping[str, str]) -> App[object]:
    """Write the files and load the app of the one called shop.py; of the others no module stays imported."""
    program = program_in(folder)
    for name, text in files.items():
        file = program if name == MAIN else folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    sys.modules.pop(program.stem, None)
    modules, path = set(sys.modules), list(sys.path)
    try:
        return load_app(str(program))
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules - {program.stem}:
            del sys.modules[name]


def changed(files: Mapping[str, str], name: str, old: str, new: str) -> dict[str, str]:
    assert files[name].count(old) == 1, f"{old!r} is in {name} {files[name].count(old)} times"
    return {**files, name: files[name].replace(old, new)}
