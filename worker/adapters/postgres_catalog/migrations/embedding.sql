-- Optional, and looked at with every push: where pgvector is not there or not allowed, there are no such columns and
-- searches rank by text. Models differ in the length of their vectors, so the column has none. A vector stands for the
-- document whose hash is beside it.
DO $$
BEGIN
    IF EXISTS (SELECT FROM information_schema.columns
               WHERE table_schema = current_schema AND table_name = 'workflow_catalog' AND column_name = 'embedding') THEN
        RETURN;
    END IF;
    CREATE EXTENSION IF NOT EXISTS vector;
    ALTER TABLE workflow_catalog
        ADD COLUMN embedding vector, ADD COLUMN embedding_model text, ADD COLUMN embedding_hash text;
EXCEPTION
    WHEN undefined_file OR feature_not_supported OR insufficient_privilege OR undefined_object THEN NULL;
END
$$;
