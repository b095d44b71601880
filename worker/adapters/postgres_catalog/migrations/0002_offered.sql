-- The workflows that the last push offers, all written by one transaction. Workers keep what these declare in memory, and
-- read it again when the transaction is another one.
DROP TABLE workflow_catalog_bits;
ALTER TABLE workflow_catalog_place RENAME TO workflow_catalog_offered;
ALTER TABLE workflow_catalog_offered DROP COLUMN place, ADD PRIMARY KEY (workflow_id);

-- The words of their texts, and how many of them have each word.
CREATE TABLE workflow_catalog_word (
    word text PRIMARY KEY,
    workflows integer NOT NULL
);
INSERT INTO workflow_catalog_word (word, workflows)
SELECT word, ndoc FROM ts_stat('SELECT words FROM workflow_catalog_offered JOIN workflow_catalog USING (workflow_id, version)');
