"""The log's table is as it was fixed: every log ever written depends on it."""

COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = 'events'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE tablename = 'events' ORDER BY indexname"


async def test_its_columns(app):
    assert [tuple(row) for row in await app.fetch(COLUMNS)] == [
        ("position", "bigint", True, "nextval('events_position'::regclass)"),
        ("xid", "xid8", True, "pg_current_xact_id()"),
        ("epoch", "smallint", True, "1"),
        ("campaign_id", "bigint", True, None),
        ("delivery_id", "bigint", True, None),
        ("version", "integer", False, None),
        ("type", "text", True, None),
        ("body", "jsonb", True, None),
        ("at", "timestamp with time zone", True, "clock()"),
    ]


async def test_its_partitions_and_indexes(app):
    assert await app.fetchval("SELECT pg_get_partkeydef('events'::regclass)") == "RANGE (campaign_id)"
    assert await app.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass") == 1
    defined = " ".join(row[0] for row in await app.fetch(INDEXES))
    stream = ("UNIQUE INDEX events_stream", "(campaign_id, delivery_id, version)")
    for part in (*stream, "btree (epoch, xid)", 'btree ("position")'):
        assert part in defined
    assert await app.fetchval("SELECT cache_size FROM pg_sequences WHERE sequencename = 'events_position'") == 1


async def test_an_update_that_settles_a_row_touches_no_index(app):
    """Else each would write all of them anew: no index of the queue names status, attempt or version."""
    indexes = "SELECT indexdef FROM pg_indexes WHERE tablename = 'recipient_queue'"
    defined = [row[0] for row in await app.fetch(indexes)]
    assert len(defined) == 2
    assert not any(column in index for index in defined for column in ("status", "attempt", "version"))
