"""docs/http.md: its program in Python runs as it stands there."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.web.conftest import Api

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


async def test_the_program_on_the_page_runs(api: Api, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        str(tmp_path / "program.py"),
        env={**os.environ, "API": api.url, "KEY": api.key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await running.communicate()
    assert running.returncode == 0, err.decode()
    first, refused, last = out.decode().splitlines()
    assert first == "1 accepted"
    assert "1" in refused
    assert last == "1 on the way"
