"""What a mail is made of: addresses, templates, MIME, unsubscribe tokens; all of it pure."""
