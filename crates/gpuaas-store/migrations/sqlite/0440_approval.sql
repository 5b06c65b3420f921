-- Requests that wait for another person. The request itself is sealed: it may hold passwords.
CREATE TABLE approval (
  id BLOB PRIMARY KEY,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  site_id BLOB NOT NULL REFERENCES site (id),
  node_id BLOB REFERENCES node (id),
  summary TEXT NOT NULL,
  requested_by TEXT NOT NULL,
  -- Who asked, as JSON: whom the caller is told from others by, roles, the person, the token.
  requester TEXT NOT NULL,
  person TEXT NOT NULL,
  reason TEXT NOT NULL,
  digest TEXT NOT NULL,
  target_digest TEXT NOT NULL,
  sealed BLOB NOT NULL,
  requested_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  decided_by TEXT,
  decided_at BIGINT,
  decision_reason TEXT,
  answer TEXT
);
CREATE INDEX approval_pending ON approval (site_id, requested_at) WHERE state = 'pending';
CREATE INDEX approval_node ON approval (node_id) WHERE state = 'pending';
-- Erasing runs that a person began at a site, while they count.
CREATE TABLE erasing_note (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  site_id BLOB NOT NULL REFERENCES site (id),
  person TEXT NOT NULL,
  at BIGINT NOT NULL,
  nodes BIGINT NOT NULL
);
CREATE INDEX erasing_note_person ON erasing_note (site_id, person, at);
-- The person behind a token; none: whoever had it made.
ALTER TABLE access_token ADD COLUMN person TEXT;
