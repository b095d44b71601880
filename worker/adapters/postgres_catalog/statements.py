"""The SQL statements. Only active workflows in their latest version are offered."""

from __future__ import annotations

PUSHED = "SELECT xmin::text FROM workflow_catalog_offered LIMIT 1"
"""The transaction of the last push that changed something."""
DECLARED = """
    SELECT json_build_object(
        'workflow_id', workflow_id, 'action_type', w.action_type, 'labels', w.labels,
        'detected_labels', w.detected_labels, 'custom_labels', w.custom_labels
    )::text AS document
    FROM workflow_catalog_offered JOIN workflow_catalog w USING (workflow_id, version)
"""
"""The part of each document that selects workflows."""
ACTION_TEXTS = "SELECT action_type, description, when_to_use, when_not_to_use FROM workflow_action_type"
ONE = """
    SELECT document::text FROM workflow_catalog
    WHERE workflow_id = $1 AND is_latest_version AND status = 'active'
"""
SHOWN = """
    SELECT workflow_id, w.document::text
    FROM workflow_catalog_offered JOIN workflow_catalog w USING (workflow_id, version)
    WHERE workflow_id = ANY ($1::text[]) AND w.is_latest_version AND w.status = 'active'
"""
BY_MEANING = """
    SELECT workflow_id, 1 - (w.embedding <=> (SELECT $2::real[]::vector)) AS score
    FROM workflow_catalog_offered JOIN workflow_catalog w USING (workflow_id, version)
    WHERE workflow_id = ANY ($1::text[]) AND vector_dims(w.embedding) = $3
        AND w.embedding_model = $4 AND w.embedding_hash = w.content_hash
"""
BY_WORDS = """
    WITH asked AS MATERIALIZED (
        SELECT word, workflows, quote_literal(word)::tsquery AS found FROM workflow_catalog_word
        WHERE word = ANY (tsvector_to_array(to_tsvector('english', $2)))
    )
    SELECT workflow_id, array_agg(asked.workflows ORDER BY asked.word COLLATE "C") AS counts
    FROM workflow_catalog_offered JOIN workflow_catalog w USING (workflow_id, version)
    JOIN asked ON w.words @@ asked.found
    WHERE workflow_id = ANY ($1::text[])
    GROUP BY workflow_id
"""
"""For each workflow with words of a query: how many workflows have each of these words."""

CURRENT = """
    SELECT workflow_id, version, content_hash FROM workflow_catalog WHERE is_latest_version AND status = 'active'
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
SAVE_OFFERED = """
    INSERT INTO workflow_catalog_offered (workflow_id, version)
    SELECT workflow_id, version FROM workflow_catalog WHERE workflow_id = ANY ($1::text[]) AND is_latest_version
"""
SAVE_WORDS = """
    INSERT INTO workflow_catalog_word (word, workflows) SELECT word, ndoc FROM ts_stat(
        'SELECT words FROM workflow_catalog_offered JOIN workflow_catalog USING (workflow_id, version)'
    )
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
