-- From version 1 to 2: sealed blocks, followers, time, rates, lists. Tables alone: functions, views and grants are those of
-- schema.sql, installed anew after every upgrade.

DROP INDEX events_position_brin;
CREATE INDEX events_position_idx ON events (position);
ALTER INDEX IF EXISTS events_1_position_next RENAME TO events_1_position_idx;
DROP INDEX events_xid;
CREATE INDEX events_xid ON events (epoch, xid);

CREATE TABLE epochs (
    epoch     smallint PRIMARY KEY,
    cluster   bigint,
    began_at  timestamptz NOT NULL DEFAULT clock()
);
CREATE FUNCTION cluster_id() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    RETURN NULL;
END $$;
INSERT INTO epochs (epoch, cluster) VALUES (1, cluster_id());
CREATE FUNCTION refuse_foreign() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER of_this_cluster BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_foreign();

ALTER TABLE senders
    ADD rate_count int CHECK (rate_count > 0),
    ADD rate_per interval CHECK (rate_per > '0'),
    ADD CONSTRAINT senders_rate CHECK ((rate_count IS NULL) = (rate_per IS NULL));

CREATE TABLE rate_leases (
    sender_id  bigint PRIMARY KEY,
    free_at    timestamptz NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE campaigns
    ADD starts_at timestamptz,
    ADD missed_after interval,
    ADD expires interval,
    ADD list_id bigint,
    ADD max_errors int CHECK (max_errors BETWEEN 1 AND 100),
    ADD screened xid8;
-- Version 1 knew no way to schedule.
ALTER TABLE campaigns ADD CONSTRAINT campaigns_starts CHECK (status <> 'scheduled' OR starts_at IS NOT NULL);
DROP INDEX campaigns_active;
CREATE INDEX campaigns_active ON campaigns (priority DESC, id)
    WHERE status IN ('sending', 'scheduled') OR resume_at IS NOT NULL OR (status = 'cancelled' AND swept_at IS NULL);

-- Claims of version 1 have seen nothing: whoever holds one looks at all suppressions.
ALTER TABLE suppressions ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX suppressions_xid ON suppressions (xid);
ALTER TABLE claims ADD snapshot pg_snapshot NOT NULL DEFAULT '1:1:';
ALTER TABLE claims SET (toast_tuple_target = 8160);

-- What was installed while version 1 was being built may not have it.
ALTER TABLE workers ADD COLUMN IF NOT EXISTS watched_at timestamptz;

ALTER TABLE imports ADD pooled boolean NOT NULL DEFAULT false;

ALTER TABLE contacts
    ADD email text,
    ADD name text,
    ADD data jsonb,
    ADD erased_at timestamptz;

ALTER TABLE recipients ADD family_id bigint;
CREATE UNIQUE INDEX recipients_family ON recipients (recipient_key, family_id) WHERE family_id IS NOT NULL;

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

CREATE INDEX blocks_sealed ON blocks (lane, sealed_at, block_no);
CREATE INDEX blocks_transactions ON blocks (lane, epoch, pg_snapshot_xmax(snapshot), block_no);

CREATE TABLE followers (
    name      text PRIMARY KEY,
    lane      smallint NOT NULL DEFAULT 0,
    block_no  bigint NOT NULL DEFAULT 0,
    position  bigint NOT NULL DEFAULT 0,
    moved_at  timestamptz NOT NULL DEFAULT clock()
);

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

CREATE TABLE progress_minutes (
    campaign_id  bigint NOT NULL,
    minute       timestamptz NOT NULL,
    sent         bigint NOT NULL,
    PRIMARY KEY (campaign_id, minute)
) WITH (fillfactor = 70);

INSERT INTO followers (name) VALUES ('progress');

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
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (contact_id, list_id)
);

CREATE INDEX subscriptions_list ON subscriptions (list_id, contact_id) WHERE subscribed;
CREATE INDEX subscriptions_xid ON subscriptions (xid) WHERE NOT subscribed;
