"""README.md: its program runs as it stands and prints what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def program_of_the_readme() -> str:
    """Return the first block of Python."""
    program: str = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    return program


def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    """As a user runs it: a file of its own."""
    file = tmp_path / "ledger.py"
    file.write_text(program_of_the_readme())
    shown = re.findall(r"^```text\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert run.stdout == shown
