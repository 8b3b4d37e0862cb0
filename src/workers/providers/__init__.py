"""One file per way to hand over a mail, and the table that finds them by URL scheme."""
