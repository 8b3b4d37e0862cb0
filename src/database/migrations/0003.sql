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
