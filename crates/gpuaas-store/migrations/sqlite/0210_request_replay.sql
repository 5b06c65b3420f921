-- Changes that were asked with an idempotency key, and what was answered. The key is its caller's.
CREATE TABLE request_replay (
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  -- Digest of the request and, once it is there, the answer; sealed, for both may hold secrets.
  sealed BLOB NOT NULL,
  PRIMARY KEY (caller, key)
);
CREATE INDEX request_replay_started ON request_replay (started_at);
