-- Workflows as ADR-041 and DD-LLM-001 name their fields, and `document`, which holds everything.
-- A new version of a workflow is a new row. Earlier rows stay, for those who look up what was executed once.
CREATE TABLE workflow_catalog (
    workflow_id text NOT NULL,
    version text NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    action_type text NOT NULL,
    labels jsonb NOT NULL,
    detected_labels jsonb NOT NULL,
    custom_labels jsonb NOT NULL,
    parameters jsonb NOT NULL,
    container_image text NOT NULL,
    success_rate double precision,
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
    is_latest_version boolean NOT NULL DEFAULT true,
    document json NOT NULL,
    content_hash text NOT NULL,
    words tsvector NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workflow_id, version)
);
CREATE UNIQUE INDEX workflow_catalog_latest ON workflow_catalog (workflow_id) WHERE is_latest_version;

CREATE TABLE workflow_action_type (
    action_type text PRIMARY KEY,
    description text NOT NULL,
    when_to_use text NOT NULL,
    when_not_to_use text NOT NULL
);

-- The workflows that are offered, numbered in the order of their ids.
CREATE TABLE workflow_catalog_place (
    place integer PRIMARY KEY,
    workflow_id text NOT NULL UNIQUE,
    version text NOT NULL,
    FOREIGN KEY (workflow_id, version) REFERENCES workflow_catalog ON DELETE CASCADE
);

-- An inverted index: for each value of each label the workflows that declare it, and for each word those that contain it.
-- Bit n, the lowest first, is that of place n. Labels are lists, may be `*` or absent, and the workflows that they exclude
-- are counted: rows of one label each would have to be joined over the whole catalog for that. Here a look-up reads the
-- rows of the values of an incident by the primary key.
CREATE TABLE workflow_catalog_bits (
    kind text NOT NULL,
    label text NOT NULL,
    value text NOT NULL,
    ordinal integer NOT NULL,
    members bytea NOT NULL,
    PRIMARY KEY (kind, label, value)
);
ALTER TABLE workflow_catalog_bits ALTER COLUMN members SET STORAGE MAIN;
