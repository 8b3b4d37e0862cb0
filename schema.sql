-- The story of the tables.
--
-- A campaign is a letter and the people it goes to. Whatever happens to a campaign, to one delivery (one person in one
-- campaign) or to a contact (one address, over all campaigns) is a row in `events`; that log is append-only, and all else
-- that can change is a projection of it, folded in the same transaction that appends.
--
-- `recipients` says who: written once, erasable, its content sealed by a digest in the log. `recipient_queue` says where
-- each delivery stands: one narrow row per recipient, the queue that workers claim from with FOR UPDATE SKIP LOCKED. The
-- mark of a waiting row is that it has a `due_at`; the claim index covers just those, so finished, paused and far-away rows
-- cost the claim nothing, and the update that settles a row touches no indexed column (a heap-only update).
-- `claims` has one row per batch that a worker holds, gone when its last row is settled: the way to a dead worker's rows.
-- `workers` has one row per process start; a worker lives while it holds its session lock, or until its lease is over.
--
-- Every transition is one function here, so it is one round trip and the same for every language: enqueue_import, claim,
-- settle, permit, reclaim, change_campaign, finish_campaign, requeue, suppress, enqueue. Inside: lock the set in key order, check
-- against `transitions`, append, fold. Nothing here names the schema: it is created under a search_path, and each function
-- keeps that search_path. Locks are advisory, their keys made from schema, kind and id by lock_key().
--
-- The planner knows nothing of rows written a moment ago: it takes a campaign that is younger than the statistics for empty,
-- and tables never analysed for small. So the functions pin their plans: the set is locked once, by index, and touched again
-- by its tids; look-ups per element are LATERAL ... OFFSET 0, which the planner cannot turn round; in the hot ones seqscan,
-- hash join, merge join and (where an index gives the order) sort are switched off.
--
-- Lock order, the same everywhere: campaign lock, worker row, claims rows (by id), queue rows (by delivery), contacts.
-- Errors cross the border by SQLSTATE: PL001 no such campaign, PL002 campaign closed, PL003 address (or what comes with it)
-- not acceptable, PL004 transition not allowed, PL005 version conflict, PL006 worker unknown or dead, PL007 staged rows
-- incomplete, PL009 the log is append-only, PL010 another cluster's log (a restored dump), which needs a new epoch.

-- One clock. Everything due, leased or recorded is measured by it; tests replace this function.
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() $$;

CREATE FUNCTION rfc3339(timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT to_char($1 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

-- Advisory locks share one space of bigints per database: worker 7 must never meet campaign 7, nor another installation.
CREATE FUNCTION lock_key(kind text, id bigint DEFAULT 0) RETURNS bigint LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT hashtextextended(current_schema() || ':' || kind || ':' || id, 0) $$;

-- The notification channel of this installation; a worker's own channel, for its probe, has its id behind it.
CREATE FUNCTION wake_channel(worker bigint DEFAULT NULL) RETURNS text LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT 'postledger_' || left(md5(current_schema()), 16) || coalesce('_' || worker, '') $$;

-- The channel that says "the schema has changed": who is of another version has to leave.
CREATE FUNCTION schema_channel() RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT wake_channel() || '_schema' $$;

CREATE TABLE schema_version (
    version     int PRIMARY KEY,
    applied_at  timestamptz NOT NULL DEFAULT clock()
);

------------------------------------------------------------------------------------------------------------------ secrets

-- HMAC keys, made once by `migrate`: kept as the padded inner and outer keys of RFC 2104, so that SQL needs only sha256().
CREATE TABLE secrets (
    name        text PRIMARY KEY,
    inner_key   bytea NOT NULL CHECK (octet_length(inner_key) = 64),
    outer_key   bytea NOT NULL CHECK (octet_length(outer_key) = 64)
);

-- The normal form: trimmed of spaces and NBSP, ASCII letters in lower case. A domain that is not ASCII must have become an
-- A-label before it gets here (Python does that).
CREATE FUNCTION normal_address(address text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT lower(btrim(address, ' ' || U&'\00A0') COLLATE "C") $$;

-- Whether SQL may take an address as it is, in normal form: local@domain in ASCII, as RFC 5321 and DNS bound it. (No bounded
-- repetition stands in the expression: it made it ten times as slow. Two hyphens in third place are an A-label or nothing.)
CREATE FUNCTION acceptable_address(address text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT address ~ '^[a-z0-9!#$%&''*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&''*+/=?^_`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$'
         AND (right(address, 1) COLLATE "C" > '9' OR address !~ '\.[0-9]+$')
         AND (length(address) <= 64 OR (length(address) <= 254 AND length(split_part(address, '@', 1)) <= 64
                                        AND split_part(address, '@', 2) !~ '[^.]{64}'))
         AND (strpos(address, '--') = 0 OR split_part(address, '@', 2) !~ '(?:^|\.)(?!xn)..--') $$;

-- Why SQL refuses somebody to write to, as "field: reason"; null where nothing is wrong. The address is in normal form.
CREATE FUNCTION recipient_fault(p_email text, p_key text, p_name text, p_data jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT AS $$
DECLARE
    v_domain  text;
BEGIN
    IF acceptable_address(p_email) THEN
        RETURN CASE
            WHEN p_key = '' THEN 'key: empty; leave it out where there is none'
            WHEN length(p_key) > 200 THEN 'key: ' || length(p_key) || ' characters, at most 200 are kept'
            WHEN p_name ~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' THEN 'name: a line break or control character in it'
            WHEN length(p_name) > 998 THEN 'name: ' || length(p_name) || ' characters, at most 998 fit into a header'
            WHEN jsonb_typeof(p_data) <> 'object' THEN 'data: a JSON ' || jsonb_typeof(p_data) || ', where an object belongs'
            WHEN octet_length(p_data::text) > 1048576 THEN 'data: ' || octet_length(p_data::text) || ' bytes, at most 1048576 are kept'
        END;
    END IF;
    v_domain := substr(p_email, strpos(p_email, '@') + 1);
    RETURN 'email: ' || CASE
        WHEN coalesce(p_email, '') = '' THEN 'empty'
        WHEN p_email !~ '@' THEN 'no @ in it'
        WHEN v_domain ~ '@' THEN 'more than one @ in it'
        WHEN left(p_email, -1 - length(v_domain)) ~ '[^\x01-\x7f]' THEN 'letters outside ASCII before the @, which need SMTPUTF8: not supported'
        WHEN v_domain ~ '[^\x01-\x7f]' THEN 'a domain that is not ASCII: give it as A-label (xn--...)'
        WHEN v_domain !~ '\.' THEN 'no dot in the domain'
        WHEN length(p_email) > 254 THEN 'longer than 254 characters'
        ELSE 'not of the form local@domain' END;
END $$;

CREATE FUNCTION keyed_hash(inner_key bytea, outer_key bytea, message text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT sha256(outer_key || sha256(inner_key || convert_to(message, 'UTF8'))) $$;

-- What stands for an address wherever it must outlive the person's data: HMAC-SHA256 of the normal form.
CREATE FUNCTION address_hash(address text) RETURNS bytea LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT keyed_hash(inner_key, outer_key, normal_address(address)) FROM secrets WHERE name = 'address' $$;

--------------------------------------------------------------------------------------------------------------------- log

CREATE SEQUENCE events_position CACHE 1;

-- The log. A stream is (campaign_id, delivery_id): a campaign's own is (c, 0), a contact's (0, contact_id), the system's
-- (0, 0). `version` counts a stream from 1; provider feedback and evidence have none, since they change no state.
-- `position` is drawn when the row is inserted, always after the row lock, which makes it causal within a stream; across
-- streams it says nothing about commit order: followers go by sealed blocks. `xid` and `epoch` are never supplied by hand:
-- an epoch is the time in one cluster, whose transactions are numbered in one row.
CREATE TABLE events (
    position     bigint      NOT NULL DEFAULT nextval('events_position'),
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
    epoch        smallint    NOT NULL DEFAULT 1,
    campaign_id  bigint      NOT NULL,
    delivery_id  bigint      NOT NULL,
    version      int,
    type         text        NOT NULL,
    body         jsonb       NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT events_stream UNIQUE (campaign_id, delivery_id, version),
    CONSTRAINT events_version_positive CHECK (version > 0),
    CONSTRAINT events_body_object CHECK (jsonb_typeof(body) = 'object')
) PARTITION BY RANGE (campaign_id);

CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

-- The sealer looks for transactions, followers walk positions.
CREATE INDEX events_xid ON events (epoch, xid);
CREATE INDEX events_position_idx ON events (position);
-- A provider's message id (ours stands in brackets): by it feedback finds its delivery.
CREATE INDEX events_message ON events ((body ->> 'message_id')) WHERE type = 'Sent' AND left(body ->> 'message_id', 1) <> '<';

CREATE TABLE epochs (
    epoch     smallint PRIMARY KEY,
    cluster   bigint,  -- in which it began; null where the server does not say
    began_at  timestamptz NOT NULL DEFAULT clock()
);

-- The cluster we are in: the same after a crash and on a standby, another after a restore from a dump.
CREATE FUNCTION cluster_id() RETURNS bigint LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    RETURN NULL;
END $$;
INSERT INTO epochs (epoch, cluster) VALUES (1, cluster_id());

-- Why the transactions of the log's present epoch do not compare with those of this cluster; null: they do. Sealing would
-- skip what is written from now on, without a word, so both are refused until begin_epoch() (`migrate --new-epoch`). A
-- cluster that pg_upgrade made has another id and the same transactions: there a row's own xmin is still the event's xid.
CREATE FUNCTION foreign_epoch() RETURNS text LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_epoch  epochs%ROWTYPE;
    v_last   xid8;
BEGIN
    SELECT * INTO v_epoch FROM epochs e ORDER BY e.epoch DESC LIMIT 1;
    IF v_epoch.cluster <> cluster_id() AND (SELECT e.xmin::text::bigint <> e.xid::text::bigint & 4294967295
                                            FROM events e ORDER BY e.position DESC LIMIT 1) THEN
        RETURN 'the log was written in another cluster of PostgreSQL: this is a restored dump, or a copy';
    END IF;
    -- Where a server does not say which cluster it is, or had its counter put back.
    SELECT e.xid INTO v_last FROM events e WHERE e.epoch = v_epoch.epoch ORDER BY e.epoch DESC, e.xid DESC LIMIT 1;
    IF v_last >= pg_snapshot_xmax(pg_current_snapshot()) AND v_last IS DISTINCT FROM pg_current_xact_id_if_assigned() THEN
        RETURN 'the log knows transactions that this server has not come to yet: this is a restored dump';
    END IF;
    RETURN NULL;
END $$;

-- A session stays in its cluster, so it looks once, and keeps in mind what it has found to be right.
CREATE FUNCTION refuse_foreign() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_cluster  text := (SELECT coalesce(e.cluster, 0) FROM epochs e ORDER BY e.epoch DESC LIMIT 1);
    v_foreign  text;
BEGIN
    IF v_cluster = current_setting('postledger.cluster', true) THEN
        RETURN NULL;
    END IF;
    v_foreign := foreign_epoch();
    IF v_foreign IS NOT NULL THEN
        RAISE EXCEPTION '%', v_foreign USING ERRCODE = 'PL010', HINT = 'postledger migrate --new-epoch';
    END IF;
    PERFORM set_config('postledger.cluster', v_cluster, false);
    RETURN NULL;
END $$;
CREATE TRIGGER of_this_cluster BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_foreign();

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: % on % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'PL009';
END $$;

-- On the parent and on each partition, always (also for replication roles), for the owner too.
CREATE FUNCTION guard_log() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_table regclass;
BEGIN
    FOR v_table IN SELECT 'events'::regclass UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'events'::regclass LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = v_table AND tgname = 'append_only_rows') THEN
            EXECUTE format('CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION refuse_change()', v_table);
        END IF;
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = v_table AND tgname = 'append_only_table') THEN
            EXECUTE format('CREATE TRIGGER append_only_table BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', v_table);
        END IF;
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_rows', v_table);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_table', v_table);
    END LOOP;
END $$;
SELECT guard_log();

-- What may happen: the state machines of campaigns and deliveries ('' = the stream does not exist yet).
CREATE TABLE transitions (
    machine      text NOT NULL,
    event        text NOT NULL,
    from_status  text NOT NULL,
    to_status    text NOT NULL,
    PRIMARY KEY (machine, event, from_status)
);
INSERT INTO transitions (machine, event, from_status, to_status) VALUES
    ('campaign', 'Drafted',         '',          'draft'),
    ('campaign', 'Changed',         'draft',     'draft'),
    ('campaign', 'Changed',         'scheduled', 'scheduled'),
    ('campaign', 'RecipientsAdded', 'draft',     'draft'),
    ('campaign', 'RecipientsAdded', 'scheduled', 'scheduled'),
    ('campaign', 'RecipientsAdded', 'sending',   'sending'),
    ('campaign', 'RecipientsAdded', 'paused',    'paused'),
    ('campaign', 'Scheduled',       'draft',     'scheduled'),
    ('campaign', 'Unscheduled',     'scheduled', 'draft'),
    ('campaign', 'Started',         'draft',     'sending'),
    ('campaign', 'Started',         'scheduled', 'sending'),
    ('campaign', 'Paused',          'sending',   'paused'),
    ('campaign', 'Resumed',         'paused',    'sending'),
    ('campaign', 'Completed',       'sending',   'completed'),
    ('campaign', 'Reopened',        'completed', 'sending'),
    ('campaign', 'Cancelled',       'draft',     'cancelled'),
    ('campaign', 'Cancelled',       'scheduled', 'cancelled'),
    ('campaign', 'Cancelled',       'sending',   'cancelled'),
    ('campaign', 'Cancelled',       'paused',    'cancelled'),
    ('delivery', 'Queued',          '',          'pending'),
    ('delivery', 'Claimed',         'pending',   'sending'),
    ('delivery', 'Sent',            'sending',   'sent'),
    ('delivery', 'Sent',            'pending',   'sent'),
    ('delivery', 'Sent',            'unknown',   'sent'),
    ('delivery', 'Sent',            'failed',    'sent'),
    ('delivery', 'Deferred',        'sending',   'pending'),
    ('delivery', 'Released',        'sending',   'pending'),
    ('delivery', 'Failed',          'sending',   'failed'),
    ('delivery', 'Failed',          'unknown',   'failed'),
    ('delivery', 'OutcomeUnknown',  'sending',   'unknown'),
    ('delivery', 'Requeued',        'unknown',   'pending'),
    ('delivery', 'Requeued',        'failed',    'pending'),
    ('delivery', 'Skipped',         'pending',   'skipped'),
    ('delivery', 'Skipped',         'sending',   'skipped'),
    ('delivery', 'Cancelled',       'pending',   'cancelled');

-- The status that follows, or PL004.
CREATE FUNCTION next_status(p_machine text, p_event text, p_from text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT AS $$
DECLARE
    v_to text;
BEGIN
    SELECT to_status INTO v_to FROM transitions WHERE machine = p_machine AND event = p_event AND from_status = p_from;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'a % that is % does not allow %', p_machine, coalesce(nullif(p_from, ''), 'not there'), p_event
            USING ERRCODE = 'PL004', DETAIL = coalesce(p_from, '');
    END IF;
    RETURN v_to;
END $$;

--------------------------------------------------------------------------------------------------------------- campaigns

CREATE TYPE campaign_status AS ENUM ('draft', 'scheduled', 'sending', 'paused', 'completed', 'cancelled');
CREATE TYPE delivery_status AS ENUM ('pending', 'sending', 'sent', 'failed', 'skipped', 'cancelled', 'unknown');

-- Ways out. The password stands apart from the URL, so that an auditor may read the one and never the other.
CREATE TABLE senders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    url         text NOT NULL,
    secret      text,
    created_at  timestamptz NOT NULL DEFAULT clock(),
    rate_count  int CHECK (rate_count > 0),  -- so many ...
    rate_per    interval CHECK (rate_per > '0'),  -- ... in so long, over all workers; null: no limit
    mail_from   text,  -- the From of campaigns that say none
    CONSTRAINT senders_rate CHECK ((rate_count IS NULL) = (rate_per IS NULL))
);

-- Until when a sender's time has been given out (lease_tokens). Written some times a second, whatever the number of claims.
CREATE TABLE rate_leases (
    sender_id  bigint PRIMARY KEY,
    free_at    timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Letters, immutable: the key is the sha256 of their content.
CREATE TABLE templates (
    hash        text PRIMARY KEY,
    subject     text NOT NULL,
    html        text,
    text        text,
    created_at  timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT templates_not_empty CHECK (html IS NOT NULL OR text IS NOT NULL)
);

CREATE TABLE campaigns (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text NOT NULL,
    generation    int NOT NULL DEFAULT 1,
    kind          text NOT NULL CHECK (kind IN ('bulk', 'standing')),
    status        campaign_status NOT NULL,
    version       int NOT NULL,
    pause_reason  text,
    resume_at     timestamptz,
    sender_id     bigint NOT NULL,
    template      text NOT NULL,
    mail_from     text NOT NULL,
    reply_to      text,
    unknown       text NOT NULL DEFAULT 'resend' CHECK (unknown IN ('resend', 'hold')),
    attempts      int NOT NULL DEFAULT 5 CHECK (attempts > 0),  -- ends what has no certain outcome: unknowns, crashes
    max_deferred  int CHECK (max_deferred > 0),                  -- ends transient replies; null: only give_up does
    give_up       interval NOT NULL DEFAULT '24 hours',
    priority      int NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT clock(),
    started_at    timestamptz,
    finished_at   timestamptz,
    swept_at      timestamptz,  -- a cancelled campaign: when its last waiting row had become cancelled
    starts_at     timestamptz,  -- a scheduled one: when it is due
    missed_after  interval,     -- later than this after starts_at it is held, not started; null: started however late
    expires       interval,     -- a delivery not begun so long after the start (standing: after it was due) is skipped
    list_id       bigint,       -- whose unsubscriptions it obeys
    max_errors    int CHECK (max_errors BETWEEN 1 AND 100),  -- percent of failures that pause it; null: the default, 100: never
    screened      xid8,         -- a bulk one's people have all been looked for among the suppressions of earlier transactions
    track         text[] NOT NULL DEFAULT '{}' CHECK (track <@ ARRAY['opens', 'clicks']),
    UNIQUE (name, generation),
    CONSTRAINT campaigns_pause CHECK ((status = 'paused') = (pause_reason IS NOT NULL)),
    CONSTRAINT campaigns_resume CHECK (resume_at IS NULL OR status = 'paused'),
    CONSTRAINT campaigns_starts CHECK (status <> 'scheduled' OR starts_at IS NOT NULL)
);
CREATE INDEX campaigns_active ON campaigns (priority DESC, id)
    WHERE status IN ('sending', 'scheduled') OR resume_at IS NOT NULL OR (status = 'cancelled' AND swept_at IS NULL);

--------------------------------------------------------------------------------------------------------------- contacts

-- One row for any address that needs a history of its own.
CREATE TABLE contacts (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address_hash  bytea NOT NULL UNIQUE,
    version       int NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT clock(),
    email         text,   -- what a list knows of the person; erasable
    name          text,
    data          jsonb,
    erased_at     timestamptz  -- since then nothing is written here that a person could be known by
);

-- Who must not be mailed, by address hash alone: it survives deletion, re-import and erasure.
CREATE TABLE suppressions (
    address_hash  bytea PRIMARY KEY,
    contact_id    bigint NOT NULL REFERENCES contacts,
    reason        text NOT NULL,
    source        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock(),
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id()  -- for permit(): whether a claim's snapshot saw it
);
CREATE INDEX suppressions_xid ON suppressions (xid);

------------------------------------------------------------------------------------------------------------- deliveries

CREATE SEQUENCE delivery_ids CACHE 1;

CREATE TABLE recipients (
    campaign_id    bigint NOT NULL,
    delivery_id    bigint NOT NULL,
    recipient_key  text,
    email          text,
    name           text,
    data           jsonb,
    salt           bytea,
    address_hash   bytea NOT NULL,
    once_hash      bytea,  -- the address hash in bulk campaigns; null in standing ones, where one address gets many mails
    family_id      bigint, -- in standing ones, where the caller gave a key: the first generation, which all share
    CONSTRAINT recipients_id PRIMARY KEY (campaign_id, delivery_id),
    -- The campaign comes second, or statistics older than a campaign would let the planner take these for a way to its rows.
    CONSTRAINT recipients_key UNIQUE (recipient_key, campaign_id),
    CONSTRAINT recipients_once UNIQUE (once_hash, campaign_id)
);
-- A key is written once in all generations of a standing campaign, whichever of them two transactions see as the newest.
CREATE UNIQUE INDEX recipients_family ON recipients (recipient_key, family_id) WHERE family_id IS NOT NULL;

-- Half of each page is left free: the claim's update then finds room beside the row, and so does the settling one.
CREATE TABLE recipient_queue (
    campaign_id  bigint NOT NULL,
    delivery_id  bigint NOT NULL,
    status       delivery_status NOT NULL,
    attempt      int NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    due_at       timestamptz,
    version      int NOT NULL,
    CONSTRAINT recipient_queue_id PRIMARY KEY (campaign_id, delivery_id),
    CONSTRAINT recipient_queue_due_iff_pending CHECK ((status = 'pending') = (due_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The claim's index, and the only one beside the key. It names no status: "pending" and "has a due_at" are the same by the
-- check above, and an index that named status would make each settling update write every index anew.
CREATE INDEX recipient_queue_due ON recipient_queue (campaign_id, due_at, delivery_id) WHERE due_at IS NOT NULL;

-- What a provider said, in its own words, at most 4 KB: personal data may stand in it, so it is erasable and not in the log.
CREATE TABLE replies (
    campaign_id  bigint NOT NULL,
    delivery_id  bigint NOT NULL,
    version      int NOT NULL,
    text         text NOT NULL CHECK (octet_length(text) <= 4096),
    PRIMARY KEY (campaign_id, delivery_id, version)
);

-- The digest in Queued: sha256 over salt, key, address, name and data, each marked null or present and length-prefixed.
-- (A null field makes its whole term null, hence coalesce. STABLE, not IMMUTABLE, so that it is inlined: convert_to is stable.)
CREATE FUNCTION recipient_digest(salt bytea, key text, email text, name text, data jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT encode(sha256(
    coalesce('\x01'::bytea || int4send(octet_length(salt)) || salt, '\x00')
    || coalesce('\x01'::bytea || int4send(octet_length(key)) || convert_to(key, 'UTF8'), '\x00')
    || coalesce('\x01'::bytea || int4send(octet_length(email)) || convert_to(email, 'UTF8'), '\x00')
    || coalesce('\x01'::bytea || int4send(octet_length(name)) || convert_to(name, 'UTF8'), '\x00')
    || coalesce('\x01'::bytea || int4send(octet_length(data::text)) || convert_to(data::text, 'UTF8'), '\x00')), 'hex') $$;

----------------------------------------------------------------------------------------------------- workers and claims

CREATE TABLE workers (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session     int NOT NULL DEFAULT 1,
    label       text NOT NULL DEFAULT '',
    lease_only  boolean NOT NULL DEFAULT false,  -- behind a pooler a session lock proves nothing: only the lease counts
    started_at  timestamptz NOT NULL DEFAULT clock(),
    seen_at     timestamptz NOT NULL DEFAULT clock(),
    watched_at  timestamptz,  -- when it last looked at the others
    ended_at    timestamptz,
    ended       text CHECK (ended IN ('left', 'dead')),
    CONSTRAINT workers_ended CHECK ((ended IS NULL) = (ended_at IS NULL))
) WITH (fillfactor = 70);

-- `versions` are those of the Claimed events: the fence that a settling call must show. `unsettled` counts down to the end.
CREATE TABLE claims (
    claim_id      uuid PRIMARY KEY,
    worker_id     bigint NOT NULL,
    campaign_id   bigint NOT NULL,
    delivery_ids  bigint[] NOT NULL,
    versions      int[] NOT NULL,
    unsettled     int NOT NULL CHECK (unsettled >= 0),
    claimed_at    timestamptz NOT NULL,
    snapshot      pg_snapshot NOT NULL DEFAULT '1:1:'  -- taken before the claim looked who may not be mailed; this one saw nobody
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, toast_tuple_target = 8160);
CREATE INDEX claims_worker ON claims (worker_id);

----------------------------------------------------------------------------------------------------------------- imports

CREATE TABLE imports (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    campaign_id  bigint,
    source       text NOT NULL,
    state        text NOT NULL DEFAULT 'staging' CHECK (state IN ('staging', 'staged', 'done')),
    rows         bigint NOT NULL DEFAULT 0,
    chunks       int NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT clock(),
    finished_at  timestamptz,
    counts       jsonb,
    pooled       boolean NOT NULL DEFAULT false  -- made through a pooler, where no session lock says that its maker lives
);

-- Unlogged: fast, and emptied by crash recovery; hence imports.rows, checked before use.
CREATE UNLOGGED TABLE import_rows (
    import_id  bigint NOT NULL,
    line       bigint NOT NULL,
    key        text,
    email      text,
    name       text,
    data       jsonb,
    outcome    text,
    reason     text
);
CREATE INDEX import_rows_import ON import_rows USING brin (import_id);

---------------------------------------------------------------------------------------------------------------- commands

-- Wakes every listener. A hint with a constant payload, sent only by rare commands: all commits that notify run one after
-- the other in a cluster, so nothing that claims or settles may do it. And not when a listener that is stuck has let the
-- queue fill up: then the commit would fail for a hint; the idle heartbeat finds what is to be found.
CREATE FUNCTION wake() RETURNS void LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT pg_notify(wake_channel(), '') WHERE pg_notification_queue_usage() < 0.5 $$;

-- A rate as it is written: 100/s.
CREATE FUNCTION rate_text(p_count int, p_per interval) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT p_count || '/' || CASE extract(epoch FROM p_per) WHEN 1 THEN 's' WHEN 60 THEN 'm' WHEN 3600 THEN 'h' WHEN 86400 THEN 'd'
                                    ELSE extract(epoch FROM p_per)::bigint || 's' END $$;

-- Another rate for a sender, for all campaigns through it and all workers; null: no limit. False: that was so already. What
-- had been given out at the old rate does not hold up the new one.
CREATE FUNCTION set_rate(p_sender bigint, p_count int, p_per interval) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('system'));
    UPDATE senders SET rate_count = p_count, rate_per = p_per
    WHERE id = p_sender AND rate_text(rate_count, rate_per) IS DISTINCT FROM rate_text(p_count, p_per);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE rate_leases SET free_at = clock() WHERE sender_id = p_sender;
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT 0, 0, coalesce(max(version), 0) + 1, 'SenderChanged',
           jsonb_build_object('sender', p_sender::text, 'rate', coalesce(rate_text(p_count, p_per), 'off'))
    FROM events WHERE campaign_id = 0 AND delivery_id = 0;
    PERFORM wake();
    RETURN true;
END $$;

-- An event of the system's own stream, whose writers take turns.
CREATE FUNCTION append_system(p_type text, p_body jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('system'));
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT 0, 0, coalesce(max(version), 0) + 1, p_type, p_body FROM events WHERE campaign_id = 0 AND delivery_id = 0;
END $$;

-- The body of Drafted.
CREATE FUNCTION drafted(p campaigns) RETURNS jsonb LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT jsonb_strip_nulls(jsonb_build_object(
    'name', p.name, 'kind', p.kind, 'generation', p.generation, 'sender', p.sender_id::text, 'template', p.template, 'unknown', p.unknown,
    'attempts', p.attempts, 'give_up', extract(epoch FROM p.give_up)::bigint, 'priority', p.priority, 'list', p.list_id::text,
    'expires', extract(epoch FROM p.expires)::bigint, 'missed_after', extract(epoch FROM p.missed_after)::bigint,
    'max_errors', p.max_errors, 'track', CASE WHEN p.track <> '{}' THEN p.track END)) $$;

-- Writes a new campaign down as a draft; unique (name, generation) refuses a twin.
CREATE FUNCTION draft_campaign(p_name text, p_kind text, p_sender bigint, p_template text, p_mail_from text, p_reply_to text,
                               p_unknown text, p_attempts int, p_max_deferred int, p_give_up interval, p_priority int,
                               p_list bigint DEFAULT NULL, p_expires interval DEFAULT NULL, p_missed_after interval DEFAULT NULL,
                               p_max_errors int DEFAULT NULL, p_track text[] DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
BEGIN
    INSERT INTO campaigns AS c (name, kind, status, version, sender_id, template, mail_from, reply_to, unknown, attempts, max_deferred, give_up,
                                priority, list_id, expires, missed_after, max_errors, track, screened)
    VALUES (p_name, p_kind, 'draft', 1, p_sender, p_template, p_mail_from, p_reply_to, p_unknown, p_attempts, p_max_deferred, p_give_up,
            p_priority, p_list, p_expires, p_missed_after, p_max_errors, p_track,
            CASE WHEN p_kind = 'bulk' THEN pg_snapshot_xmin(pg_current_snapshot()) END)  -- of nobody yet
    RETURNING c.* INTO v_campaign;
    INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (v_campaign.id, 0, 1, 'Drafted', drafted(v_campaign));
    RETURN v_campaign.id;
END $$;

-- One event on a campaign's own stream, folded: start, pause, resume, cancel, reopen, ... Returns the new version.
-- Exclusive against claim and settle, so when it has answered no later claim can see the old status.
CREATE FUNCTION change_campaign(p_campaign bigint, p_event text, p_body jsonb DEFAULT '{}', p_expected int DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_to        campaign_status;
    v_now       timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('campaign', p_campaign));
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no campaign has the id %', p_campaign USING ERRCODE = 'PL001';
    END IF;
    IF p_expected IS DISTINCT FROM NULL AND p_expected <> v_campaign.version THEN
        RAISE EXCEPTION 'the campaign is at version %, not %', v_campaign.version, p_expected USING ERRCODE = 'PL005';
    END IF;
    v_to := next_status('campaign', p_event, v_campaign.status::text);
    IF p_event = 'Paused' AND p_body ->> 'reason' IS NULL THEN
        p_body := p_body || '{"reason": "operator"}';
    END IF;
    v_now := clock();
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    VALUES (p_campaign, 0, v_campaign.version + 1, p_event, p_body, v_now);
    UPDATE campaigns SET
        status = v_to,
        version = version + 1,
        pause_reason = CASE WHEN p_event = 'Paused' THEN p_body ->> 'reason' WHEN v_to = 'paused' THEN pause_reason END,
        resume_at = CASE WHEN p_event = 'Paused' THEN (p_body ->> 'resume_at')::timestamptz WHEN v_to = 'paused' THEN resume_at END,
        started_at = CASE WHEN p_event = 'Started' THEN v_now ELSE started_at END,
        starts_at = CASE WHEN p_event = 'Scheduled' THEN (p_body ->> 'due_at')::timestamptz
                         WHEN p_event = 'Unscheduled' OR (p_event = 'Started' AND starts_at > v_now) THEN NULL ELSE starts_at END,
        finished_at = CASE WHEN v_to IN ('completed', 'cancelled') THEN coalesce(finished_at, v_now) END
    WHERE id = p_campaign;
    IF p_event <> 'Changed' THEN
        PERFORM wake();
    END IF;
    RETURN v_campaign.version + 1;
END $$;

-- Pauses a campaign until it resumes by itself, so long from now by the database's clock; null: until somebody resumes it.
CREATE FUNCTION pause_campaign(p_campaign bigint, p_reason text, p_resume_in interval) RETURNS int
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT change_campaign(p_campaign, 'Paused', jsonb_strip_nulls(jsonb_build_object('reason', p_reason,
                             'resume_at', rfc3339(clock() + p_resume_in)))) $$;

-- Turns an import's staged rows into recipients, queue rows and Queued events of one campaign, in one transaction. Who is
-- there already (by key, or by address in a bulk campaign) is left alone; first line wins. Suppressed people are queued and
-- skipped at once, so that their history answers why. Returns counts that sum to the staged rows.
CREATE FUNCTION enqueue_import(p_campaign bigint, p_import bigint,
                               OUT rows bigint, OUT accepted bigint, OUT duplicate_key bigint, OUT duplicate_address bigint,
                               OUT invalid bigint, OUT suppressed bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET work_mem = '64MB'
SET enable_seqscan = off SET enable_mergejoin = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_import    imports%ROWTYPE;
    v_secret    secrets%ROWTYPE;
    v_family    bigint;
    v_keyed     boolean;
    v_shielded  boolean;
    v_first     bigint;
    v_new       bigint;
    v_now       timestamptz;
    v_due       text;
    v_source    text;
    v_counts    jsonb;
BEGIN
    -- Two imports into one campaign would meet in two unique indexes in different order: one after the other.
    PERFORM pg_advisory_xact_lock(lock_key('enqueue', p_campaign));
    PERFORM pg_advisory_xact_lock_shared(lock_key('campaign', p_campaign));
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no campaign has the id %', p_campaign USING ERRCODE = 'PL001';
    END IF;
    IF v_campaign.status = 'cancelled' THEN
        RAISE EXCEPTION 'campaign "%" is cancelled and takes no more recipients', v_campaign.name USING ERRCODE = 'PL002';
    END IF;
    SELECT * INTO v_import FROM imports WHERE id = p_import AND state = 'staged' FOR UPDATE;
    SELECT count(*), count(*) FILTER (WHERE s.outcome = 'invalid'), coalesce(bool_or(s.key <> s.email), false)
    INTO rows, invalid, v_keyed FROM import_rows s WHERE s.import_id = p_import;
    IF v_import.id IS NULL OR rows <> v_import.rows THEN
        RAISE EXCEPTION 'import % has % staged rows, not the % that were written', p_import, rows, coalesce(v_import.rows, 0)
            USING ERRCODE = 'PL007';
    END IF;
    SELECT * INTO v_secret FROM secrets WHERE name = 'address';
    IF v_campaign.kind = 'standing' THEN
        v_family := family_of(v_campaign.name);
    END IF;
    v_shielded := EXISTS (SELECT FROM suppressions);
    v_now := clock();
    v_due := rfc3339(v_now);
    v_source := 'import:' || p_import;
    v_first := nextval('delivery_ids');

    -- Who is new. Where nobody can be in the way, no index need be asked before it is written: that saves a quarter. (Two
    -- hashes that are equal by chance only lead the slower way.)
    IF v_campaign.kind = 'bulk' AND NOT EXISTS (SELECT FROM recipients r WHERE r.campaign_id = p_campaign)
       AND NOT EXISTS (SELECT FROM import_rows i WHERE i.import_id = p_import AND i.outcome IS NULL
                       GROUP BY hashtextextended(i.email, 0) HAVING count(*) > 1)
       AND NOT EXISTS (SELECT FROM import_rows i WHERE v_keyed AND i.import_id = p_import AND i.outcome IS NULL
                       GROUP BY hashtextextended(i.key, 0) HAVING count(*) > 1) THEN
        INSERT INTO recipients (campaign_id, delivery_id, recipient_key, email, name, data, salt, address_hash, once_hash)
        SELECT p_campaign, nextval('delivery_ids'), s.key, s.email, s.name, s.data, uuid_send(gen_random_uuid()), s.hash, s.hash
        FROM (SELECT i.key, i.email, i.name, i.data, keyed_hash(v_secret.inner_key, v_secret.outer_key, i.email) AS hash
              FROM import_rows i WHERE i.import_id = p_import AND i.outcome IS NULL ORDER BY i.line) s;
    ELSE
        INSERT INTO recipients (campaign_id, delivery_id, recipient_key, email, name, data, salt, address_hash, once_hash, family_id)
        SELECT p_campaign, nextval('delivery_ids'), s.key, s.email, s.name, s.data, uuid_send(gen_random_uuid()), s.hash,
               CASE WHEN v_campaign.kind = 'bulk' THEN s.hash END, v_family
        FROM (SELECT i.key, i.email, i.name, i.data, keyed_hash(v_secret.inner_key, v_secret.outer_key, i.email) AS hash
              FROM import_rows i WHERE i.import_id = p_import AND i.outcome IS NULL ORDER BY i.line) s
        ON CONFLICT DO NOTHING;
    END IF;
    GET DIAGNOSTICS v_new = ROW_COUNT;

    -- Where they stand. (In a standing campaign, applications may have queued some more meanwhile.)
    INSERT INTO recipient_queue (campaign_id, delivery_id, status, attempt, due_at, version)
    SELECT p_campaign, r.delivery_id, CASE WHEN x.address_hash IS NULL THEN 'pending' ELSE 'skipped' END::delivery_status, 0,
           CASE WHEN x.address_hash IS NULL THEN v_now END, CASE WHEN x.address_hash IS NULL THEN 1 ELSE 2 END
    FROM recipients r
    LEFT JOIN LATERAL (SELECT o.address_hash FROM suppressions o WHERE v_shielded AND o.address_hash = r.address_hash OFFSET 0) x ON true
    WHERE r.campaign_id = p_campaign AND r.delivery_id > v_first
      AND (v_campaign.kind = 'bulk'
           OR NOT EXISTS (SELECT FROM recipient_queue q WHERE q.campaign_id = p_campaign AND q.delivery_id = r.delivery_id))
    ORDER BY r.delivery_id;  -- neighbours in the queue are neighbours on the page

    -- What happened.
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT p_campaign, r.delivery_id, 1, 'Queued', jsonb_build_object('source', v_source, 'due_at', v_due,
               'digest', recipient_digest(r.salt, r.recipient_key, r.email, r.name, r.data)), v_now
    FROM recipients r
    WHERE r.campaign_id = p_campaign AND r.delivery_id > v_first
      AND (v_campaign.kind = 'bulk'
           OR NOT EXISTS (SELECT FROM events e WHERE e.campaign_id = p_campaign AND e.delivery_id = r.delivery_id))
    ORDER BY r.delivery_id;
    suppressed := 0;
    IF v_shielded THEN
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        SELECT p_campaign, q.delivery_id, 2, 'Skipped', jsonb_build_object('reason', coalesce(x.reason, 'suppressed')), v_now
        FROM recipient_queue q
        CROSS JOIN LATERAL (SELECT o.address_hash FROM recipients o WHERE o.campaign_id = p_campaign AND o.delivery_id = q.delivery_id OFFSET 0) r
        LEFT JOIN LATERAL (SELECT o.reason FROM suppressions o WHERE o.address_hash = r.address_hash OFFSET 0) x ON true  -- lifted meanwhile
        WHERE q.campaign_id = p_campaign AND q.delivery_id > v_first AND q.status = 'skipped' AND q.version = 2
          AND (v_campaign.kind = 'bulk'
               OR NOT EXISTS (SELECT FROM events e WHERE e.campaign_id = p_campaign AND e.delivery_id = q.delivery_id AND e.version = 2));
        GET DIAGNOSTICS suppressed = ROW_COUNT;
    END IF;
    accepted := v_new - suppressed;

    -- From here on rows are looked up one by one. A plan for just this campaign, of which older statistics know nothing, takes
    -- its primary key for the shortest way to one of its rows, and reads them all for each: a plan for any campaign does not.
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true);

    -- Who was there before, or twice in the file: a row's fate goes back to its line.
    IF suppressed > 0 THEN
        UPDATE import_rows s SET outcome = 'suppressed', reason = d.reason
        FROM (SELECT i.ctid AS tid, x.reason FROM import_rows i
              CROSS JOIN LATERAL (SELECT o.reason FROM suppressions o
                                  WHERE o.address_hash = keyed_hash(v_secret.inner_key, v_secret.outer_key, i.email) OFFSET 0) x
              CROSS JOIN LATERAL (SELECT FROM recipients o WHERE o.recipient_key = i.key AND o.campaign_id = p_campaign
                                  AND o.delivery_id > v_first AND o.email = i.email OFFSET 0) r
              WHERE i.import_id = p_import AND i.outcome IS NULL) d
        WHERE s.ctid = d.tid;
    END IF;
    duplicate_key := 0;
    duplicate_address := 0;
    IF v_new < rows - invalid THEN
        UPDATE import_rows s SET
            outcome = CASE WHEN d.by_key THEN 'duplicate_key' ELSE 'duplicate_address' END,
            reason = CASE WHEN d.by_key THEN 'this key' ELSE 'this address' END
                     || CASE WHEN d.before THEN ' is in the campaign already' ELSE ' stands further up' END
        FROM (SELECT i.tid, k.by_key, coalesce(CASE WHEN k.by_key THEN r.delivery_id ELSE a.delivery_id END, r.delivery_id) < v_first AS before
              FROM (SELECT j.ctid AS tid, j.key, j.email, row_number() OVER (PARTITION BY j.key, j.email ORDER BY j.line) AS nth
                    FROM import_rows j WHERE j.import_id = p_import AND j.outcome IS DISTINCT FROM 'invalid') i
              LEFT JOIN LATERAL (SELECT o.delivery_id, o.email FROM recipients o
                                 WHERE o.recipient_key = i.key AND o.campaign_id = p_campaign
                                 UNION ALL
                                 SELECT o.delivery_id, o.email FROM recipients o
                                 WHERE o.recipient_key = i.key AND o.family_id = v_family AND o.campaign_id <> p_campaign OFFSET 0) r ON true
              LEFT JOIN LATERAL (SELECT o.delivery_id FROM recipients o
                                 WHERE o.once_hash = keyed_hash(v_secret.inner_key, v_secret.outer_key, i.email)
                                   AND o.campaign_id = p_campaign OFFSET 0) a ON true
              -- Whoever has the key may stand on a later line, and this line was refused for its address.
              CROSS JOIN LATERAL (SELECT i.key <> i.email AND (r.delivery_id < v_first OR r.delivery_id <= coalesce(a.delivery_id, r.delivery_id))
                                         IS TRUE AS by_key) k
              WHERE (i.nth = 1 AND r.delivery_id > v_first AND r.email = i.email) IS NOT TRUE) d
        WHERE s.ctid = d.tid;
        SELECT count(*) FILTER (WHERE s.outcome = 'duplicate_key'), count(*) FILTER (WHERE s.outcome = 'duplicate_address')
        INTO duplicate_key, duplicate_address FROM import_rows s WHERE s.import_id = p_import;
    END IF;

    v_counts := jsonb_build_object('rows', rows, 'accepted', accepted, 'duplicate_key', duplicate_key,
        'duplicate_address', duplicate_address, 'invalid', invalid, 'suppressed', suppressed);
    IF v_new > 0 THEN
        IF v_campaign.status = 'completed' THEN
            INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
            VALUES (p_campaign, 0, v_campaign.version + 1, 'Reopened', jsonb_build_object('by', v_source), v_now);
            v_campaign.version := v_campaign.version + 1;
            v_campaign.status := next_status('campaign', 'Reopened', 'completed');
        END IF;
        PERFORM next_status('campaign', 'RecipientsAdded', v_campaign.status::text);
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        VALUES (p_campaign, 0, v_campaign.version + 1, 'RecipientsAdded', jsonb_build_object('source', v_source, 'counts', v_counts), v_now);
        UPDATE campaigns SET version = v_campaign.version + 1, status = v_campaign.status,
            finished_at = CASE WHEN v_campaign.status = 'sending' THEN NULL ELSE finished_at END
        WHERE id = p_campaign;
        IF v_campaign.status = 'sending' THEN
            PERFORM wake();
        END IF;
    END IF;
    UPDATE imports SET state = 'done', campaign_id = p_campaign, finished_at = v_now, counts = v_counts WHERE id = p_import;
END $$;

-- The contact of an address, made when it needs a history.
CREATE FUNCTION contact_of(p_hash bytea) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_id  bigint;
BEGIN
    INSERT INTO contacts (address_hash, version) VALUES (p_hash, 1) ON CONFLICT (address_hash) DO NOTHING RETURNING id INTO v_id;
    IF v_id IS NOT NULL THEN
        INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (0, v_id, 1, 'ContactAdded', '{}');
    ELSE
        SELECT id INTO v_id FROM contacts WHERE address_hash = p_hash;
    END IF;
    RETURN v_id;
END $$;

-- From now on nobody mails this address. False when that was so already.
CREATE FUNCTION suppress_hash(p_hash bytea, p_reason text, p_source text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_contact  bigint := contact_of(p_hash);
    v_version  int;
    v_now      timestamptz;
BEGIN
    SELECT version INTO v_version FROM contacts WHERE id = v_contact FOR UPDATE;
    IF EXISTS (SELECT FROM suppressions WHERE address_hash = p_hash) THEN
        RETURN false;
    END IF;
    v_now := clock();
    INSERT INTO suppressions (address_hash, contact_id, reason, source, created_at) VALUES (p_hash, v_contact, p_reason, p_source, v_now);
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    VALUES (0, v_contact, v_version + 1, 'Suppressed', jsonb_build_object('reason', p_reason, 'source', p_source), v_now);
    UPDATE contacts SET version = v_version + 1 WHERE id = v_contact;
    RETURN true;
END $$;

-- This address may be mailed again, because somebody says so. False: it was not suppressed. Lists that the person has left stay
-- left: only they themselves can change that.
CREATE FUNCTION unsuppress_hash(p_hash bytea, p_by text, p_reason text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_contact  bigint;
    v_version  int;
BEGIN
    SELECT id, version INTO v_contact, v_version FROM contacts WHERE address_hash = p_hash FOR UPDATE;
    DELETE FROM suppressions WHERE address_hash = p_hash;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    VALUES (0, v_contact, v_version + 1, 'Unsuppressed', jsonb_build_object('by', p_by, 'reason', p_reason));
    UPDATE contacts SET version = v_version + 1 WHERE id = v_contact;
    RETURN true;
END $$;

-- The same by address, which must be in ASCII (PL003).
CREATE FUNCTION suppress(p_address text, p_reason text, p_source text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT acceptable_address(normal_address(p_address)) THEN
        RAISE EXCEPTION 'the address is not acceptable: not ASCII, or no "@"' USING ERRCODE = 'PL003';
    END IF;
    RETURN suppress_hash(address_hash(p_address), p_reason, p_source);
END $$;

-- An operator sends the dead letters (failed) and the unknown ones round again; never the suppressed. p_deliveries null: all.
CREATE FUNCTION requeue(p_campaign bigint, p_deliveries bigint[], p_reason text, p_by text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_ids       bigint[];
    v_now       timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('campaign', p_campaign));
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no campaign has the id %', p_campaign USING ERRCODE = 'PL001';
    END IF;
    IF v_campaign.status NOT IN ('sending', 'paused', 'completed') THEN
        RAISE EXCEPTION 'campaign "%" is %: nothing to retry', v_campaign.name, v_campaign.status USING ERRCODE = 'PL002';
    END IF;
    v_now := clock();
    SELECT array_agg(l.delivery_id) INTO v_ids FROM (
        SELECT q.delivery_id FROM recipient_queue q
        WHERE q.campaign_id = p_campaign AND q.status IN ('failed', 'unknown')
          AND (p_deliveries IS NULL OR q.delivery_id = ANY (p_deliveries))
          AND NOT EXISTS (SELECT FROM recipients r JOIN suppressions x USING (address_hash)
                          WHERE r.campaign_id = q.campaign_id AND r.delivery_id = q.delivery_id)
        ORDER BY q.delivery_id FOR UPDATE OF q) l;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    IF v_campaign.status = 'completed' THEN
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        VALUES (p_campaign, 0, v_campaign.version + 1, 'Reopened', jsonb_build_object('by', p_by), v_now);
        UPDATE campaigns SET status = 'sending', version = version + 1, finished_at = NULL WHERE id = p_campaign;
    END IF;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT p_campaign, q.delivery_id, q.version + 1, 'Requeued',
           jsonb_build_object('reason', p_reason, 'by', p_by, 'due_at', rfc3339(v_now)), v_now
    FROM recipient_queue q WHERE q.campaign_id = p_campaign AND q.delivery_id = ANY (v_ids);
    UPDATE recipient_queue SET status = 'pending', attempt = 0, due_at = v_now, version = version + 1
    WHERE campaign_id = p_campaign AND delivery_id = ANY (v_ids);
    PERFORM wake();
    RETURN cardinality(v_ids);
END $$;

-- Ends a bulk campaign whose rows have all ended: proven under the exclusive lock, never concluded from an empty batch.
-- (Every row in flight belongs to a claim, every other open row has a due_at.) For a cancelled one it ends the sweep.
-- A standing one may have messages that nobody sees yet, in applications' transactions: they hold its `application` lock.
CREATE FUNCTION finish_campaign(p_campaign bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_counts    jsonb;
BEGIN
    FOR i IN 1..2 LOOP
        IF i = 2 THEN  -- the cheap look said yes; now prove it
            PERFORM pg_advisory_xact_lock(lock_key('campaign', p_campaign));
            IF v_campaign.kind = 'standing' AND NOT pg_try_advisory_xact_lock(lock_key('application', p_campaign)) THEN
                RETURN false;  -- tried, not waited for: whoever waited would make all further ones wait behind him
            END IF;
        END IF;
        SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign;
        -- In the index's order: for a mere EXISTS the planner scans the table, as long as its statistics are full of open rows.
        PERFORM 1 FROM recipient_queue WHERE campaign_id = p_campaign AND due_at IS NOT NULL ORDER BY due_at, delivery_id LIMIT 1;
        IF FOUND OR v_campaign.id IS NULL OR EXISTS (SELECT FROM claims WHERE campaign_id = p_campaign AND unsettled > 0) THEN
            RETURN false;
        END IF;
    END LOOP;
    IF v_campaign.status = 'cancelled' THEN
        UPDATE campaigns SET swept_at = clock() WHERE id = p_campaign AND swept_at IS NULL;
        RETURN true;
    END IF;
    IF v_campaign.status <> 'sending' OR (v_campaign.kind <> 'bulk' AND NOT EXISTS (
            SELECT FROM campaigns c WHERE c.name = v_campaign.name AND c.generation > v_campaign.generation)) THEN
        RETURN false;  -- a standing campaign ends only when a newer generation takes the messages
    END IF;
    SELECT coalesce(jsonb_object_agg(s.status, s.n), '{}') INTO v_counts
    FROM (SELECT status, count(*) AS n FROM recipient_queue WHERE campaign_id = p_campaign GROUP BY status) s;
    PERFORM change_campaign(p_campaign, 'Completed', jsonb_build_object('counts', v_counts));
    RETURN true;
END $$;

----------------------------------------------------------------------------------------------------- what workers call

-- A process says that it is there; it then takes lock_key('worker', id) on its session and keeps it for its whole life.
CREATE FUNCTION enlist_worker(p_label text) RETURNS bigint LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ INSERT INTO workers (label) VALUES (p_label) RETURNING id $$;

-- After each (re-)lock. Null: declared dead meanwhile, the process must enlist anew.
CREATE FUNCTION relock_worker(p_worker bigint, p_lease_only boolean) RETURNS int LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ UPDATE workers SET session = session + 1, seen_at = clock(), lease_only = p_lease_only WHERE id = p_worker AND ended IS NULL RETURNING session $$;

-- The last word of a process. What it gave back has an owner to find, so it wakes the others.
CREATE FUNCTION leave_worker(p_worker bigint) RETURNS void LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$
    UPDATE workers SET ended = 'left', ended_at = clock() WHERE id = p_worker AND ended IS NULL;
    SELECT wake();
$$;

-- Which campaigns have work now, each with its priority and its sender's rate; which are to be woken (wake_campaign); which
-- cancelled ones have rows to be cancelled, due or not, which takes no sender; how long until more rows fall due, and until
-- another campaign is to be woken (null: nothing will by itself); which bulk campaigns may be at their end; whether other
-- workers hold claims (then somebody has to watch them). Whose turn it is among equals is each worker's own affair: written
-- down, it would be a row that all fight for.
CREATE FUNCTION next_work(p_worker bigint, p_only bigint DEFAULT NULL,
                          OUT campaigns bigint[], OUT priorities int[], OUT rates text[], OUT cancelled bigint[], OUT waking bigint[],
                          OUT due_in interval, OUT wake_in interval, OUT finishable bigint[], OUT watch boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_now  timestamptz := clock();
BEGIN
    SELECT coalesce(array_agg(c.id ORDER BY c.priority DESC, c.id) FILTER (WHERE d.due_at <= v_now AND c.status = 'sending'), '{}'),
           coalesce(array_agg(c.priority ORDER BY c.priority DESC, c.id) FILTER (WHERE d.due_at <= v_now AND c.status = 'sending'), '{}'),
           coalesce(array_agg(rate_text(s.rate_count, s.rate_per) ORDER BY c.priority DESC, c.id)
                    FILTER (WHERE d.due_at <= v_now AND c.status = 'sending'), '{}'),
           coalesce(array_agg(c.id ORDER BY c.id) FILTER (WHERE d.due_at IS NOT NULL AND c.status = 'cancelled'), '{}'),
           coalesce(array_agg(c.id ORDER BY c.id) FILTER (WHERE w.wake_at <= v_now), '{}'),
           min(d.due_at) FILTER (WHERE d.due_at > v_now AND c.status = 'sending') - v_now,
           min(w.wake_at) FILTER (WHERE w.wake_at > v_now) - v_now,
           coalesce(array_agg(c.id) FILTER (WHERE d.due_at IS NULL AND w.wake_at IS NULL AND NOT EXISTS (
               SELECT FROM claims k WHERE k.campaign_id = c.id AND k.unsettled > 0) AND (c.kind = 'bulk' OR c.status = 'cancelled'
               OR EXISTS (SELECT FROM campaigns n WHERE n.name = c.name AND n.generation > c.generation))), '{}'),
           EXISTS (SELECT FROM claims k WHERE k.worker_id <> p_worker AND k.unsettled > 0)
    -- All of it in one statement: between two, a row may go from a claim to the queue or back, and be seen in neither.
    INTO campaigns, priorities, rates, cancelled, waking, due_in, wake_in, finishable, watch
    FROM campaigns c
    LEFT JOIN LATERAL (SELECT q.due_at FROM recipient_queue q WHERE q.campaign_id = c.id AND q.due_at IS NOT NULL
                       ORDER BY q.due_at, q.delivery_id LIMIT 1) d ON c.status IN ('sending', 'cancelled')
    LEFT JOIN LATERAL (SELECT o.rate_count, o.rate_per FROM senders o WHERE o.id = c.sender_id OFFSET 0) s ON true
    CROSS JOIN LATERAL (SELECT CASE c.status WHEN 'scheduled' THEN c.starts_at WHEN 'paused' THEN c.resume_at
                                             WHEN 'sending' THEN CASE WHEN is_full(c) THEN v_now END END AS wake_at) w
    WHERE (c.status IN ('sending', 'scheduled') OR c.resume_at IS NOT NULL OR (c.status = 'cancelled' AND c.swept_at IS NULL))
      AND (p_only IS NULL OR c.id = p_only);
END $$;

-- Takes up to p_limit due rows of one campaign for one worker. The claim_id is the worker's: repeating the call returns the
-- same rows, so an answer that was lost loses nothing. `busy`: somebody else held the campaign or a due row; that is not
-- the same as empty. `due_in`: until the next row of this campaign, when nothing is due. Who may not be mailed is skipped
-- here; in a cancelled campaign every row is cancelled instead. The plan is pinned to index and tid scans: the planner
-- knows nothing of rows changed a moment ago.
CREATE FUNCTION claim(p_campaign bigint, p_claim uuid, p_worker bigint, p_limit int, p_content boolean,
                      OUT busy boolean, OUT due_in interval, OUT skipped int, OUT cancelled int,
                      OUT delivery_ids bigint[], OUT versions int[], OUT attempts int[], OUT ages interval[],
                      OUT keys text[], OUT emails text[], OUT names text[], OUT data jsonb[])
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_now       timestamptz;
    v_snapshot  pg_snapshot;
    v_body      jsonb;
    v_tids      tid[];
    v_ids       bigint[];
    v_skip      bigint[];
    v_skip_why  text[];
    v_tid       tid[];
    v_claimed   int;
    v_paused    timestamptz[];
    v_resumed   timestamptz[];
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    busy := false;
    skipped := 0;
    cancelled := 0;
    v_now := clock();

    -- The same call again: the same rows, as far as they are still this claim's.
    SELECT array_agg(q.delivery_id), array_agg(q.version), array_agg(q.attempt) INTO delivery_ids, versions, attempts
    FROM claims k, unnest(k.delivery_ids, k.versions) AS h(delivery_id, version)
    CROSS JOIN LATERAL (SELECT r.delivery_id, r.version, r.attempt, r.status FROM recipient_queue r
                        WHERE r.campaign_id = p_campaign AND r.delivery_id = h.delivery_id OFFSET 0) q
    WHERE k.claim_id = p_claim AND k.worker_id = p_worker AND k.campaign_id = p_campaign
      AND q.version = h.version AND q.status = 'sending';

    IF delivery_ids IS NULL THEN
        -- Never waits for a campaign: who pauses it has to.
        IF NOT pg_try_advisory_xact_lock_shared(lock_key('campaign', p_campaign)) THEN
            busy := true;
            RETURN;
        END IF;
        -- Whoever idled has let its lease run out, and must not be taken for dead because of the claim that it is making.
        UPDATE workers SET seen_at = v_now WHERE id = p_worker AND ended IS NULL AND seen_at < v_now - interval '1 second';
        -- A worker that was buried meanwhile gets nothing; the burial waits for this lock, so none of its rows is overlooked.
        PERFORM 1 FROM workers WHERE id = p_worker AND ended IS NULL FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'worker % is not known or was declared dead', p_worker USING ERRCODE = 'PL006';
        END IF;
        SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign;  -- a later statement than the lock
        IF v_campaign.status IS NULL OR v_campaign.status NOT IN ('sending', 'cancelled') THEN
            RETURN;
        END IF;

        -- Lock the set, earliest first. What others hold is passed over.
        SELECT array_agg(l.tid), array_agg(l.delivery_id), array_agg(l.version + 1), array_agg(l.attempt)
        INTO v_tids, delivery_ids, versions, attempts
        FROM (SELECT q.ctid AS tid, q.delivery_id, q.version, q.attempt FROM recipient_queue q
              WHERE q.campaign_id = p_campaign AND q.due_at IS NOT NULL AND (q.due_at <= v_now OR v_campaign.status = 'cancelled')
              ORDER BY q.due_at, q.delivery_id LIMIT p_limit FOR UPDATE SKIP LOCKED) l;

        IF v_tids IS NULL OR cardinality(v_tids) < p_limit THEN
            SELECT q.due_at <= v_now AND NOT (q.delivery_id = ANY (coalesce(delivery_ids, '{}'))), q.due_at - v_now INTO busy, due_in
            FROM recipient_queue q WHERE q.campaign_id = p_campaign AND q.due_at IS NOT NULL AND NOT (q.delivery_id = ANY (coalesce(delivery_ids, '{}')))
            ORDER BY q.due_at, q.delivery_id LIMIT 1;
            busy := coalesce(busy, false);
        END IF;
        IF v_tids IS NULL THEN
            RETURN;
        END IF;
        v_claimed := cardinality(v_tids);

        IF v_campaign.status = 'cancelled' THEN
            INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
            SELECT p_campaign, i.id, i.version, 'Cancelled', '{}', v_now FROM unnest(delivery_ids, versions) AS i(id, version);
            UPDATE recipient_queue SET status = 'cancelled', due_at = NULL, version = version + 1 WHERE ctid = ANY (v_tids);
            cancelled := v_claimed;
            delivery_ids := NULL;
            RETURN;
        END IF;

        -- Who may not be mailed. What this snapshot does not see, or the next statements see sooner, permit() will find.
        v_snapshot := pg_current_snapshot();
        IF v_campaign.screened IS NULL OR EXISTS (SELECT FROM suppressions s WHERE s.xid >= v_campaign.screened) THEN
            SELECT array_agg(i.id), array_agg(x.reason) INTO v_skip, v_skip_why
            FROM unnest(delivery_ids) AS i(id)
            CROSS JOIN LATERAL (SELECT s.address_hash FROM recipients s WHERE s.campaign_id = p_campaign AND s.delivery_id = i.id OFFSET 0) r
            CROSS JOIN LATERAL (SELECT s.reason FROM suppressions s WHERE s.address_hash = r.address_hash OFFSET 0) x;
        END IF;
        IF v_campaign.list_id IS NOT NULL THEN
            SELECT coalesce(v_skip, '{}') || array_agg(i.id), coalesce(v_skip_why, '{}') || array_agg('unsubscribed'::text)
            INTO v_skip, v_skip_why
            FROM unnest(delivery_ids) AS i(id)
            CROSS JOIN LATERAL (SELECT s.address_hash FROM recipients s WHERE s.campaign_id = p_campaign AND s.delivery_id = i.id OFFSET 0) r
            CROSS JOIN LATERAL (SELECT s.id FROM contacts s WHERE s.address_hash = r.address_hash OFFSET 0) c
            CROSS JOIN LATERAL (SELECT FROM subscriptions s WHERE s.contact_id = c.id AND s.list_id = v_campaign.list_id AND NOT s.subscribed OFFSET 0) u
            WHERE NOT (i.id = ANY (coalesce(v_skip, '{}')))
            HAVING count(*) > 0 OR v_skip IS NOT NULL;
        END IF;
        IF v_campaign.expires IS NOT NULL THEN
            SELECT coalesce(v_skip, '{}') || array_agg(i.id), coalesce(v_skip_why, '{}') || array_agg('expired'::text)
            INTO v_skip, v_skip_why
            FROM unnest(delivery_ids) AS i(id)
            LEFT JOIN LATERAL (SELECT (e.body ->> 'due_at')::timestamptz AS due_at FROM events e
                               WHERE v_campaign.kind = 'standing' AND e.campaign_id = p_campaign AND e.delivery_id = i.id AND e.version = 1 OFFSET 0) q ON true
            WHERE NOT (i.id = ANY (coalesce(v_skip, '{}'))) AND v_now > coalesce(q.due_at, v_campaign.started_at) + v_campaign.expires
            HAVING count(*) > 0 OR v_skip IS NOT NULL;
        END IF;
        IF v_skip IS NOT NULL THEN
            INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
            SELECT p_campaign, i.id, i.version, 'Skipped', jsonb_build_object('reason', s.why), v_now
            FROM unnest(v_skip, v_skip_why) AS s(id, why) JOIN unnest(delivery_ids, versions) AS i(id, version) ON i.id = s.id;
            UPDATE recipient_queue SET status = 'skipped', due_at = NULL, version = version + 1
            WHERE ctid = ANY (v_tids) AND delivery_id = ANY (v_skip);
            skipped := cardinality(v_skip);
            SELECT array_agg(i.tid), array_agg(i.id), array_agg(i.version), array_agg(i.attempt) INTO v_tid, v_ids, versions, attempts
            FROM unnest(v_tids, delivery_ids, versions, attempts) AS i(tid, id, version, attempt) WHERE i.id <> ALL (v_skip);
            v_tids := v_tid;
            delivery_ids := v_ids;
            IF v_ids IS NULL THEN
                RETURN;
            END IF;
        END IF;

        -- Check is by the lock (pending rows only), append, fold. A body per row would cost a third of the insert.
        v_body := jsonb_build_object('claim_id', p_claim, 'worker', p_worker::text, 'sender', v_campaign.sender_id::text, 'attempt', 1);
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        SELECT p_campaign, i.id, i.version, 'Claimed',
               CASE WHEN i.attempt = 0 THEN v_body ELSE v_body || jsonb_build_object('attempt', i.attempt + 1) END, v_now
        FROM unnest(delivery_ids, versions, attempts) AS i(id, version, attempt);
        UPDATE recipient_queue SET status = 'sending', due_at = NULL, version = version + 1 WHERE ctid = ANY (v_tids);
        GET DIAGNOSTICS v_claimed = ROW_COUNT;
        IF v_claimed <> cardinality(delivery_ids) THEN
            RAISE EXCEPTION 'claim of % locked % rows and changed %', p_campaign, cardinality(delivery_ids), v_claimed;
        END IF;
        INSERT INTO claims (claim_id, worker_id, campaign_id, delivery_ids, versions, unsettled, claimed_at, snapshot)
        VALUES (p_claim, p_worker, p_campaign, delivery_ids, versions, v_claimed, v_now, v_snapshot);
    END IF;

    -- How long a delivery has been tried, without the time in which its campaign was paused; null for the first time. One
    -- that an operator sent round again begins anew.
    IF EXISTS (SELECT FROM unnest(versions) AS v(version) WHERE v.version > 2) THEN
        SELECT array_agg(p.at), array_agg(p.until) INTO v_paused, v_resumed
        FROM (SELECT e.type, e.at, lead(e.at, 1, v_now) OVER (ORDER BY e.version) AS until FROM events e
              WHERE e.campaign_id = p_campaign AND e.delivery_id = 0 AND e.version > 0 AND e.type IN ('Paused', 'Resumed')) p
        WHERE p.type = 'Paused';
        SELECT array_agg(v_now - t.at - coalesce(a.away, '0') ORDER BY i.n) INTO ages
        FROM unnest(delivery_ids, versions) WITH ORDINALITY AS i(id, version, n)
        LEFT JOIN LATERAL (SELECT max(e.version) AS version FROM events e WHERE i.version > 2 AND e.campaign_id = p_campaign
                           AND e.delivery_id = i.id AND e.version < i.version AND e.type = 'Requeued' AND e.body ->> 'by' <> 'policy' OFFSET 0) q ON true
        LEFT JOIN LATERAL (SELECT min(e.at) AS at FROM events e WHERE i.version > 2 AND e.campaign_id = p_campaign
                           AND e.delivery_id = i.id AND e.version < i.version AND e.version > coalesce(q.version, 0)
                           AND e.type = 'Claimed' OFFSET 0) t ON true
        LEFT JOIN LATERAL (SELECT sum(p.resumed - greatest(p.paused, t.at)) AS away FROM unnest(v_paused, v_resumed) AS p(paused, resumed)
                           WHERE p.resumed > t.at OFFSET 0) a ON true;
    END IF;
    IF p_content THEN
        SELECT array_agg(r.recipient_key ORDER BY i.n), array_agg(r.email ORDER BY i.n), array_agg(r.name ORDER BY i.n), array_agg(r.data ORDER BY i.n)
        INTO keys, emails, names, data
        FROM unnest(delivery_ids) WITH ORDINALITY AS i(id, n)
        CROSS JOIN LATERAL (SELECT s.recipient_key, s.email, s.name, s.data FROM recipients s
                            WHERE s.campaign_id = p_campaign AND s.delivery_id = i.id OFFSET 0) r;
    END IF;
END $$;

-- What becomes of deliveries whose outcome is unknown: nothing in a cancelled campaign or where the policy is `hold`;
-- else they go round again, or have failed when their attempts are used up. Called right after OutcomeUnknown.
CREATE FUNCTION apply_unknown_policy(p_campaign bigint, p_deliveries bigint[], p_due_in interval[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_now       timestamptz := clock();
    v_tids      tid[];
    v_ids       bigint[];
    v_versions  int[];
    v_attempts  int[];
    v_due       timestamptz[];
BEGIN
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign;
    IF v_campaign.status = 'cancelled' OR v_campaign.unknown = 'hold' THEN
        RETURN;
    END IF;
    SELECT array_agg(q.ctid), array_agg(q.delivery_id), array_agg(q.version), array_agg(q.attempt), array_agg(v_now + coalesce(i.due_in, '0'))
    INTO v_tids, v_ids, v_versions, v_attempts, v_due
    FROM unnest(p_deliveries, p_due_in) AS i(id, due_in)
    CROSS JOIN LATERAL (SELECT r.ctid, r.delivery_id, r.version, r.attempt FROM recipient_queue r
                        WHERE r.campaign_id = p_campaign AND r.delivery_id = i.id AND r.status = 'unknown' OFFSET 0) q;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT p_campaign, i.id, i.version + 1, CASE WHEN i.attempt < v_campaign.attempts THEN 'Requeued' ELSE 'Failed' END,
           CASE WHEN i.attempt < v_campaign.attempts
                THEN jsonb_build_object('reason', 'policy', 'by', 'policy', 'due_at', rfc3339(i.due_at))
                ELSE jsonb_build_object('attempt', i.attempt, 'class', 'unknown', 'code', 'exhausted') END, v_now
    FROM unnest(v_ids, v_versions, v_attempts, v_due) AS i(id, version, attempt, due_at);
    UPDATE recipient_queue q SET version = q.version + 1,
        status = CASE WHEN q.attempt < v_campaign.attempts THEN 'pending' ELSE 'failed' END::delivery_status,
        due_at = CASE WHEN q.attempt < v_campaign.attempts THEN i.due_at END
    FROM unnest(v_tids, v_due) AS i(tid, due_at) WHERE q.ctid = i.tid;
END $$;

-- An outcome that came late: its row has moved on. A Sent is applied wherever the table allows it, the same outcome again
-- is ignored, everything else is kept as Evidence and changes nothing. The caller holds the row's lock.
CREATE FUNCTION settle_late(p_campaign bigint, p_delivery bigint, p_claim uuid, p_fence int, p_type text, p_body jsonb) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_row  recipient_queue%ROWTYPE;
BEGIN
    PERFORM next_status('delivery', p_type, 'sending');
    SELECT * INTO v_row FROM recipient_queue WHERE campaign_id = p_campaign AND delivery_id = p_delivery;
    -- A Sent that was applied late says not which claim it came from, and after an operator's retry two claims have the same
    -- attempt number: it is taken for this claim's only where no other came between, or a second copy would leave no trace.
    IF EXISTS (SELECT FROM events e WHERE e.campaign_id = p_campaign AND e.delivery_id = p_delivery
               AND ((e.version = p_fence + 1 AND e.type = p_type AND e.body -> 'attempt' IS NOT DISTINCT FROM p_body -> 'attempt')
                    OR (e.version IS NULL AND e.type = 'Evidence' AND e.body ->> 'of' = p_claim::text AND e.body ->> 'outcome' = p_type)
                    OR (e.version > p_fence AND e.type = 'Sent' AND p_type = 'Sent' AND e.body = p_body
                        AND NOT EXISTS (SELECT FROM events c WHERE c.campaign_id = p_campaign AND c.delivery_id = p_delivery
                                        AND c.version > p_fence AND c.version < e.version AND c.type = 'Claimed')))) THEN
        RETURN 'repeated';
    END IF;
    IF p_type = 'Sent' AND v_row.status <> 'sending' AND EXISTS (
            SELECT FROM transitions WHERE machine = 'delivery' AND event = 'Sent' AND from_status = v_row.status::text) THEN
        INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (p_campaign, p_delivery, v_row.version + 1, 'Sent', p_body);
        UPDATE recipient_queue SET status = 'sent', attempt = (p_body ->> 'attempt')::int, due_at = NULL, version = version + 1
        WHERE campaign_id = p_campaign AND delivery_id = p_delivery;
        RETURN 'applied';
    END IF;
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    VALUES (p_campaign, p_delivery, NULL, 'Evidence', jsonb_build_object('of', p_claim, 'outcome', p_type,
            'attempt', coalesce((p_body ->> 'attempt')::int, v_row.attempt)));
    RETURN 'evidence';
END $$;

-- Records outcomes of one campaign, each once: check against the fence (the version of the Claimed event), append, fold.
-- Parallel arrays, one element per delivery; the last three may be null as a whole. `due_in` is for those that go back to
-- pending, `suppress` a reason where the reply proves a dead address, `replies` the provider's words. One type, or one body,
-- stands for all, and so does one claim: a batch's outcomes are mostly alike, and a body per row costs more than the row.
CREATE FUNCTION settle(p_campaign bigint, p_claims uuid[], p_deliveries bigint[], p_fences int[], p_types text[], p_bodies jsonb[],
                       p_due_in interval[], p_suppress text[], p_replies text[],
                       OUT applied int, OUT repeated int, OUT evidence int)
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off AS $$
DECLARE
    v_now    timestamptz;
    v_good   boolean[];
    v_n      int := cardinality(p_deliveries);
    v_claim  uuid := CASE WHEN cardinality(p_claims) = 1 THEN p_claims[1] END;
    v_claims uuid[] := ARRAY(SELECT DISTINCT c.id FROM unnest(p_claims) AS c(id) ORDER BY c.id);
    v_type   text := CASE WHEN cardinality(p_types) = 1 THEN p_types[1] END;
    v_body   jsonb := CASE WHEN cardinality(p_bodies) = 1 THEN p_bodies[1] END;
    v_tried  int := v_body ->> 'attempt';
    v_row    record;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    repeated := 0;
    evidence := 0;
    PERFORM pg_advisory_xact_lock_shared(lock_key('campaign', p_campaign));
    PERFORM 1 FROM claims WHERE claim_id = ANY (v_claims) ORDER BY claim_id FOR UPDATE;
    v_now := clock();

    -- Check and fold, in key order. Mostly all of them are still what their claim made of them; a lock before the update would
    -- cost as much as the update. Where some have moved on, it is undone and done again with the set locked, so that those who
    -- meet in it wait instead of locking each other out.
    LOOP
        BEGIN
            IF v_good IS NOT NULL THEN
                SELECT array_agg(l.good ORDER BY l.n) INTO v_good
                FROM (SELECT i.n, q.version = i.fence AND q.status = 'sending' AS good
                      FROM (SELECT * FROM unnest(p_deliveries, p_fences) WITH ORDINALITY AS u(id, fence, n) ORDER BY u.id) i
                      CROSS JOIN LATERAL (SELECT r.status, r.version FROM recipient_queue r
                                          WHERE r.campaign_id = p_campaign AND r.delivery_id = i.id FOR UPDATE OFFSET 0) q) l;
                IF v_n <> coalesce(cardinality(v_good), 0) THEN
                    RAISE EXCEPTION 'campaign % has not all of these deliveries', p_campaign USING ERRCODE = 'PL004';
                END IF;
            END IF;
            UPDATE recipient_queue q SET
                version = q.version + 1,
                status = t.to_status::delivery_status,
                attempt = coalesce(v_tried, (i.body ->> 'attempt')::int, q.attempt),
                due_at = CASE WHEN t.to_status = 'pending' THEN v_now + coalesce(i.due_in, '0') END
            FROM (SELECT * FROM unnest(p_deliveries, p_fences, p_types, p_bodies, p_due_in) AS u(id, fence, type, body, due_in)
                  ORDER BY u.id OFFSET 0) i
            JOIN transitions t ON t.machine = 'delivery' AND t.event = coalesce(v_type, i.type) AND t.from_status = 'sending'
            WHERE q.campaign_id = p_campaign AND q.delivery_id = i.id AND q.version = i.fence AND q.status = 'sending';
            GET DIAGNOSTICS applied = ROW_COUNT;
            EXIT WHEN applied = v_n OR v_good IS NOT NULL;
            RAISE EXCEPTION USING ERRCODE = 'PL099';  -- not PL000, which stands for every PL... in a handler
        EXCEPTION WHEN SQLSTATE 'PL099' THEN
            v_good := '{}';
        END;
    END LOOP;
    v_good := coalesce(v_good, array_fill(true, ARRAY[v_n]));
    IF applied <> cardinality(array_positions(v_good, true)) THEN
        RAISE EXCEPTION 'a delivery that is sending does not allow one of %', ARRAY(SELECT DISTINCT unnest(p_types)) USING ERRCODE = 'PL004';
    END IF;

    IF applied > 0 THEN
        -- Append.
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        SELECT p_campaign, i.id, i.fence + 1, coalesce(v_type, i.type),
               CASE WHEN coalesce(v_type, i.type) IN ('Deferred', 'Released')
                    THEN coalesce(v_body, i.body) || jsonb_build_object('due_at', rfc3339(v_now + coalesce(i.due_in, '0')))
                    ELSE coalesce(v_body, i.body) END, v_now
        FROM unnest(v_good, p_deliveries, p_fences, p_types, p_bodies, p_due_in) AS i(good, id, fence, type, body, due_in)
        WHERE i.good;

        -- The claims count down; the last row takes its claim along.
        UPDATE claims k SET unsettled = k.unsettled - s.n
        FROM (SELECT coalesce(v_claim, i.claim_id) AS claim_id, count(*)::int AS n
              FROM unnest(v_good, p_claims) AS i(good, claim_id) WHERE i.good GROUP BY 1) s
        WHERE k.claim_id = s.claim_id;
        DELETE FROM claims WHERE claim_id = ANY (v_claims) AND unsettled = 0;
    END IF;

    IF 'OutcomeUnknown' = ANY (p_types) THEN
        PERFORM apply_unknown_policy(p_campaign, array_agg(i.id), array_agg(i.due_in))
        FROM unnest(v_good, p_deliveries, p_types, p_due_in) AS i(good, id, type, due_in)
        WHERE i.good AND coalesce(v_type, i.type) = 'OutcomeUnknown' HAVING count(*) > 0;
    END IF;

    IF applied < v_n THEN
        FOR v_row IN SELECT settle_late(p_campaign, i.id, coalesce(v_claim, i.claim_id), i.fence, coalesce(v_type, i.type), coalesce(v_body, i.body)) AS result
                     FROM unnest(v_good, p_deliveries, p_claims, p_fences, p_types, p_bodies) AS i(good, id, claim_id, fence, type, body)
                     WHERE NOT i.good LOOP
            CASE v_row.result
                WHEN 'applied' THEN applied := applied + 1;
                WHEN 'repeated' THEN repeated := repeated + 1;
                ELSE evidence := evidence + 1;
            END CASE;
        END LOOP;
    END IF;

    IF p_replies IS NOT NULL THEN
        INSERT INTO replies (campaign_id, delivery_id, version, text)
        SELECT p_campaign, i.id, i.fence + 1, i.reply FROM unnest(v_good, p_deliveries, p_fences, p_replies) AS i(good, id, fence, reply)
        WHERE i.good AND i.reply IS NOT NULL
        ON CONFLICT DO NOTHING;
    END IF;
    IF p_suppress IS NOT NULL THEN
        FOR v_row IN SELECT r.address_hash, i.reason, i.id
                     FROM unnest(v_good, p_deliveries, p_suppress) AS i(good, id, reason)
                     CROSS JOIN LATERAL (SELECT s.address_hash FROM recipients s WHERE s.campaign_id = p_campaign AND s.delivery_id = i.id OFFSET 0) r
                     WHERE i.good AND i.reason IS NOT NULL ORDER BY r.address_hash LOOP
            PERFORM suppress_hash(v_row.address_hash, v_row.reason, 'delivery:' || p_campaign || '.' || v_row.id);
        END LOOP;
    END IF;
END $$;

-- Asked every half second while anything is held, on the session that has the worker's lock. Says whether the worker is
-- still itself, which of its claims are no longer its own, which campaigns may not be sent now, who was suppressed since,
-- and which claims stand under its name that it knows nothing of (given up on: to be released at once).
CREATE FUNCTION permit(p_worker bigint, p_session int, p_claims uuid[], p_asking uuid[], p_beat boolean,
                       OUT alive boolean, OUT lost uuid[], OUT stopped bigint[], OUT suppressed bigint[], OUT strays uuid[])
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off AS $$
DECLARE
    v_since  xid8;
BEGIN
    IF p_beat THEN
        UPDATE workers SET seen_at = clock() WHERE id = p_worker AND session = p_session AND ended IS NULL;
    END IF;
    alive := EXISTS (SELECT FROM workers WHERE id = p_worker AND session = p_session AND ended IS NULL);
    SELECT coalesce(array_agg(i.id), '{}') INTO lost
    FROM unnest(p_claims) AS i(id) WHERE NOT EXISTS (SELECT FROM claims k WHERE k.claim_id = i.id AND k.worker_id = p_worker);
    SELECT coalesce(array_agg(DISTINCT c.id), '{}') INTO stopped
    FROM claims k JOIN campaigns c ON c.id = k.campaign_id WHERE k.claim_id = ANY (p_claims) AND c.status <> 'sending';
    -- Mostly nobody was: what has been committed since the oldest claim's snapshot is all that it cannot have seen.
    SELECT pg_snapshot_xmin(k.snapshot) INTO v_since FROM claims k WHERE k.claim_id = ANY (p_claims) ORDER BY 1 LIMIT 1;
    suppressed := '{}';
    IF EXISTS (SELECT FROM suppressions s WHERE s.xid >= v_since) THEN
        SELECT coalesce(array_agg(r.delivery_id), '{}') INTO suppressed
        FROM claims k, unnest(k.delivery_ids) AS i(id)
        CROSS JOIN LATERAL (SELECT s.delivery_id, s.address_hash FROM recipients s WHERE s.campaign_id = k.campaign_id AND s.delivery_id = i.id OFFSET 0) r
        CROSS JOIN LATERAL (SELECT FROM suppressions s WHERE s.address_hash = r.address_hash OFFSET 0) x
        WHERE k.claim_id = ANY (p_claims);
    END IF;
    IF EXISTS (SELECT FROM subscriptions s WHERE s.xid >= v_since AND NOT s.subscribed) THEN
        SELECT suppressed || coalesce(array_agg(r.delivery_id), '{}') INTO suppressed
        FROM claims k JOIN campaigns c ON c.id = k.campaign_id AND c.list_id IS NOT NULL, unnest(k.delivery_ids) AS i(id)
        CROSS JOIN LATERAL (SELECT s.delivery_id, s.address_hash FROM recipients s WHERE s.campaign_id = k.campaign_id AND s.delivery_id = i.id OFFSET 0) r
        CROSS JOIN LATERAL (SELECT s.id FROM contacts s WHERE s.address_hash = r.address_hash OFFSET 0) o
        CROSS JOIN LATERAL (SELECT FROM subscriptions s WHERE s.contact_id = o.id AND s.list_id = c.list_id AND NOT s.subscribed OFFSET 0) u
        WHERE k.claim_id = ANY (p_claims);
    END IF;
    SELECT coalesce(array_agg(k.claim_id), '{}') INTO strays
    FROM claims k WHERE k.worker_id = p_worker AND NOT (k.claim_id = ANY (p_claims || p_asking));
END $$;

-- Ends what is left of one claim with one event for each row: OutcomeUnknown (its worker is dead: from outside "not begun"
-- is never certain), or Released (its own worker gave it up before it ever had the answer).
CREATE FUNCTION end_claim(p_campaign bigint, p_claim uuid, p_event text, p_reason text) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_claim     claims%ROWTYPE;
    v_to        delivery_status := next_status('delivery', p_event, 'sending');
    v_tids      tid[];
    v_ids       bigint[];
    v_versions  int[];
    v_attempts  int[];
    v_now       timestamptz;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock_shared(lock_key('campaign', p_campaign));
    SELECT * INTO v_claim FROM claims WHERE claim_id = p_claim AND campaign_id = p_campaign FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    v_now := clock();
    SELECT array_agg(l.tid), array_agg(l.delivery_id), array_agg(l.version), array_agg(l.attempt) INTO v_tids, v_ids, v_versions, v_attempts
    FROM (SELECT q.ctid AS tid, q.delivery_id, q.version, q.attempt
          FROM (SELECT * FROM unnest(v_claim.delivery_ids, v_claim.versions) AS u(id, version) ORDER BY u.id) h
          CROSS JOIN LATERAL (SELECT r.ctid, r.delivery_id, r.version, r.attempt FROM recipient_queue r
                              WHERE r.campaign_id = p_campaign AND r.delivery_id = h.id AND r.version = h.version AND r.status = 'sending'
                              FOR UPDATE OFFSET 0) q) l;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT p_campaign, i.id, i.version + 1, p_event,
           CASE p_event WHEN 'Released' THEN jsonb_build_object('reason', p_reason, 'due_at', rfc3339(v_now))
                        ELSE jsonb_build_object('reason', p_reason, 'attempt', i.attempt + 1) END, v_now
    FROM unnest(v_ids, v_versions, v_attempts) AS i(id, version, attempt);
    UPDATE recipient_queue q SET version = q.version + 1,
        status = v_to,
        attempt = CASE p_event WHEN 'Released' THEN q.attempt ELSE q.attempt + 1 END,
        due_at = CASE v_to WHEN 'pending' THEN v_now END
    WHERE q.ctid = ANY (v_tids);
    DELETE FROM claims WHERE claim_id = p_claim;
    IF p_event = 'OutcomeUnknown' AND v_ids IS NOT NULL THEN
        PERFORM apply_unknown_policy(p_campaign, v_ids, NULL);
    END IF;
    RETURN coalesce(cardinality(v_ids), 0);
END $$;

-- A claim that its own worker gave up on.
CREATE FUNCTION release_claim(p_claim uuid, p_worker bigint) RETURNS int LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ SELECT end_claim(k.campaign_id, k.claim_id, 'Released', 'given_up') FROM claims k WHERE k.claim_id = p_claim AND k.worker_id = p_worker $$;

-- May this worker watch over the others, and has anybody to? The lock, kept by the session, makes it one watcher, and goes with
-- it when it dies. A watcher that hangs keeps it, so whoever sees that nobody has looked for a while watches without.
CREATE FUNCTION try_watch(p_worker bigint, OUT locked boolean, OUT watched boolean, OUT needed boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    locked := pg_try_advisory_lock(lock_key('watch'));
    watched := EXISTS (SELECT FROM workers w WHERE w.id <> p_worker AND w.ended IS NULL AND w.watched_at > clock() - interval '3 seconds');
    needed := EXISTS (SELECT FROM claims k WHERE k.worker_id <> p_worker AND k.unsettled > 0);
END $$;

-- One look at every other worker that holds claims: is its session lock free, is its lease over, is it ended already?
-- The probe's own locks go with this statement.
CREATE FUNCTION probe_workers(p_worker bigint, p_lease interval)
RETURNS TABLE (worker_id bigint, session int, ended boolean, free boolean, overdue boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE workers w SET watched_at = clock() WHERE w.id = p_worker;
    RETURN QUERY
    SELECT w.id, w.session, w.ended IS NOT NULL, NOT w.lease_only AND pg_try_advisory_xact_lock(lock_key('worker', w.id)), w.seen_at < clock() - p_lease
    FROM workers w WHERE w.id <> p_worker AND w.id IN (SELECT k.worker_id FROM claims k WHERE k.unsettled > 0);
END $$;

-- Declares a worker dead: it must still be in the session that was probed, and its lock free or its lease over right now.
CREATE FUNCTION bury_worker(p_worker bigint, p_session int, p_lease interval) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_worker  workers%ROWTYPE;
BEGIN
    SELECT * INTO v_worker FROM workers WHERE id = p_worker FOR UPDATE;
    IF v_worker.ended IS NOT NULL THEN
        RETURN true;
    END IF;
    IF v_worker.session <> p_session
       OR NOT (NOT v_worker.lease_only AND pg_try_advisory_xact_lock(lock_key('worker', p_worker)) OR v_worker.seen_at < clock() - p_lease) THEN
        RETURN false;
    END IF;
    UPDATE workers SET ended = 'dead', ended_at = clock() WHERE id = p_worker;
    RETURN true;
END $$;

-- The claims of ended workers, to be given to `reclaim` one by one.
CREATE FUNCTION orphaned_claims() RETURNS TABLE (campaign_id bigint, claim_id uuid) LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT k.campaign_id, k.claim_id FROM claims k JOIN workers w ON w.id = k.worker_id WHERE w.ended IS NOT NULL ORDER BY k.claimed_at $$;

-- A dead worker's claim: every row of it has an unknown outcome, then the campaign's policy rules.
CREATE FUNCTION reclaim(p_campaign bigint, p_claim uuid) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM claims k JOIN workers w ON w.id = k.worker_id WHERE k.claim_id = p_claim AND w.ended IS NOT NULL) THEN
        RETURN 0;
    END IF;
    RETURN end_claim(p_campaign, p_claim, 'OutcomeUnknown', 'worker_lost');
END $$;

-- Starts, resumes or rolls what is due: a scheduled campaign, a pause with a resume_at, a standing one that is_full. A start that comes
-- later than the campaign allows (the database was restored, no worker ran for a day) is held: paused, reason `missed`.
-- Returns the event that was written; null: somebody else was first; `busy`: somebody is at it, and a worker has others to serve.
CREATE FUNCTION wake_campaign(p_campaign bigint) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_now       timestamptz;
BEGIN
    IF NOT pg_try_advisory_xact_lock(lock_key('campaign', p_campaign)) THEN
        RETURN 'busy';
    END IF;
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign;
    v_now := clock();
    IF v_campaign.status = 'paused' AND v_campaign.resume_at <= v_now THEN
        PERFORM change_campaign(p_campaign, 'Resumed', jsonb_build_object('by', 'schedule'));
        RETURN 'Resumed';
    ELSIF v_campaign.status = 'scheduled' AND v_campaign.starts_at <= v_now THEN
        PERFORM change_campaign(p_campaign, 'Started', jsonb_build_object('by', 'schedule'));
        IF v_now > v_campaign.starts_at + v_campaign.missed_after THEN
            PERFORM change_campaign(p_campaign, 'Paused', jsonb_build_object('reason', 'missed'));
            RETURN 'Paused';
        END IF;
        RETURN 'Started';
    ELSIF v_campaign.status = 'sending' AND is_full(v_campaign) AND roll_campaign(p_campaign) IS NOT NULL THEN
        RETURN 'Rolled';
    END IF;
    RETURN NULL;
END $$;

-- A sender with a rate gives out its time: a worker gets the next piece of it, p_for long and a second at most, and in it
-- `granted` mails, one each `each` seconds, from `starts_in` (seconds; a little in the past where the worker was late). So one
-- row is written some times a second, not once per claim, and who asks while others have pieces gets the one behind theirs,
-- short ones, up to a second ahead: all have their turn. What is beyond is refused: ask again after `retry_in`. Time that
-- nobody wanted is gone, never saved up. `each` null: the sender has no rate.
CREATE FUNCTION lease_tokens(p_sender bigint, p_for interval, OUT granted int, OUT each float8, OUT starts_in float8, OUT retry_in interval)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c_ahead   CONSTANT interval := '1 second';
    c_late    CONSTANT interval := '100 ms';
    c_shared  CONSTANT interval := '50 ms';
    v_free    timestamptz;
    v_now     timestamptz;
    v_for     interval := least(p_for, c_ahead);
BEGIN
    SELECT extract(epoch FROM s.rate_per) / s.rate_count INTO each FROM senders s WHERE s.id = p_sender;
    IF each IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);  -- at worst a crash gives a second out twice
    granted := 0;
    SELECT free_at INTO v_free FROM rate_leases WHERE sender_id = p_sender FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO rate_leases (sender_id, free_at) VALUES (p_sender, clock()) ON CONFLICT DO NOTHING RETURNING free_at INTO v_free;
        IF NOT FOUND THEN  -- somebody is at it: never wait for another
            retry_in := '5 ms';
            RETURN;
        END IF;
    END IF;
    v_now := clock();
    IF v_free > v_now + c_ahead THEN
        retry_in := v_free - v_now - c_ahead;
        RETURN;
    END IF;
    IF v_free < v_now - c_late THEN
        v_free := v_now;
    ELSIF v_free > v_now + c_shared THEN
        v_for := least(v_for, c_shared);
    END IF;
    granted := greatest(1, floor(extract(epoch FROM v_for) / each + 1e-6)::int);
    starts_in := extract(epoch FROM v_free - v_now);
    UPDATE rate_leases SET free_at = v_free + make_interval(secs => granted * each) WHERE sender_id = p_sender;
END $$;

------------------------------------------------------------------------------------------------------------ sealed blocks

-- The log's order across streams. A position is drawn before its transaction commits, so "everything after position n" would
-- miss who commits late. Block k holds exactly the events that snapshot k sees and snapshot k-1 did not, whatever their
-- positions: nothing is skipped, nothing comes twice, and no timeout decides that an event will not come. Within a block
-- the order is by position, which is causal in each stream; the feed's order is (block_no, position).
CREATE TABLE blocks (
    lane       smallint NOT NULL DEFAULT 0,
    block_no   bigint NOT NULL,
    epoch      smallint NOT NULL DEFAULT 1,
    snapshot   pg_snapshot NOT NULL,
    positions  int8multirange NOT NULL,
    n          int NOT NULL CHECK (n > 0),
    sealed_at  timestamptz NOT NULL,
    root       bytea,
    prev       bytea,
    format     smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (lane, block_no)
);
-- For as_of() and for block_of(): both columns rise with the blocks' numbers.
CREATE INDEX blocks_sealed ON blocks (lane, sealed_at, block_no);
CREATE INDEX blocks_transactions ON blocks (lane, epoch, pg_snapshot_xmax(snapshot), block_no);

-- Who reads sealed blocks, and how far. The checkpoint moves in the transaction of the rows that were made of the events.
CREATE TABLE followers (
    name      text PRIMARY KEY,
    lane      smallint NOT NULL DEFAULT 0,
    block_no  bigint NOT NULL DEFAULT 0,
    position  bigint NOT NULL DEFAULT 0,
    moved_at  timestamptz NOT NULL DEFAULT clock()
);

-- The channel that says "there is a new block"; apart from wake_channel(), so that it wakes no idle worker.
CREATE FUNCTION block_channel() RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT wake_channel() || '_blocks' $$;

-- Seals what has been committed and is in no block yet; returns the new block's number, 0 when there was nothing to seal, or
-- null when somebody else is at it, who may have looked before our last commit: then it is to be called again.
-- The conditions that make this exact:
--   * snapshot and events come from ONE statement, on the primary: pg_current_snapshot() there is the snapshot that decides
--     which events the same statement sees;
--   * this transaction appends no event: it must not even have an xid when it begins;
--   * xid is never supplied by hand, and is the top-level one (savepoints do not matter, nor does PREPARE TRANSACTION);
--   * all of an epoch's transactions are of one cluster: in another one (restored from a dump) it is refused (PL010);
--   * unique (lane, block_no) fences two sealers even if the lock failed.
-- What the last snapshot could not see is what had no xid yet (xid >= xmax) or was in progress (xip): two index scans. Of
-- the latter only those are looked at that have ended, so a transaction that stays open for hours, with a million events
-- in it, costs nothing but its own delay.
CREATE FUNCTION seal(p_lane smallint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET work_mem = '64MB' SET jit = off AS $$
DECLARE
    v_last  blocks%ROWTYPE;
    v_open  xid8[];
    v_from  xid8;
    v_epoch smallint;
    v_new   bigint;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'seal() must be alone in its transaction: it would take that transaction''s own events for committed'
            USING ERRCODE = '25001';
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);  -- a block that somebody has read must not come anew
    IF NOT pg_try_advisory_xact_lock(lock_key('seal', p_lane)) THEN
        RETURN NULL;
    END IF;
    IF foreign_epoch() IS NOT NULL THEN
        RAISE EXCEPTION '%', foreign_epoch() USING ERRCODE = 'PL010', HINT = 'postledger migrate --new-epoch';
    END IF;
    SELECT max(epoch) INTO v_epoch FROM epochs;
    SELECT * INTO v_last FROM blocks WHERE lane = p_lane ORDER BY block_no DESC LIMIT 1;  -- a later statement than the lock
    v_from := CASE WHEN v_last.epoch = v_epoch THEN pg_snapshot_xmax(v_last.snapshot) ELSE '0'::xid8 END;
    v_open := ARRAY(SELECT x FROM pg_snapshot_xip(v_last.snapshot) AS x WHERE v_last.epoch = v_epoch);
    IF pg_snapshot_xmax(pg_current_snapshot()) < v_from THEN
        RAISE EXCEPTION 'block % was sealed at transaction %, and this server has only come to %', v_last.block_no, v_from,
            pg_snapshot_xmax(pg_current_snapshot()) USING ERRCODE = 'PL010', HINT = 'postledger migrate --new-epoch';
    END IF;
    INSERT INTO blocks (lane, block_no, epoch, snapshot, positions, n, sealed_at, prev)
    SELECT p_lane, coalesce(v_last.block_no, 0) + 1, v_epoch, pg_current_snapshot(),
           range_agg(int8range(i.first, i.last, '[]')), sum(i.n),
           greatest(clock(), v_last.sealed_at), v_last.root  -- after the events were read, and it never goes back
    FROM (SELECT min(u.position) AS first, max(u.position) AS last, count(*)::int AS n
          FROM (SELECT e.position, e.position - row_number() OVER (ORDER BY e.position) AS island
                FROM (SELECT position FROM events WHERE epoch = v_epoch AND xid >= v_from
                      UNION ALL
                      SELECT position FROM events
                      WHERE epoch = v_epoch AND xid = ANY (ARRAY(SELECT x FROM unnest(v_open) AS x WHERE pg_visible_in_snapshot(x, pg_current_snapshot())))) e) u
          GROUP BY u.island) i
    HAVING sum(i.n) > 0
    RETURNING block_no INTO v_new;
    -- A hint, so not when a listener that is stuck has let the queue fill up: then it would fail, and nothing be sealed.
    IF v_new IS NOT NULL AND pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(block_channel(), '');
    END IF;
    RETURN coalesce(v_new, 0);
END $$;

-- The log goes on in this cluster, after a restore from a dump: a last block of the epoch that has ended takes all that was in
-- no block yet, told by position, since transactions tell nothing any more; then the new epoch counts from nothing. So
-- followers get everything once, the old first. For the tables' owner, since the new epoch is a column's default; waits for
-- all who write, and lets nobody write meanwhile.
CREATE FUNCTION begin_epoch(p_reason text DEFAULT 'restore') RETURNS smallint LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_hashjoin = off SET enable_mergejoin = off SET work_mem = '64MB' SET jit = off AS $$
DECLARE
    v_epoch  smallint;
    v_last   blocks%ROWTYPE;
    v_end    bigint;
    v_rest   int8multirange;
BEGIN
    LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
    PERFORM pg_advisory_xact_lock(lock_key('seal', 0));
    SELECT max(epoch) INTO v_epoch FROM epochs;
    SELECT * INTO v_last FROM blocks WHERE lane = 0 ORDER BY block_no DESC LIMIT 1;
    SELECT greatest(max(e.xid), pg_snapshot_xmax(v_last.snapshot))::text::bigint + 1 INTO v_end FROM events e WHERE e.epoch = v_epoch;
    -- What there is, less what has been sealed; every position in a range is an event's.
    SELECT range_agg(int8range(i.first, i.last, '[]')) INTO v_rest
    FROM (SELECT min(u.position) AS first, max(u.position) AS last
          FROM (SELECT e.position, e.position - row_number() OVER (ORDER BY e.position) AS island FROM events e WHERE e.epoch = v_epoch) u
          GROUP BY u.island) i;
    v_rest := v_rest - coalesce((SELECT range_agg(b.positions) FROM blocks b WHERE b.lane = 0 AND b.epoch = v_epoch), '{}');
    IF NOT isempty(v_rest) THEN
        INSERT INTO blocks (lane, block_no, epoch, snapshot, positions, n, sealed_at, prev)
        SELECT 0, coalesce(v_last.block_no, 0) + 1, v_epoch, format('%s:%s:', v_end, v_end)::pg_snapshot, v_rest,
               (SELECT sum(upper(r) - lower(r)) FROM unnest(v_rest) AS r), greatest(clock(), v_last.sealed_at), v_last.root;
    END IF;
    v_epoch := v_epoch + 1;
    INSERT INTO epochs (epoch, cluster) VALUES (v_epoch, cluster_id());
    EXECUTE format('ALTER TABLE events ALTER COLUMN epoch SET DEFAULT %s', v_epoch);
    -- Transactions are numbered anew: what was noted by their numbers says nothing any more.
    UPDATE campaigns SET screened = NULL WHERE screened IS NOT NULL;
    UPDATE claims SET snapshot = '1:1:';
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT 0, 0, coalesce(max(e.version), 0) + 1, 'EpochBegun', jsonb_build_object('epoch', v_epoch, 'reason', p_reason)
    FROM events e WHERE e.campaign_id = 0 AND e.delivery_id = 0;
    PERFORM pg_notify(block_channel(), '') WHERE pg_notification_queue_usage() < 0.5;
    RETURN v_epoch;
END $$;

-- Whether there is something that whoever appended it has left unsealed: a process that was killed, an application that
-- called enqueue(). A cheap look, for those who have nothing else to do. It goes no further than the oldest transaction in
-- progress, whose events it would have to walk past, so it may overlook something until that one has ended.
CREATE FUNCTION unsealed(p_lane smallint DEFAULT 0) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_epoch smallint := (SELECT max(epoch) FROM epochs);
    v_last  pg_snapshot := (SELECT CASE WHEN b.epoch = v_epoch THEN b.snapshot END FROM blocks b
                            WHERE b.lane = p_lane ORDER BY b.block_no DESC LIMIT 1);
    v_from  xid8 := coalesce(pg_snapshot_xmax(v_last), '0'::xid8);
    v_to    xid8 := pg_snapshot_xmin(pg_current_snapshot());
    v_open  xid8[] := ARRAY(SELECT x FROM pg_snapshot_xip(v_last) AS x WHERE x < v_to);
BEGIN
    RETURN EXISTS (SELECT FROM events WHERE epoch = v_epoch AND xid >= v_from AND xid < v_to)
        OR EXISTS (SELECT FROM events WHERE epoch = v_epoch AND xid = ANY (v_open));
END $$;

-- The block in which a transaction's events are; null: in none yet.
CREATE FUNCTION block_of(p_epoch smallint, p_xid xid8, p_lane smallint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
    -- Passes over the blocks that were sealed while it was in progress.
    RETURN (SELECT b.block_no FROM blocks b
            WHERE b.lane = p_lane AND b.epoch = p_epoch AND pg_snapshot_xmax(b.snapshot) > p_xid AND pg_visible_in_snapshot(p_xid, b.snapshot)
            ORDER BY b.lane, b.epoch, pg_snapshot_xmax(b.snapshot), b.block_no LIMIT 1);
END $$;

-- Up to p_limit events of sealed blocks after a checkpoint, in feed order. Each range of a block is walked by the index on
-- position, so a page costs its own size, however large the block.
CREATE FUNCTION read_blocks(p_lane smallint, p_block bigint, p_position bigint, p_limit int)
RETURNS TABLE (block_no bigint, "position" bigint, campaign_id bigint, delivery_id bigint, version int, type text, body jsonb, at timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_block  record;
    v_range  int8range;
    v_left   int := p_limit;
    v_got    int;
BEGIN
    FOR v_block IN SELECT b.block_no, b.positions FROM blocks b WHERE b.lane = p_lane AND b.block_no >= p_block ORDER BY b.block_no LOOP
        FOR v_range IN SELECT r FROM unnest(v_block.positions
                       * int8multirange(int8range(CASE WHEN v_block.block_no = p_block THEN p_position + 1 ELSE 0 END, NULL))) AS r LOOP
            RETURN QUERY
            SELECT v_block.block_no, e.position, e.campaign_id, e.delivery_id, e.version, e.type, e.body, e.at
            FROM events e WHERE e.position >= lower(v_range) AND e.position < upper(v_range) ORDER BY e.position LIMIT v_left;
            GET DIAGNOSTICS v_got = ROW_COUNT;
            v_left := v_left - v_got;
            IF v_left <= 0 THEN
                RETURN;
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- How campaigns stand, by the sealed log: what a dashboard reads without counting millions of rows.
CREATE TABLE progress (
    campaign_id     bigint PRIMARY KEY,
    pending         bigint NOT NULL DEFAULT 0,
    sending         bigint NOT NULL DEFAULT 0,
    sent            bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,
    skipped         bigint NOT NULL DEFAULT 0,
    cancelled       bigint NOT NULL DEFAULT 0,
    unknown         bigint NOT NULL DEFAULT 0,
    first_at        timestamptz,
    last_at         timestamptz,
    first_sent_at   timestamptz,
    last_sent_at    timestamptz
) WITH (fillfactor = 70);

-- Sent per minute, for the rate.
CREATE TABLE progress_minutes (
    campaign_id  bigint NOT NULL,
    minute       timestamptz NOT NULL,
    sent         bigint NOT NULL,
    PRIMARY KEY (campaign_id, minute)
) WITH (fillfactor = 70);

INSERT INTO followers (name) VALUES ('progress');

-- One page of the progress follower: counts move by the status before and after each event. The status before is told by
-- the event's type where only one may be; else by the event one version earlier, which mostly stands in the same page.
-- Returns how many events it handled; null when somebody else is at it.
CREATE FUNCTION follow_progress(p_limit int) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_mergejoin = off SET enable_memoize = off SET enable_nestloop = off SET jit = off AS $$
DECLARE
    v_follower  followers%ROWTYPE;
    v_open      text[];  -- events that may come after more than one status
    v_head      bigint[];  -- of checkpoints as pairs, which compare as they follow one another
    v_to        bigint[];
    v_n         int;
BEGIN
    SELECT * INTO v_follower FROM followers WHERE name = 'progress' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    v_open := ARRAY(SELECT t.event FROM transitions t WHERE t.machine = 'delivery' GROUP BY t.event HAVING count(*) > 1);
    -- Before the page, in a statement of its own: a page that is not full has all blocks up to this one, and perhaps more.
    SELECT ARRAY[b.block_no, upper(b.positions) - 1] INTO v_head FROM blocks b WHERE b.lane = v_follower.lane ORDER BY b.block_no DESC LIMIT 1;
    WITH page AS MATERIALIZED (
        SELECT b.block_no, b.position, b.campaign_id, b.delivery_id, b.version, b.type, b.at
        FROM read_blocks(v_follower.lane, v_follower.block_no, v_follower.position, p_limit) b
    ), kinds AS MATERIALIZED (
        SELECT t.event, max(t.to_status) AS to_status, CASE WHEN count(*) = 1 THEN max(t.from_status) END AS from_status
        FROM transitions t WHERE t.machine = 'delivery' GROUP BY t.event
    ), grouped AS MATERIALIZED (
        SELECT s.campaign_id, s.type, s.previous, s.minute, count(*) AS n, min(s.at) AS first_at, max(s.at) AS last_at
        FROM (
            SELECT p.campaign_id, p.type, NULL AS previous, NULL::timestamptz AS minute, p.at
            FROM page p WHERE p.type <> ALL (v_open) AND p.campaign_id > 0 AND p.delivery_id > 0 AND p.version IS NOT NULL
            UNION ALL
            SELECT p.campaign_id, p.type, coalesce(q.type, e.type), date_bin('1 minute', p.at, '2000-01-01Z'), p.at
            FROM page p
            LEFT JOIN page q ON q.type = 'Claimed' AND q.delivery_id = p.delivery_id AND q.version = p.version - 1 AND q.campaign_id = p.campaign_id
            LEFT JOIN LATERAL (SELECT o.type FROM events o WHERE q.type IS NULL AND o.campaign_id = p.campaign_id AND o.delivery_id = p.delivery_id
                               AND o.version = p.version - 1 OFFSET 0) e ON true
            WHERE p.type = ANY (v_open) AND p.campaign_id > 0 AND p.delivery_id > 0 AND p.version IS NOT NULL) s
        GROUP BY 1, 2, 3, 4
    ), moves AS MATERIALIZED (
        SELECT g.campaign_id, a.to_status AS after, coalesce(a.from_status, b.to_status) AS before, g.minute, g.n, g.first_at, g.last_at
        FROM grouped g JOIN kinds a ON a.event = g.type LEFT JOIN kinds b ON b.event = g.previous
    ), minutes AS (
        INSERT INTO progress_minutes AS m (campaign_id, minute, sent)
        SELECT s.campaign_id, s.minute, sum(s.n) FROM moves s WHERE s.after = 'sent' GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (campaign_id, minute) DO UPDATE SET sent = m.sent + excluded.sent
    ), moved AS (
        INSERT INTO progress AS g (campaign_id, pending, sending, sent, failed, skipped, cancelled, unknown,
                                   first_at, last_at, first_sent_at, last_sent_at)
        SELECT s.campaign_id,
               coalesce(sum(s.n) FILTER (WHERE s.after = 'pending'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'pending'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'sending'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'sending'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'sent'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'sent'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'failed'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'failed'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'skipped'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'skipped'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'cancelled'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'cancelled'), 0),
               coalesce(sum(s.n) FILTER (WHERE s.after = 'unknown'), 0) - coalesce(sum(s.n) FILTER (WHERE s.before = 'unknown'), 0),
               min(s.first_at), max(s.last_at), min(s.first_at) FILTER (WHERE s.after = 'sent'), max(s.last_at) FILTER (WHERE s.after = 'sent')
        FROM moves s GROUP BY s.campaign_id ORDER BY s.campaign_id
        ON CONFLICT (campaign_id) DO UPDATE SET
            pending = g.pending + excluded.pending, sending = g.sending + excluded.sending, sent = g.sent + excluded.sent,
            failed = g.failed + excluded.failed, skipped = g.skipped + excluded.skipped,
            cancelled = g.cancelled + excluded.cancelled, unknown = g.unknown + excluded.unknown,
            first_at = least(g.first_at, excluded.first_at), last_at = greatest(g.last_at, excluded.last_at),
            first_sent_at = least(g.first_sent_at, excluded.first_sent_at), last_sent_at = greatest(g.last_sent_at, excluded.last_sent_at)
    )
    SELECT count(*), ARRAY[max(p.block_no), max(p.position) FILTER (WHERE p.block_no = (SELECT max(l.block_no) FROM page l))] INTO v_n, v_to FROM page p;
    IF v_n < p_limit THEN
        v_to := CASE WHEN v_n = 0 THEN v_head ELSE greatest(v_to, v_head) END;
    END IF;
    IF v_to > ARRAY[v_follower.block_no, v_follower.position] THEN
        UPDATE followers SET block_no = v_to[1], position = v_to[2], moved_at = clock() WHERE name = 'progress';
    END IF;
    RETURN v_n;
END $$;

------------------------------------------------------------------------------------------------------------------- lists

-- Lists of contacts, and who is on them. Only an explicit opt-in leaves `subscribed = false`: an import never does.
CREATE TABLE lists (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT clock()
);

CREATE TABLE subscriptions (
    list_id     bigint NOT NULL,
    contact_id  bigint NOT NULL,
    subscribed  boolean NOT NULL,
    changed_at  timestamptz NOT NULL,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- of the last change; see suppressions
    PRIMARY KEY (contact_id, list_id)
);
CREATE INDEX subscriptions_list ON subscriptions (list_id, contact_id) WHERE subscribed;
CREATE INDEX subscriptions_xid ON subscriptions (xid) WHERE NOT subscribed;

-- Marks all rows of an import but the last of each address as duplicates; returns how many. Before the first page.
CREATE FUNCTION mark_duplicates(p_import bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET work_mem = '64MB'
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_n  bigint := 0;
BEGIN
    IF EXISTS (SELECT FROM import_rows i WHERE i.import_id = p_import AND i.outcome IS NULL
               GROUP BY hashtextextended(i.email, 0) HAVING count(*) > 1) THEN
        UPDATE import_rows s SET outcome = 'duplicate', reason = 'this address stands further down'
        FROM (SELECT i.ctid AS tid, row_number() OVER (PARTITION BY i.email ORDER BY i.line DESC) AS nth
              FROM import_rows i WHERE i.import_id = p_import AND i.outcome IS NULL OFFSET 0) d
        WHERE s.ctid = d.tid AND d.nth > 1;
        GET DIAGNOSTICS v_n = ROW_COUNT;
    END IF;
    RETURN v_n;
END $$;

-- Turns up to p_limit staged rows behind p_after into contacts that are subscribed to a list. A page is a transaction of its
-- own, so that no bounce has to wait for a contact's lock until a million people are in. Who unsubscribed, from this list or
-- from all, stays so (outcome `unsubscribed`); who was erased is not brought back (`invalid`). A contact's name and data are
-- those of the newest row. `last` is null when there was nothing left.
CREATE FUNCTION import_contacts(p_list bigint, p_import bigint, p_after tid, p_limit int,
                                OUT last tid, OUT added bigint, OUT present bigint, OUT unsubscribed bigint, OUT erased bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_secret    secrets%ROWTYPE;
    v_body      jsonb := jsonb_build_object('list', p_list::text, 'source', 'import:' || p_import);
    v_now       timestamptz;
    v_hashes    bytea[];
    v_tids      tid[];
    v_emails    text[];
    v_names     text[];
    v_data      jsonb[];
    v_new       bigint[];
    v_newly     bytea[];
    v_ids       bigint[];
    v_versions  int[];
    v_fates     text[];
BEGIN
    SELECT * INTO v_secret FROM secrets WHERE name = 'address';
    -- In the order of the hashes, in which everybody locks contacts.
    SELECT max(p.tid), array_agg(p.hash ORDER BY p.hash), array_agg(p.tid ORDER BY p.hash), array_agg(p.email ORDER BY p.hash),
           array_agg(p.name ORDER BY p.hash), array_agg(p.data ORDER BY p.hash)
    INTO last, v_hashes, v_tids, v_emails, v_names, v_data
    FROM (SELECT i.ctid AS tid, i.email, i.name, i.data, keyed_hash(v_secret.inner_key, v_secret.outer_key, i.email) AS hash
          FROM import_rows i WHERE i.ctid > p_after AND i.import_id = p_import AND i.outcome IS NULL LIMIT p_limit) p;
    added := 0;
    present := 0;
    unsubscribed := 0;
    erased := 0;
    IF last IS NULL THEN
        RETURN;
    END IF;
    v_now := clock();

    -- Who is new is on the list from the beginning.
    WITH made AS (
        INSERT INTO contacts (address_hash, version, email, name, data, created_at)
        SELECT i.hash, 2, i.email, i.name, i.data, v_now
        FROM unnest(v_hashes, v_emails, v_names, v_data) AS i(hash, email, name, data) ORDER BY i.hash
        ON CONFLICT (address_hash) DO NOTHING RETURNING id, address_hash
    )
    SELECT array_agg(m.id ORDER BY m.id), array_agg(m.address_hash) INTO v_new, v_newly FROM made m;
    IF v_new IS NOT NULL THEN
        INSERT INTO subscriptions (list_id, contact_id, subscribed, changed_at) SELECT p_list, n.id, true, v_now FROM unnest(v_new) AS n(id);
        INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
        SELECT 0, n.id, e.version, e.type, e.body, v_now
        FROM unnest(v_new) AS n(id) CROSS JOIN (VALUES (1, 'ContactAdded', '{}'), (2, 'Subscribed', v_body)) AS e(version, type, body)
        ORDER BY n.id, e.version;
        added := cardinality(v_new);
    END IF;
    IF added = cardinality(v_hashes) THEN
        RETURN;
    END IF;

    -- Who was known: locked first, looked at in a later statement, which sees what was committed until then.
    SELECT array_agg(c.id), array_agg(c.version), array_agg(i.tid), array_agg(i.email), array_agg(i.name), array_agg(i.data), array_agg(i.hash)
    INTO v_ids, v_versions, v_tids, v_emails, v_names, v_data, v_hashes
    FROM unnest(v_hashes, v_tids, v_emails, v_names, v_data) AS i(hash, tid, email, name, data)
    CROSS JOIN LATERAL (SELECT o.id, o.version FROM contacts o WHERE o.address_hash = i.hash FOR UPDATE OFFSET 0) c
    WHERE NOT EXISTS (SELECT FROM unnest(v_newly) AS n(hash) WHERE n.hash = i.hash);
    SELECT array_agg(CASE WHEN c.erased_at IS NOT NULL THEN 'erased' WHEN u.subscribed THEN 'present'
                          WHEN NOT u.subscribed OR x.reason IS NOT NULL THEN 'unsubscribed' ELSE 'added' END ORDER BY i.n)
    INTO v_fates
    FROM unnest(v_ids, v_hashes) WITH ORDINALITY AS i(id, hash, n)
    CROSS JOIN LATERAL (SELECT o.erased_at FROM contacts o WHERE o.id = i.id OFFSET 0) c
    LEFT JOIN LATERAL (SELECT o.subscribed FROM subscriptions o WHERE o.contact_id = i.id AND o.list_id = p_list OFFSET 0) u ON true
    LEFT JOIN LATERAL (SELECT o.reason FROM suppressions o WHERE o.address_hash = i.hash AND o.reason = 'unsubscribed' OFFSET 0) x ON true;
    SELECT added + count(*) FILTER (WHERE f.fate = 'added'), count(*) FILTER (WHERE f.fate = 'present'),
           count(*) FILTER (WHERE f.fate = 'unsubscribed'), count(*) FILTER (WHERE f.fate = 'erased')
    INTO added, present, unsubscribed, erased FROM unnest(v_fates) AS f(fate);
    INSERT INTO subscriptions (list_id, contact_id, subscribed, changed_at)
    SELECT p_list, i.id, true, v_now FROM unnest(v_ids, v_fates) AS i(id, fate) WHERE i.fate = 'added';
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT 0, i.id, i.version + 1, 'Subscribed', v_body, v_now FROM unnest(v_ids, v_versions, v_fates) AS i(id, version, fate) WHERE i.fate = 'added';
    UPDATE contacts c SET version = c.version + (i.fate = 'added')::int, email = i.email, name = coalesce(i.name, c.name), data = i.data
    FROM unnest(v_ids, v_fates, v_emails, v_names, v_data) AS i(id, fate, email, name, data)
    WHERE c.id = i.id AND (i.fate = 'added' OR i.fate = 'present'
                           AND (c.email, c.name, c.data) IS DISTINCT FROM (i.email, coalesce(i.name, c.name), i.data));
    UPDATE import_rows s SET
        outcome = CASE i.fate WHEN 'erased' THEN 'invalid' ELSE i.fate END,
        reason = CASE i.fate WHEN 'erased' THEN 'this person was erased: an import brings nobody back'
                             ELSE 'unsubscribed: only they themselves can change that' END
    FROM unnest(v_tids, v_fates) AS i(tid, fate) WHERE s.ctid = i.tid AND i.fate IN ('unsubscribed', 'erased');
END $$;

-- Takes an address off one list (p_list), or off everything (null): off all its lists, and suppressed. False: it was so already.
-- `p_source` says who said so and in which mail: `operator`, `delivery:CAMPAIGN.DELIVERY`, ...
CREATE FUNCTION unsubscribe_hash(p_hash bytea, p_list bigint, p_source text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_contact  bigint := contact_of(p_hash);
    v_version  int;
    v_lists    bigint[];
    v_now      timestamptz;
BEGIN
    SELECT version INTO v_version FROM contacts WHERE id = v_contact FOR UPDATE;
    v_now := clock();
    IF p_list IS NULL THEN
        v_lists := ARRAY(SELECT s.list_id FROM subscriptions s WHERE s.contact_id = v_contact AND s.subscribed ORDER BY s.list_id);
    ELSIF NOT EXISTS (SELECT FROM subscriptions s WHERE s.contact_id = v_contact AND s.list_id = p_list AND NOT s.subscribed) THEN
        v_lists := ARRAY[p_list];  -- who was never on it does not want to be
    END IF;
    INSERT INTO subscriptions (list_id, contact_id, subscribed, changed_at) SELECT l.id, v_contact, false, v_now FROM unnest(v_lists) AS l(id)
    ON CONFLICT (contact_id, list_id) DO UPDATE SET subscribed = false, changed_at = v_now, xid = excluded.xid;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    SELECT 0, v_contact, v_version + l.n, 'Unsubscribed', jsonb_build_object('list', l.id::text, 'source', p_source), v_now
    FROM unnest(v_lists) WITH ORDINALITY AS l(id, n) ORDER BY l.n;
    UPDATE contacts SET version = v_version + cardinality(v_lists) WHERE id = v_contact AND cardinality(v_lists) > 0;
    IF p_list IS NULL THEN
        RETURN suppress_hash(p_hash, 'unsubscribed', p_source) OR cardinality(v_lists) > 0;
    END IF;
    RETURN v_lists IS NOT NULL;
END $$;

-- Puts an address on a list because the person said so: the only way back after an unsubscription. False: it was so already.
-- PL002 for who is suppressed, or was erased.
CREATE FUNCTION subscribe_hash(p_hash bytea, p_list bigint, p_source text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_id       bigint := contact_of(p_hash);  -- in a statement of its own: the next one sees a row that this one made
    v_contact  contacts%ROWTYPE;
    v_reason   text;
    v_now      timestamptz;
BEGIN
    SELECT * INTO v_contact FROM contacts WHERE id = v_id FOR UPDATE;
    SELECT reason INTO v_reason FROM suppressions WHERE address_hash = p_hash;
    IF v_reason IS NOT NULL OR v_contact.erased_at IS NOT NULL THEN
        RAISE EXCEPTION 'nobody mails this address any more (%)', coalesce(v_reason, 'erased') USING ERRCODE = 'PL002';
    END IF;
    v_now := clock();
    INSERT INTO subscriptions AS s (list_id, contact_id, subscribed, changed_at) VALUES (p_list, v_contact.id, true, v_now)
    ON CONFLICT (contact_id, list_id) DO UPDATE SET subscribed = true, changed_at = v_now, xid = excluded.xid WHERE NOT s.subscribed;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at)
    VALUES (0, v_contact.id, v_contact.version + 1, 'Subscribed', jsonb_build_object('list', p_list::text, 'source', p_source), v_now);
    UPDATE contacts SET version = v_contact.version + 1 WHERE id = v_contact.id;
    RETURN true;
END $$;

-- Stages a list's subscribers for enqueue_import, in the order in which they became known; how many.
CREATE FUNCTION stage_list(p_import bigint, p_list bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off AS $$
DECLARE
    v_n  bigint;
BEGIN
    INSERT INTO import_rows (import_id, line, key, email, name, data)
    SELECT p_import, row_number() OVER (ORDER BY s.contact_id), c.email, c.email, c.name, coalesce(c.data, '{}')
    FROM subscriptions s JOIN contacts c ON c.id = s.contact_id
    WHERE s.list_id = p_list AND s.subscribed AND c.email IS NOT NULL;
    GET DIAGNOSTICS v_n = ROW_COUNT;
    UPDATE imports SET rows = rows + v_n, chunks = chunks + 1 WHERE id = p_import AND state = 'staging';
    RETURN v_n;
END $$;

------------------------------------------------------------------------------------------------ standing campaigns

-- The first generation of a name: what holds its keys together.
CREATE FUNCTION family_of(p_name text) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT id FROM campaigns WHERE name = p_name AND generation = 1 $$;

-- For an application, inside its own transaction: the mail exists if and only if that commits. Returns the delivery id; null
-- if (campaign, key) exists, in any generation: where another transaction is just writing that key, once that has ended.
-- Without a key each call is a mail of its own. Wakes workers at commit, unless told not to or the notification queue is
-- half full (then the idle heartbeat finds it).
--
-- It neither waits for commands nor makes them wait: it takes no campaign lock, but holds `application` shared, which nobody
-- waits for. Who ends a generation tries that lock, and so finds the messages that no snapshot shows yet.
CREATE FUNCTION enqueue(campaign text, email text, key text DEFAULT NULL, name text DEFAULT NULL, data jsonb DEFAULT '{}',
                        due_at timestamptz DEFAULT NULL, wake boolean DEFAULT true) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET standard_conforming_strings TO on AS $$
#variable_conflict use_column
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_held      bigint;
    v_secret    secrets%ROWTYPE;
    v_address   text := normal_address(enqueue.email);
    v_key       text := enqueue.key;
    v_name      text := nullif(btrim(enqueue.name, E' \t\u00A0'), '');
    v_data      jsonb := coalesce(enqueue.data, '{}');
    v_salt      bytea := uuid_send(gen_random_uuid());
    v_now       timestamptz := clock();
    v_due       timestamptz := greatest(enqueue.due_at, v_now);
    v_fault     text;
    v_id        bigint;
BEGIN
    -- Looked for again once it is held: what was committed meanwhile counts.
    LOOP
        SELECT c.* INTO v_campaign FROM campaigns c WHERE c.name = enqueue.campaign ORDER BY c.generation DESC LIMIT 1;
        IF NOT FOUND AND enqueue.campaign ~ '^[0-9]{1,18}$' THEN
            SELECT c.* INTO v_campaign FROM campaigns i JOIN campaigns c ON c.name = i.name
            WHERE i.id = enqueue.campaign::bigint ORDER BY c.generation DESC LIMIT 1;
        END IF;
        EXIT WHEN v_campaign.id IS NULL OR v_campaign.id = v_held;
        PERFORM pg_advisory_xact_lock_shared(lock_key('application', v_campaign.id));
        v_held := v_campaign.id;
    END LOOP;
    IF v_campaign.id IS NULL THEN
        RAISE EXCEPTION 'no campaign is called "%"', enqueue.campaign USING ERRCODE = 'PL001',
            HINT = 'postledger campaign create --kind standing makes one';
    END IF;
    IF v_campaign.kind <> 'standing' OR v_campaign.status IN ('cancelled', 'completed') THEN
        RAISE EXCEPTION 'campaign "%" takes no single messages: it is % and %', v_campaign.name, v_campaign.kind, v_campaign.status
            USING ERRCODE = 'PL002', HINT = 'enqueue() is for standing campaigns that are not cancelled';
    END IF;
    -- A snapshot older than this statement does not see what became of the campaign since; locking its row tells (40001),
    -- and the savepoint gives the lock back.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        BEGIN
            PERFORM FROM campaigns c WHERE c.id = v_campaign.id FOR KEY SHARE;
            RAISE EXCEPTION USING ERRCODE = 'PL099';
        EXCEPTION WHEN SQLSTATE 'PL099' THEN NULL;
        END;
    END IF;

    v_fault := recipient_fault(v_address, v_key, v_name, v_data);
    IF v_fault IS NULL AND v_due > v_now + interval '10 years' THEN
        v_fault := 'due_at: more than ten years ahead';
    END IF;
    IF v_fault IS NOT NULL THEN
        RAISE EXCEPTION 'this message cannot be queued: %', v_fault USING ERRCODE = 'PL003', COLUMN = split_part(v_fault, ':', 1);
    END IF;
    SELECT * INTO v_secret FROM secrets s WHERE s.name = 'address';
    INSERT INTO recipients (campaign_id, delivery_id, recipient_key, email, name, data, salt, address_hash, family_id)
    VALUES (v_campaign.id, nextval('delivery_ids'), coalesce(v_key, gen_random_uuid()::text), v_address, v_name, v_data, v_salt,
            keyed_hash(v_secret.inner_key, v_secret.outer_key, v_address), CASE WHEN v_key IS NOT NULL THEN family_of(v_campaign.name) END)
    ON CONFLICT DO NOTHING RETURNING delivery_id, recipient_key INTO v_id, v_key;
    IF v_id IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO recipient_queue (campaign_id, delivery_id, status, attempt, due_at, version) VALUES (v_campaign.id, v_id, 'pending', 0, v_due, 1);
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at) VALUES (v_campaign.id, v_id, 1, 'Queued', jsonb_build_object(
        'source', 'enqueue', 'due_at', rfc3339(v_due), 'digest', recipient_digest(v_salt, v_key, v_address, v_name, v_data)), v_now);
    IF enqueue.wake AND v_campaign.status = 'sending' AND pg_notification_queue_usage() < 0.5 THEN
        PERFORM wake();
    END IF;
    RETURN v_id;
END $$;

-- How many deliveries a generation of a standing campaign may have before the next one begins: what indexes and audits of one
-- campaign are comfortable with. Tests replace it.
CREATE FUNCTION generation_size() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1000000 $$;

-- Whether it is time for the next generation of a standing campaign, by the sealed log, which is never far behind.
CREATE FUNCTION is_full(p campaigns) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    RETURN p.kind = 'standing'
        AND EXISTS (SELECT FROM progress g WHERE g.campaign_id = p.id
                    AND g.pending + g.sending + g.sent + g.failed + g.skipped + g.cancelled + g.unknown >= generation_size())
        AND NOT EXISTS (SELECT FROM campaigns c WHERE c.name = p.name AND c.generation > p.generation);
END $$;

-- The next generation of a standing campaign: new messages go there, the old one ends when it has drained. Null: it is not
-- being sent, or has a successor.
CREATE FUNCTION roll_campaign(p_campaign bigint) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_campaign  campaigns%ROWTYPE;
    v_now       timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('campaign', p_campaign));
    SELECT * INTO v_campaign FROM campaigns WHERE id = p_campaign FOR UPDATE;
    IF v_campaign.id IS NULL OR v_campaign.kind <> 'standing' OR v_campaign.status <> 'sending'
       OR EXISTS (SELECT FROM campaigns c WHERE c.name = v_campaign.name AND c.generation > v_campaign.generation) THEN
        RETURN NULL;
    END IF;
    v_now := clock();
    INSERT INTO campaigns (name, generation, kind, status, version, sender_id, template, mail_from, reply_to, unknown, attempts,
                           max_deferred, give_up, priority, list_id, expires, missed_after, max_errors, track,
                           created_at, started_at)
    VALUES (v_campaign.name, v_campaign.generation + 1, 'standing', 'sending', 2, v_campaign.sender_id, v_campaign.template,
            v_campaign.mail_from, v_campaign.reply_to, v_campaign.unknown, v_campaign.attempts, v_campaign.max_deferred,
            v_campaign.give_up, v_campaign.priority, v_campaign.list_id, v_campaign.expires, v_campaign.missed_after,
            v_campaign.max_errors, v_campaign.track, v_now, v_now)
    RETURNING * INTO v_campaign;
    INSERT INTO events (campaign_id, delivery_id, version, type, body, at) VALUES
        (v_campaign.id, 0, 1, 'Drafted', drafted(v_campaign), v_now),
        (v_campaign.id, 0, 2, 'Started', '{"by": "generation"}', v_now);
    PERFORM wake();
    RETURN v_campaign.id;
END $$;

--------------------------------------------------------------------------------------------------------- as of a moment

-- What was true of a campaign's deliveries at the last block sealed by a moment: the fold of just those events. All null and
-- nothing counted where nothing had been sealed yet.
CREATE FUNCTION as_of(p_campaign bigint, p_at timestamptz, OUT block_no bigint, OUT sealed_at timestamptz, OUT counts jsonb)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET work_mem = '64MB' SET jit = off AS $$
DECLARE
    v_block  blocks%ROWTYPE;
BEGIN
    SELECT * INTO v_block FROM blocks b WHERE b.lane = 0 AND b.sealed_at <= p_at ORDER BY b.lane DESC, b.sealed_at DESC, b.block_no DESC LIMIT 1;
    block_no := v_block.block_no;
    sealed_at := v_block.sealed_at;
    -- In the direction of the index on streams, backwards.
    SELECT coalesce(jsonb_object_agg(s.status, s.n), '{}') INTO counts
    FROM (SELECT t.to_status AS status, count(*) AS n
          FROM (SELECT DISTINCT ON (e.delivery_id) e.type FROM events e
                WHERE e.campaign_id = p_campaign AND e.delivery_id > 0 AND e.version IS NOT NULL
                  AND (e.epoch < v_block.epoch OR (e.epoch = v_block.epoch AND pg_visible_in_snapshot(e.xid, v_block.snapshot)))
                ORDER BY e.delivery_id DESC, e.version DESC) l
          JOIN (SELECT DISTINCT event, to_status FROM transitions WHERE machine = 'delivery') t ON t.event = l.type
          GROUP BY 1) s;
END $$;

------------------------------------------------------------------------------------------------------- views for people

-- One line per recipient, for psql.
CREATE VIEW deliveries AS
SELECT c.name AS campaign, r.recipient_key AS key, r.email AS address,
       CASE q.status WHEN 'pending' THEN CASE WHEN q.attempt > 0 THEN 'waiting to be tried again' ELSE 'waiting' END
                     WHEN 'sending' THEN 'being sent' WHEN 'sent' THEN 'sent' WHEN 'failed' THEN 'failed'
                     WHEN 'skipped' THEN 'skipped' WHEN 'cancelled' THEN 'cancelled' ELSE 'outcome unknown' END AS status,
       q.attempt,
       (SELECT coalesce(e.body ->> 'code', e.body ->> 'reason') FROM events e
        WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id AND e.version IS NOT NULL
          AND e.type IN ('Deferred', 'Failed', 'Skipped', 'OutcomeUnknown', 'Released') ORDER BY e.version DESC LIMIT 1) AS last_code,
       (SELECT max(e.at) FROM events e WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id AND e.type = 'Sent') AS sent_at,
       -- Who opens or follows a link has got it. What was retracted was never said.
       (SELECT CASE e.type WHEN 'Complained' THEN 'complained' WHEN 'Bounced' THEN 'bounced' ELSE 'delivered' END FROM events e
        WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id AND e.version IS NULL
          AND e.type IN ('Delivered', 'Bounced', 'Complained', 'Opened', 'Clicked')
          AND NOT EXISTS (SELECT FROM events r WHERE r.campaign_id = e.campaign_id AND r.delivery_id = e.delivery_id AND r.version IS NULL
                          AND r.type = 'Retracted' AND r.body ->> 'feedback' = e.body ->> 'feedback' AND r.position > e.position)
        ORDER BY array_position(ARRAY['Complained', 'Bounced'], e.type) LIMIT 1) AS feedback,
       q.campaign_id, q.delivery_id, q.due_at
FROM recipient_queue q JOIN campaigns c ON c.id = q.campaign_id
LEFT JOIN recipients r ON r.campaign_id = q.campaign_id AND r.delivery_id = q.delivery_id;

-- One line per campaign: the seven counts sum to the audience.
CREATE VIEW campaign_progress AS
SELECT c.id AS campaign_id, c.name AS campaign, c.status, c.pause_reason, n.*, c.started_at, c.finished_at
FROM campaigns c CROSS JOIN LATERAL (
    SELECT count(*) AS audience,
           count(*) FILTER (WHERE q.status = 'pending') AS pending, count(*) FILTER (WHERE q.status = 'sending') AS sending,
           count(*) FILTER (WHERE q.status = 'sent') AS sent, count(*) FILTER (WHERE q.status = 'failed') AS failed,
           count(*) FILTER (WHERE q.status = 'skipped') AS skipped, count(*) FILTER (WHERE q.status = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE q.status = 'unknown') AS unknown
    FROM recipient_queue q WHERE q.campaign_id = c.id) n;

------------------------------------------------------------------------------------------------------------- the HTTP API

-- Who may call the API. Of a key only its hash is kept: what a dump or a backup shows opens nothing.
CREATE TABLE api_keys (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text,
    hash        bytea NOT NULL CHECK (octet_length(hash) = 32),
    scopes      text[] NOT NULL CHECK (scopes <@ ARRAY['send', 'read', 'audit', 'admin'] AND cardinality(scopes) > 0),
    created_at  timestamptz NOT NULL DEFAULT clock(),
    revoked_at  timestamptz
);

-- Answers to requests that named an Idempotency-Key, each written in the transaction of what it answers: the effect and its
-- key are there together or not at all. `request` is the digest of what was asked. Whoever remembers one forgets old ones.
-- An answer may hold somebody's address for so long: erasing a person has to look here too.
CREATE TABLE idempotency_keys (
    api_key     bigint NOT NULL,
    key         text NOT NULL,
    request     bytea NOT NULL,
    status      int NOT NULL,
    headers     jsonb NOT NULL,
    answer      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (api_key, key)
);

CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

-- How long an answer is remembered.
CREATE FUNCTION answers_live() RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '24 hours' $$;

-- Takes an Idempotency-Key for this transaction, then looks: in this order, and in statements of their own, since what another
-- transaction has just committed is to be seen. The lock is gone when the answer is there, or when there is none.
CREATE FUNCTION recall_answer(p_api_key bigint, p_key text, OUT busy boolean, OUT request bytea, OUT status int, OUT headers jsonb, OUT answer bytea)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    busy := NOT pg_try_advisory_xact_lock(lock_key('answer:' || p_key, p_api_key));
    IF NOT busy THEN
        SELECT i.request, i.status, i.headers, i.answer INTO request, status, headers, answer FROM idempotency_keys i
        WHERE i.api_key = p_api_key AND i.key = p_key AND i.created_at >= clock() - answers_live();
    END IF;
END $$;

-- A new key; its number. The system's stream says who may call, from when to when.
CREATE FUNCTION create_key(p_name text, p_hash bytea, p_scopes text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_id  bigint;
BEGIN
    INSERT INTO api_keys (name, hash, scopes) VALUES (p_name, p_hash, p_scopes) RETURNING id INTO v_id;
    PERFORM append_system('KeyCreated', jsonb_build_object('key', v_id::text, 'scopes', p_scopes));
    RETURN v_id;
END $$;

-- The first key there ever is, for whoever starts with nothing; null where there was one. Of many at once one gets it.
CREATE FUNCTION create_first_key(p_hash bytea, p_scopes text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('system'));
    IF EXISTS (SELECT FROM api_keys) THEN
        RETURN NULL;
    END IF;
    RETURN create_key('first', p_hash, p_scopes);
END $$;

-- From now on the key opens nothing. False: that was so already; null: there is none.
CREATE FUNCTION revoke_key(p_id bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_revoked  timestamptz;
BEGIN
    SELECT revoked_at INTO v_revoked FROM api_keys WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF v_revoked IS NOT NULL THEN
        RETURN false;
    END IF;
    UPDATE api_keys SET revoked_at = clock() WHERE id = p_id;
    PERFORM append_system('KeyRevoked', jsonb_build_object('key', p_id::text));
    RETURN true;
END $$;

-- For how long, and through how many transactions, somebody has kept the server from clearing up what is dead: an open
-- transaction, a prepared one, a replication slot. `hidden`: sessions that the owner of this function may not look at either.
-- With its owner's rights: to the app's role every session is a stranger's, the app's own included.
CREATE FUNCTION oldest_snapshot(OUT seconds float8, OUT transactions int, OUT hidden int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT max(h.seconds), max(h.transactions), (SELECT count(*) FROM pg_stat_activity a
                                                 WHERE a.datname = current_database() AND a.query = '<insufficient privilege>')::int
    FROM (SELECT extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds, age(a.backend_xmin) AS transactions
          FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
          UNION ALL SELECT extract(epoch FROM clock_timestamp() - x.prepared)::float8, age(x.transaction)
          FROM pg_prepared_xacts x WHERE x.database = current_database()
          UNION ALL SELECT NULL, age(s.xmin) FROM pg_replication_slots s WHERE s.xmin IS NOT NULL) h
$$;

---------------------------------------------------------------------------------------------- what readers do with a mail

-- The reader of a mail wants no more: nothing of the campaign's list, or no mail at all (p_everything, or where the campaign has
-- no list). What it means from now on, the contact's events and the mail's own are one transaction. Asked again it changes
-- nothing. False: it was so already; null: there is no such delivery.
CREATE FUNCTION unsubscribe_delivery(p_campaign bigint, p_delivery bigint, p_everything boolean, p_channel text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    v_hash  bytea;
    v_list  bigint;
    v_done  boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    SELECT r.address_hash, CASE WHEN NOT p_everything THEN c.list_id END INTO v_hash, v_list
    FROM recipients r JOIN campaigns c ON c.id = r.campaign_id WHERE r.campaign_id = p_campaign AND r.delivery_id = p_delivery;
    IF v_hash IS NULL THEN
        RETURN NULL;
    END IF;
    -- This locks the contact, whether it changes anything or not: who asks at the same time waits here, and then sees the event.
    v_done := unsubscribe_hash(v_hash, v_list, 'delivery:' || p_campaign || '.' || p_delivery);
    INSERT INTO events (campaign_id, delivery_id, type, body)
    SELECT p_campaign, p_delivery, 'Unsubscribed', jsonb_strip_nulls(jsonb_build_object('channel', p_channel, 'list', v_list::text))
    WHERE NOT EXISTS (SELECT FROM events e WHERE e.campaign_id = p_campaign AND e.delivery_id = p_delivery AND e.version IS NULL
                      AND e.type = 'Unsubscribed' AND e.body ->> 'list' IS NOT DISTINCT FROM v_list::text);
    RETURN v_done;
END $$;

-- Pictures that were loaded and links that were followed, by readers and by machines before them; parallel arrays. `automatic`
-- says why it is taken for a machine's; three links of one mail within four seconds are (`burst`). The same again within a
-- minute is not noted, nor more than a hundred for one mail: whoever repeats a link without end does not fill the log. How
-- many were noted.
CREATE FUNCTION note_engagement(p_campaigns bigint[], p_deliveries bigint[], p_types text[], p_links text[], p_automatic text[])
RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now    timestamptz := clock();
    v_one    record;
    v_all    int;
    v_same   int;
    v_links  int;
    v_n      int := 0;
BEGIN
    FOR v_one IN SELECT i.campaign_id, i.delivery_id, i.type, i.link, i.automatic
                 FROM unnest(p_campaigns, p_deliveries, p_types, p_links, p_automatic)
                      WITH ORDINALITY AS i(campaign_id, delivery_id, type, link, automatic, n) ORDER BY i.n LOOP
        CONTINUE WHEN NOT EXISTS (SELECT FROM recipient_queue q
                                  WHERE q.campaign_id = v_one.campaign_id AND q.delivery_id = v_one.delivery_id);
        SELECT count(*),
               count(*) FILTER (WHERE e.at > v_now - interval '1 minute' AND e.type = v_one.type
                                AND e.body ->> 'link' IS NOT DISTINCT FROM v_one.link
                                AND (e.body ? 'automatic') = (v_one.automatic IS NOT NULL)),
               count(DISTINCT e.body ->> 'link') FILTER (WHERE e.at > v_now - interval '4 seconds' AND e.type = 'Clicked'
                                                         AND e.body ->> 'link' <> v_one.link)
        INTO v_all, v_same, v_links
        FROM events e WHERE e.campaign_id = v_one.campaign_id AND e.delivery_id = v_one.delivery_id AND e.version IS NULL
                        AND e.type IN ('Opened', 'Clicked');
        CONTINUE WHEN v_all >= 100 OR v_same > 0;
        INSERT INTO events (campaign_id, delivery_id, type, body, at)
        VALUES (v_one.campaign_id, v_one.delivery_id, v_one.type, jsonb_strip_nulls(jsonb_build_object('link', v_one.link, 'automatic',
                coalesce(v_one.automatic, CASE WHEN v_one.type = 'Clicked' AND v_links >= 2 THEN 'burst' END))), v_now);
        v_n := v_n + 1;
    END LOOP;
    RETURN v_n;
END $$;

---------------------------------------------------------------------------------------------- what providers say of a mail

-- What providers post, as it came, before anything is made of it: a mended reading can be made of the same again. It holds
-- addresses, so it is erasable (payload null). Two posts with one digest are the same post; a nonce was signed once.
CREATE TABLE webhook_inbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider     text NOT NULL,
    digest       bytea NOT NULL,
    nonce        text,
    payload      bytea,
    fault        text,  -- what of it could not be read, and why
    received_at  timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT webhook_inbox_once UNIQUE (provider, digest),
    CONSTRAINT webhook_inbox_nonce UNIQUE (provider, nonce)
);
CREATE INDEX webhook_inbox_faults ON webhook_inbox (id) WHERE fault IS NOT NULL;

-- Each thing that was said, once, in one vocabulary for all providers, without the address. Told again under the same native key
-- (the provider's id) or natural key (what was said of whom when), it is the same. `event` is the type under which the log has
-- it, null: it changes nothing. What cannot be linked to a delivery yet is looked for again at `link_at`.
CREATE TABLE feedback (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox_id      bigint NOT NULL,
    item          int NOT NULL,
    provider      text NOT NULL,
    native_key    text,
    natural_key   bytea NOT NULL,
    kind          text NOT NULL,
    bounce_class  text,
    suppress      text,
    scope         text,
    event         text,
    body          jsonb NOT NULL,
    occurred_at   timestamptz,
    address_hash  bytea,
    own_campaign  bigint,  -- where our own reference in it points
    own_delivery  bigint,
    reference     text,    -- or what else stands in its place: a recipient's key
    message_id    text,
    campaign_id   bigint,
    delivery_id   bigint,
    tries         int NOT NULL DEFAULT 0,
    link_at       timestamptz,
    noted_at      timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT feedback_native UNIQUE (provider, native_key),
    CONSTRAINT feedback_natural UNIQUE (provider, natural_key),
    CONSTRAINT feedback_linked CHECK ((campaign_id IS NULL) = (delivery_id IS NULL) AND (campaign_id IS NULL OR link_at IS NULL))
);
CREATE INDEX feedback_inbox ON feedback (inbox_id);
CREATE INDEX feedback_delivery ON feedback (campaign_id, delivery_id);
CREATE INDEX feedback_link ON feedback (link_at) WHERE link_at IS NOT NULL;
CREATE INDEX feedback_address ON feedback (address_hash, occurred_at);

-- The delivery that feedback is about: by our own reference, else by the provider's message id, which is unique for one that
-- went to a single person, and else needs the address; else by a reference that is a recipient's key, with the address. (Our
-- own Message-ID stands in brackets, a provider's id without.)
CREATE FUNCTION delivery_of(p_campaign bigint, p_delivery bigint, p_message text, p_reference text, p_hash bytea,
                            OUT campaign_id bigint, OUT delivery_id bigint)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_one   record;
    v_many  int := 0;
BEGIN
    SELECT r.campaign_id, r.delivery_id INTO campaign_id, delivery_id
    FROM recipients r WHERE r.campaign_id = p_campaign AND r.delivery_id = p_delivery;
    IF campaign_id IS NOT NULL THEN
        RETURN;
    END IF;
    FOR v_one IN SELECT e.campaign_id, e.delivery_id, r.address_hash
                 FROM events e JOIN recipients r ON r.campaign_id = e.campaign_id AND r.delivery_id = e.delivery_id
                 WHERE e.type = 'Sent' AND left(e.body ->> 'message_id', 1) <> '<' AND e.body ->> 'message_id' = p_message LOOP
        IF v_one.address_hash = p_hash THEN
            campaign_id := v_one.campaign_id;
            delivery_id := v_one.delivery_id;
            RETURN;
        END IF;
        CONTINUE WHEN v_one.campaign_id = campaign_id AND v_one.delivery_id = delivery_id;
        campaign_id := v_one.campaign_id;
        delivery_id := v_one.delivery_id;
        v_many := v_many + 1;
    END LOOP;
    IF v_many <> 1 THEN
        SELECT min(r.campaign_id), min(r.delivery_id) INTO campaign_id, delivery_id
        FROM recipients r WHERE r.recipient_key = p_reference AND r.address_hash = p_hash HAVING count(*) = 1;
    END IF;
END $$;

-- How long to wait before the n-th look for a delivery; null: long enough.
CREATE FUNCTION link_in(p_tries int) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT (ARRAY['1 second', '10 seconds', '1 minute', '10 minutes', '1 hour', '6 hours', '1 day']::interval[])[p_tries + 1] $$;

-- The log's part of feedback that has just found its delivery, and what it proves: a mail whose outcome was unknown, and of
-- which the provider speaks, did leave. The caller holds the lock of feedback. How many events.
CREATE FUNCTION append_feedback(p_ids bigint[]) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_one  record;
    v_row  recipient_queue%ROWTYPE;
    v_n    int;
BEGIN
    INSERT INTO events (campaign_id, delivery_id, type, body)
    SELECT f.campaign_id, f.delivery_id, f.event, f.body || jsonb_build_object('feedback', f.id::text)
    FROM feedback f WHERE f.id = ANY (p_ids) AND f.campaign_id IS NOT NULL AND f.event IS NOT NULL ORDER BY f.id;
    GET DIAGNOSTICS v_n = ROW_COUNT;

    FOR v_one IN SELECT DISTINCT ON (q.campaign_id, q.delivery_id) q.campaign_id, q.delivery_id, f.provider, f.message_id
                 FROM feedback f JOIN recipient_queue q ON q.campaign_id = f.campaign_id AND q.delivery_id = f.delivery_id
                 WHERE f.id = ANY (p_ids) AND f.kind IN ('accepted', 'deferred', 'delivered', 'bounced', 'opened', 'clicked', 'complained', 'unsubscribed')
                   AND q.status IN ('unknown', 'pending') ORDER BY q.campaign_id, q.delivery_id LOOP
        PERFORM pg_advisory_xact_lock_shared(lock_key('campaign', v_one.campaign_id));
        SELECT * INTO v_row FROM recipient_queue q
        WHERE q.campaign_id = v_one.campaign_id AND q.delivery_id = v_one.delivery_id FOR UPDATE;
        -- One that waits does so because the policy wants it sent again, and nobody else: then it need not be.
        CONTINUE WHEN v_row.status <> 'unknown' AND (v_row.status <> 'pending' OR NOT EXISTS (
            SELECT FROM events e WHERE e.campaign_id = v_row.campaign_id AND e.delivery_id = v_row.delivery_id
            AND e.version = v_row.version AND e.type = 'Requeued' AND e.body ->> 'by' = 'policy'));
        INSERT INTO events (campaign_id, delivery_id, version, type, body)
        VALUES (v_row.campaign_id, v_row.delivery_id, v_row.version + 1, 'Sent', jsonb_strip_nulls(jsonb_build_object(
                'attempt', v_row.attempt, 'provider', v_one.provider, 'message_id', v_one.message_id)));
        UPDATE recipient_queue SET status = 'sent', due_at = NULL, version = version + 1
        WHERE campaign_id = v_row.campaign_id AND delivery_id = v_row.delivery_id;
        v_n := v_n + 1;
    END LOOP;
    RETURN v_n;
END $$;

-- Whoever complained, is dead or wants no more is not mailed from now on: the address that was named and the one that we wrote to,
-- which may differ by more than case. Five soft bounces with nothing that arrived between them say that nobody reads there. In
-- the order of the hashes, as all who lock contacts.
CREATE FUNCTION suppress_by_feedback(p_ids bigint[]) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_one   record;
    v_n     int := 0;
BEGIN
    FOR v_one IN
        SELECT DISTINCT ON (h.hash) h.hash, coalesce(f.suppress, 'bounced') AS reason, CASE WHEN f.scope = 'list' THEN c.list_id END AS list_id,
               coalesce('delivery:' || f.campaign_id || '.' || f.delivery_id, 'feedback:' || f.id) AS source
        FROM feedback f
        LEFT JOIN recipients r ON r.campaign_id = f.campaign_id AND r.delivery_id = f.delivery_id
        LEFT JOIN campaigns c ON c.id = f.campaign_id
        CROSS JOIN LATERAL (SELECT f.address_hash UNION SELECT r.address_hash) AS h(hash)
        WHERE f.id = ANY (p_ids) AND h.hash IS NOT NULL
          AND (f.suppress IS NOT NULL OR (f.bounce_class = 'soft' AND 5 <= (
               SELECT count(*) FROM feedback s WHERE s.address_hash = f.address_hash AND s.bounce_class = 'soft'
               AND s.occurred_at > coalesce((SELECT max(d.occurred_at) FROM feedback d WHERE d.address_hash = f.address_hash
                                             AND d.kind IN ('delivered', 'opened', 'clicked')), '-infinity'))))
        ORDER BY h.hash, f.suppress = 'unsubscribed', f.scope = 'list', f.id LOOP
        IF v_one.reason <> 'unsubscribed' THEN
            v_n := v_n + suppress_hash(v_one.hash, v_one.reason, v_one.source)::int;
        ELSE
            v_n := v_n + unsubscribe_hash(v_one.hash, v_one.list_id, v_one.source)::int;
        END IF;
    END LOOP;
    RETURN v_n;
END $$;

-- What an item of a payload says; one row for each element of the array.
CREATE FUNCTION read_feedback(p_items jsonb) RETURNS TABLE (
    payload int, item int, provider text, native_key text, natural_key bytea, kind text, bounce_class text, suppress text, scope text,
    event text, body jsonb, occurred_at timestamptz, address_hash bytea, own_campaign bigint, own_delivery bigint, reference text,
    message_id text)
LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$ SELECT i.payload, i.item, i.provider, i.native_key, decode(i.natural_key, 'hex'), i.kind, i.bounce_class, i.suppress, i.scope, i.event,
             i.body, i.occurred_at, address_hash(i.recipient), i.own_campaign, i.own_delivery, i.reference, i.message_id
      FROM jsonb_to_recordset(p_items) AS i(payload int, item int, provider text, native_key text, natural_key text, kind text,
           bounce_class text, suppress text, scope text, event text, body jsonb, occurred_at timestamptz, recipient text,
           own_campaign bigint, own_delivery bigint, reference text, message_id text) $$;

-- Takes many posts in one transaction: the payloads as they came, what they say (`payload` counts them from 1), the events and
-- the suppressions that follow. For each post: stored, repeated (it is here already), replayed (what was signed once came with
-- another content), stale (signed too long ago). One post after the other in all processes: unique keys in any order cannot
-- deadlock, and whoever looks for a twin finds it.
CREATE FUNCTION receive_feedback(p_providers text[], p_digests bytea[], p_nonces text[], p_signed timestamptz[], p_window interval,
                                 p_payloads bytea[], p_faults text[], p_items jsonb,
                                 OUT outcomes text[], OUT noted int, OUT appended int, OUT unlinked int)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now    timestamptz;
    v_id     bigint;
    v_inbox  bigint[];
    v_ids    bigint[];
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock(lock_key('feedback'));
    v_now := clock();

    -- The payloads.
    FOR n IN 1 .. cardinality(p_digests) LOOP
        v_id := NULL;
        IF p_signed[n] < v_now - p_window OR p_signed[n] > v_now + interval '10 minutes' THEN
            outcomes[n] := 'stale';
        ELSE
            INSERT INTO webhook_inbox (provider, digest, nonce, payload, fault, received_at)
            VALUES (p_providers[n], p_digests[n], p_nonces[n], p_payloads[n], p_faults[n], v_now)
            ON CONFLICT DO NOTHING RETURNING id INTO v_id;
            outcomes[n] := CASE WHEN v_id IS NOT NULL THEN 'stored'
                WHEN EXISTS (SELECT FROM webhook_inbox w WHERE w.provider = p_providers[n] AND w.digest = p_digests[n]) THEN 'repeated'
                ELSE 'replayed' END;
        END IF;
        v_inbox[n] := v_id;
    END LOOP;

    -- What they say, each thing once, with its delivery where that is known.
    WITH said AS MATERIALIZED (SELECT i.*, l.campaign_id, l.delivery_id FROM read_feedback(p_items) i
                               CROSS JOIN LATERAL delivery_of(i.own_campaign, i.own_delivery, i.message_id, i.reference, i.address_hash) l
                               WHERE v_inbox[i.payload] IS NOT NULL),
    added AS (
        INSERT INTO feedback (inbox_id, item, provider, native_key, natural_key, kind, bounce_class, suppress, scope, event, body, occurred_at,
                              address_hash, own_campaign, own_delivery, reference, message_id, campaign_id, delivery_id, link_at, noted_at)
        SELECT v_inbox[s.payload], s.item, s.provider, s.native_key, s.natural_key, s.kind, s.bounce_class, s.suppress, s.scope, s.event, s.body,
               s.occurred_at, s.address_hash, s.own_campaign, s.own_delivery, s.reference, s.message_id, s.campaign_id, s.delivery_id,
               CASE WHEN s.campaign_id IS NULL AND coalesce(s.own_campaign::text, s.message_id, s.reference) IS NOT NULL THEN v_now + link_in(0) END, v_now
        FROM said s ORDER BY s.payload, s.item
        ON CONFLICT DO NOTHING RETURNING id, link_at)
    SELECT coalesce(array_agg(a.id), '{}'), count(a.link_at) INTO v_ids, unlinked FROM added a;
    noted := cardinality(v_ids);

    -- What follows.
    appended := append_feedback(v_ids);
    appended := appended + suppress_by_feedback(v_ids);
END $$;

-- Looks again for the deliveries of feedback that came too early. What is never found stays without one, and is listed. `due_in`
-- is the time until the next look, null when there is none to come.
CREATE FUNCTION link_feedback(p_limit int, OUT linked int, OUT given_up int, OUT appended int, OUT due_in interval)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now  timestamptz;
    v_ids  bigint[];
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock(lock_key('feedback'));
    v_now := clock();
    WITH due AS MATERIALIZED (
        SELECT f.id, l.campaign_id, l.delivery_id
        FROM (SELECT * FROM feedback s WHERE s.link_at <= v_now ORDER BY s.link_at LIMIT p_limit) f
        CROSS JOIN LATERAL delivery_of(f.own_campaign, f.own_delivery, f.message_id, f.reference, f.address_hash) l),
    looked AS (
        UPDATE feedback f SET campaign_id = d.campaign_id, delivery_id = d.delivery_id, tries = f.tries + 1,
                              link_at = CASE WHEN d.campaign_id IS NULL THEN v_now + link_in(f.tries + 1) END
        FROM due d WHERE f.id = d.id RETURNING f.id, f.campaign_id, f.link_at)
    SELECT array_agg(k.id) FILTER (WHERE k.campaign_id IS NOT NULL), count(*) FILTER (WHERE k.campaign_id IS NULL AND k.link_at IS NULL)
    INTO v_ids, given_up FROM looked k;
    linked := coalesce(cardinality(v_ids), 0);
    appended := CASE WHEN linked > 0 THEN append_feedback(v_ids) + suppress_by_feedback(v_ids) ELSE 0 END;
    SELECT greatest(min(f.link_at) - v_now, '0') INTO due_in FROM feedback f WHERE f.link_at IS NOT NULL HAVING count(*) > 0;
END $$;

-- A payload read anew, after its reading was mended. What was said differently is put right by events: Retracted for what the log
-- has and should not, then what it should have; a suppression that nothing else asks for is lifted, and a list that was left by
-- it is joined again. `fault` as in the inbox. How many items were new, or changed.
CREATE FUNCTION reread_feedback(p_inbox bigint, p_fault text, p_items jsonb, OUT added int, OUT changed int)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_new  record;
    v_old  feedback%ROWTYPE;
    v_id   bigint;
    v_one  record;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('feedback'));
    added := 0;
    changed := 0;
    UPDATE webhook_inbox w SET fault = p_fault WHERE w.id = p_inbox AND w.fault IS DISTINCT FROM p_fault;
    FOR v_new IN SELECT i.*, l.campaign_id, l.delivery_id FROM read_feedback(p_items) i
                 CROSS JOIN LATERAL delivery_of(i.own_campaign, i.own_delivery, i.message_id, i.reference, i.address_hash) l ORDER BY i.item LOOP
        SELECT * INTO v_old FROM feedback f
        WHERE (f.inbox_id = p_inbox AND f.item = v_new.item) OR (f.provider = v_new.provider AND f.native_key = v_new.native_key)
           OR (f.provider = v_new.provider AND f.natural_key = v_new.natural_key)
        ORDER BY f.inbox_id = p_inbox AND f.item = v_new.item DESC, f.id LIMIT 1;
        IF v_old.id IS NULL THEN
            INSERT INTO feedback (inbox_id, item, provider, native_key, natural_key, kind, bounce_class, suppress, scope, event, body,
                                  occurred_at, address_hash, own_campaign, own_delivery, reference, message_id, campaign_id, delivery_id, link_at)
            VALUES (p_inbox, v_new.item, v_new.provider, v_new.native_key, v_new.natural_key, v_new.kind, v_new.bounce_class, v_new.suppress,
                    v_new.scope, v_new.event, v_new.body, v_new.occurred_at, v_new.address_hash, v_new.own_campaign, v_new.own_delivery,
                    v_new.reference, v_new.message_id, v_new.campaign_id, v_new.delivery_id,
                    CASE WHEN v_new.campaign_id IS NULL AND coalesce(v_new.own_campaign::text, v_new.message_id, v_new.reference) IS NOT NULL
                          THEN clock() END)
            ON CONFLICT DO NOTHING RETURNING id INTO v_id;
            CONTINUE WHEN v_id IS NULL;
            added := added + 1;
        ELSE
            -- What came again in another post is read where it came first.
            CONTINUE WHEN v_old.inbox_id <> p_inbox OR v_old.item <> v_new.item;
            CONTINUE WHEN (v_old.kind, v_old.bounce_class, v_old.suppress, v_old.scope, v_old.event, v_old.body, v_old.message_id,
                           v_old.own_campaign, v_old.own_delivery, v_old.reference, v_old.address_hash)
                IS NOT DISTINCT FROM (v_new.kind, v_new.bounce_class, v_new.suppress, v_new.scope, v_new.event, v_new.body, v_new.message_id,
                                      v_new.own_campaign, v_new.own_delivery, v_new.reference, v_new.address_hash);
            v_id := v_old.id;
            -- What stays found stays, unless it is found elsewhere now.
            v_new.campaign_id := coalesce(v_new.campaign_id, v_old.campaign_id);
            v_new.delivery_id := coalesce(v_new.delivery_id, v_old.delivery_id);
            IF v_old.event IS NOT NULL AND v_old.campaign_id IS NOT NULL THEN
                INSERT INTO events (campaign_id, delivery_id, type, body)
                VALUES (v_old.campaign_id, v_old.delivery_id, 'Retracted', jsonb_build_object('feedback', v_old.id::text, 'was', v_old.event));
            END IF;
            UPDATE feedback f SET kind = v_new.kind, bounce_class = v_new.bounce_class, suppress = v_new.suppress, scope = v_new.scope,
                event = v_new.event, body = v_new.body, occurred_at = v_new.occurred_at, address_hash = v_new.address_hash,
                own_campaign = v_new.own_campaign, own_delivery = v_new.own_delivery, reference = v_new.reference, message_id = v_new.message_id,
                campaign_id = v_new.campaign_id, delivery_id = v_new.delivery_id,
                link_at = CASE WHEN v_new.campaign_id IS NULL AND coalesce(v_new.own_campaign::text, v_new.message_id, v_new.reference) IS NOT NULL
                          THEN clock() END,
                tries = CASE WHEN v_new.campaign_id IS NULL THEN 0 ELSE f.tries END
            WHERE f.id = v_id;
            IF v_old.suppress IS NOT NULL AND v_old.suppress IS DISTINCT FROM v_new.suppress THEN
                PERFORM lift_by_feedback(v_old);
            END IF;
            changed := changed + 1;
        END IF;
        PERFORM append_feedback(ARRAY[v_id]);
        PERFORM suppress_by_feedback(ARRAY[v_id]);
    END LOOP;
END $$;

-- Takes back what one wrong reading did to a person, unless somebody else says the same.
CREATE FUNCTION lift_by_feedback(p_old feedback) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    v_sources  text[] := ARRAY['feedback:' || p_old.id, 'delivery:' || p_old.campaign_id || '.' || p_old.delivery_id];
    v_one      record;
BEGIN
    FOR v_one IN
        SELECT h.hash, k.id AS contact_id FROM (
            SELECT p_old.address_hash UNION
            SELECT r.address_hash FROM recipients r WHERE r.campaign_id = p_old.campaign_id AND r.delivery_id = p_old.delivery_id) AS h(hash)
        JOIN contacts k ON k.address_hash = h.hash
        WHERE NOT EXISTS (SELECT FROM feedback f WHERE f.address_hash = h.hash AND f.suppress = p_old.suppress AND f.id <> p_old.id)
        ORDER BY h.hash LOOP
        IF EXISTS (SELECT FROM suppressions s WHERE s.address_hash = v_one.hash AND s.reason = p_old.suppress AND s.source = ANY (v_sources)) THEN
            PERFORM unsuppress_hash(v_one.hash, 'reprocess', 'feedback ' || p_old.id || ' reads differently now');
        END IF;
        IF p_old.suppress = 'unsubscribed' AND NOT EXISTS (SELECT FROM suppressions s WHERE s.address_hash = v_one.hash) THEN
            -- The lists that were left by it, of which the person was: their last word on each was this one.
            PERFORM subscribe_hash(v_one.hash, s.list_id, 'reprocess')
            FROM subscriptions s WHERE s.contact_id = v_one.contact_id AND NOT s.subscribed
             AND EXISTS (SELECT FROM events e WHERE e.campaign_id = 0 AND e.delivery_id = v_one.contact_id AND e.type = 'Subscribed'
                         AND e.body ->> 'list' = s.list_id::text)
             AND v_sources && ARRAY[(SELECT e.body ->> 'source' FROM events e WHERE e.campaign_id = 0 AND e.delivery_id = v_one.contact_id
                                     AND e.type = 'Unsubscribed' AND e.body ->> 'list' = s.list_id::text ORDER BY e.version DESC LIMIT 1)];
        END IF;
    END LOOP;
END $$;

-- Payloads that are older than this are forgotten, a few at a time; what was made of them stays. How many.
CREATE FUNCTION forget_payloads(p_older interval, p_limit int) RETURNS int LANGUAGE sql VOLATILE SET search_path FROM CURRENT
AS $$ WITH old AS (SELECT w.id FROM webhook_inbox w WHERE w.payload IS NOT NULL AND w.received_at < clock() - p_older ORDER BY w.id LIMIT p_limit),
           gone AS (UPDATE webhook_inbox w SET payload = NULL FROM old WHERE w.id = old.id RETURNING w.id)
      SELECT count(*)::int FROM gone $$;

-- What became of each mail of which a provider spoke, in whatever order it did: the outcome of the highest rank, and flags. What was
-- retracted was never said.
CREATE VIEW delivery_feedback AS
SELECT s.campaign_id, s.delivery_id,
       CASE WHEN bool_or(s.type = 'Bounced' AND s.kind NOT IN ('dropped', 'failed')) THEN 'bounced'
            WHEN bool_or(s.type = 'Bounced') THEN 'failed'
            WHEN bool_or(s.type IN ('Delivered', 'Opened', 'Clicked')) THEN 'delivered'
            WHEN bool_or(s.type = 'Delayed') THEN 'deferred' ELSE 'pending' END AS outcome,
       array_remove(ARRAY[CASE WHEN bool_or(s.type = 'Complained') THEN 'complained' END,
                          CASE WHEN bool_or(s.type = 'Unsubscribed') THEN 'unsubscribed' END,
                          CASE WHEN bool_or(s.type = 'Clicked') THEN 'clicked' END,
                          CASE WHEN bool_or(s.type = 'Opened') THEN 'opened' END], NULL) AS flags
FROM (SELECT e.campaign_id, e.delivery_id, e.type, e.body ->> 'kind' AS kind
      FROM events e WHERE e.version IS NULL AND e.type IN ('Delivered', 'Bounced', 'Complained', 'Opened', 'Clicked', 'Unsubscribed', 'Delayed')
        AND NOT EXISTS (SELECT FROM events r WHERE r.campaign_id = e.campaign_id AND r.delivery_id = e.delivery_id AND r.version IS NULL
                        AND r.type = 'Retracted' AND r.body ->> 'feedback' = e.body ->> 'feedback' AND r.position > e.position)) s
GROUP BY 1, 2;

------------------------------------------------------------------------------------------------------------------- roles

-- Whoever runs this owns the tables; everything else runs as postledger_app, which cannot change the log, or reads as
-- postledger_audit, which sees no secret. postledger_enqueue may call enqueue() and nothing else: for applications that queue
-- mails in their own transactions. Roles belong to the whole cluster, so they may be there already.
DO $$
DECLARE
    v_role  text;
BEGIN
    EXECUTE format('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
    FOREACH v_role IN ARRAY ARRAY['postledger_app', 'postledger_audit', 'postledger_enqueue'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- another installation was first
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), v_role);
        IF v_role <> 'postledger_enqueue' THEN
            EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', current_schema(), v_role);
            EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', current_schema(), v_role);
        END IF;
    END LOOP;
    IF NOT pg_has_role(current_user, 'postledger_app', 'MEMBER') THEN
        EXECUTE format('GRANT postledger_app TO %I', current_user);
    END IF;
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO postledger_app', current_schema());
END $$;

GRANT INSERT (campaign_id, delivery_id, version, type, body, at) ON events TO postledger_app;
GRANT INSERT, UPDATE ON campaigns, recipients, recipient_queue, senders, contacts, workers, imports, blocks,
    followers, progress, progress_minutes, lists, subscriptions, rate_leases TO postledger_app;
GRANT INSERT ON templates, replies TO postledger_app;
GRANT INSERT, UPDATE, DELETE ON suppressions, claims, import_rows TO postledger_app;
GRANT DELETE ON imports TO postledger_app;
GRANT INSERT, UPDATE ON webhook_inbox, feedback TO postledger_app;
GRANT INSERT, UPDATE ON api_keys TO postledger_app;
GRANT INSERT, UPDATE, DELETE ON idempotency_keys TO postledger_app;
REVOKE SELECT ON secrets, senders, api_keys, idempotency_keys FROM postledger_audit;
GRANT SELECT (id, name, scopes, created_at, revoked_at) ON api_keys TO postledger_audit;
GRANT SELECT (id, name, url, created_at, rate_count, rate_per, mail_from) ON senders TO postledger_audit;
-- It runs with its owner's rights, so who may only read must not call it.
REVOKE EXECUTE ON FUNCTION enqueue(text, text, text, text, jsonb, timestamptz, boolean) FROM postledger_audit;
GRANT EXECUTE ON FUNCTION enqueue(text, text, text, text, jsonb, timestamptz, boolean) TO postledger_enqueue;
