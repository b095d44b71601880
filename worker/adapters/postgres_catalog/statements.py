"""The SQL statements. Only active workflows in their latest version are offered.

Rows of bits are looked up one by one (LATERAL with a LIMIT): by the primary key, whatever the statistics of
the table say.
"""

from __future__ import annotations

FOUND = """
    SELECT b.kind, b.label, b.value, b.members
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) {more_keys}) AS k (kind, label, value)
    CROSS JOIN LATERAL (
        SELECT * FROM workflow_catalog_bits i
        WHERE (i.kind, i.label, i.value) = (k.kind, k.label, k.value) LIMIT 1
    ) AS b
    {more_rows}
"""
WORDS_ASKED = """
    UNION ALL
    SELECT 'word', '', word FROM unnest(tsvector_to_array(to_tsvector('english', $4))) AS w (word)
"""
ONE_ACTION = """
    UNION ALL
    SELECT kind, label, value, members FROM workflow_catalog_bits WHERE kind = 'action' AND label = $4
"""
ALL_ACTIONS = """
    UNION ALL
    (SELECT kind, label, value, members FROM workflow_catalog_bits WHERE kind IN ('action', 'signal') ORDER BY ordinal)
"""
BITS_AND_WORDS = FOUND.format(more_keys=WORDS_ASKED, more_rows="")
BITS_AND_ACTION = FOUND.format(more_keys="", more_rows=ONE_ACTION)
BITS_AND_ACTIONS = FOUND.format(more_keys="", more_rows=ALL_ACTIONS)
ACTION_TEXTS = "SELECT action_type, description, when_to_use, when_not_to_use FROM workflow_action_type"
PLACE = "SELECT place FROM workflow_catalog_place WHERE workflow_id = $1"
ONE = """
    SELECT document::text FROM workflow_catalog
    WHERE workflow_id = $1 AND is_latest_version AND status = 'active'
"""
SHOWN = """
    SELECT p.place, w.document::text
    FROM workflow_catalog_place p JOIN workflow_catalog w USING (workflow_id, version)
    WHERE p.place = ANY ($1::integer[]) AND w.is_latest_version AND w.status = 'active'
"""
BY_MEANING = """
    SELECT p.place, 1 - (w.embedding <=> (SELECT $2::real[]::vector)) AS score
    FROM workflow_catalog_place p JOIN workflow_catalog w USING (workflow_id, version)
    WHERE p.place = ANY ($1::integer[]) AND vector_dims(w.embedding) = $3
        AND w.embedding_model = $4 AND w.embedding_hash = w.content_hash
"""

CURRENT = """
    SELECT workflow_id, version, content_hash FROM workflow_catalog WHERE is_latest_version AND status = 'active'
"""
DOCUMENTS = """
    SELECT document::text FROM workflow_catalog
    WHERE workflow_id = ANY ($1::text[]) AND is_latest_version AND status = 'active'
"""
SAVE = """
    INSERT INTO workflow_catalog (
        workflow_id, version, name, description, action_type, labels, detected_labels, custom_labels, parameters,
        container_image, success_rate, document, content_hash, words
    )
    VALUES (
        $1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb, $8::text::jsonb, $9::text::jsonb,
        $10, $11, $12::text::json, $13, to_tsvector('english', $14)
    )
    ON CONFLICT (workflow_id, version) DO UPDATE SET
        name = excluded.name, description = excluded.description, action_type = excluded.action_type,
        labels = excluded.labels, detected_labels = excluded.detected_labels, custom_labels = excluded.custom_labels,
        parameters = excluded.parameters, container_image = excluded.container_image,
        success_rate = excluded.success_rate, document = excluded.document, content_hash = excluded.content_hash,
        words = excluded.words, status = 'active', is_latest_version = true, updated_at = now()
"""
SUPERSEDE = """
    UPDATE workflow_catalog SET is_latest_version = false, updated_at = now()
    WHERE workflow_id = ANY ($1::text[]) AND is_latest_version
"""
DISABLE = """
    UPDATE workflow_catalog SET status = 'disabled', updated_at = now()
    WHERE workflow_id = ANY ($1::text[]) AND is_latest_version
"""
SAVE_ACTION = """
    INSERT INTO workflow_action_type (action_type, description, when_to_use, when_not_to_use)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (action_type) DO UPDATE SET
        description = excluded.description, when_to_use = excluded.when_to_use, when_not_to_use = excluded.when_not_to_use
"""
FORGET_ACTIONS = "DELETE FROM workflow_action_type WHERE action_type <> ALL ($1::text[])"
SAVE_PLACES = """
    INSERT INTO workflow_catalog_place (place, workflow_id, version)
    SELECT o.place - 1, w.workflow_id, w.version
    FROM unnest($1::text[]) WITH ORDINALITY AS o (workflow_id, place) JOIN workflow_catalog w USING (workflow_id)
    WHERE w.is_latest_version
"""
WORDS = """
    SELECT p.place, tsvector_to_array(w.words) AS words
    FROM workflow_catalog_place p JOIN workflow_catalog w USING (workflow_id, version)
"""
WITHOUT_VECTOR = """
    SELECT workflow_id, version, content_hash, document::text FROM workflow_catalog
    WHERE is_latest_version AND status = 'active'
        AND (embedding_model, embedding_hash) IS DISTINCT FROM ($1, content_hash)
    ORDER BY workflow_id
"""
SAVE_VECTOR = """
    UPDATE workflow_catalog SET embedding = $4::real[]::vector, embedding_model = $5, embedding_hash = $3
    WHERE workflow_id = $1 AND version = $2
"""
