"""Who the sample campaign goes to: people by rule, each with the fate that the address asks of the catcher."""

import csv
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

# name, how an address spells it, greeting, city
_READERS = (
    ("สมชาย ใจดี", "somchai", "สวัสดี", "เชียงใหม่"),
    ("Zoë Ångström", "zoe", "Hej", "Malmö"),
    ("Олена Шевченко", "olena", "Привіт", "Київ"),
    ("山田 花子", "hanako", "こんにちは", "京都"),
    ("محمد العلي", "mohamed", "مرحبا", "القاهرة"),
    ("Γιώργος Παππάς", "giorgos", "Γεια σου", "Θεσσαλονίκη"),
    ("प्रिया शर्मा", "priya", "नमस्ते", "पुणे"),
    ("김민준", "minjun", "안녕하세요", "부산"),
    ("שרה כהן", "sara", "שלום", "חיפה"),
    ("O'Brien, Seán", "sean", "Dia duit", "Corcaigh"),
    ("Ada Lovelace", "ada", "Hello", "London"),
    ("ნინო ბერიძე", "nino", "გამარჯობა", "თბილისი"),
    ("Nguyễn Thị Hà", "ha", "Xin chào", "Huế"),
)
# Tag, how many people there are to one who has it, and which of them that is. The tags are those of `behaviours.TAGS`.
_FATES = (("busy", 20, 7), ("gone", 50, 11), ("cut-before-dot", 100, 33), ("cut-after-dot", 200, 101))
LEAST = 200
"""So many people at least, or some fate befalls nobody."""
_SUPPRESSED = 2
_COLUMNS = ("key", "email", "name", "greeting", "city", "points")


@frozen
class Person:
    """`tag`: what the receiving server does to the mail; empty: it takes it."""

    number: int
    tag: str
    domain: str

    @property
    def key(self) -> str:
        return f"reader-{self.number:05}"

    @property
    def email(self) -> str:
        return f"{self._reader[1]}.{self.number}{'+' if self.tag else ''}{self.tag}@{self.domain}"

    @property
    def name(self) -> str:
        return self._reader[0]

    @property
    def row(self) -> tuple[str, ...]:
        """As it stands in the file."""
        _, _, greeting, city = self._reader
        return self.key, self.email, self.name, greeting, city, str(self.number % 90)

    @property
    def _reader(self) -> tuple[str, str, str, str]:
        return _READERS[self.number % len(_READERS)]


@frozen
class Cast:
    """The people of one run. Their domain is the run's own: what befell an address in another run has no say."""

    count: int
    domain: str

    def __iter__(self) -> Iterator[Person]:
        return (self.person(number) for number in range(1, self.count + 1))

    def person(self, number: int) -> Person:
        tag = next((tag for tag, every, which in _FATES if number % every == which), "")
        return Person(number, tag, self.domain)

    @property
    def suppressed(self) -> Person:
        """Somebody who asked for no more mail before the campaign began."""
        return self.person(_SUPPRESSED)

    @property
    def interesting(self) -> Person:
        """The first whose mail was taken without an answer."""
        return next(person for person in self if person.tag == "cut-after-dot")

    def tagged(self, tag: str) -> int:
        return sum(person.tag == tag for person in self)

    def mails(self) -> Iterator[tuple[str, int]]:
        """Addresses, and how many mails each must get."""
        for person in self:
            nothing = person.tag == "gone" or person == self.suppressed
            yield person.email, 0 if nothing else 2 if person.tag == "cut-after-dot" else 1

    def write(self, path: Path) -> None:
        """As a file: everybody, and then one address once more in capitals and one line without any."""
        first = self.person(1)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(person.row for person in self)
            writer.writerow(("reader-again", first.email.upper(), *first.row[2:]))
            writer.writerow(("reader-nobody", "no address at all", *first.row[2:]))
