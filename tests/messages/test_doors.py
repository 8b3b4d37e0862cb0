"""Our reference on its way through a provider's SMTP door, and back through its webhook."""

import json

import pytest

from postledger.http.webhooks.vocabulary import own
from postledger.messages.doors import door_of


@pytest.mark.parametrize(
    ("host", "name", "read"),
    [
        ("smtp.mailgun.org", "X-Mailgun-Variables", lambda value: json.loads(value)["delivery_id"]),
        ("SMTP.eu.mailgun.org.", "X-Mailgun-Variables", lambda value: json.loads(value)["delivery_id"]),
        ("smtp.sendgrid.net", "X-SMTPAPI", lambda value: json.loads(value)["unique_args"]["delivery_id"]),
        ("smtp-broadcasts.postmarkapp.com", "X-PM-Metadata-delivery_id", str),
        ("email-smtp.eu-central-1.amazonaws.com", "X-SES-MESSAGE-TAGS", lambda value: value.partition("=")[2]),
    ],
)
def test_what_a_door_takes_along_is_what_its_webhook_brings_back(host, name, read):
    door = door_of(host)
    assert door is not None
    line = door(9_000_000_000, 123_456_789_012)
    field, _, value = line.removesuffix("\r\n").partition(": ")
    assert field == name
    assert own(read(value)) == (9_000_000_000, 123_456_789_012)
    assert len(line) < 200


@pytest.mark.parametrize(
    "host", [None, "", "localhost", "smtp.mailgun.org.evil.example", "mail.amazonaws.com", "10.0.0.1"]
)
def test_other_relays_get_no_such_header(host):
    assert door_of(host) is None
