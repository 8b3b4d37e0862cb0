"""What is read does not stay: 300,000 rows, an open quote, a line without end, in one process, measured."""

import subprocess
import sys
from pathlib import Path

GROWTH = 24 << 20

MEASURE = """
import re, sys
from itertools import islice
from postledger.ledger.audience.csv_reader import read_csv

def peak():
    # Not getrusage: what it says of a process counts the parent's memory at the fork.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

def read(path):
    rows, count, held = read_csv(path), 0, []
    while chunk := list(islice(rows, 15_000)):  # as staging does it: one is written while the next is read
        count, held = count + len(chunk), chunk
    return count

small, *large = sys.argv[1:]
read(small)
before = peak()
counts = [read(path) for path in large]
print(peak() - before, *counts)
"""


def person(number: int) -> str:
    return f"user{number}@example.com,Jörg Müller,{'x' * 60}\n"


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    people = "".join(map(person, range(300_000)))
    assert len(people) > GROWTH
    files = {
        "small": "email,name,x\n" + person(0) * 1000,
        "many": "email,name,x\n" + people,
        "open": 'email,name,x\n"' + people,
        "endless": "email,name,x\n" + people.replace("\n", " ") + "\n" + person(1),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / name) for name in files)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    growth, *counts = map(int, output.split())
    assert counts == [300_000, 300_000, 2]
    assert growth < GROWTH, growth
