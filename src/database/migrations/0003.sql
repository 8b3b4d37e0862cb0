-- From version 2 to 3: the HTTP service. Tables alone, as in 0002.sql.

CREATE TABLE api_keys (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text,
    hash        bytea NOT NULL CHECK (octet_length(hash) = 32),
    scopes      text[] NOT NULL CHECK (scopes <@ ARRAY['send', 'read', 'audit', 'admin'] AND cardinality(scopes) > 0),
    created_at  timestamptz NOT NULL DEFAULT clock(),
    revoked_at  timestamptz
);

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

ALTER TABLE senders ADD mail_from text;

ALTER TABLE campaigns ADD track text[] NOT NULL DEFAULT '{}' CHECK (track <@ ARRAY['opens', 'clicks']);

CREATE INDEX events_message ON events ((body ->> 'message_id')) WHERE type = 'Sent' AND left(body ->> 'message_id', 1) <> '<';

CREATE TABLE webhook_inbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider     text NOT NULL,
    digest       bytea NOT NULL,
    nonce        text,
    payload      bytea,
    fault        text,
    received_at  timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT webhook_inbox_once UNIQUE (provider, digest),
    CONSTRAINT webhook_inbox_nonce UNIQUE (provider, nonce)
);
CREATE INDEX webhook_inbox_faults ON webhook_inbox (id) WHERE fault IS NOT NULL;

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
    own_campaign  bigint,
    own_delivery  bigint,
    reference     text,
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
