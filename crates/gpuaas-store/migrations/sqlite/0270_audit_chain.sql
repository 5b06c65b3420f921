-- What an entry of the audit says of the request that it comes from, and the chain of entries.
ALTER TABLE audit_entry ADD COLUMN role TEXT;
ALTER TABLE audit_entry ADD COLUMN address TEXT;
ALTER TABLE audit_entry ADD COLUMN request_id TEXT;
ALTER TABLE audit_entry ADD COLUMN result TEXT NOT NULL DEFAULT 'done';
ALTER TABLE audit_entry ADD COLUMN before_digest TEXT;
ALTER TABLE audit_entry ADD COLUMN after_digest TEXT;
CREATE INDEX audit_entry_expiry ON audit_entry (id) WHERE action = 'audit.expire';
-- A row per entry, in an order of its own: each digest is over the one before and the record's.
-- What was deleted because it was old leaves its row, with the number of its group.
CREATE TABLE audit_chain (
  seq INTEGER PRIMARY KEY,
  entry_id BIGINT NOT NULL UNIQUE,
  row_digest BLOB NOT NULL,
  digest BLOB NOT NULL,
  expired BIGINT
);
CREATE INDEX audit_chain_expired ON audit_chain (expired, seq) WHERE expired IS NOT NULL;
-- Both ends of the chain: one row.
CREATE TABLE audit_head (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  seq BIGINT NOT NULL,
  digest BLOB NOT NULL,
  settled_id BIGINT NOT NULL,
  last_id BIGINT NOT NULL,
  mark_id BIGINT NOT NULL,
  mark_xact BIGINT,
  anchor_seq BIGINT NOT NULL,
  anchor_digest BLOB NOT NULL
);
INSERT INTO audit_head VALUES (1, 0, zeroblob(32), 0, 0, 0, NULL, 0, zeroblob(32));
