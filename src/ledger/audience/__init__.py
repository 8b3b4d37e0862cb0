"""Who is to get a mail: reading the people in, staging them, and the report about each row."""
